#pragma once

#include <string_view>
#include <variant>

#include "backends/cpu/copy_engine.h"
#include "backends/cpu/event_record.h"
#include "backends/cpu/pacing.h"
#include "hal/copy.h"
#include "hal/executable.h"
#include "hal/op_call.h"

namespace stagecoach {

/// Marks a place: completes `record` when reached.
struct CpuRecordWork {
  EventRecordRef record;
};

/// Holds the stream until `record` is done.
struct CpuWaitWork {
  EventRecordRef record;
};

/// One operation in the queue of a CPU stream. Plain data apart from record references, so that
/// queues do not allocate.
struct CpuEntry {
  uint64_t sequence = 0;
  std::string_view verb;  ///< static text
  Label label;
  int64_t submitted_ns = 0;
  std::variant<std::monostate, CopyRequest, FillRequest, LaunchRequest, OpCall, CpuRecordWork,
               CpuWaitWork>
      work;
  NominalCost cost;
  /// What the operation occupies while it runs, in the order in which it is taken; may be null.
  IssueOrderEngine* engine = nullptr;
  IssueOrderEngine* second_engine = nullptr;
  uint64_t ticket = 0;

  bool is_kernel() const {
    return std::holds_alternative<LaunchRequest>(work) || std::holds_alternative<OpCall>(work);
  }
};

}  // namespace stagecoach
