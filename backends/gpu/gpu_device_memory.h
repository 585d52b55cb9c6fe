#pragma once

// Bodies of GpuDevice that hand out memory, included by gpu_device_verbs.h alone.

#include "backends/gpu/gpu_device.h"

namespace stagecoach {

template <typename Api>
Allocation GpuDevice<Api>::do_allocate(ByteCount size, Label label) {
  GpuAddress address = 0;
  int error = core_.allocate(address, size);
  if (error == Api::kOutOfMemory) return Allocation{AllocationOutcome::kExhausted, nullptr, {}};
  if (error != Api::kSuccess) {
    return Allocation{AllocationOutcome::kFailed, nullptr, report(error, "allocate")};
  }
  return Allocation{
      AllocationOutcome::kOk,
      make_buffer(GpuBuffer<Api>::Release::kDevice, static_cast<uintptr_t>(address), size, label),
      {}};
}

template <typename Api>
Allocation GpuDevice<Api>::do_allocate_pinned(ByteCount size, Label label) {
  GpuScope<Api> scope(core_.api(), core_.context());
  void* data = nullptr;
  int error =
      scope.run([&] { return core_.api().allocate_host(&data, static_cast<size_t>(size)); });
  if (error == Api::kOutOfMemory) return Allocation{AllocationOutcome::kExhausted, nullptr, {}};
  if (error != Api::kSuccess) {
    return Allocation{AllocationOutcome::kFailed, nullptr, report(error, "allocate pinned")};
  }
  return Allocation{
      AllocationOutcome::kOk,
      make_buffer(GpuBuffer<Api>::Release::kPinned, reinterpret_cast<uintptr_t>(data), size, label),
      {}};
}

template <typename Api>
Result<BufferHandle> GpuDevice<Api>::do_register_host(void* data, ByteCount size, Label label) {
  GpuScope<Api> scope(core_.api(), core_.context());
  auto* bytes = static_cast<std::byte*>(data);
  int error = scope.run([&] { return core_.hold->runtime().register_host(bytes, size); });
  if (error != Api::kSuccess) return report(error, "register host");
  return make_buffer(GpuBuffer<Api>::Release::kRegistered, reinterpret_cast<uintptr_t>(data), size,
                     label);
}

}  // namespace stagecoach
