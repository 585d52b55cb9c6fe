#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What copies of one direction take by one kind of memory and one engine: latency + bytes / rate.
struct CopyPath {
  std::string device, direction, kind, engine;
  double latency_us = 0;        ///< of each of many that follow one another
  double gb_per_s = 0;          ///< of its bytes
  int sizes = 0;                ///< that were measured
  bool is_known_at_4k = false;  ///< sizes at or near 4 KiB were measured
  bool is_doubtful = false;     ///< some were noisy, or a mock's pace was overrun

  double time_us(double size_bytes) const { return latency_us + size_bytes / gb_per_s / 1e3; }
  /// "by the copy engine from pinned memory".
  std::string words() const;
};

/// Fits the paths of which at least three sizes were measured without a limit of depth, with the
/// least squares of relative errors. In the order of the records. Pure.
std::vector<CopyPath> fit_copy_paths(const BandwidthReport& report);

/// The path by which 4 KiB take least, for each device and direction, where it is known and 10 %
/// better than the next, and where kernels copy more
/// slowly than copy engines, which is no fault.
std::vector<Finding> find_copy_paths(const BandwidthReport& report);

/// One of "copy_paths" of docs/bandwidth.schema.json.
Json copy_path_json(const CopyPath& path);

}  // namespace stagecoach
