// Compares our constants with the vendor's header; compiled only where that is found.
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <type_traits>

#include "backends/hip/hip_api.h"

namespace stagecoach {

namespace {

constexpr bool same(int ours, hipError_t theirs) {
  return ours == static_cast<int>(theirs);
}
constexpr bool same(int ours, hipDeviceAttribute_t theirs) {
  return ours == static_cast<int>(theirs);
}

static_assert(std::is_same_v<hipDeviceptr_t, void*>);
static_assert(std::is_same_v<hipDevice_t, int>);
static_assert(sizeof(hipError_t) == sizeof(int));

static_assert(same(GpuErrorCode::kSuccess, hipSuccess));
static_assert(same(GpuErrorCode::kInvalidValue, hipErrorInvalidValue));
static_assert(same(GpuErrorCode::kOutOfMemory, hipErrorOutOfMemory));
static_assert(same(GpuErrorCode::kNotInitialized, hipErrorNotInitialized));
static_assert(same(GpuErrorCode::kDeinitialized, hipErrorDeinitialized));
static_assert(same(GpuErrorCode::kNoDevice, hipErrorNoDevice));
static_assert(same(GpuErrorCode::kInvalidDevice, hipErrorInvalidDevice));
static_assert(same(GpuErrorCode::kInvalidImage, hipErrorInvalidImage));
static_assert(same(GpuErrorCode::kInvalidContext, hipErrorInvalidContext));
static_assert(same(GpuErrorCode::kNoBinary, hipErrorNoBinaryForGpu));
static_assert(same(GpuErrorCode::kEccUncorrectable, hipErrorECCNotCorrectable));
static_assert(same(GpuErrorCode::kPeerUnsupported, hipErrorPeerAccessUnsupported));
static_assert(same(GpuErrorCode::kInvalidCode, hipErrorInvalidKernelFile));
static_assert(same(GpuErrorCode::kFileNotFound, hipErrorFileNotFound));
static_assert(same(GpuErrorCode::kInvalidHandle, hipErrorInvalidHandle));
static_assert(same(GpuErrorCode::kNotFound, hipErrorNotFound));
static_assert(same(GpuErrorCode::kNotReady, hipErrorNotReady));
static_assert(same(GpuErrorCode::kIllegalAddress, hipErrorIllegalAddress));
static_assert(same(GpuErrorCode::kLaunchOutOfResources, hipErrorLaunchOutOfResources));
static_assert(same(GpuErrorCode::kLaunchTimeout, hipErrorLaunchTimeOut));
static_assert(same(GpuErrorCode::kPeerAlreadyEnabled, hipErrorPeerAccessAlreadyEnabled));
static_assert(same(GpuErrorCode::kPeerNotEnabled, hipErrorPeerAccessNotEnabled));
static_assert(same(GpuErrorCode::kContextDestroyed, hipErrorContextIsDestroyed));
static_assert(same(GpuErrorCode::kAssert, hipErrorAssert));
static_assert(same(GpuErrorCode::kAlreadyRegistered, hipErrorHostMemoryAlreadyRegistered));
static_assert(same(GpuErrorCode::kNotRegistered, hipErrorHostMemoryNotRegistered));
static_assert(same(GpuErrorCode::kLaunchFailed, hipErrorLaunchFailure));
static_assert(same(GpuErrorCode::kCooperativeTooLarge, hipErrorCooperativeLaunchTooLarge));
static_assert(same(GpuErrorCode::kNotSupported, hipErrorNotSupported));
static_assert(same(GpuErrorCode::kUnknown, hipErrorUnknown));

static_assert(same(HipConstants::kComputeMajor, hipDeviceAttributeComputeCapabilityMajor));
static_assert(same(HipConstants::kComputeMinor, hipDeviceAttributeComputeCapabilityMinor));
static_assert(same(HipConstants::kKernelTimeout, hipDeviceAttributeKernelExecTimeout));
static_assert(same(HipConstants::kMultiprocessors, hipDeviceAttributeMultiprocessorCount));
static_assert(same(HipConstants::kWarpSize, hipDeviceAttributeWarpSize));
static_assert(same(HipConstants::kSharedBytes, hipDeviceAttributeMaxSharedMemoryPerBlock));
static_assert(HipConstants::kStreamNonBlocking == hipStreamNonBlocking);
static_assert(HipConstants::kEventDefault == hipEventDefault);
static_assert(HipConstants::kEventDisableTiming == hipEventDisableTiming);
static_assert(HipConstants::kHostPortable == hipHostMallocPortable);
static_assert(HipConstants::kHostPortable == hipHostRegisterPortable);
static_assert(HipConstants::kMemcpyDefault == static_cast<int>(hipMemcpyDefault));

}  // namespace

}  // namespace stagecoach
