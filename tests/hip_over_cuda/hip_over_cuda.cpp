// A library with the HIP functions that the HIP backend calls, over NVIDIA's driver: the unmodified
// backend opens it instead of libamdhip64 (STAGECOACH_HIP_LIBRARY) and drives an NVIDIA card. For
// tests only; docs/hip_backend.md says what that proves.
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/cuda_kernels.h"
#include "backends/hip/hip_api.h"

// Exactly the backend's declarations: a definition below that differs does not compile.
#define STAGECOACH_DECLARE_HIP(name, parameters) \
  extern "C" [[gnu::visibility("default")]] int name parameters;
STAGECOACH_HIP_FUNCTIONS(STAGECOACH_DECLARE_HIP)
extern "C" [[gnu::visibility("default")]] const char* hipGetErrorName(int error);
extern "C" [[gnu::visibility("default")]] const char* hipGetErrorString(int error);

namespace stagecoach {
namespace {

struct Translation {
  int from;
  int to;
};

// Errors of CUDA's driver that HIP does not have, and what a HIP program understands.
constexpr Translation kErrors[] = {
    {34, 35},    // stub library -> insufficient driver
    {36, 35},    // newer driver needed -> insufficient driver
    {46, 100},   // device unavailable -> no device
    {220, 719},  // NVLink uncorrectable -> launch failure
    {221, 303},  // no JIT compiler -> shared object did not start
    {222, 209},  // unsupported PTX version -> no binary for this card
    {223, 209},  // JIT compilation disabled -> no binary for this card
    {714, 719},  // hardware stack error -> launch failure
    {715, 719},  // illegal instruction -> launch failure
    {716, 700},  // misaligned address -> illegal address
    {717, 700},  // invalid address space -> illegal address
    {718, 719},  // invalid program counter -> launch failure
    {800, 100},  // not permitted -> no device
    {802, 100},  // system not ready -> no device
    {803, 35},   // driver mismatch -> insufficient driver
    {804, 35},   // compatibility not supported -> insufficient driver
};

constexpr Translation kAttributes[] = {
    {HipConstants::kComputeMajor, CudaConstants::kComputeMajor},
    {HipConstants::kComputeMinor, CudaConstants::kComputeMinor},
    {HipConstants::kMultiprocessors, CudaConstants::kMultiprocessors},
    {HipConstants::kWarpSize, CudaConstants::kWarpSize},
    {HipConstants::kSharedBytes, CudaConstants::kSharedBytesOptin},
    {HipConstants::kKernelTimeout, CudaConstants::kKernelTimeout},
};

int hip_error(int cuda_error) {
  for (const Translation& one : kErrors) {
    if (one.from == cuda_error) return one.to;
  }
  return cuda_error;
}

/// The driver, and the primary context of each card once it has been current.
class Driver {
 public:
  static Driver& instance() {
    static Driver* driver = new Driver;  // contexts end with the process
    return *driver;
  }
  bool is_loaded() const { return loaded_; }
  const CudaFunctions& functions() const { return functions_; }

  /// Makes the calling thread's HIP device current for CUDA, whoever changed that meanwhile.
  int activate() {
    if (!loaded_) return GpuErrorCode::kNoDevice;
    void* context = nullptr;
    int error = context_of(current_device, &context);
    return error == 0 ? functions_.cuCtxSetCurrent(context) : error;
  }
  int context_of(int device, void** context) {
    std::lock_guard lock(mutex_);
    auto index = static_cast<size_t>(device);
    if (contexts_.size() <= index) contexts_.resize(index + 1);
    if (contexts_[index] == nullptr) {
      int card = 0;
      int error = functions_.cuDeviceGet(&card, device);
      if (error == 0) error = functions_.cuDevicePrimaryCtxRetain(&contexts_[index], card);
      if (error != 0) return error;
    }
    *context = contexts_[index];
    return 0;
  }

  static thread_local int current_device;

 private:
  Driver() {
    Result<CudaFunctions> found = load_cuda_functions(cuda_library_names(""));
    loaded_ = found.is_ok();
    if (loaded_) functions_ = found.value();
  }

