#pragma once

// Bodies of GpuStream, included by gpu_stream.h alone.

#include "backends/gpu/gpu_stream.h"

namespace stagecoach {

namespace internal {

/// Where the view begins, for the driver.
inline GpuAddress gpu_address_of(const BufferView& view) {
  return static_cast<GpuAddress>(view.buffer->device_address()) +
         static_cast<GpuAddress>(view.offset);
}

/// Codes with which Stream takes a request as refused, nothing having been queued.
inline bool is_refusal(StatusCode code) {
  return code == StatusCode::kInvalidArgument || code == StatusCode::kFailedPrecondition ||
         code == StatusCode::kUnimplemented;
}

}  // namespace internal

template <typename Api>
GpuStream<Api>::GpuStream(Device& owner, GpuDeviceCore<Api>& core, std::string name,
                          GpuStreamHandle handle, uint64_t* error_words)
    : Stream(owner, std::move(name)),
      core_(core),
      handle_(handle),
      error_words_(error_words),
      cell_(std::make_shared<GpuStreamCell>(FailureSite{owner.id(), this->name(), "", "", 0})),
      workspace_(core) {
  cell_->error_words().attach(error_words);
  {
    std::lock_guard lock(core_.streams_mutex);
    core_.streams.push_back(this);
  }
  enter_directory();
}

template <typename Api>
GpuStream<Api>::~GpuStream() {
  // A failure of the card ends the wait too; either way nothing is left to report it to.
  if (!cell_->has_failed()) static_cast<void>(do_synchronize());
  GpuProbe::leave_directory();
  {
    std::lock_guard lock(core_.streams_mutex);
    std::erase(core_.streams, this);
    core_.retired_totals += cell_->finished();
  }
  release_events();
  cell_->close();
  if (do_is_idle()) {
    static_cast<void>(drive("destroy stream", [&] { return core_.api().destroy_stream(handle_); }));
  } else {
    core_.hold->runtime().bury(core_.context(), handle_);
  }
  core_.release(GpuDeviceCore<Api>::Release::kPinned, reinterpret_cast<uintptr_t>(error_words_),
                kErrorWordsBytes);
}

template <typename Api>
void GpuStream<Api>::count(const GpuStreamTotals& amount) {
  std::lock_guard lock(tail_mutex_);
  queued_ += amount;
  queued_sequence_ = submitting_sequence();
}

template <typename Api>
Result<GpuMarkRef> GpuStream<Api>::mark_tail() {
  std::lock_guard lock(tail_mutex_);
  return core_.marks.record(handle_, cell_, queued_sequence_, queued_);
}

template <typename Api>
Status GpuStream<Api>::do_record(Event& event) {
  auto& mine = static_cast<GpuEvent<Api>&>(event);
  GpuStreamTotals totals;
  {
    std::lock_guard lock(tail_mutex_);
    queued_sequence_ = submitting_sequence();
    totals = queued_;
  }
  STAGECOACH_ASSIGN_OR_RETURN(GpuMarkRef mark,
                              mine.pool().record(handle_, cell_, submitting_sequence(), totals));
  mine.set_mark(std::move(mark));
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::do_wait(const Event& event) {
  GpuMarkRef mark = static_cast<const GpuEvent<Api>&>(event).mark();
  // The failure of the awaited stream becomes this one's, site and all.
  STAGECOACH_ASSIGN_OR_RETURN(bool passed, mark->has_passed());
  count({});
  if (passed || mark->cell() == cell_) return Status::ok();
  auto* native = static_cast<GpuEventMark<Api>*>(mark.get());
  STAGECOACH_RETURN_IF_ERROR(drive(
      "wait for event", [&] { return core_.api().stream_wait_event(handle_, native->handle()); }));
  std::shared_ptr<GpuStreamCell> source = mark->cell();
  source->add_waiter(std::move(mark), cell_);
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::do_synchronize() {
  if (cell_->has_failed()) return cell_->failure();
  STAGECOACH_ASSIGN_OR_RETURN(GpuMarkRef tail, mark_tail());
  return wait_for_mark(*tail.get());
}

template <typename Api>
void GpuStream<Api>::do_abandon(const Status& status) {
  cell_->fail(status);
  if (status.code() == StatusCode::kDeviceLost) core_.poison(status);
}

template <typename Api>
Status GpuStream<Api>::do_failure() const {
  constexpr int64_t kProbeIntervalNs = 1'000'000;
  if (cell_->has_failed()) return cell_->failure();
  int64_t now_ns = RealClock::instance().now_ns();
  if (now_ns - probed_ns_.load(std::memory_order_relaxed) < kProbeIntervalNs) return Status::ok();
  probed_ns_.store(now_ns, std::memory_order_relaxed);
  GpuScope<Api> scope(core_.api(), core_.context());
  int error = scope.run([&] { return core_.api().query_stream(handle_); });
  if (error == Api::kSuccess || error == Api::kNotReady) return Status::ok();
  Status failure = gpu_status(core_.api(), error, "query stream");
  std::lock_guard lock(tail_mutex_);
  // Stream names the oldest operation not known to be done; where there is none, this was the verb.
  if (queued_sequence_ > cell_->finished_sequence()) return failure;
  return failure.with_site(FailureSite{device().id(), name(), "probe", "", queued_sequence_});
}

template <typename Api>
bool GpuStream<Api>::do_is_idle() {
  GpuScope<Api> scope(core_.api(), core_.context());
  return scope.run([&] { return core_.api().query_stream(handle_); }) != Api::kNotReady;
}

template <typename Api>
void GpuStream<Api>::probe() {
  Status failure = do_failure();
  if (failure.is_ok() || cell_->has_failed()) return;
  cell_->fail(failure.with_site(FailureSite{device().id(), name(), "probe", "", 0}));
}

}  // namespace stagecoach

#include "backends/gpu/gpu_stream_copy.h"
#include "backends/gpu/gpu_stream_launch.h"
#include "backends/gpu/gpu_stream_library.h"
