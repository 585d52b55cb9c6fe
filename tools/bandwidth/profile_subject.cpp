#include "tools/bandwidth/profile_subject.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "stagecoach_version.h"

namespace stagecoach {

namespace {

Status missing_field(const char* name) {
  return invalid_argument(
      fmt::format("the report's context: '{}' of a device is missing or of another type; measure "
                  "again with this version",
                  name));
}

Status read_text(const Json& device, const char* name, std::string& text) {
  const Json* value = device.find(name);
  if (value == nullptr || !value->is_string()) return missing_field(name);
  text = value->as_string();
  return Status::ok();
}

}  // namespace

Result<std::vector<DeviceInfo>> devices_of_context(const Json& context) {
  std::vector<DeviceInfo> devices;
  const Json* list = context.find("devices");
  if (list == nullptr || !list->is_array()) return missing_field("devices");
  for (const Json& one : list->items()) {
    DeviceInfo& info = devices.emplace_back();
    STAGECOACH_RETURN_IF_ERROR(read_text(one, "id", info.id));
    STAGECOACH_RETURN_IF_ERROR(read_text(one, "backend", info.backend));
    STAGECOACH_RETURN_IF_ERROR(read_text(one, "name", info.name));
    STAGECOACH_RETURN_IF_ERROR(read_text(one, "pci_address", info.pci_address));
    // Null where the backend tells of none.
    const Json* uuid = one.find("uuid");
    if (uuid != nullptr && uuid->is_string()) info.uuid = uuid->as_string();
    const Json* memory = one.find("memory_bytes");
    if (memory == nullptr || !memory->is_integer()) return missing_field("memory_bytes");
    info.memory_bytes = memory->as_integer();
    const Json* is_real = one.find("is_real_hardware");
    if (is_real == nullptr || !is_real->is_bool()) return missing_field("is_real_hardware");
    info.is_real_hardware = is_real->as_bool();
  }
  return devices;
}

Result<ProfileSubject> read_profile_subject(const BandwidthReport& report) {
  ProfileSubject subject;
  STAGECOACH_ASSIGN_OR_RETURN(subject.devices, devices_of_context(report.context));
  MachineMeasurement& measurement = subject.measurement;
  measurement.when = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  measurement.by = fmt::format("stagecoach {}", STAGECOACH_VERSION);
  const Json* suite = report.context.find("suite");
  if (suite != nullptr && suite->is_string()) measurement.depth = suite->as_string();
  STAGECOACH_ASSIGN_OR_RETURN(measurement.machine, read_machine_identity(subject.devices));
  return subject;
}

}  // namespace stagecoach
