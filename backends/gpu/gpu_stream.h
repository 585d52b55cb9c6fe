#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "backends/gpu/gpu_buffer.h"
#include "backends/gpu/gpu_device_core.h"
#include "backends/gpu/gpu_event.h"
#include "backends/gpu/gpu_library.h"
#include "backends/gpu/gpu_wait.h"
#include "backends/gpu/gpu_workspace.h"
#include "core/clock.h"
#include "hal/device.h"
#include "hal/stream.h"

namespace stagecoach {

/// What of an op the device's libraries compute, and the scratch memory for it. Plain data.
struct GpuLibraryUse {
  bool attention = false;
  uint32_t product_launches = 0;  ///< bit i: launch i is a product of the library's
  ByteCount scratch_offset = 0;   ///< in the stream's workspace, behind what the kernels need
  ByteCount scratch_bytes = 0;
  ByteCount workspace_bytes = 0;  ///< for all

  /// The product that the library computes in place of launch `index`, or null.
  const GpuProduct* product_at(const GpuLaunchPlan& plan, int index) const {
    if ((product_launches >> index & 1u) == 0) return nullptr;
    for (int i = 0; i < plan.product_count; ++i) {
      const GpuProduct& product = plan.products[static_cast<size_t>(i)];
      if (product.launch == index) return &product;
    }
    return nullptr;
  }
};

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

  /// Everything of an op that no library computes whole.
  Status run_launches(const OpCall& call, const GpuLaunchPlan& plan, const GpuLibraryUse& use);
  Status launch_part(const GpuKernelLaunch& launch, int64_t round, uint64_t* error_word);
  /// Which parts of a plan the device's libraries compute, asked before anything is queued.
  Result<GpuLibraryUse> choose_library(const GpuLaunchPlan& plan);
  Status choose_parts(const GpuLaunchPlan& plan, GpuLibraryUse& use);
  Status choose_attention(const GpuLaunchPlan& plan, GpuLibraryUse& use);
  Status choose_product(const GpuProduct& product, int64_t rounds, GpuLibraryUse& use);
  Status run_attention(const GpuAttention& attention, const GpuLibraryUse& use);
  Status run_product(const GpuProduct& product, int64_t round, const GpuLibraryUse& use);
  GpuLibraryPlace library_place(const GpuLibraryUse& use) const;
  /// `call()` with this card's context current.
  template <typename Call>
  Status with_context(Call&& call) const;
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
