#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// A point of the grid of what runs at the same time.
struct OverlapPoint {
  std::string host;     ///< "none", "convert", "update"
  std::string copies;   ///< "none", "up", "down", "both"
  std::string compute;  ///< "idle", "matmul"

  /// "overlap/update/both/matmul".
  std::string id() const;
  bool is_empty() const { return host == "none" && copies == "none" && compute == "idle"; }
  /// Whether it is the point that `quick` measures, updates beside everything, or a part of it.
  bool is_of_quick() const;
  /// The point at which "host", "up", "down" or "compute" is alone, copies as they are here.
  OverlapPoint alone(const std::string& part) const;
};

/// The point of a record of the group "overlap".
OverlapPoint overlap_point_of(const MeasurementRecord& record);

/// The median of the quantity called `name`; 0 where there is none.
double median_of(const MeasurementRecord& record, const std::string& name);

/// Adds to each record of the grid, for every part of it, "<part>_kept": each of its samples by
/// the median of its rate alone in the same group. What was not measured alone gets none.
void add_kept_shares(std::vector<MeasurementRecord>& records);

/// The point of updates, copies both ways and products, which is what training does at once; where
/// it was not measured that with updates and copies at which they moved most of the host's memory
/// together. Null: neither.
const MeasurementRecord* joint_traffic(const BandwidthReport& report);

/// Whether they hindered each other there: together less than 97 % of the sum of both alone.
bool is_joint_limit(const BandwidthReport& report, const MeasurementRecord& joint);

/// What the grid says: the memory that host threads and copies move together, what each part loses,
/// whether converting keeps up with the link.
std::vector<Finding> find_overlap(const BandwidthReport& report);

}  // namespace stagecoach
