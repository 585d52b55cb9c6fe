#pragma once

#include <cstdint>

namespace stagecoach {

// The functions of AMD's ROCm SMI that are asked, declared by hand. All return rsmi_status_t, an
// int: 0 is success. None takes a structure, since their layouts changed between versions. Any but
// the first three may be missing or answer "not supported".
#define STAGECOACH_ROCM_SMI_FUNCTIONS(X)                           \
  X(rsmi_init, (uint64_t))                                         \
  X(rsmi_num_monitor_devices, (uint32_t*))                         \
  X(rsmi_dev_pci_id_get, (uint32_t, uint64_t*))                    \
  X(rsmi_dev_pci_replay_counter_get, (uint32_t, uint64_t*))        \
  X(rsmi_dev_power_ave_get, (uint32_t, uint32_t, uint64_t*))       \
  X(rsmi_dev_power_cap_get, (uint32_t, uint32_t, uint64_t*))       \
  X(rsmi_dev_temp_metric_get, (uint32_t, uint32_t, int, int64_t*)) \
  X(rsmi_dev_busy_percent_get, (uint32_t, uint32_t*))              \
  X(rsmi_dev_memory_total_get, (uint32_t, int, uint64_t*))

/// Numbers that it takes.
struct RocmSmiConstants {
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported = 2;
  static constexpr uint32_t kEdgeSensor = 0;
  static constexpr int kCurrentTemperature = 0;
  static constexpr int kAllMemory = 0;
  static constexpr int kMappableMemory = 1;
};

}  // namespace stagecoach
