#include "testing/fake_gpu_api.h"

#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "backends/gpu/gpu_error_remedy.h"

namespace stagecoach {

using namespace fake_gpu;
using Function = FakeGpuFunction;

extern thread_local GpuContextHandle fake_gpu_current_context;

#define STAGECOACH_FAKE_ENTER(name)          \
  FakeGpuDriver::Lock lock(driver_->mutex_); \
  if (int error = driver_->enter(Function::name); error != 0) return error
#define STAGECOACH_FAKE_ENTER_CURRENT(name)  \
  FakeGpuDriver::Lock lock(driver_->mutex_); \
  Card* card = driver_->current_card();      \
  if (int error = driver_->enter_on(Function::name, card); error != 0) return error

StatusCode FakeApi::map_error(int error) {
  switch (error) {
    case FakeGpuError::kOutOfMemory:
      return StatusCode::kResourceExhausted;
    case FakeGpuError::kInvalidValue:
    case FakeGpuError::kInvalidImage:
      return StatusCode::kInvalidArgument;
    case FakeGpuError::kNoDevice:
    case FakeGpuError::kInvalidDevice:
    case FakeGpuError::kNoBinary:
    case FakeGpuError::kDeviceUnavailable:
    case FakeGpuError::kNotPermitted:
    case FakeGpuError::kSystemNotReady:
      return StatusCode::kUnavailable;
    case FakeGpuError::kNotFound:
      return StatusCode::kNotFound;
    case FakeGpuError::kPeerUnsupported:
      return StatusCode::kUnimplemented;
    case FakeGpuError::kIllegalAddress:
    case FakeGpuError::kLaunchFailed:
      return StatusCode::kDeviceLost;
    default:
      return StatusCode::kInternal;
  }
}

std::string FakeApi::arch_name(int major, int minor) {
  return fmt::format("fake_{}{}", major, minor);
}

std::string FakeApi::start_advice(int error) {
  const char* remedy = gpu_error_remedy(error);
  return remedy == nullptr ? "use another device such as cpu:1" : remedy;
}

const char* FakeApi::error_name(int error) const {
  switch (error) {
    case FakeGpuError::kOutOfMemory:
      return "FAKE_OUT_OF_MEMORY";
    case FakeGpuError::kIllegalAddress:
      return "FAKE_ILLEGAL_ADDRESS";
    case FakeGpuError::kLaunchFailed:
      return "FAKE_LAUNCH_FAILED";
    case FakeGpuError::kInvalidContext:
      return "FAKE_INVALID_CONTEXT";
    default:
      return nullptr;
  }
}

const char* FakeApi::error_text(int error) const {
  return error == FakeGpuError::kOutOfMemory ? "out of memory" : nullptr;
}

int FakeApi::init() const {
  STAGECOACH_FAKE_ENTER(init);
  return 0;
}

int FakeApi::driver_version(int* version) const {
  STAGECOACH_FAKE_ENTER(driver_version);
  *version = driver_->options_.driver_version;
  return 0;
}

int FakeApi::device_count(int* count) const {
  STAGECOACH_FAKE_ENTER(device_count);
  *count = driver_->options_.card_count;
  return 0;
}

int FakeApi::device_get(int ordinal, int* device) const {
  STAGECOACH_FAKE_ENTER(device_get);
  if (ordinal < 0 || ordinal >= driver_->options_.card_count) return FakeGpuError::kInvalidDevice;
  *device = ordinal;
  return 0;
}

int FakeApi::device_name(char* text, size_t size, int device) const {
  STAGECOACH_FAKE_ENTER(device_name);
  bool is_part = driver_->options_.identities == FakeIdentities::kMigInstances;
  *fmt::format_to_n(text, size - 1, "Fake card {}{}", device, is_part ? " MIG 1g.10gb" : "").out =
      0;
  return 0;
}

int FakeApi::device_total_bytes(size_t* bytes, int) const {
  STAGECOACH_FAKE_ENTER(device_total_bytes);
  *bytes = static_cast<size_t>(driver_->options_.memory_bytes);
  return 0;
}

int FakeApi::device_attribute(int* value, GpuAttribute attribute, int) const {
  STAGECOACH_FAKE_ENTER(device_attribute);
  constexpr int kSharedBytes = 64 * 1024;
  switch (attribute) {
    case GpuAttribute::kComputeMajor:
      *value = driver_->options_.compute_major;
      return 0;
    case GpuAttribute::kComputeMinor:
      *value = driver_->options_.compute_minor;
      return 0;
    case GpuAttribute::kMultiprocessors:
      *value = 4;
      return 0;
    case GpuAttribute::kWarpSize:
      *value = 32;
      return 0;
    case GpuAttribute::kSharedBytesPerBlock:
      *value = kSharedBytes;
      return 0;
    case GpuAttribute::kCopyEngines:
      *value = 2;
      return 0;
    case GpuAttribute::kHasKernelTimeout:
      *value = driver_->options_.drives_display ? 1 : 0;
      return 0;
  }
  return FakeGpuError::kInvalidValue;
}

int FakeApi::device_pci_address(char* text, size_t size, int device) const {
  STAGECOACH_FAKE_ENTER(device_pci_address);
  text[0] = 0;
  FakeIdentities identities = driver_->options_.identities;
  if (identities == FakeIdentities::kNone) return 0;
  int bus = identities == FakeIdentities::kCards ? device : 0;
  // A domain that no machine has, so that nothing is found in its sysfs; capitals as drivers do.
  *fmt::format_to_n(text, size - 1, "FA4E:{:02X}:00.0", bus).out = 0;
  return 0;
}

int FakeApi::device_uuid(GpuUuid& uuid, int device) const {
  STAGECOACH_FAKE_ENTER(device_uuid);
  if (driver_->options_.identities == FakeIdentities::kNone) return FakeGpuError::kInvalidValue;
  uuid.fill(0xfa);
  uuid[0] = static_cast<unsigned char>(device);
  return 0;
}

int FakeApi::can_access_peer(int* can, int, int) const {
  STAGECOACH_FAKE_ENTER(can_access_peer);
  *can = driver_->options_.peer_copies == FakePeerCopies::kImpossible ? 0 : 1;
  return 0;
}

int FakeApi::retain_context(int device, GpuContextHandle* context) const {
  STAGECOACH_FAKE_ENTER(retain_context);
  Card& card = *driver_->cards_[static_cast<size_t>(device)];
  if (card.retained++ == 0) {
    card.sticky_error = 0;
    card.peers.clear();
  }
  *context = &card;
  return 0;
}

int FakeApi::release_context(int device) const {
  STAGECOACH_FAKE_ENTER(release_context);
  --driver_->cards_[static_cast<size_t>(device)]->retained;
  return 0;
}

int FakeApi::get_current(GpuContextHandle* context) const {
  STAGECOACH_FAKE_ENTER(get_current);
  *context = fake_gpu_current_context;
  return 0;
}

int FakeApi::set_current(GpuContextHandle context) const {
  STAGECOACH_FAKE_ENTER(set_current);
  Card* card = driver_->card_of(context);
  if (context != nullptr && (card == nullptr || card->retained == 0)) {
    return FakeGpuError::kInvalidContext;
  }
  fake_gpu_current_context = context;
  return 0;
}

int FakeApi::enable_peer(GpuContextHandle peer) const {
  STAGECOACH_FAKE_ENTER_CURRENT(enable_peer);
  Card* other = driver_->card_of(peer);
  if (other == nullptr) return FakeGpuError::kInvalidContext;
  if (driver_->options_.peer_copies == FakePeerCopies::kImpossible) {
    return FakeGpuError::kPeerUnsupported;
  }
  return card->peers.insert(other->ordinal).second ? 0 : FakeGpuError::kPeerAlreadyEnabled;
}

int FakeApi::memory_info(size_t* free, size_t* total) const {
  STAGECOACH_FAKE_ENTER_CURRENT(memory_info);
  const FakeGpuOptions& options = driver_->options_;
  *total = static_cast<size_t>(options.memory_bytes);
  *free = static_cast<size_t>(options.memory_bytes - options.foreign_bytes - card->used_bytes);
  return 0;
}

int FakeApi::allocate(GpuAddress* address, size_t size) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->allocate(address, size);
}

