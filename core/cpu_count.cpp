#include "core/cpu_count.h"

#include <algorithm>
#include <cmath>
#include <sched.h>
#include <sstream>
#include <thread>

#include "core/control_groups.h"
#include "core/file.h"
#include "core/settings.h"
#include "core/task_pool.h"

namespace stagecoach {

namespace internal {

namespace {

std::optional<double> read_number(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.is_ok()) return std::nullopt;
  double number = 0;
  if (!(std::stringstream(*text) >> number)) return std::nullopt;
  return number;
}

std::optional<double> read_quota(const ControlGroup& group) {
  if (!group.version_2) {
    std::optional<double> quota = read_number(group.folder + "/cpu.cfs_quota_us");
    std::optional<double> period = read_number(group.folder + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return *quota / *period;
  }
  Result<std::string> text = read_file(group.folder + "/cpu.max");
  if (!text.is_ok()) return std::nullopt;
  double quota = 0;
  double period = 0;  // "max 100000" means no quota: reading a number fails
  if (!(std::stringstream(*text) >> quota >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(std::string_view cgroup, std::string_view mountinfo,
                                       const std::string& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups(cgroup, mountinfo, "cpu", root)) {
    std::optional<double> quota = read_quota(group);
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

int combine_thread_limits(int affinity, std::optional<double> quota, int setting) {
  int count = std::max(affinity, 1);
  if (quota && *quota < count) count = static_cast<int>(std::ceil(*quota));
  if (setting > 0) count = std::min(count, setting);
  return std::max(count, 1);
}

namespace {

int affinity_count() {
  // A mask of the default size is refused on machines with more CPUs than it has bits.
  for (size_t cpus = CPU_SETSIZE; cpus <= (size_t{1} << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    size_t size = CPU_ALLOC_SIZE(cpus);
    int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

}  // namespace internal

int usable_thread_count() {
  Result<std::string> cgroup = read_file("/proc/self/cgroup");
  Result<std::string> mountinfo = read_file("/proc/self/mountinfo");
  std::optional<double> quota;
  if (cgroup.is_ok() && mountinfo.is_ok()) {
    quota = internal::cgroup_cpu_quota(*cgroup, *mountinfo, "");
  }
  // A value that cannot be parsed is refused by whoever starts the program; here it is unset.
  Result<Settings> settings = read_settings();
  int setting = settings.is_ok() ? settings->threads : 0;
  return internal::combine_thread_limits(internal::affinity_count(), quota, setting);
}

}  // namespace stagecoach
