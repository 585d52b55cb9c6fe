#pragma once

#include "backends/cuda/cudnn_graph.h"
#include "backends/gpu/gpu_library_work.h"

namespace stagecoach {

/// Ids of the tensors of an attention graph that have memory.
struct CudnnAttentionId {
  static constexpr int64_t kQuery = 1;
  static constexpr int64_t kKey = 2;
  static constexpr int64_t kValue = 3;
  static constexpr int64_t kOut = 4;
  static constexpr int64_t kStats = 5;
  static constexpr int64_t kScale = 6;        ///< by value: float
  static constexpr int64_t kMaskedScore = 7;  ///< by value: float
  static constexpr int64_t kOutGrad = 8;
  static constexpr int64_t kQueryGrad = 9;
  static constexpr int64_t kKeyGrad = 10;
  static constexpr int64_t kValueGrad = 11;
  static constexpr int64_t kOutSums = 12;    ///< scratch: float, one a row and head
  static constexpr int64_t kQuerySums = 13;  ///< scratch: float, as the query; not when bit-exact
  static constexpr int64_t kOne = 14;        ///< by value: float
};

/// How many sequences and key heads (with their queries' heads) one graph computes. Plain data.
struct CudnnAttentionPart {
  int64_t batch = 1;
  int64_t kv_heads = 1;
};

/// Adds causal attention over `part` of our packed query, key and value matrix to `graph`, in the
/// form that cuDNN's fused engines know. `deterministic`: the backward pass sums the query's
/// gradient in one order instead of into scratch. Pure apart from the graph.
void add_cudnn_attention(CudnnGraph& graph, const GpuAttentionShape& shape,
                         const CudnnAttentionPart& part, bool deterministic);

}  // namespace stagecoach
