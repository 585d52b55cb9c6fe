#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "hal/buffer.h"
#include "hal/device_info.h"
#include "hal/event.h"
#include "hal/executable.h"
#include "hal/ops.h"
#include "hal/stream.h"
#include "hal/virtual_time.h"

namespace stagecoach {

/// One accelerator, or part of one. Everything made from a device must be destroyed before it.
/// Thread rule: any thread.
class Device {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const std::string& id() const { return info_.id; }
  /// The backend's own device: itself, or the one a decorator wraps. Buffers belong to this one.
  virtual Device& root() { return *this; }
  /// The time of a simulated device, which moves only when told to; null: real time.
  virtual VirtualTime* virtual_time() { return nullptr; }

  Result<std::unique_ptr<Stream>> create_stream(StreamOptions options);
  Result<std::unique_ptr<Event>> create_event(EventOptions options = {});

  /// Device memory of exactly `size` bytes (> 0). Contents are undefined (NaN on mocks).
  Allocation allocate(ByteCount size, Label label);
  /// Host memory of exactly `size` bytes that this device's copy engines reach directly.
  Allocation allocate_pinned(ByteCount size, Label label);
  /// Page-locks [data, data + size) in place; the memory must outlive the buffer.
  Result<BufferHandle> register_host(void* data, ByteCount size, Label label);
  /// Wraps ordinary host memory, so that copies may name it.
  Result<BufferHandle> wrap_pageable(void* data, ByteCount size, Label label);

  Result<std::unique_ptr<Executable>> load_executable(const ExecutableImage& image);
  /// The math of this device.
  Ops& ops();

  /// Lets kernels and copies of this device reach `peer`'s memory; unimplemented where impossible.
  Status enable_peer(Device& peer);
  Result<MemoryUsage> memory_usage();
  DeviceCounters counters();
  /// Blocks until all streams are done.
  Status synchronize();

  /// Frees retired buffers whose uses have been reached; allocation does it by itself when short.
  void collect_retired();
  /// For BufferRetirer: takes over a buffer until its uses have been reached.
  void retire(Buffer* buffer);

 protected:
  explicit Device(DeviceInfo info) : info_(std::move(info)) {}
  /// For derived destructors: waits for and frees every retired buffer.
  void drain_retired();

 private:
  virtual Result<std::unique_ptr<Stream>> do_create_stream(const StreamOptions& options) = 0;
  virtual Result<std::unique_ptr<Event>> do_create_event(const EventOptions& options) = 0;
  virtual Allocation do_allocate(ByteCount size, Label label) = 0;
  virtual Allocation do_allocate_pinned(ByteCount size, Label label) = 0;
  virtual Result<BufferHandle> do_register_host(void* data, ByteCount size, Label label) = 0;
  virtual Result<std::unique_ptr<Executable>> do_load_executable(const ExecutableImage& image) = 0;
  virtual Ops& do_ops() = 0;
  virtual Status do_enable_peer(Device& peer) = 0;
  virtual Result<MemoryUsage> do_memory_usage() = 0;
  virtual DeviceCounters do_counters() = 0;
  virtual Status do_synchronize() = 0;

  /// Asks once more after freeing retired buffers when `allocate_once` finds too little.
  template <typename Function>
  Allocation allocate_with_retry(ByteCount size, Label label, std::string_view verb,
                                 Function&& allocate_once);

  DeviceInfo info_;
  std::mutex collect_mutex_;  // one collector at a time, so that "exhausted" is never premature
  std::mutex retired_mutex_;
  std::vector<Buffer*> retired_;
};

}  // namespace stagecoach
