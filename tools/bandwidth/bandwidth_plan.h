#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// A device to measure and what is known of its link.
struct MeasuredDevice {
  Device* device = nullptr;
  double link_bytes_per_s = 0;  ///< each way, by PCIe; 0: what the device itself says
  int numa_node = -1;           ///< that it is attached to; -1: unknown
};

/// Measurements that run together and share memory, which they take when they run.
struct BandwidthGroup {
  std::string name;
  MeasurementGroup measurements;
  MeasurementGroup fallback;  ///< measured where none of them can be had
  /// Where what is measured next depends on what was found: does it all. Else empty.
  std::function<void(const RepetitionOptions&, BandwidthReport&)> run;
  /// Adds to the records what follows from several of them; may be empty.
  std::function<void(std::vector<MeasurementRecord>&)> complete;
  std::vector<std::string> ids;  ///< of what is measured, as far as it is known beforehand
  RepetitionOptions sampling;
  ByteCount pinned_bytes = 0;  ///< of the host, at most
  ByteCount host_bytes = 0;    ///< other memory of the host
  bool settles = true;         ///< false: warm-up takes all of its limit
  int64_t run_count = 0;       ///< measurements; 0: as many as there are ids
  double expected_s = 0;       ///< about how long it takes
};

/// What a run will do. The devices and the pool must outlive it.
struct BandwidthPlan {
  std::vector<BandwidthGroup> groups;
  std::vector<std::string> notes;  ///< what was left out, and why

  /// Of all groups.
  std::vector<std::string> ids() const;
};

/// The groups of `options.suite` for `devices` (may be none) of a host with `free_bytes` of memory.
/// Nothing is allocated. Errors: invalid argument for a filter that is no regular expression or
/// matches nothing.
Result<BandwidthPlan> plan_bandwidth(std::span<const MeasuredDevice> devices,
                                     const BandwidthOptions& options, ByteCount free_bytes,
                                     TaskPool& pool);

/// Leaves out what has no id that matches `filter` (empty: nothing is left out). Errors: invalid
/// argument where it is no regular expression or matches nothing.
Status filter_plan(const std::string& filter, BandwidthPlan& plan);

/// Runs the groups one after the other, each freed before the next. `before_group` and
/// `after_group` may be empty; the latter is called with what is known so far.
void run_bandwidth_plan(BandwidthPlan plan, BandwidthReport& report,
                        const std::function<void(const BandwidthGroup&)>& before_group,
                        const std::function<void()>& after_group);

}  // namespace stagecoach
