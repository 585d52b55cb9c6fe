#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "backends/gpu/gpu_buffer.h"
#include "backends/gpu/gpu_device_core.h"
#include "backends/gpu/gpu_event.h"
#include "backends/gpu/gpu_wait.h"
#include "backends/gpu/gpu_workspace.h"
#include "core/clock.h"
#include "hal/device.h"
#include "hal/stream.h"

namespace stagecoach {

/// A stream of a GPU: every verb is one driver call on an own, non-blocking stream (an op: one a
/// launch). Bodies are in gpu_stream_verbs.h. Thread rule: as Stream.
template <typename Api>
class GpuStream final : public Stream, private GpuProbe {
 public:
  /// Page-locked memory a stream needs for what its kernels report.
  static constexpr ByteCount kErrorWordsBytes = GpuErrorWords::kCount * sizeof(uint64_t);

  /// Takes over `handle` and `error_words`, which are page-locked.
  GpuStream(Device& owner, GpuDeviceCore<Api>& core, std::string name, GpuStreamHandle handle,
            uint64_t* error_words);
  /// Waits for queued work, unless the stream has failed.
  ~GpuStream() override;

  const std::shared_ptr<GpuStreamCell>& cell() const { return cell_; }
  /// Marks the end of what has been submitted; any thread.
  Result<GpuMarkRef> mark_tail();
  /// Launches what computes `call`; from Ops::do_run only.
  Status run_op(const OpCall& call);

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
  void probe() override;

  /// One launch of an op; `is_first`: nothing of the op has been queued yet.
  Status launch_part(const GpuKernelLaunch& launch, int64_t round, uint64_t* error_word,
                     bool is_first);
  int launch_kernel(GpuKernel<Api>& kernel, const std::array<uint32_t, 3>& grid,
                    const std::array<uint32_t, 3>& block, uint32_t shared_bytes, void** arguments);
  int copy_bytes(GpuAddress target, GpuAddress source, const CopyRequest& request);
  /// `call()` with this card's context current; its failure as a status.
  template <typename Call>
  Status drive(std::string_view function, Call&& call) const {
    GpuScope<Api> scope(core_.api(), core_.context());
    int error = scope.run(call);
    return error == Api::kSuccess ? Status::ok() : gpu_status(core_.api(), error, function);
  }
  /// Counts what was just queued as operation `submitting_sequence()`.
  void count(const GpuStreamTotals& amount);

  GpuDeviceCore<Api>& core_;
  const GpuStreamHandle handle_;
  uint64_t* const error_words_;
  const std::shared_ptr<GpuStreamCell> cell_;
  GpuWorkspace<Api> workspace_;
  mutable std::mutex tail_mutex_;  // guards the two below
  GpuStreamTotals queued_;
  uint64_t queued_sequence_ = 0;
  mutable std::atomic<int64_t> probed_ns_{RealClock::instance().now_ns()};
};

}  // namespace stagecoach

#include "backends/gpu/gpu_stream_verbs.h"
