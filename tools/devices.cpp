#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "core/bytes.h"
#include "core/json.h"
#include "core/settings.h"
#include "hal/topology.h"
#include "tools/absent_backends.h"
#include "tools/command.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

struct DevicesOptions {
  std::string spec;
  bool verbose = false;
};

Json device_to_json(const DeviceInfo& info) {
  Json json = Json::object();
  json["id"] = info.id;
  json["backend"] = info.backend;
  json["name"] = info.name;
  json["memory_bytes"] = info.memory_bytes;
  json["copy_engines"] = info.copy_engines;
  json["numa_node"] = info.numa_node;
  if (!info.pci_address.empty()) json["pci_address"] = info.pci_address;
  if (!info.uuid.empty()) json["uuid"] = info.uuid;
  json["is_real_hardware"] = info.is_real_hardware;
  json["speed"] = info.speed;
  return json;
}

/// Name of the library or kernel that serves each op of the device.
std::vector<std::pair<std::string, std::string>> op_providers(Device& device) {
  std::vector<std::pair<std::string, std::string>> providers;
  for (int i = 0; i < kOpKindCount; ++i) {
    auto kind = static_cast<OpKind>(i);
    providers.emplace_back(op_kind_name(kind), device.ops().provider(kind));
  }
  return providers;
}

/// What is printed of one device.
struct ListedDevice {
  DeviceInfo info;
  std::vector<std::pair<std::string, std::string>> providers;  ///< with --verbose
};

struct Listing {
  std::vector<ListedDevice> devices;
  std::vector<PeerLink> links;  ///< with --verbose: pairs of `devices` of one backend
};

Result<PeerChoice> peer_choice() {
  STAGECOACH_ASSIGN_OR_RETURN(Settings settings, read_settings());
  if (settings.peer == "on") return PeerChoice::kOn;
  return settings.peer == "off" ? PeerChoice::kOff : PeerChoice::kProbe;
}

