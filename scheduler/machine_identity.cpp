#include "scheduler/machine_identity.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "core/digest.h"
#include "core/file.h"
#include "core/task_pool.h"

namespace stagecoach {

namespace {

const std::string* value_of(const MachineIdentity& identity, std::string_view name) {
  for (const auto& [field, value] : identity.fields) {
    if (field == name) return &value;
  }
  return nullptr;
}

/// The first "model name" of /proc/cpuinfo; architectures without one tell none.
std::string processor_name(std::string_view cpuinfo) {
  constexpr std::string_view kField = "model name";
  size_t line = cpuinfo.find(kField);
  if (line == std::string_view::npos) return "unknown";
  std::string_view rest = cpuinfo.substr(line, cpuinfo.find('\n', line) - line);
  size_t begin = rest.find_first_not_of(" \t", std::min(rest.size(), rest.find(':') + 1));
  return begin == std::string_view::npos ? "unknown" : std::string(rest.substr(begin));
}

}  // namespace

std::string MachineIdentity::fingerprint() const {
  Sha256 digest;
  for (const auto& [name, value] : fields) {
    std::string line = fmt::format("{}={}\n", name, value);
    digest.update(line.data(), static_cast<ByteCount>(line.size()));
  }
  return digest.hex();
}

std::vector<std::string> MachineIdentity::changes_to(const MachineIdentity& now) const {
  std::vector<std::string> changes;
  for (const auto& [name, value] : now.fields) {
    const std::string* before = value_of(*this, name);
    if (before == nullptr) {
      changes.push_back(fmt::format("{} was not measured", name));
    } else if (*before != value) {
      changes.push_back(fmt::format("{} was {} and is {}", name, *before, value));
    }
  }
  return changes;
}

namespace internal {

MachineIdentity machine_identity(const IdentityInputs& inputs) {
  MachineIdentity identity;
  auto add = [&](std::string name, std::string value) {
    identity.fields.emplace_back(std::move(name), std::move(value));
  };
  add("processor", processor_name(inputs.cpuinfo));
  add("threads", fmt::format("{}", inputs.threads));
  for (const DeviceInfo& device : inputs.devices) {
    std::string place = device.pci_address.empty() ? "" : " at " + device.pci_address;
    // Instances of one card differ in nothing else; nor do cards of a model that were swapped.
    if (!device.uuid.empty()) place += " " + device.uuid;
    add(device.id, device.name + place);
  }
  return identity;
}

}  // namespace internal

Result<MachineIdentity> read_machine_identity(const std::vector<DeviceInfo>& devices) {
  internal::IdentityInputs inputs;
  STAGECOACH_ASSIGN_OR_RETURN(inputs.cpuinfo, read_file("/proc/cpuinfo"));
  inputs.threads = usable_thread_count();
  inputs.devices = devices;
  return internal::machine_identity(inputs);
}

Json to_json(const MachineIdentity& identity) {
  Json json = Json::object();
  for (const auto& [name, value] : identity.fields) json[name] = value;
  return json;
}

Result<MachineIdentity> parse_machine_identity(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    return invalid_argument(fmt::format("{} is {}; it must be a table", where, json.dump()));
  }
  MachineIdentity identity;
  for (const auto& [name, value] : json.members()) {
    if (!value.is_string()) {
      return invalid_argument(
          fmt::format("{}: {} is {}; it must be text", where, name, value.dump()));
    }
    identity.fields.emplace_back(name, value.as_string());
  }
  return identity;
}

}  // namespace stagecoach
