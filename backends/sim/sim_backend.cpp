#include "backends/sim/sim_backend.h"

#include <charconv>
#include <fmt/format.h>

#include "backends/sim/sim_device.h"

namespace stagecoach {

namespace {

constexpr int kMostCards = 64;

Status spec_error(const DeviceSpec& spec, std::string_view problem) {
  return invalid_argument(fmt::format("device '{}': {}", spec.text, problem));
}

class SimBackend final : public Backend {
 public:
  std::string_view name() const override { return "sim"; }
  Status availability() override { return Status::ok(); }
  /// Nothing of it exists: simulated cards are only there when asked for.
  std::vector<DeviceInfo> list_devices() override { return {}; }

  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) override {
    size_t cross = spec.which.find('x');
    int count = 0;
    const char* begin = spec.which.data();
    auto [end, error] = std::from_chars(begin, begin + spec.which.size(), count);
    bool is_whole = cross != std::string::npos && error == std::errc() && end == begin + cross;
    if (!is_whole || count < 1 || count > kMostCards) {
      return spec_error(spec, fmt::format("'{}' is not a number of cards (1 to {}) and their kind; "
                                          "write sim:8xrtx4090",
                                          spec.which, kMostCards));
    }
    Result<SimCard> card = find_sim_card(spec.which.substr(cross + 1));
    if (!card.is_ok()) return spec_error(spec, card.status().message());
    SimMachineProfile profile;
    profile.cards.assign(static_cast<size_t>(count), *card);
    STAGECOACH_RETURN_IF_ERROR(read_options(spec, profile));
    return open_sim_devices(std::make_shared<SimMachine>(std::move(profile)));
  }

 private:
  static Status read_options(const DeviceSpec& spec, SimMachineProfile& profile) {
    for (const auto& [name, values] : spec.options) {
      if (name != "memory") {
        return spec_error(spec, fmt::format("unknown option '{}'; the only one is 'memory'", name));
      }
      Result<ByteCount> bytes = parse_bytes(values.front());
      if (!bytes.is_ok()) return spec_error(spec, bytes.status().message());
      if (*bytes <= 0) return spec_error(spec, "option 'memory' must be above 0");
      for (SimCard& card : profile.cards) card.memory_bytes = *bytes;
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<Backend> make_sim_backend() {
  return std::make_unique<SimBackend>();
}

std::vector<std::unique_ptr<Device>> open_sim_devices(const std::shared_ptr<SimMachine>& machine) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int card = 0; card < static_cast<int>(machine->profile().cards.size()); ++card) {
    devices.push_back(std::make_unique<SimDevice>(machine, card, card, 0));
  }
  return devices;
}

}  // namespace stagecoach
