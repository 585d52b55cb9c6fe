#include "hal/topology.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>

#include "tools/bandwidth/bandwidth_context.h"
#include "tools/bandwidth/card_watch.h"
#include "tools/bandwidth/link_load.h"
#include "tools/card_devices.h"
#include "tools/command.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

struct TopologyOptions {
  std::string devices;
  bool is_idle = false;
};

/// A device, and its way to the host where sysfs knows it.
struct PlacedDevice {
  Device* device = nullptr;
  const PciPath* path = nullptr;  ///< null: unknown
  bool was_loaded = false;        ///< the links of the way were read while copies ran
  std::string problem;            ///< why they were not
  std::optional<CardState> card;  ///< nothing: no management library knows it
};

/// Whether several devices are listed without any bridge above them, as in virtual machines.
bool is_flat(const std::vector<PlacedDevice>& devices) {
  return devices.size() > 1 &&
         std::all_of(devices.begin(), devices.end(), [](const PlacedDevice& one) {
           return one.path != nullptr && one.path->hops.size() == 1;
         });
}

/// What is between two devices: "unknown" where sysfs does not tell.
const char* relation(const PlacedDevice& one, const PlacedDevice& other) {
  if (one.path == nullptr || other.path == nullptr) return "unknown";
  return pci_relation(*one.path, *other.path);
}

Json link_json(const std::string& source, const std::string& target, const std::string& kind) {
  Json json = Json::object();
  json["source"] = source;
  json["target"] = target;
  json["kind"] = kind;
  return json;
}

Json topology_json(const std::vector<NumaNode>& nodes, const std::vector<PlacedDevice>& devices,
                   const std::vector<std::string>& absent) {
  Json json = Json::object();
  json["nodes"] = Json::array();
  for (const NumaNode& node : nodes) {
    Json one = Json::object();
    one["index"] = node.index;
    one["cores"] = node.core_count;
    one["memory_bytes"] = node.memory_bytes;
    json["nodes"].push_back(std::move(one));
  }
  json["devices"] = Json::array();
  json["links"] = Json::array();
  for (const PlacedDevice& one : devices) {
    const DeviceInfo& info = one.device->info();
    Json device = Json::object();
    device["id"] = info.id;
    device["name"] = info.name;
    device["numa_node"] = info.numa_node >= 0 ? Json(info.numa_node) : Json();
    device["uuid"] = info.uuid.empty() ? Json() : Json(info.uuid);
    device["pci_address"] = info.pci_address.empty() ? Json() : Json(info.pci_address);
    device["pci"] = one.path == nullptr ? Json() : pci_path_json(*one.path);
    device["card"] = one.card.has_value() ? card_state_json(*one.card) : Json();
    json["devices"].push_back(std::move(device));
    Json link = link_json("host", info.id, one.path == nullptr ? "unknown" : "pcie");
    double rate = one.path == nullptr ? 0 : one.path->bytes_per_s();
    double most = one.path == nullptr ? 0 : one.path->max_bytes_per_s();
    link["bytes_per_s"] = rate > 0 ? Json(rate) : Json();
    link["max_bytes_per_s"] = most > 0 ? Json(most) : Json();
    link["under_load"] = one.was_loaded;
    link["problem"] = one.problem.empty() ? Json() : Json(one.problem);
    json["links"].push_back(std::move(link));
  }
  for (size_t one = 0; one < devices.size(); ++one) {
    for (size_t other = one + 1; other < devices.size(); ++other) {
      json["links"].push_back(link_json(devices[one].device->id(), devices[other].device->id(),
                                        relation(devices[one], devices[other])));
    }
  }
  json["is_flat"] = is_flat(devices);
  json["absent"] = Json::array();
  for (const std::string& reason : absent) json["absent"].push_back(reason);
  return json;
}

std::string width_text(double speed, int width) {
  if (speed <= 0 || width <= 0) return "unknown";
  return fmt::format("{:g} GT/s x{}", speed, width);
}

void print_path(const PlacedDevice& placed) {
  std::string indent = "    ";
  for (const PciHop& hop : placed.path->hops) {
    std::string now = width_text(hop.speed_gt_per_s, hop.width);
    std::string most = width_text(hop.max_speed_gt_per_s, hop.max_width);
    fmt::print("{}{}  {}{}\n", indent, hop.address, now,
               now == most ? "" : fmt::format(" (at most {})", most));
    indent += "  ";
  }
  const PciPath& path = *placed.path;
  std::string redirects = !path.acs_redirects.has_value() ? "unknown"
                          : *path.acs_redirects           ? "to the host"
                                                          : "none";
  fmt::print("    IOMMU {}, BAR {}, redirection of peer copies {}{}\n",
             path.iommu_type.empty() ? "unknown or none" : path.iommu_type,
             format_bytes(path.largest_bar), redirects,
             path.near_threads.empty() ? "" : ", beside processors " + path.near_threads);
  double rate = placed.path->bytes_per_s(), most = placed.path->max_bytes_per_s();
  if (rate <= 0) return;
  fmt::print("    carries {:.1f} GB/s each way{}{}\n", rate / 1e9,
             rate < most ? fmt::format(", its parts {:.1f}", most / 1e9) : "",
             placed.was_loaded ? "" : "; read without load, when links may save power");
}

