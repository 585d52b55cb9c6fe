#include "tools/bandwidth/await.h"

#include <fmt/format.h>
#include <thread>

#include "core/clock.h"

namespace stagecoach {

namespace {

constexpr int64_t kSpinNs = 5'000'000;       ///< on cards, whose short copies a sleep would miss
constexpr int64_t kSleepBetweenNs = 50'000;  ///< afterwards, and on mocks, which need the cores

Status await_virtual(VirtualTime& time, Timepoint timepoint) {
  for (;;) {
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, reached(timepoint));
    if (is_over) return Status::ok();
    if (!time.advance()) return internal_error("nothing is left to happen on a simulated device");
  }
}

}  // namespace

Status await_timepoint(Device& device, Timepoint timepoint, int64_t deadline_ns) {
  if (device.virtual_time() != nullptr) return await_virtual(*device.virtual_time(), timepoint);
  int64_t start_ns = RealClock::instance().now_ns();
  int64_t spin_ns = device.info().is_real_hardware ? kSpinNs : 0;
  for (;;) {
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, reached(timepoint));
    if (is_over) return Status::ok();
    int64_t now_ns = RealClock::instance().now_ns();
    if (now_ns > deadline_ns) {
      return deadline_exceeded(fmt::format("{} did not end its copies within {:.3g} s", device.id(),
                                           static_cast<double>(now_ns - start_ns) / 1e9));
    }
    if (now_ns - start_ns < spin_ns) {
      std::this_thread::yield();
    } else {
      sleep_until_ns(now_ns + kSleepBetweenNs);
    }
  }
}

}  // namespace stagecoach
