#include "backends/gpu/gpu_wait.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace stagecoach {

namespace {

constexpr int64_t kSpinNs = 20'000;  // most waits end sooner than a sleep would
constexpr int64_t kFirstSleepNs = 10'000;
constexpr int64_t kLongestSleepNs = 100'000;
constexpr int64_t kProbeIntervalNs = 1'000'000;

struct ProbeDirectory {
  std::mutex mutex;
  std::vector<GpuProbe*> probes;
};

ProbeDirectory& directory() {
  static ProbeDirectory* all = new ProbeDirectory;  // outlives every static device
  return *all;
}

}  // namespace

Status wait_for_mark(GpuMark& mark) {
  const RealClock& clock = RealClock::instance();
  int64_t start_ns = clock.now_ns();
  int64_t next_probe_ns = start_ns + kProbeIntervalNs;
  int64_t sleep_ns = kFirstSleepNs;
  for (;;) {
    STAGECOACH_ASSIGN_OR_RETURN(bool passed, mark.has_passed());
    if (passed) return Status::ok();
    int64_t now_ns = clock.now_ns();
    if (now_ns - start_ns < kSpinNs) {
      std::this_thread::yield();
      continue;
    }
    if (now_ns >= next_probe_ns) {
      probe_gpu_streams();
      next_probe_ns = now_ns + kProbeIntervalNs;
    }
    mark.cell()->sleep_unless_failed(sleep_ns);
    sleep_ns = std::min(2 * sleep_ns, kLongestSleepNs);
  }
}

void GpuProbe::enter_directory() {
  std::lock_guard lock(directory().mutex);
  directory().probes.push_back(this);
}

void GpuProbe::leave_directory() {
  std::lock_guard lock(directory().mutex);
  std::erase(directory().probes, this);
}

void probe_gpu_streams() {
  std::lock_guard lock(directory().mutex);
  for (GpuProbe* probe : directory().probes) probe->probe();
}

}  // namespace stagecoach
