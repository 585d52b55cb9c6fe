#include "scheduler/machine_identity.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <sys/utsname.h>

#include "core/digest.h"
#include "core/file.h"
#include "core/task_pool.h"

namespace stagecoach {

namespace {

constexpr std::string_view kSoftFields[] = {"kernel", "driver"};

bool is_soft_field(std::string_view field) {
  return std::find(std::begin(kSoftFields), std::end(kSoftFields), field) != std::end(kSoftFields);
}

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

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

/// The version that a loaded kernel driver of cards tells: the first word that is a number with
/// dots.
std::string card_driver() {
  for (const char* path : {"/proc/driver/nvidia/version", "/sys/module/amdgpu/version"}) {
    Result<std::string> text = read_file(path);
    if (text.is_ok()) return internal::driver_version(*text);
  }
  return "";
}

}  // namespace

std::string IdentityChange::text() const {
  if (before.empty()) return fmt::format("{} was not measured", field);
  return fmt::format("{} was {} and is {}", field, before, now);
}

bool IdentityChange::is_soft() const {
  return is_soft_field(field);
}

std::string MachineIdentity::fingerprint() const {
  Sha256 digest;
  for (const auto& [name, value] : fields) {
    if (is_soft_field(name)) continue;
    std::string line = fmt::format("{}={}\n", name, value);
    digest.update(line.data(), static_cast<ByteCount>(line.size()));
  }
  return digest.hex();
}

std::vector<IdentityChange> MachineIdentity::changes_to(const MachineIdentity& now) const {
  std::vector<IdentityChange> changes;
  for (const auto& [name, value] : now.fields) {
    const std::string* before = value_of(*this, name);
    if (before == nullptr && is_soft_field(name)) continue;
    if (before != nullptr && *before == value) continue;
    changes.push_back({name, before == nullptr ? "" : *before, value});
  }
  return changes;
}

namespace internal {

std::string driver_version(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  for (size_t begin = 0; begin < line.size();) {
    size_t end = std::min(line.find(' ', begin), line.size());
    std::string_view word = line.substr(begin, end - begin);
    bool is_version = word.find_first_not_of("0123456789.") == std::string_view::npos &&
                      word.find('.') != std::string_view::npos;
    if (is_version) return std::string(word);
    begin = end + 1;
  }
  return "";
}

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
  if (!inputs.kernel.empty()) add("kernel", inputs.kernel);
  if (!inputs.driver.empty()) add("driver", inputs.driver);
  return identity;
}

}  // namespace internal

Result<MachineIdentity> read_machine_identity(const std::vector<DeviceInfo>& devices) {
  internal::IdentityInputs inputs;
  STAGECOACH_ASSIGN_OR_RETURN(inputs.cpuinfo, read_file("/proc/cpuinfo"));
  inputs.threads = usable_thread_count();
  inputs.devices = devices;
  inputs.kernel = kernel_release();
  bool has_card = std::any_of(devices.begin(), devices.end(),
                              [](const DeviceInfo& device) { return device.is_real_hardware; });
  if (has_card) inputs.driver = card_driver();
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
