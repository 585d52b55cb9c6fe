#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stagecoach::internal {

/// CPUs that the control groups of a process allow it (quota / period), the least of the whole
/// ancestry; nothing when none sets a quota. `cgroup` and `mountinfo` are the texts of
/// /proc/self/cgroup and /proc/self/mountinfo, `root` is put before every path read, for tests.
std::optional<double> cgroup_cpu_quota(std::string_view cgroup, std::string_view mountinfo,
                                       const std::string& root);

/// The threads to use: the smallest of `affinity`, the quota rounded up and `setting` (0 = unset),
/// at least 1.
int combine_thread_limits(int affinity, std::optional<double> quota, int setting);

}  // namespace stagecoach::internal
