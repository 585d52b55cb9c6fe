#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/event.h"
#include "scheduler/layer_timing.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Lanes of a device: a stream each, bulk ones (parameters, gradients) two that take turns.
enum class LaneKind : uint8_t {
  kCompute,
  kActivationUp,
  kActivationDown,
  kParameterUp,
  kGradientDown
};
inline constexpr int kLaneCount = 5;

/// "compute", "activation_up", …: stream names, trace tracks.
const char* lane_name(LaneKind lane);

/// One thing a lane did, with the events that time it.
struct LaneSpan {
  LaneKind lane = LaneKind::kCompute;
  ActionKind kind = ActionKind::kForward;
  int stage = -1;
  int micro_batch = -1;
  ByteCount bytes = 0;
  int start_event = 0;  ///< index into the lane's timing events
  int end_event = 0;
  int action = -1;  ///< index into the device's action list
};

/// A wait for a layer's parameters that an action had begun before; lasts no time where they were
/// there.
struct ActionStall {
  int action = 0;
  int start_event = 0;
  int end_event = 0;
};

/// One layer's phase, with the events that time it.
struct LayerSpan {
  int layer = 0;
  LayerPhase phase = LayerPhase::kForward;
  int start_event = 0;
  int end_event = 0;
};

/// What a device did in one pass, and the events that time it. Two passes may be under way on a
/// device, so there are two.
struct LaneRecord {
  std::vector<std::unique_ptr<Event>> events;
  int events_used = 0;
  std::vector<LaneSpan> spans;
  std::vector<ActionStall> stalls;
  std::vector<LayerSpan> layer_spans;  ///< empty unless the pass times layers
  ByteCount bytes_up = 0, bytes_down = 0;

  Result<int64_t> event_time_ns(int event) const {
    return events[static_cast<size_t>(event)]->timestamp_ns();
  }
  void clear();
};

}  // namespace stagecoach
