#pragma once

#include "model/basic_segment.h"

namespace stagecoach {

/// out[R, H * D] = causal attention within each sequence over packed qkv[R, (H + 2 Hkv) * D]: all
/// query heads, then keys, then values. Scores are scaled by 1 / sqrt(D). Windows and
/// sinks are those of Ops. Must be the only reader of qkv, because its gradient is overwritten.
class AttentionSegment final : public BasicSegment {
 public:
  struct Options {
    int qkv = 0;
    int lse = 1;  ///< own extra activation, fp32 [R, H]
    int out = 2;
    int64_t heads = 0;
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t window = 0;          ///< keys a query sees, itself the last; 0: all up to itself
    ParameterRef sinks;          ///< [H]
    float drop_probability = 0;  ///< of attention weights
    uint32_t site = 0;           ///< random site inside the layer
    bool has_documents = false;  ///< keeps apart those of a sequence, as RowInput::kDocumentStarts
  };
  AttentionSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  float scale() const;
  TensorView document_starts(SegmentRun& run) const;
  float drop_probability(const SegmentRun& run) const {
    return run.training() ? options_.drop_probability : 0.0f;
  }
  int64_t qkv_columns() const {
    return (options_.heads + 2 * options_.kv_heads) * options_.head_dim;
  }

  Options options_;
};

}  // namespace stagecoach
