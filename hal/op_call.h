#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/label.h"
#include "core/random.h"
#include "hal/tensor.h"

namespace stagecoach {

/// Every operation of the Ops table.
enum class OpKind : uint8_t {
  kEmbeddingForward,
  kEmbeddingBackward,
  kLayerNormForward,
  kLayerNormBackwardInput,
  kLayerNormBackwardWeight,
  kMatmul,
  kColumnSum,
  kGeluForward,
  kGeluBackward,
  kAttentionForward,
  kAttentionBackward,
  kAdd,
  kMultiply,
  kDropout,
  kLinearCrossEntropyForward,
  kLinearCrossEntropyBackwardInput,
  kLinearCrossEntropyBackwardWeight,
  kSquaredErrorForward,
  kSquaredErrorBackward,
  kAccumulate,
  kConvert,
  kSumOfSquares,
  kChecksum,
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kChecksum) + 1;

/// "matmul", "attention_forward", …: the verb in messages, traces and fault plans.
std::string_view op_kind_name(OpKind kind);

/// One operation as plain data: what runs, on which tensors, with which numbers. Decorators, cost
/// models, recorders and checkers read this instead of a method per op. Operand order of each kind
/// is stated at its method in ops.h; absent optional operands are none.
struct OpCall {
  static constexpr int kMaxOutputs = 3;
  static constexpr int kMaxInputs = 7;

  OpKind kind = OpKind::kAdd;
  Label label;
  std::array<TensorView, kMaxOutputs> outputs;
  std::array<TensorView, kMaxInputs> inputs;
  bool accumulate = false;   ///< outputs are added to instead of overwritten
  bool transpose_a = false;  ///< matmul
  bool transpose_b = false;
  float scale = 1.0f;    ///< attention score scale; loss gradient scale
  float epsilon = 0.0f;  ///< layer norm
  float drop_probability = 0.0f;
  RandomKey key;         ///< for dropout
  int64_t sequence = 0;  ///< tokens of one sequence; rows are whole sequences
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

/// Arithmetic of a call in FLOP (a multiply-add is two): the main terms, matmuls and attention
/// exactly, the rest by elements. What pacing, simulation and reports use. Pure.
double op_flop(const OpCall& call);

}  // namespace stagecoach
