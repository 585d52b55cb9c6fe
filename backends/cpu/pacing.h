#pragma once

#include <cstdint>

#include "core/bytes.h"

namespace stagecoach {

/// How fast a CPU device pretends to be. 0 = not paced in that respect: the real time counts.
struct CpuPacing {
  double flop_per_s = 0;
  double speed = 1;  ///< multiplies flop_per_s; without it, kernels take 1 / speed as long
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
  int64_t latency_ns = 0;  ///< added to every copy between host and device, or two devices

  bool is_paced() const;
};

/// What one operation costs in nominal time.
struct NominalCost {
  int64_t planned_ns = -1;  ///< -1: as long as the real work took, stretched, plus `extra_ns`
  double stretch = 1;
  int64_t extra_ns = 0;

  /// Nominal duration given the real one, before any overrun.
  int64_t duration_ns(int64_t work_ns) const;
};

/// A kernel of `flop` FLOP. Without a count (0) only the real time is known.
NominalCost kernel_cost(const CpuPacing& pacing, double flop);

/// A copy of `size` bytes from memory of `source` to memory of `target`; null stands for the host.
/// Between two devices the slower of the two links counts.
NominalCost copy_cost(const CpuPacing* source, const CpuPacing* target, ByteCount size);

/// Lags shorter than this are not slept for: the kernel's own wake-up takes as long, and nominal
/// times carry the difference to the next operation.
inline constexpr int64_t kShortestSleepNs = 50'000;

}  // namespace stagecoach
