#include "scheduler/lane_record.h"

namespace stagecoach {

const char* lane_name(LaneKind lane) {
  switch (lane) {
    case LaneKind::kCompute:
      return "compute";
    case LaneKind::kActivationUp:
      return "activation_up";
    case LaneKind::kActivationDown:
      return "activation_down";
    case LaneKind::kParameterUp:
      return "parameter_up";
    case LaneKind::kGradientDown:
      return "gradient_down";
  }
  return "?";
}

void LaneRecord::clear() {
  events_used = 0;
  spans.clear();
  stalls.clear();
  layer_spans.clear();
  bytes_up = bytes_down = 0;
}

}  // namespace stagecoach
