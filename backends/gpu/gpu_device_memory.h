#pragma once

// Bodies of GpuDevice that hand out memory, included by gpu_device_verbs.h alone.

#include "backends/gpu/gpu_device.h"
#include "backends/gpu/gpu_sysfs.h"

namespace stagecoach {

template <typename Api>
Status GpuDevice<Api>::take_free_memory(const GpuContextHold<Api>& hold,
                                        const GpuDeviceRequest& request, DeviceInfo& info) {
  if (request.memory_bytes > 0) return Status::ok();
  const Api& api = hold.api();
  int timeout = 0;
  size_t free = 0, total = 0;
  GpuScope<Api> scope(api, hold.context());
  int error = api.device_attribute(&timeout, GpuAttribute::kHasKernelTimeout, hold.card());
  if (error == Api::kSuccess) error = scope.run([&] { return api.memory_info(&free, &total); });
  if (error != Api::kSuccess) return gpu_status(api, error, "memory info");
  bool drives_display = timeout != 0 || pci_drives_display(info.pci_address);
  ByteCount usable = usable_memory_bytes(static_cast<ByteCount>(free),
                                         static_cast<ByteCount>(total), drives_display);
  info.memory_bytes = usable / request.part_count;
  if (info.memory_bytes > 0) return Status::ok();
  return unavailable(fmt::format(
      "{} of {} are free on {}{}, which leaves nothing for training; end what else uses the card "
      "or give a cap such as {}:{}[memory=1G]",
      format_bytes(static_cast<ByteCount>(free)), format_bytes(static_cast<ByteCount>(total)),
      info.name, drives_display ? ", which drives a display" : "", info.backend, request.ordinal));
}

template <typename Api>
Allocation GpuDevice<Api>::do_allocate(ByteCount size, Label label) {
  GpuAddress address = 0;
  int error = core_.allocate(address, size, GpuBuffer<Api>::Release::kDevice);
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
