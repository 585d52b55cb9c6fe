#include "hal/device.h"

#include <fmt/format.h>

namespace stagecoach {

namespace {

FailureSite site_of(const Device& device, std::string_view verb, std::string_view label) {
  FailureSite site;
  site.device = device.id();
  site.verb = std::string(verb);
  site.label = std::string(label);
  return site;
}

template <typename T>
Result<T> at_site(Result<T> result, const Device& device, std::string_view verb,
                  std::string_view label) {
  if (result.is_ok()) return result;
  return result.status().with_site(site_of(device, verb, label));
}

Status check_host_range(const void* data, ByteCount size) {
  if (data == nullptr) return invalid_argument("the address is null; pass memory that exists");
  if (size <= 0) return invalid_argument(fmt::format("size is {}; it must be above 0", size));
  return Status::ok();
}

}  // namespace

Device::~Device() = default;

Result<std::unique_ptr<Stream>> Device::create_stream(StreamOptions options) {
  if (options.name.empty()) {
    return invalid_argument("the stream has no name; messages need one, such as 'compute'")
        .with_site(site_of(*this, "create stream", ""));
  }
  return at_site(do_create_stream(options), *this, "create stream", options.name);
}

Result<std::unique_ptr<Event>> Device::create_event(EventOptions options) {
  return at_site(do_create_event(options), *this, "create event", "");
}

template <typename Function>
Allocation Device::allocate_with_retry(ByteCount size, Label label, std::string_view verb,
                                       Function&& allocate_once) {
  Allocation allocation;
  if (size <= 0) {
    allocation.status =
        invalid_argument(fmt::format("{} bytes asked for; it must be above 0", size));
  } else {
    allocation = allocate_once();
    if (allocation.outcome == AllocationOutcome::kExhausted) {
      collect_retired();
      allocation = allocate_once();
    }
  }
  if (allocation.outcome == AllocationOutcome::kFailed) {
    allocation.status = allocation.status.with_site(site_of(*this, verb, label.view()));
  }
  return allocation;
}

Allocation Device::allocate(ByteCount size, Label label) {
  return allocate_with_retry(size, label, "allocate",
                             [this, size, &label] { return do_allocate(size, label); });
}

Allocation Device::allocate_pinned(ByteCount size, Label label) {
  return allocate_with_retry(size, label, "allocate pinned",
                             [this, size, &label] { return do_allocate_pinned(size, label); });
}

Result<BufferHandle> Device::register_host(void* data, ByteCount size, Label label) {
  Status valid = check_host_range(data, size);
  if (!valid.is_ok()) return valid.with_site(site_of(*this, "register host", label.view()));
  return at_site(do_register_host(data, size, label), *this, "register host", label.view());
}

Result<BufferHandle> Device::wrap_pageable(void* data, ByteCount size, Label label) {
  Status valid = check_host_range(data, size);
  if (!valid.is_ok()) return valid.with_site(site_of(*this, "wrap pageable", label.view()));
  return BufferHandle(new Buffer(root(), MemoryKind::kHostPageable,
                                 reinterpret_cast<uintptr_t>(data), size, label));
}

Result<std::unique_ptr<Executable>> Device::load_executable(const ExecutableImage& image) {
  return at_site(do_load_executable(image), *this, "load executable", image.name);
}

Ops& Device::ops() {
  return do_ops();
}

Status Device::enable_peer(Device& peer) {
  FailureSite site = site_of(*this, "enable peer", peer.id());
  if (&peer.root() == &root()) {
    return invalid_argument("a device is no peer of itself; name another one").with_site(site);
  }
  if (peer.info().backend != info_.backend) {
    return unimplemented(fmt::format("{} devices do not reach the memory of {} devices; copy "
                                     "through pinned host memory",
                                     info_.backend, peer.info().backend))
        .with_site(site);
  }
  return do_enable_peer(peer).with_site(site);
}

Result<MemoryUsage> Device::memory_usage() {
  return at_site(do_memory_usage(), *this, "memory usage", "");
}

DeviceCounters Device::counters() {
  return do_counters();
}

Status Device::synchronize() {
  return do_synchronize().with_site(site_of(*this, "synchronize", ""));
}

void Device::collect_retired() {
  // Buffers go back to the device they belong to, whoever decorates it.
  if (&root() != this) return root().collect_retired();
  std::lock_guard collecting(collect_mutex_);
  std::vector<Buffer*> candidates;
  {
    std::lock_guard lock(retired_mutex_);
    candidates.swap(retired_);
  }
  // Asked outside `retired_mutex_`, so that a stream that retires something is never waited for.
  std::erase_if(candidates, [](Buffer* buffer) {
    if (!buffer->uses_reached()) return false;
    delete buffer;
    return true;
  });
  if (candidates.empty()) return;
  std::lock_guard lock(retired_mutex_);
  retired_.insert(retired_.end(), candidates.begin(), candidates.end());
}

void Device::retire(Buffer* buffer) {
  if (buffer->uses_reached()) {
    delete buffer;
    return;
  }
  std::lock_guard lock(retired_mutex_);
  retired_.push_back(buffer);
}

void Device::drain_retired() {
  std::lock_guard collecting(collect_mutex_);
  std::vector<Buffer*> remaining;
  {
    std::lock_guard lock(retired_mutex_);
    remaining.swap(retired_);
  }
  for (Buffer* buffer : remaining) {
    buffer->wait_for_uses();
    delete buffer;
  }
}

}  // namespace stagecoach
