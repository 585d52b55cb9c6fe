// NVML's and ROCm SMI's functions over a machine that a test describes.
#include "tests/fake_management/fake_management.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tools/bandwidth/nvml_functions.h"
#include "tools/bandwidth/rocm_smi_functions.h"

// Exactly the declarations of whoever calls: a definition below that differs does not compile.
namespace stagecoach {
#define STAGECOACH_DECLARE_FAKE(name, parameters) \
  extern "C" [[gnu::visibility("default")]] int name parameters;
STAGECOACH_NVML_FUNCTIONS(STAGECOACH_DECLARE_FAKE)
STAGECOACH_ROCM_SMI_FUNCTIONS(STAGECOACH_DECLARE_FAKE)
extern "C" [[gnu::visibility("default")]] void fake_management_use(const FakeManagement* machine);

namespace {

const FakeManagement* used = nullptr;

bool is_unsupported(const char* function) {
  return used->unsupported.contains("*") || used->unsupported.contains(function);
}

const FakeManagedCard& card_at(void* handle) {
  return *static_cast<const FakeManagedCard*>(handle);
}

int give(const char* function, unsigned* value, unsigned answer) {
  if (is_unsupported(function)) return NvmlConstants::kNotSupported;
  *value = answer;
  return NvmlConstants::kSuccess;
}

/// The first card for which `is_it`.
template <typename Test>
int find_card(void** handle, Test&& is_it) {
  auto found = std::find_if(used->cards.begin(), used->cards.end(), is_it);
  if (found == used->cards.end()) return NvmlConstants::kNotFound;
  *handle = const_cast<FakeManagedCard*>(&*found);
  return NvmlConstants::kSuccess;
}

template <typename Value, typename Answer>
int give_smi(const char* function, uint32_t card, Value* value, Answer answer) {
  if (card >= used->cards.size() || is_unsupported(function)) {
    return RocmSmiConstants::kNotSupported;
  }
  *value = static_cast<Value>(answer(used->cards[card]));
  return RocmSmiConstants::kSuccess;
}

}  // namespace

void fake_management_use(const FakeManagement* machine) {
  used = machine;
}

int nvmlInit_v2() {
  return used == nullptr ? NvmlConstants::kDriverNotLoaded : used->start_error;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  return find_card(handle, [&](const FakeManagedCard& card) { return card.uuid == uuid; });
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  return find_card(handle,
                   [&](const FakeManagedCard& card) { return card.pci_address == address; });
}
int nvmlDeviceGetUUID(void* card, char* text, unsigned size) {
  if (is_unsupported("nvmlDeviceGetUUID")) return NvmlConstants::kNotSupported;
  const std::string& uuid = card_at(card).uuid;
  if (uuid.size() >= size) return NvmlConstants::kInsufficientSize;
  std::memcpy(text, uuid.c_str(), uuid.size() + 1);
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* instance, void** handle) {
  const std::string& parent = card_at(instance).mig_parent;
  return find_card(handle, [&](const FakeManagedCard& card) { return card.uuid == parent; });
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).generation);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).max_generation);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).width);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).max_width);
}
int nvmlDeviceGetPcieReplayCounter(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).replays);
}
int nvmlDeviceGetClockInfo(void* card, int, unsigned* value) {
  return give(__func__, value, card_at(card).core_clock_mhz);
}
int nvmlDeviceGetMaxClockInfo(void* card, int, unsigned* value) {
  return give(__func__, value, card_at(card).core_clock_mhz);
}
int nvmlDeviceGetPowerUsage(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).power_mw);
}
int nvmlDeviceGetEnforcedPowerLimit(void* card, unsigned* value) {
  return give(__func__, value, card_at(card).power_limit_mw);
}
int nvmlDeviceGetTemperature(void* card, int, unsigned* value) {
  return give(__func__, value, card_at(card).temperature_c);
}
int nvmlDeviceGetUtilizationRates(void* card, NvmlUtilization* value) {
  value->memory = 0;
  return give(__func__, &value->gpu, card_at(card).busy_percent);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* card, unsigned long long* value) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  *value = card_at(card).throttle_bits;
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetViolationStatus(void* card, int policy, NvmlViolation* value) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  value->violation_ns = policy == NvmlConstants::kThermalPolicy ? card_at(card).throttled_ns : 0;
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetEccMode(void*, int* now, int* pending) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  *now = *pending = 1;
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetPersistenceMode(void*, int* value) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  *value = 0;
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetMigMode(void* card, unsigned* now, unsigned* pending) {
  *pending = 0;
  return give(__func__, now, card_at(card).has_mig ? 1 : 0);
}
int nvmlDeviceGetBAR1MemoryInfo(void* card, NvmlBar* value) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  *value = {card_at(card).bar_bytes, 0, 0};
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* card, NvmlMemory* value) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  *value = {card_at(card).memory_bytes, 0, 0};
  return NvmlConstants::kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* card, unsigned* count, NvmlProcess* found) {
  if (is_unsupported(__func__)) return NvmlConstants::kNotSupported;
  const std::vector<unsigned>& processes = card_at(card).processes;
  if (processes.size() > *count) return NvmlConstants::kInsufficientSize;
  *count = static_cast<unsigned>(processes.size());
  for (unsigned id : processes) *found++ = {id, NvmlConstants::kNoValue, 0, 0};
  return NvmlConstants::kSuccess;
}

int rsmi_init(uint64_t) {
  return used == nullptr ? RocmSmiConstants::kNotSupported : used->start_error;
}
int rsmi_num_monitor_devices(uint32_t* count) {
  *count = static_cast<uint32_t>(used->cards.size());
  return RocmSmiConstants::kSuccess;
}
int rsmi_dev_pci_id_get(uint32_t card, uint64_t* number) {
  unsigned domain = 0, bus = 0;
  const std::string& address = used->cards.at(card).pci_address;
  if (std::sscanf(address.c_str(), "%x:%x:", &domain, &bus) != 2) {
    return RocmSmiConstants::kNotSupported;
  }
  // With the number of a partition, as new versions have it.
  *number = uint64_t{domain} << 32 | uint64_t{1} << 28 | uint64_t{bus} << 8;
  return RocmSmiConstants::kSuccess;
}
int rsmi_dev_pci_replay_counter_get(uint32_t card, uint64_t* value) {
  return give_smi(__func__, card, value, [](const auto& one) { return one.replays; });
}
int rsmi_dev_power_ave_get(uint32_t card, uint32_t, uint64_t* value) {
  return give_smi(__func__, card, value, [](const auto& one) { return one.power_mw * 1000ull; });
}
int rsmi_dev_power_cap_get(uint32_t card, uint32_t, uint64_t* value) {
  return give_smi(__func__, card, value,
                  [](const auto& one) { return one.power_limit_mw * 1000ull; });
}
int rsmi_dev_temp_metric_get(uint32_t card, uint32_t, int, int64_t* value) {
  return give_smi(__func__, card, value, [](const auto& one) { return one.temperature_c * 1000; });
}
int rsmi_dev_busy_percent_get(uint32_t card, uint32_t* value) {
  return give_smi(__func__, card, value, [](const auto& one) { return one.busy_percent; });
}
int rsmi_dev_memory_total_get(uint32_t card, int kind, uint64_t* value) {
  return give_smi(__func__, card, value, [kind](const auto& one) {
    return kind == RocmSmiConstants::kAllMemory ? one.memory_bytes
                                                : std::min(one.memory_bytes, one.bar_bytes);
  });
}

}  // namespace stagecoach
