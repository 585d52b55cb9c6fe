// Compares our constants with the vendor's header; compiled only where that is found.
#include <cuda.h>
#include <type_traits>

#include "backends/cuda/cuda_api.h"

namespace stagecoach {

namespace {

constexpr bool same(int ours, CUresult theirs) {
  return ours == static_cast<int>(theirs);
}
constexpr bool same(int ours, CUdevice_attribute theirs) {
  return ours == static_cast<int>(theirs);
}

static_assert(std::is_same_v<CUdeviceptr, unsigned long long>);
static_assert(std::is_same_v<CUdevice, int>);
static_assert(sizeof(CUresult) == sizeof(int));

static_assert(same(GpuErrorCode::kSuccess, CUDA_SUCCESS));
static_assert(same(GpuErrorCode::kInvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(same(GpuErrorCode::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(GpuErrorCode::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(same(GpuErrorCode::kDeinitialized, CUDA_ERROR_DEINITIALIZED));
static_assert(same(GpuErrorCode::kNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(same(GpuErrorCode::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(GpuErrorCode::kInvalidImage, CUDA_ERROR_INVALID_IMAGE));
static_assert(same(GpuErrorCode::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(GpuErrorCode::kNoBinary, CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(same(GpuErrorCode::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE));
static_assert(same(GpuErrorCode::kPeerUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED));
static_assert(same(GpuErrorCode::kInvalidCode, CUDA_ERROR_INVALID_PTX));
static_assert(same(GpuErrorCode::kFileNotFound, CUDA_ERROR_FILE_NOT_FOUND));
static_assert(same(GpuErrorCode::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE));
static_assert(same(GpuErrorCode::kNotFound, CUDA_ERROR_NOT_FOUND));
static_assert(same(GpuErrorCode::kNotReady, CUDA_ERROR_NOT_READY));
static_assert(same(GpuErrorCode::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(same(GpuErrorCode::kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
static_assert(same(GpuErrorCode::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT));
static_assert(same(GpuErrorCode::kPeerAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
static_assert(same(GpuErrorCode::kPeerNotEnabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
static_assert(same(GpuErrorCode::kContextDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED));
static_assert(same(GpuErrorCode::kAssert, CUDA_ERROR_ASSERT));
static_assert(same(GpuErrorCode::kAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(GpuErrorCode::kNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(same(GpuErrorCode::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED));
static_assert(same(GpuErrorCode::kCooperativeTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE));
static_assert(same(GpuErrorCode::kNotSupported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(GpuErrorCode::kUnknown, CUDA_ERROR_UNKNOWN));

static_assert(same(CudaConstants::kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(CudaConstants::kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(CudaConstants::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(CudaConstants::kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE));
static_assert(same(CudaConstants::kSharedBytesOptin,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(same(CudaConstants::kCopyEngines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT));
static_assert(same(CudaConstants::kKernelTimeout, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT));
static_assert(CudaConstants::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(CudaConstants::kEventDefault == CU_EVENT_DEFAULT);
static_assert(CudaConstants::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(CudaConstants::kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(CudaConstants::kHostPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(CudaConstants::kFunctionMaxSharedBytes ==
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

}  // namespace

}  // namespace stagecoach
