#pragma once

#include <atomic>
#include <utility>

#include "hal/timeline.h"

namespace stagecoach {

/// A timeline whose progress the test sets by hand. `wait_until_reached` spins.
class ManualTimeline final : public Timeline {
 public:
  explicit ManualTimeline(std::string name = "manual") : Timeline(std::move(name)) {}
  ~ManualTimeline() override { leave_directory(); }

  Result<bool> reached(uint64_t sequence) override {
    if (sequence <= completed) return true;
    if (failed) return cancelled("failed by the test");
    return false;
  }
  Status wait_until_reached(uint64_t sequence) override {
    ++waiting;
    for (;;) {
      Result<bool> done = reached(sequence);
      if (done.is_ok() && !done.value()) continue;
      --waiting;
      return done.status();
    }
  }
  bool settled(uint64_t sequence) override { return sequence <= completed || (failed && idle); }
  Status status() const override { return failed ? cancelled("failed by the test") : Status::ok(); }

  std::atomic<uint64_t> completed{0};
  std::atomic<int> waiting{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> idle{false};
};

}  // namespace stagecoach
