#include "train/measured_machine.h"

#include <fmt/format.h>
#include <optional>

#include "scheduler/boundary_routes.h"
#include "scheduler/bulk_chunk.h"

namespace stagecoach {

namespace {

std::string ahead_text(int ahead) {
  return ahead > 0 ? fmt::format("{} ahead", ahead) : "any number ahead";
}

/// "chunks of 8 MiB, 16 ahead, up".
std::string describe(const MeasuredLane& lane, const char* direction) {
  std::string method = lane.method == BulkMethod::kAlternating
                           ? ""
                           : fmt::format("{}, ", bulk_method_name(lane.method));
  return fmt::format("{}chunks of {}, {}, {}", method, format_bytes(lane.chunk_bytes),
                     ahead_text(lane.ahead), direction);
}

/// What create_bulk_lane does with a direction that nothing was measured of.
std::string describe_assumed(const DeviceInfo& info, double rate, const char* direction) {
  return fmt::format("chunks of {}, {}, {}", format_bytes(bulk_chunk_bytes(rate)),
                     ahead_text(info.bulk_chunks_ahead), direction);
}

/// `says_all`: what is assumed of mocks too.
void take_device(const MachineCard* card, const DeviceInfo& info, bool says_all,
                 MeasuredMachine& machine) {
  MeasuredLinks& device = machine.devices.emplace_back();
  std::string taken, assumed;
  auto add = [](std::string& line, const std::string& part) {
    line += line.empty() ? part : "; " + part;
  };
  if (card != nullptr) {
    device.up_bytes_per_s = card->charged_up_bytes_per_s();
    device.down_bytes_per_s = card->charged_down_bytes_per_s();
    device.bulk = card->bulk;
    add(taken, fmt::format("{:.3g} GB/s up and {:.3g} down with both in use",
                           device.up_bytes_per_s / 1e9, device.down_bytes_per_s / 1e9));
  } else if (info.up_bytes_per_s <= 0 || info.down_bytes_per_s <= 0) {
    add(assumed, "a link whose rate is not known");
  }
  struct Direction {
    const std::optional<MeasuredLane>& lane;
    double rate;
    const char* name;
  };
  for (const Direction& one : {Direction{device.bulk.up, info.up_bytes_per_s, "up"},
                               Direction{device.bulk.down, info.down_bytes_per_s, "down"}}) {
    if (one.lane) {
      add(taken, describe(*one.lane, one.name));
    } else {
      add(assumed, describe_assumed(info, one.rate, one.name));
    }
  }
  if (!taken.empty()) machine.taken.push_back(fmt::format("{}: {}", info.id, taken));
  // Of mocks there is nothing that measuring could improve, unless somebody measured them.
  if (!info.is_real_hardware && card == nullptr && !says_all) return;
  if (!assumed.empty()) machine.assumed.push_back(fmt::format("{}: {}", info.id, assumed));
}

/// The profile's card for a device; null where there is none or it is another one by now.
const MachineCard* card_that_holds(const MachineProfile& profile, const DeviceInfo& info,
                                   const std::vector<IdentityChange>& changes) {
  for (const IdentityChange& change : changes) {
    if (change.field == info.id) return nullptr;
  }
  return profile.card_of(info.id);
}

/// Says which way activations go between the run's devices.
void tell_routes(const MachineProfile* profile, const std::vector<DeviceInfo>& devices,
                 MeasuredMachine& machine) {
  std::vector<std::string> ids;
  for (const DeviceInfo& info : devices) ids.push_back(info.id);
  BoundaryRoutes routes = boundary_routes(profile == nullptr ? MachineProfile() : *profile, ids);
  if (!routes.measured.empty()) machine.taken.push_back(routes.measured);
  for (const std::string& line : {routes.slower, routes.unknown}) {
    if (!line.empty()) machine.assumed.push_back(line);
  }
}

}  // namespace

MeasuredMachine measured_machine(const MachineProfile* profile,
                                 const std::vector<DeviceInfo>& devices,
                                 const MachineIdentity& now) {
  MeasuredMachine machine;
  bool was_given = profile != nullptr, is_real = false;
  std::vector<IdentityChange> changes;
  if (profile != nullptr && profile->measurement) {
    changes = profile->measurement->machine.changes_to(now);
  }
  for (const IdentityChange& change : changes) {
    machine.warnings.push_back(fmt::format(
        "'{}': {}; {}", profile->name, change.text(),
        change.is_soft()
            ? "see with 'stagecoach bench bandwidth profile check FILE' whether it holds"
            : "measure again with 'stagecoach bench bandwidth --save-profile FILE'"));
    bool is_host = change.field == "processor" || change.field == "threads";
    if (is_host) profile = nullptr;
    if (is_host) break;
  }
  for (const DeviceInfo& info : devices) {
    const MachineCard* card =
        profile == nullptr ? nullptr : card_that_holds(*profile, info, changes);
    take_device(card, info, was_given, machine);
    is_real = is_real || info.is_real_hardware;
  }
  if (profile != nullptr) machine.host_threads = profile->host_work_threads;
  if (machine.host_threads > 0) {
    machine.taken.push_back(fmt::format("threads for updates: {}", machine.host_threads));
  } else if (was_given || is_real) {
    machine.assumed.emplace_back("threads for updates: all that are usable");
  }
  if (was_given || is_real) tell_routes(profile, devices, machine);
  return machine;
}

Result<MeasuredMachine> read_measured_machine(const std::string& path,
                                              const std::vector<DeviceInfo>& devices) {
  std::optional<MachineProfile> profile;
  if (!path.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(profile, read_machine_profile(path));
    if (profile->name.empty()) profile->name = path;
  }
  STAGECOACH_ASSIGN_OR_RETURN(MachineIdentity now, read_machine_identity(devices));
  return measured_machine(profile ? &*profile : nullptr, devices, now);
}

}  // namespace stagecoach
