#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/label.h"
#include "core/status.h"

namespace stagecoach {

/// A slice on a track: something that took time.
struct TraceSlice {
  Label name;            ///< short and stable, so that queries can group: "F", "B", "update"
  const char* category;  ///< static text: "compute", "upload", …
  int process = 0;       ///< device index; host work has its own
  int track = 0;         ///< lane inside the process
  int64_t start_ns = 0;  ///< on RealClock
  int64_t end_ns = 0;
  int32_t micro_batch = -1;  ///< -1: none (also for the fields below)
  int32_t stage = -1;
  int32_t iteration = -1;
  int64_t bytes = -1;
};

/// Gathers slices and writes them as a Perfetto (Chrome JSON) trace. Slices of one track must not
/// partly overlap: times are whole nanoseconds and an overlap caused by rounding is trimmed, any
/// other is refused when writing. Capacity is fixed; what no longer fits is counted and reported.
/// Thread rule: `add` from any thread; `reserve`d memory only, so no allocation after creation.
class Trace {
 public:
  static constexpr size_t kDefaultCapacity = 1 << 18;
  explicit Trace(size_t capacity = kDefaultCapacity);

  /// Names a process ("cpu:0") or one of its tracks ("compute"); order follows the numbers.
  void name_process(int process, std::string name);
  void name_track(int process, int track, std::string name);
  void add(const TraceSlice& slice);
  /// Slices that no longer fitted.
  int64_t dropped() const;
  std::vector<TraceSlice> slices() const;

  /// Writes `path` atomically. Object with `traceEvents` and `displayTimeUnit`; times in
  /// microseconds with three decimals, counted from the first slice.
  Status write_perfetto(const std::string& path) const;
  /// The same as a value, for tests and for the report.
  Result<Json> to_perfetto() const;

 private:
  struct TrackName {
    int process;
    int track;  ///< -1 names the process
    std::string name;
  };
  std::vector<Json> name_events() const;
  /// Calls `visit` with every event in the order of the file.
  Status for_each_event(const std::function<void(Json)>& visit) const;

  mutable std::mutex mutex_;
  size_t capacity_;
  std::vector<TraceSlice> slices_;
  std::vector<TrackName> names_;
  int64_t dropped_ = 0;
};

}  // namespace stagecoach
