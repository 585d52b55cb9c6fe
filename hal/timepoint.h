#pragma once

#include <cstdint>

namespace stagecoach {

/// Identifies a stream or a host worker for the life of the process; never reused. 0 is none.
using TimelineId = uint64_t;

/// A point in the work submitted to one timeline: reached when everything up to and including
/// operation number `sequence` has finished. Always names work already submitted, so there is no
/// wait before signal. Plain data; free to copy and share.
struct Timepoint {
  TimelineId timeline = 0;
  uint64_t sequence = 0;

  /// A default timepoint belongs to no timeline and counts as reached.
  bool is_none() const { return timeline == 0; }
  friend bool operator==(const Timepoint&, const Timepoint&) = default;
};

}  // namespace stagecoach
