#include "core/clock.h"

#include <chrono>
#include <thread>

#include "core/check.h"

namespace stagecoach {

int64_t RealClock::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RealClock& RealClock::instance() {
  static RealClock clock;
  return clock;
}

void VirtualClock::advance_to(int64_t time_ns) {
  STAGECOACH_CHECK(time_ns >= now_ns_);
  now_ns_ = time_ns;
}

void sleep_until_ns(int64_t deadline_ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
}

}  // namespace stagecoach
