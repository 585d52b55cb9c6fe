#include "tools/rated_devices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <map>

#include "backends/cpu/cpu_options.h"
#include "backends/sim/sim_card.h"
#include "hal/device_spec.h"
#include "scheduler/alike_devices.h"
#include "scheduler/boundary_routes.h"

namespace stagecoach {

namespace {

constexpr double kNsPerS = 1e9;
constexpr int kMostCards = 64;

/// Where nothing limits a rate or a memory in virtual time.
constexpr double kUnlimitedBytesPerS = 1e18;

/// A device and its own rate; speeds follow once all are known.
struct Rated {
  PlannedDevice device;
  SimCard card;
  double flop_per_s = 0;
  OpRates ops;
  std::string measured_card;  ///< its name, where a profile has measured it
};

/// Cards of one name differ by what measuring them did, and by what else lies in their memory.
void level_cards(std::vector<Rated>& all) {
  std::map<std::string, int> numbers;
  std::vector<int> kinds;
  std::vector<double> flop, up, down, memory;
  for (const Rated& one : all) {
    // What was not measured is as it was given.
    int number = static_cast<int>(kinds.size());
    bool is_measured = !one.measured_card.empty();
    kinds.push_back(is_measured ? numbers.emplace(one.measured_card, number).first->second
                                : number);
    flop.push_back(one.flop_per_s);
    up.push_back(one.device.up_bytes_per_ns);
    down.push_back(one.device.down_bytes_per_ns);
    memory.push_back(static_cast<double>(one.device.memory_bytes));
  }
  flop = level_alike(std::move(flop), kinds, kSpeedNoise);
  up = level_alike(std::move(up), kinds, kLinkNoise);
  down = level_alike(std::move(down), kinds, kLinkNoise);
  std::vector<double> mean = level_alike(memory, kinds, kMemoryNoise);
  for (size_t index = 0; index < all.size(); ++index) {
    Rated& one = all[index];
    one.flop_per_s = flop[index];
    one.device.up_bytes_per_ns = up[index];
    one.device.down_bytes_per_ns = down[index];
    for (size_t other = 0; other < all.size(); ++other) {
      bool is_alike = kinds[other] == kinds[index] && mean[other] == mean[index];
      if (is_alike) memory[index] = std::min(memory[index], memory[other]);
    }
    one.device.memory_bytes = static_cast<ByteCount>(memory[index]);
  }
}

void add_note(RatedDevices& rated, std::string note) {
  std::vector<std::string>& notes = rated.assumptions;
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

/// Virtual time knows one rate for both directions: the slower.
SimCard card_of(const PlannedDevice& device, double flop_per_s) {
  double link = kUnlimitedBytesPerS;
  for (double rate : {device.up_bytes_per_ns, device.down_bytes_per_ns}) {
    if (rate > 0) link = std::min(link, rate * kNsPerS);
  }
  ByteCount memory = device.memory_bytes > 0 ? device.memory_bytes : kUnlimitedBytes;
  return {"cpu", "CPU device", memory, flop_per_s, kUnlimitedBytesPerS, link, 2 * link, "options"};
}

/// A device with what a profile has measured of it.
Rated measured_device(const MachineProfile& profile, const MachineCard& card, std::string name,
                      ByteCount memory_bytes) {
  Rated rated;
  rated.measured_card = card.name;
  if (const OpRates* ops = profile.ops_of(card.name)) rated.ops = *ops;
  rated.device.name = std::move(name);
  rated.device.memory_bytes = memory_bytes;
  rated.device.up_bytes_per_ns = card.charged_up_bytes_per_s() / kNsPerS;
  rated.device.down_bytes_per_ns = card.charged_down_bytes_per_s() / kNsPerS;
  rated.device.uplink = card.uplink;
  rated.flop_per_s = card.flop_per_s;
  rated.card = card_of(rated.device, card.flop_per_s);
  return rated;
}

/// What a profile has of a device; nothing where it means another one by that name.
const MachineCard* measured_card(const MachineProfile* profile, const std::string& device,
                                 const std::string& name, RatedDevices& rated) {
  const MachineCard* card = profile == nullptr ? nullptr : profile->card_of(device);
  if (card == nullptr || card->name == name || card->name == kUnnamedCard) return card;
  add_note(rated, fmt::format("{} is '{}', and of '{}' '{}': its rates are not used; measure again",
                              device, name, profile->name, card->name));
  return nullptr;
}

Status add_cpu_devices(const DeviceSpec& spec, const MachineProfile* profile,
                       std::vector<Rated>& all, RatedDevices& rated) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<CpuDeviceOptions> options, parse_cpu_options(spec));
  for (size_t index = 0; index < options.size(); ++index) {
    const CpuPacing& pacing = options[index].pacing;
    double rate = pacing.flop_per_s > 0 ? pacing.flop_per_s : kAssumedCpuFlopPerS;
    PlannedDevice device;
    device.name = fmt::format("cpu:{}", spec.first_index + static_cast<int>(index));
    device.memory_bytes = options[index].memory_bytes;
    if (const MachineCard* card =
            measured_card(profile, device.name, cpu_device_name(pacing), rated)) {
      all.push_back(measured_device(*profile, *card, device.name, device.memory_bytes));
      continue;
    }
    device.up_bytes_per_ns = pacing.up_bytes_per_s / kNsPerS;
    device.down_bytes_per_ns = pacing.down_bytes_per_s / kNsPerS;
    rated.latency_ns = std::max(rated.latency_ns, static_cast<double>(pacing.latency_ns));
    if (pacing.flop_per_s <= 0) {
      add_note(rated, fmt::format("{}: {:.3g} GFLOP/s, a guess; give flops=", spec.text,
                                  kAssumedCpuFlopPerS / 1e9));
    }
    if (pacing.up_bytes_per_s <= 0 || pacing.down_bytes_per_s <= 0) {
      const char* which = pacing.up_bytes_per_s > 0     ? "transfers down take no time; give d2h="
                          : pacing.down_bytes_per_s > 0 ? "transfers up take no time; give h2d="
                                                        : "transfers take no time; give h2d= and "
                                                          "d2h=";
      add_note(rated, fmt::format("{}: {}", spec.text, which));
    }
    all.push_back({device, card_of(device, rate), rate * pacing.speed, {}, {}});
  }
  return Status::ok();
}

PlannedDevice device_of(const SimCard& card, std::string name, ByteCount memory_bytes) {
  PlannedDevice device;
  device.name = std::move(name);
  device.memory_bytes = memory_bytes;
  // Both directions are in use together.
  double rate = std::min(card.link_bytes_per_s, card.duplex_bytes_per_s / 2) / kNsPerS;
  device.up_bytes_per_ns = device.down_bytes_per_ns = rate;
  return device;
}

void note_card(const DeviceSpec& spec, const SimCard& card, RatedDevices& rated) {
  add_note(rated, fmt::format("{}: {:.4g} TFLOP/s, {:.3g} GB/s each way with both in use, of {}",
                              spec.text, card.matmul_flop_per_s / 1e12,
                              std::min(card.link_bytes_per_s, card.duplex_bytes_per_s / 2) / 1e9,
                              card.source));
}

/// "8xrtx4090": how many, of what.
struct SimulatedCards {
  int count = 0;
  std::string kind;