  bool loaded_ = false;
  CudaFunctions functions_;
  std::mutex mutex_;
  std::vector<void*> contexts_;
};

thread_local int Driver::current_device = 0;

/// `call(functions)` without a context, translated.
template <typename Call>
int ask(Call&& call) {
  Driver& driver = Driver::instance();
  return driver.is_loaded() ? hip_error(call(driver.functions())) : GpuErrorCode::kNoDevice;
}

/// The same with the thread's device current.
template <typename Call>
int drive(Call&& call) {
  Driver& driver = Driver::instance();
  int error = driver.activate();
  return hip_error(error == 0 ? call(driver.functions()) : error);
}

unsigned long long address(const void* pointer) {
  return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
}

/// Whether CUDA's driver can load `image`: a fatbin, an ELF file or PTX.
bool is_cuda_image(const void* image) {
  constexpr std::string_view kMagics[] = {"\x50\xed\x55\xba",
                                          "\x7f"
                                          "ELF",
                                          "//", ".version"};
  for (std::string_view magic : kMagics) {
    if (std::memcmp(image, magic.data(), magic.size()) == 0) return true;
  }
  return false;
}

}  // namespace
}  // namespace stagecoach

using stagecoach::address;
using stagecoach::ask;
using stagecoach::CudaConstants;
using stagecoach::CudaFunctions;
using stagecoach::drive;
using stagecoach::Driver;
using stagecoach::GpuErrorCode;

int hipInit(unsigned) {
  return ask([](const CudaFunctions& f) { return f.cuInit(0); });
}
int hipDriverGetVersion(int* version) {
  return ask([&](const CudaFunctions& f) { return f.cuDriverGetVersion(version); });
}
int hipGetDeviceCount(int* count) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceGetCount(count); });
}
int hipDeviceGetName(char* name, int size, int device) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceGetName(name, size, device); });
}
int hipDeviceTotalMem(size_t* bytes, int device) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceTotalMem_v2(bytes, device); });
}
int hipMemGetInfo(size_t* free, size_t* total) {
  return drive([&](const CudaFunctions& f) { return f.cuMemGetInfo_v2(free, total); });
}
int hipDeviceGetAttribute(int* value, int attribute, int device) {
  for (const auto& one : stagecoach::kAttributes) {
    if (one.from != attribute) continue;
    return ask(
        [&](const CudaFunctions& f) { return f.cuDeviceGetAttribute(value, one.to, device); });
  }
  return GpuErrorCode::kInvalidValue;
}
int hipDeviceGetPCIBusId(char* text, int size, int device) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceGetPCIBusId(text, size, device); });
}
int hipDeviceGetUuid(unsigned char* uuid, int device) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceGetUuid_v2(uuid, device); });
}
int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return ask([&](const CudaFunctions& f) { return f.cuDeviceCanAccessPeer(can, device, peer); });
}

int hipGetDevice(int* device) {
  *device = Driver::current_device;
  return GpuErrorCode::kSuccess;
}
int hipSetDevice(int device) {
  int count = 0;
  if (int error = hipGetDeviceCount(&count); error != 0) return error;
  if (device < 0 || device >= count) return GpuErrorCode::kInvalidDevice;
  Driver::current_device = device;
  return GpuErrorCode::kSuccess;
}
int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return drive([&](const CudaFunctions& f) {
    void* context = nullptr;
    int error = Driver::instance().context_of(peer, &context);
    return error == 0 ? f.cuCtxEnablePeerAccess(context, flags) : error;
  });
}

int hipMalloc(void** pointer, size_t size) {
  return drive([&](const CudaFunctions& f) {
    unsigned long long allocated = 0;
    int error = f.cuMemAlloc_v2(&allocated, size);
    *pointer = reinterpret_cast<void*>(static_cast<uintptr_t>(allocated));
    return error;
  });
}
int hipFree(void* pointer) {
  return drive([&](const CudaFunctions& f) { return f.cuMemFree_v2(address(pointer)); });
}
int hipHostMalloc(void** pointer, size_t size, unsigned) {
  // Flags mean the same by other numbers; the backend asks for portable memory only.
  return drive([&](const CudaFunctions& f) {
    return f.cuMemHostAlloc(pointer, size, CudaConstants::kHostPortable);
  });
}
int hipHostFree(void* pointer) {
  return drive([&](const CudaFunctions& f) { return f.cuMemFreeHost(pointer); });
}
int hipHostRegister(void* pointer, size_t size, unsigned) {
  return drive([&](const CudaFunctions& f) {
    return f.cuMemHostRegister_v2(pointer, size, CudaConstants::kHostPortable);
  });
}
int hipHostUnregister(void* pointer) {
  return drive([&](const CudaFunctions& f) { return f.cuMemHostUnregister(pointer); });
}

