#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/status.h"
#include "memory/host_limits.h"

namespace stagecoach {

/// Looks at free host memory while a run goes on, since other programs, and a run's own traces,
/// take some that no budget knew of.
/// Thread rule: one thread at a time.
class HostGuard {
 public:
  using Reader = std::function<Result<HostLimits>()>;
  /// Looking takes a tenth of a millisecond, which short iterations should not pay each time.
  static constexpr int64_t kIntervalNs = 200'000'000;

  explicit HostGuard(Reader read = read_host_limits, int64_t interval_ns = kIntervalNs)
      : read_(std::move(read)), interval_ns_(interval_ns) {}

  /// Ok where kHostFloor bytes are free, or when it looked less than the interval ago; else
  /// resource exhausted, with what is left and by what limit.
  Status check();

 private:
  Reader read_;
  int64_t interval_ns_;
  std::optional<int64_t> looked_ns_;
};

}  // namespace stagecoach
