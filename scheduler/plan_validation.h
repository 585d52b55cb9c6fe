#pragma once

#include "core/status.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Checks a plan of a network of `layer_count` layers against these rules, in this order; the
/// failure names the first rule that is broken and where (device, entry of its list, action):
///  1. sizes: rounds divide the micro-batches; limits fit the devices; a gate has what it needs;
///  2. stages: every stage's layers exist;
///  3. indices: every entry names a stage and a micro-batch that exist; the last shares no slot;
///  4. coverage: each (micro-batch, layer) has one F or FB and one B, FB or I + W (`inference`: one
///     F and nothing else);
///  5. residence: a bound layer is on at most `weight_copies` devices, and all actions of one
///     (micro-batch, layer) are on one of them;
///  6. in-flight: no device's list holds more forwards awaiting backward than its limit;
///  7. versions: a device that runs a forward has run all backwards its version rule needs;
///  8. deadlock: running the lists in order, each action waiting for its inputs, ends.
/// Pure.
Status validate_plan(const Plan& plan, int layer_count, bool inference);

}  // namespace stagecoach
