#pragma once

#include <string>

#include "core/bytes.h"

namespace stagecoach {

/// What a device is. Plain data, filled once by the backend.
struct DeviceInfo {
  std::string id;       ///< "cpu:0": what messages and --devices use
  std::string backend;  ///< "cpu"
  std::string name;     ///< for people: "CPU device (paced 20 GFLOP/s)", the same for equal ones
  int index = 0;        ///< position among the opened devices of its backend
  ByteCount memory_bytes = 0;  ///< usable by this logical device
  int copy_engines = 0;        ///< directions that can run at once
  double up_bytes_per_s = 0;   ///< host to device, of its own link; 0: not known
  double down_bytes_per_s = 0;
  /// Chunks of bulk copies that may wait in its queues before urgent copies suffer; 0: any number.
  int bulk_chunks_ahead = 0;
  bool kernels_reach_pinned = false;  ///< they may read and write pinned memory (Ops::convert)
  int numa_node = -1;                 ///< -1: unknown or none
  std::string pci_address;            ///< empty when not on PCI
  std::string uuid;  ///< "GPU-…", "MIG-…" of a part of a card; empty: none or not told
  bool is_real_hardware = true;  ///< false for mocks: no absolute claim holds on them
  double speed = 1.0;            ///< relative compute speed when known
};

/// Whether it is an instance of a card that is shared out in hardware (NVIDIA's MIG): instances of
/// one card share its link and do not reach each other's memory.
inline bool is_mig_instance(const DeviceInfo& info) {
  return info.uuid.starts_with("MIG-");
}

/// Memory of a device as its backend sees it.
struct MemoryUsage {
  ByteCount total_bytes = 0;
  ByteCount used_bytes = 0;
  ByteCount peak_bytes = 0;
};

/// What a device has done since it was opened.
struct DeviceCounters {
  int64_t kernels = 0;
  int64_t copies = 0;
  int64_t bytes_up = 0;
  int64_t bytes_down = 0;
  int64_t compute_busy_ns = 0;  ///< time kernels occupied the device
  int64_t overrun_ns = 0;       ///< part of it beyond what pacing asked for; 0 on real hardware
  int64_t copy_overrun_ns = 0;  ///< the same for copies, which `compute_busy_ns` does not hold
};

}  // namespace stagecoach