int FakeApi::free(GpuAddress address) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->free(address);
}

int FakeApi::allocate_host(void** data, size_t size) const {
  STAGECOACH_FAKE_ENTER_CURRENT(allocate_host);
  *data = std::malloc(size);
  if (*data == nullptr) return FakeGpuError::kOutOfMemory;
  driver_->host_allocations_[*data] = size;
  return 0;
}

int FakeApi::free_host(void* data) const {
  STAGECOACH_FAKE_ENTER(free_host);
  if (driver_->host_allocations_.erase(data) == 0) return FakeGpuError::kInvalidValue;
  std::free(data);
  return 0;
}

int FakeApi::register_host(void* data, size_t size) const {
  STAGECOACH_FAKE_ENTER_CURRENT(register_host);
  if (!driver_->registered_.emplace(data, size).second) return FakeGpuError::kAlreadyRegistered;
  return 0;
}

int FakeApi::unregister_host(void* data) const {
  STAGECOACH_FAKE_ENTER(unregister_host);
  return driver_->registered_.erase(data) == 0 ? FakeGpuError::kInvalidValue : 0;
}

int FakeApi::copy_async(GpuAddress target, GpuAddress source, size_t size, CopyDirection direction,
                        GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  Entry entry;
  entry.kind = Entry::Kind::kCopy;
  entry.target = target;
  entry.source = source;
  entry.size = size;
  entry.direction = direction;
  return driver_->push(Function::copy_async, stream, entry);
}

