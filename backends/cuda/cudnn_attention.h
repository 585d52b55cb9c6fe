#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/cuda/cudnn_functions.h"
#include "backends/gpu/gpu_library.h"
#include "backends/gpu/gpu_shape_cache.h"

namespace stagecoach {

/// Causal attention by cuDNN's fused engines in one context. The engine is the first of the
/// library's heuristic that compiles. Bit-exact backward passes keep the gradients of all scores in
/// scratch; where these are more than there may be, they run for some sequences and heads at a
/// time. (What cuDNN's engines note about determinism is not relied on: version 9.19 notes nothing
/// of a backward pass whose bits differ from run to run.)
/// Thread rule: any thread, with the context current; calls take turns.
class CudnnAttention {
 public:
  static constexpr size_t kMostShapes = 256;

  /// Creates the library's handle; a call takes `most_scratch` bytes at most. Errors: also a
  /// version whose attention is known to be wrong.
  static Result<std::unique_ptr<CudnnAttention>> open(const CudnnFunctions& functions,
                                                      bool is_deterministic,
                                                      ByteCount most_scratch);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// "9.19.0".
  std::string version() const;
  /// Scratch memory with which the library computes it, or none; `is_new`: it had to be asked;
  /// `reason`, where it had and does not: why not.
  struct Answer {
    std::optional<ByteCount> scratch_bytes;
    bool is_new = false;
    std::string reason;
  };
  /// Errors: those of the library other than "not supported".
  Result<Answer> find(const GpuAttentionShape& shape);
  /// Queues an attention. Errors: internal.
  Status run(const GpuAttentionShape& shape, const GpuAttentionOperands& operands,
             const GpuLibraryPlace& place);

 private:
  struct Plan;
  class Pack;
  CudnnAttention(const CudnnFunctions& functions, void* handle, bool is_deterministic,
                 ByteCount most_scratch);

  /// Why it is not even tried; empty: it is.
  std::string known_refusal(const GpuAttentionShape& shape) const;
  Result<std::shared_ptr<Plan>> plan_of(const GpuAttentionShape& shape, bool& is_new);
  Result<std::shared_ptr<Plan>> make_plan(const GpuAttentionShape& shape);
  /// False: scratch is too large for so many sequences and heads at a time.
  Result<bool> compile(const GpuAttentionShape& shape, Plan& plan);
  /// The sequences at `operands`, with key heads from `first_kv_head` on.
  Status run_part(Plan& plan, const GpuAttentionShape& shape, const GpuAttentionOperands& operands,
                  int64_t first_kv_head, const GpuLibraryPlace& place);

  const CudnnFunctions f_;
  void* const handle_;
  const bool is_deterministic_;
  const ByteCount most_scratch_;
  const size_t version_;
  std::mutex mutex_;
  GpuShapeCache<GpuAttentionShape, std::shared_ptr<Plan>> plans_{kMostShapes};
};

}  // namespace stagecoach
