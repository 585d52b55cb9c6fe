#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagecoach {

/// Something of a stream of copies has arrived: `bytes` of it by then.
struct FlowMark {
  int64_t time_ns = 0;
  double bytes = 0;
};

/// The marks of one stream, in order of time.
using FlowMarks = std::vector<FlowMark>;

/// Rates in the time in which all streams were provably active.
struct WindowRates {
  int64_t start_ns = 0, end_ns = 0;
  std::vector<double> bytes_per_s;  ///< per stream
  double total_bytes_per_s = 0;
  double coverage = 0;  ///< of the time from the first mark of any stream to the last

  bool is_empty() const { return end_ns <= start_ns; }
  /// Jain's fairness of the streams: 1 where all are equally fast, 1 / count where one has all.
  double fairness() const;
};

/// The window is from the latest first mark to the earliest last one: before its first mark a
/// stream may not have begun, after its last it has nothing left. Bytes at its edges are taken as
/// linear between marks. Every stream needs two marks; the window may be empty. Pure.
WindowRates common_window(std::span<const FlowMarks> flows);

/// `window` unless the streams were hardly active together: an engine serves one after the other,
/// or they took turns by chance. Then rates from the first mark of any stream to the last, since
/// what they bring together is known all the same; `coverage` stays that of `window`. Pure.
WindowRates window_or_whole_time(std::span<const FlowMarks> flows);

}  // namespace stagecoach