void print_matrix(const std::vector<PlacedDevice>& devices) {
  if (devices.size() < 2) return;
  fmt::print("\n{:<10}", "");
  for (const PlacedDevice& one : devices) fmt::print("{:<10}", one.device->id());
  fmt::print("\n");
  for (const PlacedDevice& one : devices) {
    fmt::print("{:<10}", one.device->id());
    for (const PlacedDevice& other : devices) {
      fmt::print("{:<10}", one.device == other.device ? "-" : relation(one, other));
    }
    fmt::print("\n");
  }
  fmt::print(
      "\nPIX one switch, PXB several bridges, PHB a host bridge, NODE a NUMA node, SYS the\n"
      "link between NUMA nodes; what is shared in fact: stagecoach bench bandwidth "
      "contention\n");
}

void print_text(const std::vector<NumaNode>& nodes, const std::vector<PlacedDevice>& devices,
                const std::vector<std::string>& absent) {
  for (const NumaNode& node : nodes) {
    fmt::print("node {}  {} cores  {}{}\n", node.index, node.core_count,
               format_bytes(node.memory_bytes), node.core_count == 0 ? "  (memory only)" : "");
  }
  for (const PlacedDevice& one : devices) {
    const DeviceInfo& info = one.device->info();
    std::string node = info.numa_node >= 0 ? fmt::format("  node {}", info.numa_node) : "";
    fmt::print("{}  {}{}\n", info.id, info.name, node);
    if (one.path != nullptr) {
      print_path(one);
    } else {
      fmt::print("    not on a PCI bus that sysfs lists\n");
    }
    if (one.card.has_value()) fmt::print("    {}\n", card_state_text(*one.card));
    if (!info.uuid.empty()) fmt::print("    {}\n", info.uuid);
    if (!one.problem.empty()) fmt::print("    links were not read under load: {}\n", one.problem);
  }
  print_matrix(devices);
  if (is_flat(devices)) {
    fmt::print(
        "no bridges are listed, as in virtual machines: only measuring tells what devices share\n");
  }
  for (const std::string& reason : absent) fmt::print("absent: {}\n", reason);
}

Result<int> run_topology(const CommandContext& context, const TopologyOptions& options) {
  STAGECOACH_ASSIGN_OR_RETURN(CardDevices cards, open_cards(context.backends, options.devices));
  std::vector<Device*> devices = cards.pointers();
  STAGECOACH_ASSIGN_OR_RETURN(Topology topology, Topology::discover(devices));
  std::map<std::string, PciPath> paths = read_device_paths(devices);
  std::vector<DeviceInfo> infos;
  for (Device* device : devices) infos.push_back(device->info());
  STAGECOACH_ASSIGN_OR_RETURN(CardWatch watch, CardWatch::start(infos));
  std::unique_ptr<TaskPool> pool = TaskPool::create(usable_thread_count());
  std::vector<PlacedDevice> placed;
  for (Device* device : devices) {
    PlacedDevice& one = placed.emplace_back();
    one.device = device;
    auto path = paths.find(device->id());
    if (path == paths.end()) continue;
    one.path = &path->second;
    if (options.is_idle || !device->info().is_real_hardware) continue;
    Status loaded = read_links_under_load(*device, *pool, path->second);
    one.was_loaded = loaded.is_ok();
    if (!loaded.is_ok()) one.problem = loaded.message();
    watch.look();
  }
  for (PlacedDevice& one : placed) one.card = watch.last(one.device->id());
  if (context.json) {
    fmt::print("{}\n", topology_json(topology.nodes, placed, cards.absent).dump());
  } else {
    print_text(topology.nodes, placed, cards.absent);
  }
  return kExitOk;
}

}  // namespace

Command make_topology_command() {
  auto options = std::make_shared<TopologyOptions>();
  Command command;
  command.name = "topology";
  command.summary = "shows how devices, host memory and links hang together";
  command.examples = {"stagecoach topology", "stagecoach topology --devices cuda:all --json"};
  command.notes =
      "Links of cards are read while copies run, since idle ones save power by going slower; what\n"
      "the system does not tell is unknown.";
  command.options = {
      {"--devices", "SPEC", "devices to show; default: every card there is", &options->devices},
      {"--idle", "", "read links without load", &options->is_idle}};
  command.run = [options](const CommandContext& context) {
    return run_topology(context, *options);
  };
  return command;
}

}  // namespace stagecoach
