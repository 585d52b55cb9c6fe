#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "core/shared_library.h"
#include "tools/bandwidth/card_management.h"
#include "tools/bandwidth/nvml_functions.h"

namespace stagecoach {

namespace {

struct NvmlFunctions {
#define STAGECOACH_NVML_MEMBER(name, parameters) int(*name) parameters = nullptr;
  STAGECOACH_NVML_FUNCTIONS(STAGECOACH_NVML_MEMBER)
#undef STAGECOACH_NVML_MEMBER
};

constexpr double kMilli = 1e-3;

std::vector<std::string> reason_names(unsigned long long bits) {
  constexpr std::pair<unsigned long long, const char*> kNames[] = {
      {NvmlConstants::kPowerCap, "the power limit"},
      {NvmlConstants::kHardwareSlowdown, "the hardware's protection"},
      {NvmlConstants::kSoftwareThermal, "heat"},
      {NvmlConstants::kHardwareThermal, "heat (hardware)"},
      {NvmlConstants::kPowerBrake, "the power supply's brake"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((bits & bit) != 0) names.emplace_back(name);
  }
  return names;
}

/// Asks `function`, which may be missing, for one value behind a pointer.
template <typename Value, typename Function, typename... Arguments>
std::optional<Value> ask(Function function, void* handle, Arguments... arguments) {
  Value value{};
  if (function == nullptr) return std::nullopt;
  int error = function(handle, arguments..., &value);
  return error == NvmlConstants::kSuccess ? std::optional<Value>(value) : std::nullopt;
}

template <typename Function, typename... Arguments>
std::optional<int64_t> ask_number(Function function, void* handle, Arguments... arguments) {
  std::optional<unsigned> value = ask<unsigned>(function, handle, arguments...);
  return value.has_value() ? std::optional<int64_t>(*value) : std::nullopt;
}

std::optional<double> scaled(const std::optional<int64_t>& value, double factor) {
  if (!value.has_value()) return std::nullopt;
  return static_cast<double>(*value) * factor;
}

class Nvml final : public ManagementLibrary {
 public:
  Nvml(NvmlFunctions functions, std::string name) : f_(functions), name_(std::move(name)) {}

  std::optional<CardState> read(const DeviceInfo& device) override {
    void* handle = find(device);
    if (handle == nullptr) return std::nullopt;
    CardState state;
    state.source = name_;
    // An instance has memory and processes of its own; the rest is its card's.
    void* card = handle;
    if (is_mig_instance(device)) {
      card = ask<void*>(f_.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle).value_or(handle);
      std::array<char, 96> uuid{};
      bool is_told = card != handle && f_.nvmlDeviceGetUUID != nullptr &&
                     f_.nvmlDeviceGetUUID(card, uuid.data(), uuid.size()) == 0;
      if (is_told) state.mig_parent = uuid.data();
    }
    read_link(card, state);
    read_clocks(card, state);
    read_modes(card, state);
    auto memory = ask<NvmlMemory>(f_.nvmlDeviceGetMemoryInfo, card);
    if (memory.has_value()) state.memory_bytes = static_cast<ByteCount>(memory->total);
    auto bar = ask<NvmlBar>(f_.nvmlDeviceGetBAR1MemoryInfo, card);
    if (bar.has_value()) state.bar_bytes = static_cast<ByteCount>(bar->total);
    state.processes = read_processes(handle);
    return state;
  }

 private:
  void* find(const DeviceInfo& device) const {
    void* handle = nullptr;
    bool is_found =
        !device.uuid.empty() && f_.nvmlDeviceGetHandleByUUID(device.uuid.c_str(), &handle) == 0;
    // An instance's address is its card's, which is not the instance.
    if (is_found || device.pci_address.empty() || is_mig_instance(device)) return handle;
    is_found = f_.nvmlDeviceGetHandleByPciBusId_v2(device.pci_address.c_str(), &handle) == 0;
    return is_found ? handle : nullptr;
  }

  void read_link(void* card, CardState& state) const {
    state.pcie_generation = ask_number(f_.nvmlDeviceGetCurrPcieLinkGeneration, card);
    state.max_pcie_generation = ask_number(f_.nvmlDeviceGetMaxPcieLinkGeneration, card);
    state.pcie_width = ask_number(f_.nvmlDeviceGetCurrPcieLinkWidth, card);
    state.max_pcie_width = ask_number(f_.nvmlDeviceGetMaxPcieLinkWidth, card);
    state.replays = ask_number(f_.nvmlDeviceGetPcieReplayCounter, card);
  }

  void read_clocks(void* card, CardState& state) const {
    constexpr int kCore = NvmlConstants::kCoreClock, kMemory = NvmlConstants::kMemoryClock;
    state.core_clock_mhz = ask_number(f_.nvmlDeviceGetClockInfo, card, kCore);
    state.max_core_clock_mhz = ask_number(f_.nvmlDeviceGetMaxClockInfo, card, kCore);
    state.memory_clock_mhz = ask_number(f_.nvmlDeviceGetClockInfo, card, kMemory);
    state.max_memory_clock_mhz = ask_number(f_.nvmlDeviceGetMaxClockInfo, card, kMemory);
    state.power_w = scaled(ask_number(f_.nvmlDeviceGetPowerUsage, card), kMilli);
    state.power_limit_w = scaled(ask_number(f_.nvmlDeviceGetEnforcedPowerLimit, card), kMilli);
    state.temperature_c =
        scaled(ask_number(f_.nvmlDeviceGetTemperature, card, NvmlConstants::kGpuSensor), 1);
    auto busy = ask<NvmlUtilization>(f_.nvmlDeviceGetUtilizationRates, card);
    if (busy.has_value()) state.busy_percent = busy->gpu;
    auto reasons = ask<unsigned long long>(f_.nvmlDeviceGetCurrentClocksThrottleReasons, card);
    if (reasons.has_value()) state.throttle_reasons = reason_names(*reasons);
    for (int policy : {NvmlConstants::kPowerPolicy, NvmlConstants::kThermalPolicy}) {
      auto violation = ask<NvmlViolation>(f_.nvmlDeviceGetViolationStatus, card, policy);
      if (!violation.has_value()) continue;
      state.throttled_ns =
          state.throttled_ns.value_or(0) + static_cast<int64_t>(violation->violation_ns);
    }
  }

  void read_modes(void* card, CardState& state) const {
    int now = 0, pending = 0;
    if (f_.nvmlDeviceGetEccMode != nullptr && f_.nvmlDeviceGetEccMode(card, &now, &pending) == 0) {
      state.has_ecc = now != 0;
    }
    auto persistence = ask<int>(f_.nvmlDeviceGetPersistenceMode, card);
    if (persistence.has_value()) state.is_persistent = *persistence != 0;
    unsigned mig = 0, next_mig = 0;
    if (f_.nvmlDeviceGetMigMode != nullptr && f_.nvmlDeviceGetMigMode(card, &mig, &next_mig) == 0) {
      state.has_mig = mig != 0;
    }
  }

  std::optional<std::vector<CardProcess>> read_processes(void* handle) const {
    constexpr unsigned kMost = 256;
    if (f_.nvmlDeviceGetComputeRunningProcesses_v3 == nullptr) return std::nullopt;
    std::vector<NvmlProcess> found(kMost);
    unsigned count = kMost;
    int error = f_.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, found.data());
    if (error != NvmlConstants::kSuccess) return std::nullopt;
    std::vector<CardProcess> processes;
    for (unsigned i = 0; i < std::min(count, kMost); ++i) {
      CardProcess& process = processes.emplace_back();
      process.id = found[i].id;
      if (found[i].memory_bytes == NvmlConstants::kNoValue) continue;
      process.memory_bytes = static_cast<ByteCount>(found[i].memory_bytes);
    }
    return processes;
  }

  const NvmlFunctions f_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<ManagementLibrary>> open_nvml(const std::string& override_name) {
  std::vector<std::string> names = {"libnvidia-ml.so.1", "libnvidia-ml.so"};
  if (!override_name.empty()) names = {override_name};
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.is_ok()) {
    return unavailable(fmt::format("no NVML: {}", library.status().message()));
  }
  NvmlFunctions functions;
#define STAGECOACH_NVML_FIND(name, parameters) \
  functions.name = reinterpret_cast<int(*) parameters>(library->find(#name));
  STAGECOACH_NVML_FUNCTIONS(STAGECOACH_NVML_FIND)
#undef STAGECOACH_NVML_FIND
  bool is_usable = functions.nvmlInit_v2 != nullptr &&
                   functions.nvmlDeviceGetHandleByUUID != nullptr &&
                   functions.nvmlDeviceGetHandleByPciBusId_v2 != nullptr;
  if (!is_usable) {
    return unavailable(
        fmt::format("no NVML: {} has not the functions that find cards", library->name()));
  }
  int error = functions.nvmlInit_v2();
  if (error != NvmlConstants::kSuccess) {
    return unavailable(
        fmt::format("no NVML: {} does not start (error {}{})", library->name(), error,
                    error == NvmlConstants::kDriverNotLoaded ? ", the driver is not loaded" : ""));
  }
  std::unique_ptr<ManagementLibrary> nvml = std::make_unique<Nvml>(functions, library->name());
  return nvml;
}

}  // namespace stagecoach
