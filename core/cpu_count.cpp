#include "core/cpu_count.h"

#include <algorithm>
#include <cmath>
#include <sched.h>
#include <sstream>
#include <thread>
#include <vector>

#include "core/file.h"
#include "core/settings.h"
#include "core/task_pool.h"

namespace stagecoach {

namespace internal {

namespace {

/// A mounted control-group hierarchy that can limit CPU time.
struct CgroupMount {
  bool version_2;
  std::string root;   ///< group shown at the mount point
  std::string point;  ///< mount point
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool lists_cpu(const std::string& comma_separated) {
  std::vector<std::string> names = split(comma_separated, ',');
  return std::find(names.begin(), names.end(), "cpu") != names.end();
}

std::vector<CgroupMount> find_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  for (const std::string& line : split(mountinfo, '\n')) {
    // "36 35 98:0 /root /point options optional… - type source super_options"
    std::vector<std::string> fields = split(line, ' ');
    auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    if (dash[1] == "cgroup2") mounts.push_back({true, fields[3], fields[4]});
    if (dash[1] == "cgroup" && lists_cpu(dash[3])) mounts.push_back({false, fields[3], fields[4]});
  }
  return mounts;
}

/// The process's group in the hierarchy of `mount`, or nothing when it has none there.
std::optional<std::string> find_group(std::string_view cgroup, const CgroupMount& mount) {
  for (const std::string& line : split(cgroup, '\n')) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    bool matches = mount.version_2 ? controllers.empty() : lists_cpu(controllers);
    if (matches) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<double> read_number(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.is_ok()) return std::nullopt;
  double number = 0;
  if (!(std::stringstream(*text) >> number)) return std::nullopt;
  return number;
}

std::optional<double> read_quota(const CgroupMount& mount, const std::string& folder) {
  if (!mount.version_2) {
    std::optional<double> quota = read_number(folder + "/cpu.cfs_quota_us");
    std::optional<double> period = read_number(folder + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return *quota / *period;
  }
  Result<std::string> text = read_file(folder + "/cpu.max");
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
  for (const CgroupMount& mount : find_mounts(mountinfo)) {
    std::optional<std::string> group = find_group(cgroup, mount);
    if (!group) continue;
    // In a container the mount may show a group below the top: the path is relative to that one.
    std::string path = *group;
    if (mount.root != "/") {
      path = path.starts_with(mount.root) ? path.substr(mount.root.size()) : std::string();
    }
    while (true) {
      while (path.ends_with('/')) path.pop_back();
      std::optional<double> quota = read_quota(mount, root + mount.point + path);
      if (quota && (!least || *quota < *least)) least = quota;
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
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
