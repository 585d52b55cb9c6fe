#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hal/device.h"
#include "testing/interceptor.h"
#include "testing/stream_stop.h"

namespace stagecoach {

/// A device around another one: every verb of it and of its streams, events and math is offered to
/// an interceptor before it is handed on. Buffers and executables are the inner device's own.
/// Thread rule: as Device.
class DecoratedDevice final : public Device {
 public:
  /// `interceptor` may be shared by several devices.
  DecoratedDevice(std::unique_ptr<Device> inner, std::shared_ptr<Interceptor> interceptor);
  ~DecoratedDevice() override;

  Device& root() override { return inner_->root(); }
  VirtualTime* virtual_time() override { return inner_->virtual_time(); }
  Device& inner() { return *inner_; }
  Interceptor& interceptor() const { return *interceptor_; }
  /// A call on this device, without stream and size.
  VerbCall make_call(std::string_view verb, const Label& label) const;

  /// For DecoratedStream: stops that `synchronize` has to wait for, until they are removed.
  void add_stop(std::shared_ptr<StreamStop> stop);
  void remove_stop(const std::shared_ptr<StreamStop>& stop);

 private:
  Result<std::unique_ptr<Stream>> do_create_stream(const StreamOptions& options) override;
  Result<std::unique_ptr<Event>> do_create_event(const EventOptions& options) override;
  Allocation do_allocate(ByteCount size, Label label) override;
  Allocation do_allocate_pinned(ByteCount size, Label label) override;
  Result<BufferHandle> do_register_host(void* data, ByteCount size, Label label) override;
  Result<std::unique_ptr<Executable>> do_load_executable(const ExecutableImage& image) override;
  Ops& do_ops() override { return *ops_; }
  Status do_enable_peer(Device& peer) override;
  Result<MemoryUsage> do_memory_usage() override;
  DeviceCounters do_counters() override { return inner_->counters(); }
  Status do_synchronize() override;
  std::string unique_stream_name(const std::string& name);

  std::unique_ptr<Device> inner_;
  std::shared_ptr<Interceptor> interceptor_;
  std::unique_ptr<Ops> ops_;
  std::mutex mutex_;
  std::map<std::string, int> stream_names_;  // how many streams of that name were made
  std::vector<std::shared_ptr<StreamStop>> stops_;
};

}  // namespace stagecoach
