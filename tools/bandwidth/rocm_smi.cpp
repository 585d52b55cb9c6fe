#include <fmt/format.h>
#include <map>
#include <utility>

#include "core/shared_library.h"
#include "tools/bandwidth/card_management.h"
#include "tools/bandwidth/rocm_smi_functions.h"

namespace stagecoach {

namespace {

struct RocmSmiFunctions {
#define STAGECOACH_ROCM_SMI_MEMBER(name, parameters) int(*name) parameters = nullptr;
  STAGECOACH_ROCM_SMI_FUNCTIONS(STAGECOACH_ROCM_SMI_MEMBER)
#undef STAGECOACH_ROCM_SMI_MEMBER
};

/// Asks `function`, which may be missing, for one number behind a pointer.
template <typename Value, typename Function, typename... Arguments>
std::optional<int64_t> ask(Function function, uint32_t card, Arguments... arguments) {
  Value value{};
  if (function == nullptr) return std::nullopt;
  if (function(card, arguments..., &value) != RocmSmiConstants::kSuccess) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<double> scaled(const std::optional<int64_t>& value, double factor) {
  if (!value.has_value()) return std::nullopt;
  return static_cast<double>(*value) * factor;
}

class RocmSmi final : public ManagementLibrary {
 public:
  RocmSmi(RocmSmiFunctions functions, std::string name) : f_(functions), name_(std::move(name)) {
    uint32_t count = 0;
    if (f_.rsmi_num_monitor_devices(&count) != RocmSmiConstants::kSuccess) count = 0;
    for (uint32_t card = 0; card < count; ++card) {
      uint64_t number = 0;
      if (f_.rsmi_dev_pci_id_get(card, &number) != RocmSmiConstants::kSuccess) continue;
      // Newer versions tell a part of the card in these bits.
      constexpr uint64_t kPartition = 0xf0000000;
      cards_.emplace(number & ~kPartition, card);
    }
  }

  std::optional<CardState> read(const DeviceInfo& device) override {
    std::optional<uint64_t> number = pci_number(device.pci_address);
    auto found = number.has_value() ? cards_.find(*number) : cards_.end();
    if (found == cards_.end()) return std::nullopt;
    uint32_t card = found->second;
    constexpr double kMicro = 1e-6, kMilli = 1e-3;
    constexpr uint32_t kFirstSensor = 0;
    CardState state;
    state.source = name_;
    state.replays = ask<uint64_t>(f_.rsmi_dev_pci_replay_counter_get, card);
    state.power_w = scaled(ask<uint64_t>(f_.rsmi_dev_power_ave_get, card, kFirstSensor), kMicro);
    state.power_limit_w =
        scaled(ask<uint64_t>(f_.rsmi_dev_power_cap_get, card, kFirstSensor), kMicro);
    state.temperature_c = scaled(
        ask<int64_t>(f_.rsmi_dev_temp_metric_get, card, uint32_t{RocmSmiConstants::kEdgeSensor},
                     int{RocmSmiConstants::kCurrentTemperature}),
        kMilli);
    state.busy_percent = scaled(ask<uint32_t>(f_.rsmi_dev_busy_percent_get, card), 1);
    state.memory_bytes =
        ask<uint64_t>(f_.rsmi_dev_memory_total_get, card, int{RocmSmiConstants::kAllMemory});
    state.bar_bytes =
        ask<uint64_t>(f_.rsmi_dev_memory_total_get, card, int{RocmSmiConstants::kMappableMemory});
    return state;
  }

 private:
  const RocmSmiFunctions f_;
  const std::string name_;
  std::map<uint64_t, uint32_t> cards_;  ///< PCI number to the library's own
};

}  // namespace

Result<std::unique_ptr<ManagementLibrary>> open_rocm_smi(const std::string& override_name) {
  std::vector<std::string> names = {"librocm_smi64.so.1", "librocm_smi64.so.7",
                                    "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so"};
  if (!override_name.empty()) names = {override_name};
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.is_ok()) {
    return unavailable(fmt::format("no ROCm SMI: {}", library.status().message()));
  }
  RocmSmiFunctions functions;
#define STAGECOACH_ROCM_SMI_FIND(name, parameters) \
  functions.name = reinterpret_cast<int(*) parameters>(library->find(#name));
  STAGECOACH_ROCM_SMI_FUNCTIONS(STAGECOACH_ROCM_SMI_FIND)
#undef STAGECOACH_ROCM_SMI_FIND
  bool is_usable = functions.rsmi_init != nullptr &&
                   functions.rsmi_num_monitor_devices != nullptr &&
                   functions.rsmi_dev_pci_id_get != nullptr;
  if (!is_usable) {
    return unavailable(
        fmt::format("no ROCm SMI: {} has not the functions that find cards", library->name()));
  }
  int error = functions.rsmi_init(0);
  if (error != RocmSmiConstants::kSuccess) {
    return unavailable(
        fmt::format("no ROCm SMI: {} does not start (error {})", library->name(), error));
  }
  std::unique_ptr<ManagementLibrary> smi = std::make_unique<RocmSmi>(functions, library->name());
  return smi;
}

}  // namespace stagecoach