int hipMemcpyAsync(void* target, const void* source, size_t size, int, void* stream) {
  return drive([&](const CudaFunctions& f) {
    return f.cuMemcpyAsync(address(target), address(source), size, stream);
  });
}
int hipMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device,
                       size_t size, void* stream) {
  return drive([&](const CudaFunctions& f) {
    void* to = nullptr;
    void* from = nullptr;
    int error = Driver::instance().context_of(target_device, &to);
    if (error == 0) error = Driver::instance().context_of(source_device, &from);
    if (error != 0) return error;
    return f.cuMemcpyPeerAsync(address(target), to, address(source), from, size, stream);
  });
}
int hipMemsetD8Async(void* target, unsigned char value, size_t count, void* stream) {
  return drive([&](const CudaFunctions& f) {
    return f.cuMemsetD8Async(address(target), value, count, stream);
  });
}
int hipMemsetD16Async(void* target, unsigned short value, size_t count, void* stream) {
  return drive([&](const CudaFunctions& f) {
    return f.cuMemsetD16Async(address(target), value, count, stream);
  });
}
int hipMemsetD32Async(void* target, int value, size_t count, void* stream) {
  return drive([&](const CudaFunctions& f) {
    return f.cuMemsetD32Async(address(target), static_cast<unsigned>(value), count, stream);
  });
}

int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  return drive([&](const CudaFunctions& f) {
    return f.cuStreamCreate(stream, flags & CudaConstants::kStreamNonBlocking);
  });
}
int hipStreamDestroy(void* stream) {
  return drive([&](const CudaFunctions& f) { return f.cuStreamDestroy_v2(stream); });
}
int hipStreamQuery(void* stream) {
  return drive([&](const CudaFunctions& f) { return f.cuStreamQuery(stream); });
}
int hipStreamWaitEvent(void* stream, void* event, unsigned) {
  return drive([&](const CudaFunctions& f) { return f.cuStreamWaitEvent(stream, event, 0); });
}
int hipEventCreateWithFlags(void** event, unsigned flags) {
  // HIP has flags of its own above these; CUDA would refuse them.
  return drive([&](const CudaFunctions& f) {
    return f.cuEventCreate(event, flags & CudaConstants::kEventDisableTiming);
  });
}
int hipEventDestroy(void* event) {
  return drive([&](const CudaFunctions& f) { return f.cuEventDestroy_v2(event); });
}
int hipEventRecord(void* event, void* stream) {
  return drive([&](const CudaFunctions& f) { return f.cuEventRecord(event, stream); });
}
int hipEventQuery(void* event) {
  return drive([&](const CudaFunctions& f) { return f.cuEventQuery(event); });
}
int hipEventSynchronize(void* event) {
  return drive([&](const CudaFunctions& f) { return f.cuEventSynchronize(event); });
}
int hipEventElapsedTime(float* milliseconds, void* start, void* end) {
  return drive(
      [&](const CudaFunctions& f) { return f.cuEventElapsedTime(milliseconds, start, end); });
}

int hipModuleLoadData(void** module, const void* image) {
  // The HIP backend hands over AMD code; the same kernels built for NVIDIA stand in for it.
  if (!stagecoach::is_cuda_image(image)) {
    static const auto& table = *new auto(stagecoach::make_cuda_kernel_table());
    if (table->code().image.empty()) return GpuErrorCode::kNoBinary;
    image = table->code().image.data();
  }
  return drive([&](const CudaFunctions& f) { return f.cuModuleLoadData(module, image); });
}
int hipModuleUnload(void* module) {
  return drive([&](const CudaFunctions& f) { return f.cuModuleUnload(module); });
}
int hipModuleGetFunction(void** function, void* module, const char* name) {
  return drive(
      [&](const CudaFunctions& f) { return f.cuModuleGetFunction(function, module, name); });
}
int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void* stream, void** arguments, void** extra) {
  return drive([&](const CudaFunctions& f) {
    constexpr unsigned kAlwaysAllowedBytes = 48u * 1024u;
    // HIP kernels take what they need; CUDA wants to be told beforehand.
    if (shared_bytes > kAlwaysAllowedBytes) {
      int error = f.cuFuncSetAttribute(function, CudaConstants::kFunctionMaxSharedBytes,
                                       static_cast<int>(shared_bytes));
      if (error != 0) return error;
    }
    return f.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                            shared_bytes, stream, arguments, extra);
  });
}

const char* hipGetErrorName(int error) {
  const char* name = nullptr;
  ask([&](const CudaFunctions& f) { return f.cuGetErrorName(error, &name); });
  return name;
}
const char* hipGetErrorString(int error) {
  const char* text = nullptr;
  ask([&](const CudaFunctions& f) { return f.cuGetErrorString(error, &text); });
  return text;
}
