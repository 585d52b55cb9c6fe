#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "core/dtype.h"

namespace stagecoach {

/// A matrix of a product, row after row. Plain data.
struct GpuMatrix {
  uint64_t address = 0;
  bool is_in_workspace = false;  ///< `address` is an offset into the stream's workspace
  int64_t stride = 0;            ///< elements between rows
  int64_t step = 0;              ///< bytes the address grows by from one round to the next
};

/// A matrix product as a plan describes it, beside the launch that computes it: out[m,n] = alpha *
/// op(a)[m,k] * op(b)[k,n] (+ bias[n]) (+ out). Plain data.
struct GpuProduct {
  int launch = 0;                 ///< the launch of the plan that computes the same
  DType dtype = DType::kF32;      ///< of a, b and bias
  DType out_dtype = DType::kF32;  ///< `dtype` or fp32
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  int64_t m = 0, n = 0, k = 0;  ///< most of one round
  /// All rounds together; 0: every round has the same.
  int64_t m_total = 0, k_total = 0;
  GpuMatrix out, a, b;
  uint64_t bias = 0;  ///< address; 0: none
  float alpha = 1.0f;
};

/// What a library must know to choose how it computes a product: the same shape is computed the
/// same way, whatever the addresses. Plain data.
struct GpuProductShape {
  DType dtype = DType::kF32, out_dtype = DType::kF32;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, has_bias = false;
  bool is_scaled = false;  ///< alpha is not 1
  int64_t m = 0, n = 0, k = 0;
  int64_t out_stride = 0, a_stride = 0, b_stride = 0;
  /// Bytes that addresses are multiples of, at most 16: more would let placement choose.
  int out_alignment = 16, a_alignment = 16, b_alignment = 16, bias_alignment = 16;

  auto operator<=>(const GpuProductShape&) const = default;
};

/// Addresses and numbers of one run of a product. Plain data.
struct GpuProductOperands {
  uint64_t out = 0, a = 0, b = 0, bias = 0;
  float alpha = 1.0f;
};

/// Causal attention without dropout, windows, documents and sinks as a library may compute it; what
/// the addresses hold is Ops::attention_forward's and attention_backward's. Plain data.
struct GpuAttentionShape {
  bool is_backward = false;
  DType dtype = DType::kF32;
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f;
  bool is_aligned = true;  ///< all addresses are multiples of 16

  auto operator<=>(const GpuAttentionShape&) const = default;
};

/// Addresses of one attention call. Plain data.
struct GpuAttentionOperands {
  uint64_t qkv = 0, out = 0, lse = 0;
  uint64_t out_grad = 0, qkv_grad = 0;  ///< backward only
};

/// An attention call as a plan describes it. Plain data.
struct GpuAttention {
  GpuAttentionShape shape;
  GpuAttentionOperands operands;
};

/// One round of a product. Plain data.
struct GpuProductRound {
  GpuProductShape shape;
  GpuProductOperands operands;
};

/// Round `round` of a product whose stream's workspace is at `workspace`. Pure.
GpuProductRound product_round(const GpuProduct& product, int64_t round, uint64_t workspace);

/// "bf16 [512, 2048] x [2048, 768] to fp32": for messages.
std::string describe(const GpuProductShape& shape);
/// "bf16, 2 sequences of 4096, 16 heads over 8, 128 wide".
std::string describe(const GpuAttentionShape& shape);

}  // namespace stagecoach
