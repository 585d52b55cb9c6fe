#pragma once

#include "backends/gpu/gpu_device_core.h"
#include "hal/buffer.h"

namespace stagecoach {

/// Memory that a GPU device allocated or page-locked; given back to it at the end.
template <typename Api>
class GpuBuffer final : public Buffer {
 public:
  using Release = typename GpuDeviceCore<Api>::Release;

  GpuBuffer(Device& owner, GpuDeviceCore<Api>& core, Release how, uintptr_t address, ByteCount size,
            Label label)
      : Buffer(owner, kind_of(how), address, size, label), core_(core), how_(how) {}
  ~GpuBuffer() override { core_.release(how_, device_address(), size(), take_owner()); }

  GpuDeviceCore<Api>& core() const { return core_; }

 private:
  static MemoryKind kind_of(Release how) {
    if (how == Release::kDevice) return MemoryKind::kDevice;
    return how == Release::kPinned ? MemoryKind::kHostPinned : MemoryKind::kHostRegistered;
  }

  GpuDeviceCore<Api>& core_;
  const Release how_;
};

}  // namespace stagecoach
