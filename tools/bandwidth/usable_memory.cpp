#include "tools/bandwidth/usable_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "tools/bandwidth/memory_steps.h"
#include "tools/exit_code.h"

namespace stagecoach {

UsableMemory find_usable_memory(const BandwidthPlan& plan, const BandwidthOptions& options) {
  constexpr ByteCount kWorthAsking = kGiB;
  UsableMemory memory;
  for (const BandwidthGroup& group : plan.groups) {
    memory.needed = std::max(memory.needed, group.pinned_bytes + group.host_bytes);
  }
  memory.bytes = memory.needed;
  if (memory.needed < kWorthAsking || !options.run_steps) return memory;
  ByteCount asked = memory.needed / 9 * 10;
  Result<ChildOutcome> outcome =
      options.run_steps({"memory_steps", "--max-mem", std::to_string(asked)});
  // Interrupted, or no process can be had: what follows finds out.
  if (!outcome.is_ok()) return memory;
  StepsOutcome steps = read_steps(*outcome);
  // An interrupt, or a process that could not even begin, says nothing of memory.
  bool is_answer =
      outcome->exit_code <= 0 || (outcome->exit_code != kExitInterrupted && steps.bytes > 0);
  if (!is_answer) return memory;
  // All of it, in steps that do not end at a byte.
  if (steps.stopped.empty()) return memory;
  memory.bytes = std::clamp(steps.bytes / 10 * 9, MemorySteps::kLeast, memory.needed);
  if (memory.bytes == memory.needed) return memory;
  memory.note = fmt::format(
      "measured with {} of host memory instead of {}: of {} only {} could be "
      "touched ({}), and a tenth stays free",
      format_bytes(memory.bytes), format_bytes(memory.needed), format_bytes(asked),
      format_bytes(steps.bytes), steps.stopped);
  return memory;
}

}  // namespace stagecoach
