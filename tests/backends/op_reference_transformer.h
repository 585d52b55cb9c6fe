#pragma once

#include <limits>

#include "tests/backends/op_reference.h"

namespace stagecoach::reference {

// The operations of ops.h that current transformers add, in fp64, as op_reference.h.

struct RmsNorm {
  Values out, rstd;
};
/// Rows of weight.size() columns.
RmsNorm rms_norm(const Values& in, const Values& weight, double epsilon);
struct RmsNormGrads {
  Values in, weight;
};
RmsNormGrads rms_norm_grads(const Values& out_grad, const Values& in, const Values& weight,
                            double epsilon);

/// Sizes of packed query, key and value heads.
struct PackedHeads {
  int64_t heads, kv_heads, dim;

  int64_t all() const { return heads + 2 * kv_heads; }
  int64_t normed() const { return heads + kv_heads; }
};

/// Each pair of query and key heads as a complex number times cosine + i sine.
Values rotary(const PackedHeads& sizes, const Values& qkv, const Values& cosines,
              const Values& sines, int64_t sequence, bool inverse);

/// The elements of heads [first, end) of every row, or their replacement.
Values take_heads(const PackedHeads& sizes, const Values& qkv, int64_t first, int64_t end);
void put_heads(const PackedHeads& sizes, Values& qkv, int64_t first, int64_t end,
               const Values& heads);

/// (clamp(up) + up_offset) * g * sigmoid(alpha * g), g the gate where it is at most `limit`.
struct Gated {
  double alpha = 1.0;
  double limit = std::numeric_limits<double>::infinity();
  double up_offset = 0.0;
};
Values gated_silu(const Values& gate, const Values& up, const Gated& numbers = {});
struct GatedSiluGrads {
  Values gate, up;
};
GatedSiluGrads gated_silu_grads(const Values& out_grad, const Values& gate, const Values& up,
                                const Gated& numbers = {});

/// One AdamW step as the paper writes it.
struct AdamWState {
  Values parameters, first, second;
};
struct AdamWRates {
  double learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale;
  int64_t step;
};
AdamWState adamw(AdamWState state, const Values& gradient, const AdamWRates& rates);

}  // namespace stagecoach::reference
