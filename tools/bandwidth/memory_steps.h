#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/device.h"
#include "memory/host_limits.h"
#include "tools/bandwidth/child_process.h"

namespace stagecoach {

/// Memory is taken in steps until there is no more, by a process of its own: one that takes too
/// much may be killed, and a driver that has refused once may refuse from then on. It says each
/// step as soon as it has it, so that what it had is known whatever becomes of it.
struct MemorySteps {
  /// The first is small, further ones are a quarter of what there is already.
  static constexpr ByteCount kFirst = 4 * kMiB, kLargest = 256 * kMiB;
  /// How exactly the end is found.
  static constexpr ByteCount kLeast = kMiB;

  ByteCount most = 0;                           ///< to take
  std::function<Status(ByteCount)> take;        ///< takes as much more, or nothing
  std::function<ByteCount()> left;              ///< that may be taken still; may be empty
  std::function<void(ByteCount, int64_t)> say;  ///< what there is by now, and the time of all takes
};

/// Takes `steps`: smaller ones once one was refused. Why it ended before `most`; ok: it did not.
Status take_memory_steps(const MemorySteps& steps);

/// 90 % of what `limits` allow to be taken by touching it: control groups and ulimits; what is free
/// only where `is_pinned`, since pinned memory cannot be given back to whoever needs it.
ByteCount allowed_bytes(const HostLimits& limits, bool is_pinned);

/// What a process that takes steps prints: a line a step, then "stopped: why" where it ended early.
/// For people too. They make this process the one that the kernel ends first when memory runs out.
/// Ordinary memory, touched:
Status print_touched_steps(ByteCount most);
/// Pinned or registered memory of `device`; at the end all is freed, and "pinning again" says
/// whether a refusal lasts.
Status print_pinned_steps(Device& device, MemoryKind kind, ByteCount most);

/// What such a process got.
struct StepsOutcome {
  ByteCount bytes = 0;
  int64_t time_ns = 0;
  std::string stopped;       ///< why it ended early; empty: it did not
  bool is_poisoned = false;  ///< nothing could be pinned again after a refusal
};

/// Reads what it printed, up to the last whole line, and how it ended. Pure.
StepsOutcome read_steps(const ChildOutcome& outcome);

}  // namespace stagecoach
