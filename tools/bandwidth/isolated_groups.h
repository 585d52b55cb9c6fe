#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// The command that measures a group in a process of its own, so that a driver which hangs, or ends
/// the process, costs that group alone. The parent opens no device.
struct IsolatedRun {
  std::string program;
  std::vector<std::string> arguments;  ///< up to those that choose group and form of output
  std::string group;                   ///< the only one to measure; empty: all
  int64_t timeout_ns = 0;              ///< of one measurement
  std::function<bool()> is_cancelled;  ///< may be empty
  /// Told of devices and notes, and the ids of what is planned, before anything is measured; may be
  /// empty.
  std::function<Status(const BandwidthReport&, const std::vector<std::string>&)> after_plan;
  std::function<void(const std::string& group)> before_group;  ///< may be empty
  std::function<Status(const BandwidthReport&)> after_group;   ///< may be empty
};

/// Asks a child for the plan, then measures each of its groups in another (those of p2p, which
/// share proofs, in one). A child may take four times what planning took and the plan expects of
/// its group, and one `timeout_ns` more, of p2p one a pair; then it is killed. What a child that
/// was killed should have measured is failed, or timed out. Errors: those that the first child
/// tells, with the code that its exit code means; those of `after_plan` and `after_group`.
Result<BandwidthReport> run_isolated(const IsolatedRun& run);

}  // namespace stagecoach
