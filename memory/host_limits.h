#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// How much host memory a program may take from now on, and what says so.
struct HostLimits {
  ByteCount free_bytes = 0;
  std::string free_source;  ///< "MemAvailable", "the control group /sys/fs/cgroup/job", "ulimit -v"
  /// What control groups and ulimits leave, whatever is free at the moment: where memory appears
  /// when it is touched (balloons of virtual machines), "free" says too little. Nothing: no limit.
  std::optional<ByteCount> limited_bytes;
  /// Of page-locked memory by ulimit -l. Not all drivers ask it, so it is no part of a budget: it
  /// explains what could not be pinned.
  std::optional<ByteCount> lockable_bytes;
};

namespace internal {

/// What the limits follow from.
struct HostLimitInputs {
  std::string meminfo, cgroup, mountinfo;  ///< texts of /proc/meminfo, /proc/self/…
  std::string root;                        ///< put before folders of control groups, for tests
  std::optional<ByteCount> address_space;  ///< what RLIMIT_AS leaves; nothing: unlimited
  std::optional<ByteCount> data_segment;   ///< what RLIMIT_DATA leaves
  std::optional<ByteCount> lockable;       ///< RLIMIT_MEMLOCK
};

/// The least of all limits. A control group leaves its limit less what it holds, not counting page
/// cache that can be dropped. Errors: data loss for a meminfo without MemAvailable.
Result<HostLimits> host_limits(const HostLimitInputs& inputs);

}  // namespace internal

/// The most memory that this process has held at once. Unlike getrusage's it begins with the
/// program: a program that started it counts for nothing. Errors: io where /proc cannot be read.
Result<ByteCount> peak_host_bytes();

/// The limits of this process now. Errors: io where /proc cannot be read.
Result<HostLimits> read_host_limits();
/// The same for a program that has still to start its threads: where address space is limited,
/// without what their stacks take of it.
Result<HostLimits> read_host_limits_before_threads();

}  // namespace stagecoach
