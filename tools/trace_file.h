#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// One slice of a trace that train or simulate wrote. -1: the slice does not say.
struct FileSlice {
  int64_t thread = 0;
  double start_us = 0;
  double duration_us = 0;
  std::string name;
  int64_t stage = -1;
  int64_t micro_batch = -1;
  int64_t iteration = -1;  ///< from 0
  int64_t bytes = -1;

  double end_us() const { return start_us + duration_us; }
};

/// What a trace file holds.
struct TraceContent {
  std::map<int64_t, std::string> processes;
  std::map<int64_t, std::pair<int64_t, std::string>> threads;  ///< id -> process, name
  std::vector<FileSlice> slices;
  int64_t dropped = 0;  ///< slices that the recorder had no room for

  /// The name of a thread's process; empty for a thread without a name.
  std::string_view process_of(int64_t thread) const;
  /// Whether the slice is computing of a device, measured or predicted.
  bool is_compute(const FileSlice& slice) const;
};

/// Reads a trace file event by event. Data loss, naming file and line, where an event is no JSON or
/// nothing has a name.
Result<TraceContent> read_trace(const std::string& path);

}  // namespace stagecoach
