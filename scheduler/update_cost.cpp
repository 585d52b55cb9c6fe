#include "scheduler/update_cost.h"

namespace stagecoach {

double update_bytes_per_parameter(DType dtype, int rounds, const MomentOptions& moments) {
  constexpr double kFloatBytes = 4;
  double gradient = rounds > 1 ? kFloatBytes : static_cast<double>(dtype_size_bytes(dtype));
  double published = dtype == DType::kF16 ? 2 : 0;
  double kept = moments.count * moment_bytes_per_element(moments.format);
  return gradient + 2 * (kFloatBytes + kept) + published;
}

void set_update_cost(StepSetup& setup, double bytes_per_parameter, double bytes_per_ns) {
  constexpr double kParameterBytes = 2;
  for (LayerProfile& layer : setup.layers) {
    double bytes =
        static_cast<double>(layer.parameter_bytes) / kParameterBytes * bytes_per_parameter;
    layer.update_bytes = static_cast<ByteCount>(bytes);
    layer.update_ns = bytes / bytes_per_ns;
  }
}

StepSetup as_roundpipe_runs(StepSetup setup, double host_work_bytes_per_ns) {
  set_update_cost(setup, kRoundPipeUpdateBytesPerParameter, host_work_bytes_per_ns);
  setup.bulk = {true, true, kRoundPipePieceBytes};
  for (LayerProfile& layer : setup.layers) layer.saved_bytes = layer.gradient_sum_bytes = 0;
  return setup;
}

}  // namespace stagecoach