int FakeApi::copy_peer_async(GpuAddress target, GpuContextHandle target_context, GpuAddress source,
                             GpuContextHandle source_context, size_t size,
                             GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  if (driver_->card_of(target_context) == nullptr || driver_->card_of(source_context) == nullptr) {
    return FakeGpuError::kInvalidContext;
  }
  Entry entry;
  entry.kind = Entry::Kind::kCopy;
  entry.target = target;
  entry.source = source;
  entry.size = size;
  entry.direction = CopyDirection::kDeviceToDevice;
  entry.is_peer = true;
  return driver_->push(Function::copy_peer_async, stream, entry);
}

int FakeApi::fill_async(FakeGpuFunction function, GpuAddress target, uint32_t value, int value_size,
                        size_t count, GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  Entry entry;
  entry.kind = Entry::Kind::kFill;
  entry.target = target;
  entry.size = count * static_cast<size_t>(value_size);
  entry.pattern = value;
  entry.pattern_size = value_size;
  return driver_->push(function, stream, entry);
}

int FakeApi::fill8_async(GpuAddress target, uint8_t value, size_t count,
                         GpuStreamHandle stream) const {
  return fill_async(Function::fill8_async, target, value, 1, count, stream);
}

int FakeApi::fill16_async(GpuAddress target, uint16_t value, size_t count,
                          GpuStreamHandle stream) const {
  return fill_async(Function::fill16_async, target, value, 2, count, stream);
}

int FakeApi::fill32_async(GpuAddress target, uint32_t value, size_t count,
                          GpuStreamHandle stream) const {
  return fill_async(Function::fill32_async, target, value, 4, count, stream);
}

int FakeApi::create_stream(GpuStreamHandle* stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->create_stream(stream);
}

int FakeApi::destroy_stream(GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->destroy_stream(stream);
}

int FakeApi::query_stream(GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->query_stream(stream);
}

int FakeApi::stream_wait_event(GpuStreamHandle stream, GpuEventHandle event) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->wait(stream, event);
}

int FakeApi::create_event(GpuEventHandle* event, bool timing) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->create_event(event, timing);
}

int FakeApi::destroy_event(GpuEventHandle event) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->destroy_event(event);
}

