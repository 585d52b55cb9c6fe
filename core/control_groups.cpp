#include "core/control_groups.h"

#include <algorithm>
#include <optional>
#include <sstream>

namespace stagecoach {

namespace {

/// A mounted hierarchy that can limit the controller.
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

bool lists(const std::string& comma_separated, std::string_view controller) {
  std::vector<std::string> names = split(comma_separated, ',');
  return std::find(names.begin(), names.end(), controller) != names.end();
}

std::vector<CgroupMount> find_mounts(std::string_view mountinfo, std::string_view controller) {
  std::vector<CgroupMount> mounts;
  for (const std::string& line : split(mountinfo, '\n')) {
    // "36 35 98:0 /root /point options optional… - type source super_options"
    std::vector<std::string> fields = split(line, ' ');
    auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    if (dash[1] == "cgroup2") mounts.push_back({true, fields[3], fields[4]});
    if (dash[1] == "cgroup" && lists(dash[3], controller))
      mounts.push_back({false, fields[3], fields[4]});
  }
  return mounts;
}

/// The process's group in the hierarchy of `mount`, or nothing when it has none there.
std::optional<std::string> find_group(std::string_view cgroup, const CgroupMount& mount,
                                      std::string_view controller) {
  for (const std::string& line : split(cgroup, '\n')) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    bool matches = mount.version_2 ? controllers.empty() : lists(controllers, controller);
    if (matches) return line.substr(second + 1);
  }
  return std::nullopt;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view cgroup, std::string_view mountinfo,
                                         std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  for (const CgroupMount& mount : find_mounts(mountinfo, controller)) {
    std::optional<std::string> group = find_group(cgroup, mount, controller);
    if (!group) continue;
    // In a container the mount may show a group below the top: the path is relative to that one.
    std::string path = *group;
    if (mount.root != "/") {
      path = path.starts_with(mount.root) ? path.substr(mount.root.size()) : std::string();
    }
    while (true) {
      while (path.ends_with('/')) path.pop_back();
      groups.push_back({mount.version_2, root + mount.point + path});
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return groups;
}

}  // namespace stagecoach
