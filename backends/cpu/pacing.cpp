#include "backends/cpu/pacing.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

namespace {

constexpr double kNsPerSecond = 1e9;

int64_t duration_at(double amount, double per_second) {
  return std::llround(amount / per_second * kNsPerSecond);
}

}  // namespace

bool CpuPacing::is_paced() const {
  return flop_per_s > 0 || speed != 1 || up_bytes_per_s > 0 || down_bytes_per_s > 0 ||
         latency_ns > 0;
}

int64_t NominalCost::duration_ns(int64_t work_ns) const {
  if (planned_ns >= 0) return planned_ns;
  return std::llround(static_cast<double>(work_ns) * stretch) + extra_ns;
}

NominalCost kernel_cost(const CpuPacing& pacing, double flop) {
  NominalCost cost;
  if (pacing.flop_per_s <= 0) {
    cost.stretch = 1 / pacing.speed;
  } else if (flop > 0) {
    cost.planned_ns = duration_at(flop, pacing.flop_per_s * pacing.speed);
  }
  return cost;
}

NominalCost copy_cost(const CpuPacing* source, const CpuPacing* target, ByteCount size) {
  NominalCost cost;
  double down = source == nullptr ? 0 : source->down_bytes_per_s;
  double up = target == nullptr ? 0 : target->up_bytes_per_s;
  cost.extra_ns = std::max(source == nullptr ? 0 : source->latency_ns,
                           target == nullptr ? 0 : target->latency_ns);
  double slower = down > 0 && up > 0 ? std::min(down, up) : std::max(down, up);
  if (slower > 0) {
    cost.planned_ns = duration_at(static_cast<double>(size), slower) + cost.extra_ns;
  }
  return cost;
}

}  // namespace stagecoach