  /// Whether the kind is a file's name rather than a card's.
  bool is_file() const { return kind.ends_with(".json") || kind.find('/') != std::string::npos; }
};

Result<SimulatedCards> simulated_cards(const DeviceSpec& spec) {
  size_t cross = spec.which.find('x');
  int count = 0;
  const char* begin = spec.which.data();
  auto [end, error] = std::from_chars(begin, begin + spec.which.size(), count);
  bool is_whole = cross != std::string::npos && error == std::errc() && end == begin + cross;
  if (is_whole && count >= 1 && count <= kMostCards) {
    return SimulatedCards{count, spec.which.substr(cross + 1)};
  }
  return invalid_argument(
      fmt::format("device '{}': '{}' is not a number of cards (1 to {}) and their kind; write "
                  "sim:8xrtx4090 or sim:8xFILE.json",
                  spec.text, spec.which, kMostCards));
}

/// The one `memory` option; `otherwise` where it is absent.
Result<ByteCount> memory_option(const DeviceSpec& spec, ByteCount otherwise) {
  ByteCount memory = otherwise;
  for (const auto& [name, values] : spec.options) {
    if (name != "memory") {
      return invalid_argument(
          fmt::format("device '{}': unknown option '{}'; the only one is "
                      "'memory'",
                      spec.text, name));
    }
    STAGECOACH_ASSIGN_OR_RETURN(memory, parse_bytes(values.front()));
    if (memory <= 0) {
      return invalid_argument(
          fmt::format("device '{}': option 'memory' must be above 0", spec.text));
    }
  }
  return memory;
}

/// The cards of a machine profile, which says everything of its devices.
Status add_machine(const DeviceSpec& spec, const SimulatedCards& cards, std::vector<Rated>& all,
                   RatedDevices& rated) {
  STAGECOACH_ASSIGN_OR_RETURN(MachineProfile machine, read_machine_profile(cards.kind));
  Result<std::vector<PlannedDevice>> devices = planned_devices(machine, cards.count);
  if (!devices.is_ok()) return devices.status().with_context(fmt::format("device '{}'", spec.text));
  for (size_t index = 0; index < devices->size(); ++index) {
    PlannedDevice device = (*devices)[index];
    STAGECOACH_ASSIGN_OR_RETURN(device.memory_bytes, memory_option(spec, device.memory_bytes));
    double rate = machine.cards[index].flop_per_s;
    const OpRates* ops = machine.ops_of(machine.cards[index].name);
    all.push_back({device, card_of(device, rate), rate, ops != nullptr ? *ops : OpRates(),
                   machine.measurement ? machine.cards[index].name : ""});
  }
  rated.uplinks = machine.uplinks;
  rated.host_bytes_per_s = machine.host_work_bytes_per_s;
  rated.host_memory_bytes_per_s = machine.host_memory_bytes_per_s;
  rated.latency_ns = machine.latency_ns;
  for (const std::string& note : machine.notes) {
    add_note(rated, fmt::format("{}: {}", machine.name, note));
  }
  return Status::ok();
}

Status add_simulated_cards(const DeviceSpec& spec, std::vector<Rated>& all, RatedDevices& rated) {
  STAGECOACH_ASSIGN_OR_RETURN(SimulatedCards cards, simulated_cards(spec));
  if (cards.is_file()) return add_machine(spec, cards, all, rated);
  Result<SimCard> card = find_sim_card(cards.kind);
  if (!card.is_ok()) return card.status().with_context(fmt::format("device '{}'", spec.text));
  STAGECOACH_ASSIGN_OR_RETURN(ByteCount memory, memory_option(spec, card->memory_bytes));
  for (int index = 0; index < cards.count; ++index) {
    std::string name = fmt::format("sim:{}", spec.first_index + index);
    SimCard one = *card;
    one.memory_bytes = memory;
    all.push_back(
        {device_of(*card, std::move(name), memory), one, card->matmul_flop_per_s, {}, {}});
  }
  note_card(spec, *card, rated);
  return Status::ok();
}

/// The card whose name is in `title`, letters and digits alone: "NVIDIA GeForce RTX 4090".
const SimCard* card_called(const std::string& title) {
  std::string letters;
  for (unsigned char c : title) {
    if (std::isalnum(c)) letters += static_cast<char>(std::tolower(c));
  }
  for (const SimCard& card : sim_cards()) {
    if (letters.find(card.name) != std::string::npos) return &card;
  }
  return nullptr;
}

Status add_cards(const DeviceSpec& spec, const BackendRegistry& backends,
                 const MachineProfile* profile, std::vector<Rated>& all, RatedDevices& rated) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> opened,
                              backends.open_devices(spec.text));
  for (const std::unique_ptr<Device>& device : opened) {
    const DeviceInfo& info = device->info();
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    ByteCount free = usage.total_bytes - usage.used_bytes;
    if (const MachineCard* measured = measured_card(profile, info.id, info.name, rated)) {
      all.push_back(measured_device(*profile, *measured, info.id, free));
      continue;
    }
    const SimCard* card = card_called(info.name);
    if (card == nullptr) {
      return unavailable(
          fmt::format("device '{}': no rates are known for '{}'; measure them with 'stagecoach "
                      "bench bandwidth --save-profile FILE' and give --profile FILE",
                      spec.text, info.name));
    }
    all.push_back({device_of(*card, info.id, free), *card, card->matmul_flop_per_s, {}, {}});
    note_card(spec, *card, rated);
  }
  return Status::ok();
}

