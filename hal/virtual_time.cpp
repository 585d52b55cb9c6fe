#include "hal/virtual_time.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

void VirtualTime::at(int64_t time_ns, const EventOrder& order, std::function<void()> action) {
  Key key{std::max(time_ns, now_ns()), order, next_number_++};
  events_.emplace(key, std::move(action));
}

bool VirtualTime::advance() {
  if (events_.empty()) return false;
  clock_.advance_to(events_.begin()->first.time_ns);
  // What an event adds for this very time runs too, in its order.
  while (!events_.empty() && events_.begin()->first.time_ns == now_ns()) {
    std::function<void()> action = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    action();
  }
  return true;
}

int64_t VirtualTime::submit_ns() const {
  return std::max(cursor_ns_, now_ns());
}

int64_t VirtualTime::charge_issue() {
  cursor_ns_ = submit_ns() + costs_.issue_ns;
  return cursor_ns_;
}

}  // namespace stagecoach
