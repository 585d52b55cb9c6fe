#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "core/bytes.h"
#include "core/json.h"
#include "tools/command.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

struct DevicesOptions {
  std::string spec;
  bool verbose = false;
};

/// A backend that is absent, and why.
struct AbsentBackend {
  std::string backend;
  std::string reason;
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
  json["is_real_hardware"] = info.is_real_hardware;
  json["speed"] = info.speed;
  return json;
}

std::vector<AbsentBackend> absent_backends(const BackendRegistry& backends) {
  std::vector<AbsentBackend> absent;
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    Status status = backend->availability();
    if (!status.is_ok()) absent.push_back({std::string(backend->name()), status.message()});
  }
  for (const char* name : {"cuda", "hip"}) {
    if (backends.find(name) != nullptr) continue;
    const char* flag = std::string_view(name) == "cuda" ? "STAGECOACH_CUDA" : "STAGECOACH_HIP";
    absent.push_back({name, fmt::format("not built in: configure with -D{}=ON", flag)});
  }
  return absent;
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

Result<std::vector<ListedDevice>> list_devices(const BackendRegistry& backends,
                                               const DevicesOptions& options) {
  std::vector<ListedDevice> listed;
  std::vector<std::unique_ptr<Device>> opened;
  if (options.spec.empty()) {
    for (const std::unique_ptr<Backend>& backend : backends.backends()) {
      if (!backend->availability().is_ok()) continue;
      for (const DeviceInfo& info : backend->list_devices()) {
        listed.push_back({info, {}});
        if (!options.verbose) continue;
        // Only an open device knows what serves its ops. A mock is asked for by number of devices.
        const std::string spec = info.is_real_hardware ? info.id : info.backend + ":1";
        STAGECOACH_ASSIGN_OR_RETURN(auto devices, backends.open_devices(spec));
        listed.back().providers = op_providers(*devices.front());
      }
    }
    return listed;
  }
  STAGECOACH_ASSIGN_OR_RETURN(opened, backends.open_devices(options.spec));
  for (const std::unique_ptr<Device>& device : opened) {
    listed.push_back({device->info(), {}});
    if (options.verbose) listed.back().providers = op_providers(*device);
  }
  return listed;
}

void print_json(const std::vector<ListedDevice>& devices,
                const std::vector<AbsentBackend>& absent) {
  Json json = Json::object();
  json["devices"] = Json::array();
  json["absent"] = Json::array();
  for (const ListedDevice& device : devices) {
    Json entry = device_to_json(device.info);
    for (const auto& [op, provider] : device.providers) entry["ops"][op] = provider;
    json["devices"].push_back(std::move(entry));
  }
  for (const AbsentBackend& backend : absent) {
    Json entry = Json::object();
    entry["backend"] = backend.backend;
    entry["reason"] = backend.reason;
    json["absent"].push_back(std::move(entry));
  }
  fmt::print("{}\n", json.dump());
}

void print_text(const std::vector<ListedDevice>& devices,
                const std::vector<AbsentBackend>& absent) {
  for (const ListedDevice& device : devices) {
    fmt::print("{:<8}  {:>12}  {}\n", device.info.id, format_bytes(device.info.memory_bytes),
               device.info.name);
    for (const auto& [op, provider] : device.providers) {
      fmt::print("          {:<36}  {}\n", op, provider);
    }
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
      {"--verbose", "", "also say which library or kernel serves each op", &options->verbose}};
  command.run = [options](const CommandContext& context) -> Result<int> {
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<ListedDevice> devices,
                                list_devices(context.backends, *options));
    std::vector<AbsentBackend> absent = absent_backends(context.backends);
    if (context.json) {
      print_json(devices, absent);
    } else {
      print_text(devices, absent);
    }
    return devices.empty() ? kExitNoDevice : kExitOk;
  };
  return command;
}

}  // namespace stagecoach