int FakeApi::record_event(GpuEventHandle event, GpuStreamHandle stream) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->record(event, stream);
}

int FakeApi::query_event(GpuEventHandle event) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->query_event(event);
}

int FakeApi::synchronize_event(GpuEventHandle event) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  return driver_->synchronize_event(lock, event);
}

int FakeApi::elapsed_ms(float* milliseconds, GpuEventHandle start, GpuEventHandle end) const {
  STAGECOACH_FAKE_ENTER(elapsed_ms);
  std::shared_ptr<fake_gpu::Event> from = driver_->events_.find(start);
  std::shared_ptr<fake_gpu::Event> to = driver_->events_.find(end);
  for (const auto& event : {from, to}) {
    if (event == nullptr || !event->timing || event->latest == nullptr) {
      return FakeGpuError::kInvalidHandle;
    }
    if (!event->latest->done) return FakeGpuError::kNotReady;
  }
  auto distance_ns = static_cast<double>(to->latest->time_ns - from->latest->time_ns);
  *milliseconds = static_cast<float>(distance_ns / 1e6);
  return 0;
}

int FakeApi::load_module(GpuModuleHandle* module, const void* image) const {
  STAGECOACH_FAKE_ENTER_CURRENT(load_module);
  std::string_view text(static_cast<const char*>(image));
  if (text == kFakeForeignModule) return FakeGpuError::kNoBinary;
  if (text != kFakeModule) return FakeGpuError::kInvalidImage;
  auto loaded = std::make_shared<Module>();
  loaded->card = card;
  *module = driver_->modules_.add(std::move(loaded));
  return 0;
}

int FakeApi::unload_module(GpuModuleHandle module) const {
  STAGECOACH_FAKE_ENTER(unload_module);
  return driver_->modules_.remove(module) == nullptr ? FakeGpuError::kInvalidHandle : 0;
}

int FakeApi::get_function(GpuFunctionHandle* function, GpuModuleHandle module,
                          const char* name) const {
  STAGECOACH_FAKE_ENTER_CURRENT(get_function);
  if (driver_->modules_.find(module) == nullptr) return FakeGpuError::kInvalidHandle;
  for (const auto& kernel : driver_->kernels_) {
    if (kernel->name != name) continue;
    auto loaded = std::make_shared<LoadedFunction>();
    loaded->card = card;
    loaded->kernel = kernel.get();
    *function = driver_->functions_.add(std::move(loaded));
    return 0;
  }
  return FakeGpuError::kNotFound;
}

int FakeApi::set_function_shared_bytes(GpuFunctionHandle function, int) const {
  STAGECOACH_FAKE_ENTER_CURRENT(set_function_shared_bytes);
  return driver_->functions_.find(function) == nullptr ? FakeGpuError::kInvalidHandle : 0;
}

int FakeApi::launch(GpuFunctionHandle function, const std::array<uint32_t, 3>& grid,
                    const std::array<uint32_t, 3>& block, uint32_t, GpuStreamHandle stream,
                    void** arguments) const {
  FakeGpuDriver::Lock lock(driver_->mutex_);
  std::shared_ptr<LoadedFunction> loaded = driver_->functions_.find(function);
  if (loaded == nullptr || loaded->card != driver_->current_card()) {
    static_cast<void>(driver_->enter(Function::launch));
    return FakeGpuError::kInvalidHandle;
  }
  constexpr uint32_t kMaxThreads = 1024;
  for (uint32_t extent : grid) {
    if (extent == 0) return FakeGpuError::kInvalidValue;
  }
  if (block[0] * block[1] * block[2] > kMaxThreads) return FakeGpuError::kInvalidValue;
  Entry entry;
  entry.kind = Entry::Kind::kLaunch;
  entry.kernel = loaded->kernel;
  for (int i = 0; i < loaded->kernel->argument_count; ++i) {
    std::memcpy(&entry.arguments[static_cast<size_t>(i)], arguments[i], sizeof(uint64_t));
  }
  return driver_->push(Function::launch, stream, entry);
}

}  // namespace stagecoach
