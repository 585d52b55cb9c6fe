#include "tools/bandwidth/bandwidth_context.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <sys/utsname.h>

#include "core/task_pool.h"
#include "hal/topology.h"
#include "memory/host_limits.h"
#include "stagecoach_version.h"

namespace stagecoach {

namespace {

/// The first line of a file, or null.
Json first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? Json(line) : Json();
}

Json processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

Json load_average() {
  std::ifstream file("/proc/loadavg");
  double load = 0;
  return file >> load ? Json(load) : Json();
}

Json memory_json() {
  Json json = Json::object();
  Result<HostLimits> limits = read_host_limits();
  if (!limits.is_ok()) return {};
  json["free_bytes"] = limits->free_bytes;
  json["limited_by"] = limits->free_source;
  json["lockable_bytes"] =
      limits->lockable_bytes.has_value() ? Json(*limits->lockable_bytes) : Json();
  return json;
}

Json nodes_json() {
  Result<Topology> topology = Topology::discover({});
  if (!topology.is_ok()) return {};
  Json nodes = Json::array();
  for (const NumaNode& node : topology->nodes) {
    Json one = Json::object();
    one["index"] = node.index;
    one["cores"] = node.core_count;
    one["memory_bytes"] = node.memory_bytes;
    nodes.push_back(std::move(one));
  }
  return nodes;
}

Json known_rate(double bytes_per_s) {
  return bytes_per_s > 0 ? Json(bytes_per_s) : Json();
}

Json known_number(double number) {
  return number > 0 ? Json(number) : Json();
}

}  // namespace

Json pci_path_json(const PciPath& path) {
  Json json = Json::object();
  json["host_bridge"] = path.host_bridge;
  json["hops"] = Json::array();
  for (const PciHop& hop : path.hops) {
    Json one = Json::object();
    one["address"] = hop.address;
    one["gt_per_s"] = known_number(hop.speed_gt_per_s);
    one["width"] = known_number(hop.width);
    one["max_gt_per_s"] = known_number(hop.max_speed_gt_per_s);
    one["max_width"] = known_number(hop.max_width);
    json["hops"].push_back(std::move(one));
  }
  json["bytes_per_s"] = known_rate(path.bytes_per_s());
  json["max_bytes_per_s"] = known_rate(path.max_bytes_per_s());
  json["numa_node"] = path.numa_node >= 0 ? Json(path.numa_node) : Json();
  json["iommu"] = path.iommu_type.empty() ? Json() : Json(path.iommu_type);
  json["largest_bar_bytes"] = path.largest_bar;
  json["acs_redirects"] = path.acs_redirects.has_value() ? Json(*path.acs_redirects) : Json();
  json["near_threads"] = path.near_threads.empty() ? Json() : Json(path.near_threads);
  return json;
}

std::map<std::string, PciPath> read_device_paths(const std::vector<Device*>& devices,
                                                 const std::string& sysfs) {
  std::map<std::string, PciPath> paths;
  for (Device* device : devices) {
    std::optional<PciPath> path = read_pci_path(device->info().pci_address, sysfs);
    if (path.has_value()) paths[device->id()] = *path;
  }
  return paths;
}

Json measurement_context(const std::vector<Device*>& devices,
                         const std::map<std::string, PciPath>& paths) {
  Json json = Json::object();
  json["version"] = STAGECOACH_VERSION;
  json["commit"] = STAGECOACH_COMMIT;
  std::time_t now = std::time(nullptr);
  json["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  utsname names{};
  bool is_named = ::uname(&names) == 0;
  json["host"] = is_named ? Json(names.nodename) : Json();
  json["kernel"] = is_named ? Json(names.release) : Json();
  json["processor"] = processor_name();
  json["threads"] = usable_thread_count();
  json["load"] = load_average();
  json["memory"] = memory_json();
  json["numa_nodes"] = nodes_json();
  json["huge_pages"] = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  json["governor"] = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  json["devices"] = Json::array();
  for (Device* device : devices) {
    const DeviceInfo& info = device->info();
    Json one = Json::object();
    one["id"] = info.id;
    one["backend"] = info.backend;
    one["name"] = info.name;
    one["pci_address"] = info.pci_address;
    one["memory_bytes"] = info.memory_bytes;
    one["is_real_hardware"] = info.is_real_hardware;
    one["uuid"] = info.uuid.empty() ? Json() : Json(info.uuid);
    one["up_bytes_per_s"] = known_rate(info.up_bytes_per_s);
    one["down_bytes_per_s"] = known_rate(info.down_bytes_per_s);
    auto path = paths.find(info.id);
    one["pci"] = path == paths.end() ? Json() : pci_path_json(path->second);
    json["devices"].push_back(std::move(one));
  }
  return json;
}

}  // namespace stagecoach
