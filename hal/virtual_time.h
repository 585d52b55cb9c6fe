#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/clock.h"

namespace stagecoach {

/// What the host's own work costs in a simulation: a profile of the machine sets them.
struct HostCosts {
  int64_t issue_ns = 2'000;         ///< one verb of a stream, on the submit thread
  int64_t hop_ns = 10'000;          ///< from one thread of the program to another
  int64_t completion_ns = 100'000;  ///< until a completion is noticed: half a poll of the pump
};

/// Decides between events of the same time, so that a simulation has one outcome.
struct EventOrder {
  /// Completions come before what they let begin.
  enum class Kind : uint8_t { kFlow, kKernel, kStream, kResume } kind = Kind::kResume;
  int device = 0;
  uint64_t stream = 0;
  uint64_t sequence = 0;

  auto operator<=>(const EventOrder&) const = default;
};

/// The time of simulated devices: events in order, in whole nanoseconds. Whoever runs on such
/// devices does so on one thread and calls `advance` when it has nothing left to do.
/// Thread rule: one thread.
class VirtualTime {
 public:
  explicit VirtualTime(const HostCosts& costs = {}) : costs_(costs) {}

  const HostCosts& costs() const { return costs_; }
  const Clock& clock() const { return clock_; }
  int64_t now_ns() const { return clock_.now_ns(); }

  /// Runs `action` at `time_ns`, or now if that is past, from `advance`.
  void at(int64_t time_ns, const EventOrder& order, std::function<void()> action);
  /// Jumps to the next event and runs it and all others of its time that are due; false when there
  /// is none.
  bool advance();

  /// When the thread that submits now has got so far: not before now, later by what it has issued.
  int64_t submit_ns() const;
  /// One more verb issued; returns when it reaches its stream.
  int64_t charge_issue();
  /// Something that was asked about before it was over is over now: whoever waits may look again.
  void note_completion() { has_completion_ = true; }
  /// Whether that has happened since the last call.
  bool take_completion() { return std::exchange(has_completion_, false); }
  /// From here on verbs are issued by a thread that is busy until `busy_until_ns`.
  void begin_submission(int64_t busy_until_ns) { cursor_ns_ = busy_until_ns; }

 private:
  struct Key {
    int64_t time_ns;
    EventOrder order;
    uint64_t number;  ///< events of equal order run as they came

    auto operator<=>(const Key&) const = default;
  };

  const HostCosts costs_;
  VirtualClock clock_;
  std::map<Key, std::function<void()>> events_;
  uint64_t next_number_ = 0;
  int64_t cursor_ns_ = 0;
  bool has_completion_ = false;
};

}  // namespace stagecoach
