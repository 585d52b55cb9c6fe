#pragma once

// Bodies of GpuDevice, included by gpu_device.h alone.

#include <fmt/ranges.h>

#include "backends/gpu/gpu_device.h"
#include "backends/gpu/gpu_error_remedy.h"

namespace stagecoach {

template <typename Api>
GpuDevice<Api>::GpuDevice(std::unique_ptr<GpuContextHold<Api>> context,
                          std::shared_ptr<GpuKernelTable> table, DeviceInfo info,
                          const GpuArch& arch)
    : Device(info),
      table_(std::move(table)),
      core_(info.id, std::move(context), info.memory_bytes, arch, *table_),
      ops_(*table_) {}

template <typename Api>
GpuDevice<Api>::~GpuDevice() {
  drain_retired();
  core_.hold->runtime().give_back_id(id());
}

template <typename Api>
Result<std::unique_ptr<Device>> GpuDevice<Api>::open(std::shared_ptr<GpuRuntime<Api>> runtime,
                                                     std::shared_ptr<GpuKernelTable> table,
                                                     const GpuLibraryOpener& open_library,
                                                     const GpuDeviceRequest& request,
                                                     DeviceInfo info, const GpuArch& arch) {
  const Api& api = runtime->api();
  FailureSite site;
  site.device = info.id;
  site.verb = "open";
  int card = 0;
  GpuContextHandle context = nullptr;
  int error = api.device_get(request.ordinal, &card);
  if (error == Api::kSuccess) error = api.retain_context(card, &context);
  if (error != Api::kSuccess) {
    Status failed = gpu_status(api, error, "retain context");
    const char* remedy = gpu_error_remedy(error);
    if (remedy != nullptr) failed = Status(failed.code(), failed.message() + "; " + remedy);
    return failed.with_site(site);
  }
  auto hold = std::make_unique<GpuContextHold<Api>>(runtime, card, context);
  Status measured = take_free_memory(*hold, request, info);
  if (!measured.is_ok()) return measured.with_site(site);
  info.id = runtime->take_id(info.id);
  std::unique_ptr<GpuDevice> device(
      new GpuDevice(std::move(hold), std::move(table), std::move(info), arch));
  Status ready = device->prepare();
  if (ready.is_ok()) ready = device->prepare_library(open_library, request);
  if (!ready.is_ok()) return ready.with_site(site);
  return std::unique_ptr<Device>(std::move(device));
}

template <typename Api>
Status GpuDevice<Api>::prepare() {
  STAGECOACH_RETURN_IF_ERROR(core_.clock.open());
  const GpuCode& code = core_.table.code();
  int error = core_.kernels.load(code.image.data());
  if (error == Api::kSuccess) return Status::ok();
  if (error != Api::kNoBinary) return gpu_status(core_.api(), error, "load kernels");
  return unavailable(fmt::format(
      "{} ({}) has no kernels in this build, which holds {}; configure with {} that lists it, or "
      "use another device such as cpu:1",
      info().name, Api::arch_name(core_.arch.major, core_.arch.minor),
      fmt::join(code.targets, ", "), code.build_flag));
}

template <typename Api>
Status GpuDevice<Api>::prepare_library(const GpuLibraryOpener& open_library,
                                       const GpuDeviceRequest& request) {
  if (open_library == nullptr) return Status::ok();
  if (!request.use_libraries) {
    ops_.list_providers(*table_, nullptr, " (libraries=off)");
    return Status::ok();
  }
  GpuScope<Api> scope(core_.api(), core_.context());
  if (scope.error() != Api::kSuccess) return report(scope.error(), "set context");
  GpuLibraryRequest wanted{id(), request.fp16_accumulate, request.is_deterministic};
  wanted.limit_scratch(core_.account.set_aside_bytes());
  core_.library = open_library(wanted);
  ops_.list_providers(*table_, core_.library.get(), "");
  return Status::ok();
}

template <typename Api>
Status GpuDevice<Api>::report(int error, std::string_view function) {
  Status status = gpu_status(core_.api(), error, function);
  if (status.code() == StatusCode::kDeviceLost) {
    FailureSite site;
    site.device = id();
    site.verb = std::string(function);
    core_.poison(status.with_site(site));
  }
  return status;
}

template <typename Api>
Result<std::unique_ptr<Stream>> GpuDevice<Api>::do_create_stream(const StreamOptions& options) {
  const Api& api = core_.api();
  GpuScope<Api> scope(api, core_.context());
  GpuStreamHandle handle = nullptr;
  void* words = nullptr;
  int error = scope.run([&] { return api.create_stream(&handle); });
  if (error != Api::kSuccess) return report(error, "create stream");
  error = api.allocate_host(&words, GpuStream<Api>::kErrorWordsBytes);
  if (error != Api::kSuccess) {
    static_cast<void>(api.destroy_stream(handle));
    return report(error, "allocate pinned");
  }
  return std::unique_ptr<Stream>(std::make_unique<GpuStream<Api>>(
      *this, core_, options.name, handle, static_cast<uint64_t*>(words)));
}

template <typename Api>
Result<std::unique_ptr<Event>> GpuDevice<Api>::do_create_event(const EventOptions& options) {
  return std::unique_ptr<Event>(
      options.timing ? std::make_unique<GpuEvent<Api>>(*this, core_.timing_marks, &core_.clock)
                     : std::make_unique<GpuEvent<Api>>(*this, core_.marks, nullptr));
}

template <typename Api>
Result<std::unique_ptr<Executable>> GpuDevice<Api>::do_load_executable(
    const ExecutableImage& image) {
  if (image.bytes.empty()) {
    return not_found(fmt::format("'{}' holds no device code; the {} backend loads it from bytes",
                                 image.name, info().backend));
  }
  auto executable = std::make_unique<GpuExecutable<Api>>(id(), core_.api(), core_.context(),
                                                         [this] { return core_.drain_buried(); });
  int error = executable->load(image.bytes.data());
  if (error != Api::kSuccess) return report(error, "load module");
  return std::unique_ptr<Executable>(std::move(executable));
}

template <typename Api>
Status GpuDevice<Api>::do_enable_peer(Device& peer) {
  auto* other = dynamic_cast<GpuDevice*>(&peer.root());
  if (other == nullptr) return invalid_argument("the peer is not a device of this driver");
  if (other->core_.context() == core_.context()) return Status::ok();  // one card, one memory
  const Api& api = core_.api();
  GpuScope<Api> scope(api, core_.context());
  int can = 0;
  int error = scope.run(
      [&] { return api.can_access_peer(&can, core_.hold->card(), other->core_.hold->card()); });
  if (error != Api::kSuccess) return report(error, "can access peer");
  if (can == 0) {
    return unimplemented(
        fmt::format("the driver has no peer access from {} to {}; copies between "
                    "them go through the host",
                    id(), other->id()));
  }
  error = api.enable_peer(other->core_.context());
  if (error == Api::kSuccess || error == Api::kPeerAlreadyEnabled) return Status::ok();
  return report(error, "enable peer");
}

template <typename Api>
DeviceCounters GpuDevice<Api>::do_counters() {
  GpuStreamTotals totals;
  {
    std::lock_guard lock(core_.streams_mutex);
    totals = core_.retired_totals;
    for (GpuStream<Api>* stream : core_.streams) totals += stream->cell()->finished();
  }
  DeviceCounters counters;
  counters.kernels = totals.kernels;
  counters.copies = totals.copies;
  counters.bytes_up = totals.bytes_up + core_.far_bytes_up;
  counters.bytes_down = totals.bytes_down + core_.far_bytes_down;
  return counters;
}

template <typename Api>
Status GpuDevice<Api>::do_synchronize() {
  std::vector<GpuMarkRef> tails;
  {
    std::lock_guard lock(core_.streams_mutex);
    for (GpuStream<Api>* stream : core_.streams) {
      if (stream->cell()->has_failed()) return stream->cell()->failure();
      STAGECOACH_ASSIGN_OR_RETURN(GpuMarkRef tail, stream->mark_tail());
      tails.push_back(std::move(tail));
    }
  }
  for (GpuMarkRef& tail : tails) STAGECOACH_RETURN_IF_ERROR(wait_for_mark(*tail.get()));
  return Status::ok();
}

}  // namespace stagecoach

#include "backends/gpu/gpu_device_memory.h"
