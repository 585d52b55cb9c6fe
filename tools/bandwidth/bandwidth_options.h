#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/short_size.h"
#include "core/status.h"
#include "hal/memory_kind.h"
#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/numa_choice.h"
#include "tools/bandwidth/sampler.h"

namespace stagecoach {

/// Between the name of a group and which of several of that name is meant.
inline constexpr char kGroupNumberMark = '#';

/// What a run of `bench bandwidth` measures and how.
struct BandwidthOptions {
  std::string suite = "quick";    ///< one of `bandwidth_suites`
  std::vector<ByteCount> sizes;   ///< of chunks; empty: by the memory that copies move
  std::vector<int64_t> depths;    ///< chunks issued ahead; empty: any number
  std::vector<MemoryKind> kinds;  ///< host memory; empty: by the suite
  ByteCount working_set = 0;      ///< a device and direction; 0: by the device
  ByteCount max_host = 0;         ///< of what host threads go through; 0: a quarter of what is free
  ByteCount max_pinned = 0;       ///< of all devices together; 0: a quarter of what is free
  std::string group;              ///< of the suite, alone; "copy#2": the second of it; empty: all
  std::string filter;             ///< regular expression that ids must match; empty: all
  std::shared_ptr<const NumaChoice> numa;  ///< null: memory and threads are where they come to be
  ByteCount most_host = 0;  ///< that all of a group may take, whatever was asked for; 0: no limit
  /// Runs this program in a process of its own with these arguments behind "bench bandwidth" and
  /// those that say which devices (see MemorySteps). Empty: there is no such program.
  std::function<Result<ChildOutcome>(const std::vector<std::string>&)> run_steps;
  RepetitionOptions sampling;
};

/// Names that `bench bandwidth` takes, and what each measures.
struct BandwidthSuite {
  const char* name;
  const char* summary;
  std::vector<std::string> groups;  ///< in the order in which they run
  bool needs_device;                ///< false: what the host alone can tell is measured without one
};

/// All of them: "quick" first.
const std::vector<BandwidthSuite>& bandwidth_suites();

/// The suite of that name. Invalid argument, with the nearest name, for others.
Result<const BandwidthSuite*> find_bandwidth_suite(const std::string& name);

/// "4K,64K" or "4K:256M:x4" (first, last, factor). Errors name `option`.
Result<std::vector<ByteCount>> parse_size_list(const std::string& text, const std::string& option);

/// "1,2,8". Each 1 to 1024.
Result<std::vector<int64_t>> parse_depth_list(const std::string& text, const std::string& option);

/// "pinned,registered,pageable".
Result<std::vector<MemoryKind>> parse_memory_kinds(const std::string& text,
                                                   const std::string& option);

}  // namespace stagecoach