/// Opens `spec` and adds its devices; with `verbose` also what serves them and what links them.
Status add_opened(const BackendRegistry& backends, const std::string& spec, bool verbose,
                  Listing& listing) {
  STAGECOACH_ASSIGN_OR_RETURN(auto opened, backends.open_devices(spec));
  int first = static_cast<int>(listing.devices.size());
  std::vector<Device*> pointers;
  for (const std::unique_ptr<Device>& device : opened) {
    pointers.push_back(device.get());
    listing.devices.push_back({device->info(), {}});
    if (verbose) listing.devices.back().providers = op_providers(*device);
  }
  if (!verbose) return Status::ok();
  std::vector<PeerLink> links;
  for (int source = 0; source < static_cast<int>(pointers.size()); ++source) {
    for (int target = 0; target < static_cast<int>(pointers.size()); ++target) {
      auto backend_of = [&](int i) { return pointers[static_cast<size_t>(i)]->info().backend; };
      if (source == target || backend_of(source) != backend_of(target)) continue;
      links.push_back(PeerLink{source, target});
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(PeerChoice choice, peer_choice());
  STAGECOACH_RETURN_IF_ERROR(settle_peer_links(pointers, choice, links));
  for (PeerLink& link : links) {
    link.source += first;
    link.target += first;
    listing.links.push_back(std::move(link));
  }
  return Status::ok();
}

Result<Listing> list_devices(const BackendRegistry& backends, const DevicesOptions& options) {
  Listing listing;
  if (!options.spec.empty()) {
    STAGECOACH_RETURN_IF_ERROR(add_opened(backends, options.spec, options.verbose, listing));
    return listing;
  }
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    if (!backend->availability().is_ok()) continue;
    std::vector<DeviceInfo> infos = backend->list_devices();
    // Only an open device knows what serves its ops.
    if (options.verbose && !infos.empty() && infos[0].is_real_hardware) {
      std::string all = std::string(backend->name()) + ":all";
      STAGECOACH_RETURN_IF_ERROR(add_opened(backends, all, true, listing));
      continue;
    }
    for (const DeviceInfo& info : infos) {
      listing.devices.push_back({info, {}});
      if (!options.verbose) continue;
      // A mock is asked for by number of devices.
      STAGECOACH_ASSIGN_OR_RETURN(auto devices, backends.open_devices(info.backend + ":1"));
      listing.devices.back().providers = op_providers(*devices.front());
    }
  }
  return listing;
}

/// How copies over a link go, for people and for scripts.
std::string link_path(const PeerLink& link) {
  if (link.state != PeerState::kWorks) return fmt::format("through the host: {}", link.reason);
  if (!link.reason.empty()) return fmt::format("peer to peer, {}", link.reason);
  return fmt::format("peer to peer, {:.1f} GB/s", link.bytes_per_second / 1e9);
}

Json link_to_json(const PeerLink& link, const std::vector<ListedDevice>& devices) {
  Json json = Json::object();
  json["source"] = devices[static_cast<size_t>(link.source)].info.id;
  json["target"] = devices[static_cast<size_t>(link.target)].info.id;
  json["is_peer_to_peer"] = link.state == PeerState::kWorks;
  json["reason"] = link.reason;
  json["bytes_per_s"] = link.bytes_per_second;
  return json;
}

void print_json(const Listing& listing, const std::vector<AbsentBackend>& absent) {
  Json json = Json::object();
  json["devices"] = Json::array();
  json["absent"] = Json::array();
  for (const ListedDevice& device : listing.devices) {
    Json entry = device_to_json(device.info);
    for (const auto& [op, provider] : device.providers) entry["ops"][op] = provider;
    json["devices"].push_back(std::move(entry));
  }
  if (!listing.links.empty()) json["links"] = Json::array();
  for (const PeerLink& link : listing.links) {
    json["links"].push_back(link_to_json(link, listing.devices));
  }
  for (const AbsentBackend& backend : absent) {
    Json entry = Json::object();
    entry["backend"] = backend.backend;
    entry["reason"] = backend.reason;
    json["absent"].push_back(std::move(entry));
  }
  fmt::print("{}\n", json.dump());
}

/// What else than its id a device may be asked for by; empty where there is nothing.
std::string other_names(const DeviceInfo& info) {
  if (info.uuid.empty() && info.pci_address.empty()) return "";
  if (info.uuid.empty()) return fmt::format("at {}", info.pci_address);
  return info.pci_address.empty() ? info.uuid
                                  : fmt::format("{} at {}", info.uuid, info.pci_address);
}

void print_text(const Listing& listing, const std::vector<AbsentBackend>& absent, bool verbose) {
  for (const ListedDevice& device : listing.devices) {
    fmt::print("{:<8}  {:>12}  {}\n", device.info.id, format_bytes(device.info.memory_bytes),
               device.info.name);
    std::string names = other_names(device.info);
    if (verbose && !names.empty()) fmt::print("          {}\n", names);
    for (const auto& [op, provider] : device.providers) {
      fmt::print("          {:<36}  {}\n", op, provider);
    }
  }
  for (const PeerLink& link : listing.links) {
    auto id = [&](int index) { return listing.devices[static_cast<size_t>(index)].info.id; };
    fmt::print("{} -> {}  {}\n", id(link.source), id(link.target), link_path(link));
  }
  for (const AbsentBackend& backend : absent) {
    fmt::print("{:<8}  absent        {}\n", backend.backend, backend.reason);
  }
}

}  // namespace

Command make_devices_command() {
  auto options = std::make_shared<DevicesOptions>();
  Command command;
  command.name = "devices";
  command.summary = "lists the devices found and why others are absent";
  command.examples = {"stagecoach devices", "stagecoach devices --verbose --json",
                      "stagecoach devices --devices cpu:4[memory=64M,flops=20G]"};
  command.options = {
      {"--devices", "SPEC", "list what this device string opens instead of what is there",
       &options->spec},
      {"--verbose", "", "also say what serves each op and how copies between cards go",
       &options->verbose}};
  command.run = [options](const CommandContext& context) -> Result<int> {
    STAGECOACH_ASSIGN_OR_RETURN(Listing listing, list_devices(context.backends, *options));
    std::vector<AbsentBackend> absent = absent_backends(context.backends);
    if (context.json) {
      print_json(listing, absent);
    } else {
      print_text(listing, absent, options->verbose);
    }
    return listing.devices.empty() ? kExitNoDevice : kExitOk;
  };
  return command;
}

}  // namespace stagecoach
