#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// A folder of the control groups that limit a process.
struct ControlGroup {
  bool version_2 = true;  ///< else a hierarchy of version 1
  std::string folder;
};

/// The group of a process and its ancestors, in every mounted hierarchy that can limit `controller`
/// ("cpu", "memory"). `cgroup` and `mountinfo` are the texts of /proc/self/cgroup and
/// /proc/self/mountinfo; `root` is put before every folder, for tests. Pure.
std::vector<ControlGroup> control_groups(std::string_view cgroup, std::string_view mountinfo,
                                         std::string_view controller, const std::string& root);

}  // namespace stagecoach
