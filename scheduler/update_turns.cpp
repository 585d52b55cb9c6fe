#include "scheduler/update_turns.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

bool UpdateTurns::enter(int64_t deadline, std::coroutine_handle<> handle) {
  if (!failure_.is_ok()) return false;
  if (taken_ < limit_) {
    ++taken_;
    return false;
  }
  auto later = [](const Waiting& entry, int64_t value) { return entry.deadline > value; };
  auto place = std::lower_bound(waiting_.begin(), waiting_.end(), deadline, later);
  waiting_.insert(place, Waiting{deadline, handle});
  return true;
}

void UpdateTurns::leave() {
  if (waiting_.empty()) {
    --taken_;
    return;
  }
  executor_->post(waiting_.back().handle);
  waiting_.pop_back();
}

void UpdateTurns::fail(const Status& status) {
  if (failure_.is_ok()) failure_ = status;
  for (const Waiting& entry : std::exchange(waiting_, {})) executor_->post(entry.handle);
}

}  // namespace stagecoach