/// Takes over what `profile` knows beside its cards, and says what it does not.
Status use_profile(const MachineProfile& profile, RatedDevices& rated) {
  rated.uplinks = profile.uplinks;
  rated.host_bytes_per_s = profile.host_work_bytes_per_s;
  rated.host_memory_bytes_per_s = profile.host_memory_bytes_per_s;
  rated.latency_ns = profile.latency_ns;
  std::string when = profile.measurement ? ", measured " + profile.measurement->when : "";
  add_note(rated, fmt::format("rates of '{}'{}", profile.name, when));
  for (const std::string& note : profile.notes) {
    add_note(rated, fmt::format("{}: {}", profile.name, note));
  }
  if (!profile.measurement) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(MachineIdentity now, read_machine_identity({}));
  for (const IdentityChange& change : profile.measurement->machine.changes_to(now)) {
    add_note(rated, fmt::format("{}: this machine's {}; {}", profile.name, change.text(),
                                change.is_soft() ? "check it with 'bench bandwidth profile check'"
                                                 : "measure again"));
  }
  return Status::ok();
}

/// Says which way activations go between the devices, which is what is planned.
void note_routes(const MachineProfile& profile, const std::vector<Rated>& all,
                 RatedDevices& rated) {
  std::vector<std::string> names;
  for (const Rated& one : all) names.push_back(one.device.name);
  BoundaryRoutes routes = boundary_routes(profile, names);
  for (const std::string& line : {routes.measured, routes.slower, routes.unknown}) {
    if (!line.empty()) add_note(rated, line);
  }
}

}  // namespace

