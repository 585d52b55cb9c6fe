#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// One recording of a simulated event: when it was passed, or why it never will be, and who is to
/// be told. Thread rule: one thread.
struct SimRecord {
  bool is_settled = false;
  bool is_asked_about = false;  ///< by the host, before it was settled
  Status failure;               ///< ok where it was passed
  int64_t time_ns = 0;
  std::vector<std::function<void()>> waiters;

  void settle(const Status& status, int64_t now_ns) {
    if (is_settled) return;
    is_settled = true;
    failure = status;
    time_ns = now_ns;
    std::vector<std::function<void()>> told;
    told.swap(waiters);
    for (const auto& waiter : told) waiter();
  }
};

}  // namespace stagecoach
