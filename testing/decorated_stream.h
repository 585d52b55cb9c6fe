#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "hal/ops.h"
#include "hal/stream.h"
#include "testing/decorated_device.h"
#include "testing/interceptor.h"
#include "testing/stream_stop.h"

namespace stagecoach {

/// A stream around another one. Once work was told to fail later or never to complete, nothing more
/// is forwarded: see StreamStop. Destruction never waits for what never completes.
/// Thread rule: as Stream.
class DecoratedStream final : public Stream {
 public:
  /// `call_name` is what interceptors see; it differs from the stream's name when that is taken.
  DecoratedStream(DecoratedDevice& device, std::unique_ptr<Stream> inner, std::string call_name);
  ~DecoratedStream() override;

  /// For DecoratedOps: an operation submitted to this stream.
  Status run_op(Ops& inner_ops, const OpCall& call);

 private:
  Status do_copy(const CopyRequest& request) override;
  Status do_fill(const FillRequest& request) override;
  Status do_launch(const LaunchRequest& request) override;
  Status do_record(Event& event) override;
  Status do_wait(const Event& event) override;
  Status do_synchronize() override;
  void do_abandon(const Status& status) override;
  Status do_failure() const override;
  bool do_is_idle() override;

  /// Work as the interceptor sees it.
  struct Work {
    std::string_view verb;
    Label label;
    ByteCount size = 0;
    BufferView target;  ///< what is damaged when it shall be corrupted
    std::span<const MemoryUse> uses;
    const Event* event = nullptr;
  };
  /// Asks the interceptor about work and does what it says.
  Status submit_work(const Work& work, const std::function<Status()>& forward);
  Status carry_out(const Verdict& verdict, const Label& label, BufferView target,
                   const std::function<Status()>& forward);
  /// Overwrites a piece of `target` with one bits, which read as NaN or -1. Queued behind the work
  /// where the target is this device's memory; elsewhere it waits for the work first.
  Status corrupt(BufferView target, const Label& label);
  void stop(std::shared_ptr<StreamStop> stop);
  std::shared_ptr<StreamStop> current_stop() const;
  Label last_label() const;

  DecoratedDevice& device_;
  std::unique_ptr<Stream> inner_;
  std::string call_name_;
  mutable std::mutex mutex_;
  std::shared_ptr<StreamStop> stop_;
  Label last_label_;  // of the last work: what records and synchronisations speak about
};

}  // namespace stagecoach