Result<RatedDevices> rate_devices(const std::string& text, const BackendRegistry& backends,
                                  const MachineProfile* profile) {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<DeviceSpec> specs, parse_device_specs(text));
  for (const DeviceSpec& spec : specs) {
    if (profile != nullptr && spec.backend == "sim") {
      return invalid_argument(
          fmt::format("device '{}': simulated cards have their own rates; leave out --profile, or "
                      "name the file in --devices as sim:NxFILE",
                      spec.text));
    }
    if (specs.size() == 1 || spec.backend != "sim") continue;
    Result<SimulatedCards> cards = simulated_cards(spec);
    if (!cards.is_ok() || !cards->is_file()) continue;
    return invalid_argument(fmt::format(
        "device '{}': a machine profile describes all devices; leave out the others", spec.text));
  }
  RatedDevices rated;
  std::vector<Rated> all;
  std::map<std::string, int> opened;
  for (DeviceSpec& spec : specs) {
    size_t before = all.size();
    spec.first_index = opened[spec.backend];
    if (spec.backend == "cpu") {
      STAGECOACH_RETURN_IF_ERROR(add_cpu_devices(spec, profile, all, rated));
    } else if (spec.backend == "sim") {
      STAGECOACH_RETURN_IF_ERROR(add_simulated_cards(spec, all, rated));
    } else {
      STAGECOACH_RETURN_IF_ERROR(add_cards(spec, backends, profile, all, rated));
    }
    opened[spec.backend] += static_cast<int>(all.size() - before);
  }
  if (profile != nullptr) {
    STAGECOACH_RETURN_IF_ERROR(use_profile(*profile, rated));
    note_routes(*profile, all, rated);
    for (const Rated& one : all) {
      if (profile->card_of(one.device.name) != nullptr) continue;
      add_note(rated, fmt::format("{} has no '{}'; what is assumed of it stands above",
                                  profile->name, one.device.name));
    }
  }
  level_cards(all);
  for (const Rated& one : all) rated.flop_per_s = std::max(rated.flop_per_s, one.flop_per_s);
  for (Rated& one : all) {
    one.device.speed = one.flop_per_s / rated.flop_per_s;
    rated.devices.push_back(std::move(one.device));
    rated.cards.push_back(one.card);
    rated.ops.push_back(std::move(one.ops));
  }
  bool shares = !rated.uplinks.empty() || rated.host_memory_bytes_per_s > 0;
  add_note(rated, fmt::format("host work touches {:.3g} GB/s{}", rated.host_bytes_per_s / 1e9,
                              shares ? "" : "; links do not share an uplink or the host's memory"));
  if (rated.latency_ns > 0) {
    add_note(rated,
             fmt::format("the latency of copies, {:.3g} us, counts twice where a micro-batch "
                         "changes devices and nowhere else",
                         rated.latency_ns / 1e3));
  }
  return rated;
}

void use_rated_devices(const RatedDevices& rated, StepSetup& setup) {
  setup.devices = rated.devices;
  setup.uplinks = rated.uplinks;
  setup.host_bytes_per_ns = rated.host_memory_bytes_per_s / kNsPerS;
  setup.hop_ns = 2 * rated.latency_ns;
}

}  // namespace stagecoach
