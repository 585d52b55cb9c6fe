#include "backends/cpu/cpu_math.h"

#include "backends/cpu/cpu_ops.h"
#include "backends/cpu/cpu_stream.h"

namespace stagecoach {

std::string_view CpuMath::provider(OpKind kind) const {
  return cpu_op_provider(kind);
}

Status CpuMath::do_run(Stream& stream, const OpCall& call) {
  auto* target = dynamic_cast<CpuStream*>(&stream);
  if (target == nullptr) {
    return invalid_argument("the stream is of another backend; use one of this device");
  }
  return target->enqueue_op(call);
}

}  // namespace stagecoach
