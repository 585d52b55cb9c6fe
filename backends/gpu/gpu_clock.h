#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "backends/gpu/gpu_context.h"
#include "core/clock.h"

namespace stagecoach {

/// Translates a card's event times to RealClock. Drivers give only the distance between two events,
/// as a float of milliseconds, so an epoch event with a known host time is kept, and renewed before
/// the distance outgrows the float.
/// Thread rule: any thread.
template <typename Api>
class GpuClock {
 public:
  GpuClock(const Api& api, GpuContextHandle context) : api_(api), context_(context) {}
  ~GpuClock() {
    GpuScope<Api> scope(api_, context_);
    for (GpuEventHandle event : {epoch_, next_epoch_}) {
      if (event != nullptr) static_cast<void>(api_.destroy_event(event));
    }
    if (stream_ != nullptr) static_cast<void>(api_.destroy_stream(stream_));
  }
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;

  /// Creates the epoch; its stream never holds anything else, so it passes at once.
  Status open() {
    GpuScope<Api> scope(api_, context_);
    int error = scope.run([&] { return api_.create_stream(&stream_); });
    if (error == Api::kSuccess) error = api_.create_event(&epoch_, true);
    if (error == Api::kSuccess) error = api_.create_event(&next_epoch_, true);
    if (error != Api::kSuccess) return gpu_status(api_, error, "create clock event");
    STAGECOACH_ASSIGN_OR_RETURN(HostSpan span, record_epoch(epoch_));
    epoch_ns_ = span.middle();
    return Status::ok();
  }

  /// Host time of an event, made with timing, that has been passed.
  Result<int64_t> real_ns(GpuEventHandle event) {
    std::lock_guard lock(mutex_);
    GpuScope<Api> scope(api_, context_);
    STAGECOACH_ASSIGN_OR_RETURN(int64_t distance_ns, elapsed(epoch_, event));
    int64_t time_ns = epoch_ns_ + distance_ns;
    if (std::abs(distance_ns) > kLongestDistanceNs) STAGECOACH_RETURN_IF_ERROR(renew());
    return time_ns;
  }

 private:
  /// 10 s: a float of milliseconds is then exact to a microsecond.
  static constexpr int64_t kLongestDistanceNs = 10'000'000'000;
  static constexpr int kTries = 5;
  static constexpr int64_t kNarrowNs = 20'000;

  struct HostSpan {
    int64_t before_ns;
    int64_t after_ns;
    int64_t middle() const { return before_ns + (after_ns - before_ns) / 2; }
  };

  Result<int64_t> elapsed(GpuEventHandle start, GpuEventHandle end) {
    float milliseconds = 0;
    int error = api_.elapsed_ms(&milliseconds, start, end);
    if (error != Api::kSuccess) return gpu_status(api_, error, "elapsed time");
    return static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
  }

  /// Records `event` and bounds its host time; tries again, a few times, where the host was slow.
  Result<HostSpan> record_epoch(GpuEventHandle event) {
    HostSpan span{0, std::numeric_limits<int64_t>::max()};
    for (int i = 0; i < kTries && span.after_ns - span.before_ns > kNarrowNs; ++i) {
      span.before_ns = RealClock::instance().now_ns();
      int error = api_.record_event(event, stream_);
      if (error == Api::kSuccess) error = api_.synchronize_event(event);
      if (error != Api::kSuccess) return gpu_status(api_, error, "record clock event");
      span.after_ns = RealClock::instance().now_ns();
    }
    return span;
  }

  /// Moves the epoch to now. The card's own distance is kept unless its clock has drifted out of
  /// what the host saw.
  Status renew() {
    STAGECOACH_ASSIGN_OR_RETURN(HostSpan span, record_epoch(next_epoch_));
    STAGECOACH_ASSIGN_OR_RETURN(int64_t distance_ns, elapsed(epoch_, next_epoch_));
    epoch_ns_ = std::clamp(epoch_ns_ + distance_ns, span.before_ns, span.after_ns);
    std::swap(epoch_, next_epoch_);
    return Status::ok();
  }

  const Api& api_;
  const GpuContextHandle context_;
  std::mutex mutex_;
  GpuStreamHandle stream_ = nullptr;
  GpuEventHandle epoch_ = nullptr;
  GpuEventHandle next_epoch_ = nullptr;
  int64_t epoch_ns_ = 0;
};

}  // namespace stagecoach
