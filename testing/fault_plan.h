#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// What goes wrong.
enum class FaultKind : uint8_t {
  kFail,            ///< the call answers an internal error; nothing is done
  kFailLater,       ///< the call succeeds; its stream fails when the work would have run
  kDelay,           ///< the calling thread sleeps before the call goes on
  kCorrupt,         ///< part of what the work writes becomes one bits (NaN, -1) afterwards
  kExhaust,         ///< the allocation answers kExhausted, also when the front asks once more
  kDeviceLost,      ///< this and every later call on the device answer device lost
  kNeverCompletes,  ///< the work, and all that is behind it or waits for it, never ends
};

/// All kinds, in order.
std::span<const FaultKind> all_fault_kinds();

/// "fail", "fail_later", "delay", "corrupt", "exhaust", "device_lost", "never_completes".
std::string_view fault_kind_name(FaultKind kind);

/// Every verb a fault can name: those of testing/interceptor.h and all of `op_kind_name`.
std::span<const std::string_view> all_fault_verbs();

/// Whether `kind` can happen to `verb`: only work on a stream fails later or never completes, only
/// work that writes memory is corrupted, only allocations are exhausted.
bool fault_applies(FaultKind kind, std::string_view verb);

/// One thing that goes wrong, once. Plain data.
struct Fault {
  static constexpr int kAnyDevice = -1;

  int device = kAnyDevice;  ///< DeviceInfo::index; with kAnyDevice the first whose count gets there
  std::string verb;         ///< one of `all_fault_verbs`
  int64_t nth = 1;          ///< call of that verb on that device, from 1
  FaultKind kind = FaultKind::kFail;
  int64_t delay_ns = 0;  ///< for kDelay

  friend bool operator==(const Fault&, const Fault&) = default;
};

/// What goes wrong in a run. Where two faults name the same call the first one happens.
struct FaultPlan {
  std::vector<Fault> faults;

  friend bool operator==(const FaultPlan&, const FaultPlan&) = default;
};

/// One line that `parse_fault_plan` reads: "1.copy#17=fail,*.matmul#3=delay:2000000ns"; a device is
/// its index or '*'. An empty plan is an empty line.
std::string format_fault_plan(const FaultPlan& plan);

/// Reads that form; delays as `parse_duration_ns`. The error names the fault and what is wrong.
Result<FaultPlan> parse_fault_plan(std::string_view text);

/// Calls made, by (device index, verb).
using CallCounts = std::map<std::pair<int, std::string>, int64_t>;

/// For each verb and device the least of its counts in `runs`; those that some run lacks are left
/// out. How often events are asked, made and recorded depends on timing, so one run tells too much.
CallCounts least_counts(std::span<const CallCounts> runs);

/// Draws a plan of one fault: a call out of `counts` (not empty, all above 0), a kind out of those
/// of `kinds` that apply to it (kFail when none does), delays of 1 to 20 ms. Pure. Consecutive
/// seeds go round all pairs of device and verb, so that a sweep over as many seeds covers each.
FaultPlan random_fault(uint64_t seed, const CallCounts& counts,
                       std::span<const FaultKind> kinds = all_fault_kinds());

}  // namespace stagecoach
