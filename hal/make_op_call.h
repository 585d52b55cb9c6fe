#pragma once

#include <algorithm>
#include <initializer_list>

#include "hal/op_call.h"

namespace stagecoach::internal {

/// A call of `kind` on these operands, in the order that ops.h states; numbers are the caller's to
/// fill in. At most as many operands as an OpCall holds.
inline OpCall make_op_call(OpKind kind, const Label& label,
                           std::initializer_list<TensorView> outputs,
                           std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  call.label = label;
  std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

}  // namespace stagecoach::internal
