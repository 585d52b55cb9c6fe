#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

/// Numbers of an attention call; lengths in elements.
struct AttentionSizes {
  int64_t sequences;
  int64_t sequence;
  int64_t heads;
  int64_t kv_heads;
  int32_t dim;
  float scale;
  int32_t window;         ///< keys a query sees, itself the last; 0: all up to itself
  const int32_t* starts;  ///< of each row's document, in its sequence; null: there is one

  __device__ int length() const { return static_cast<int>(sequence); }
  __device__ int depth() const { return (dim + 15) / 16 * 16; }  ///< what products run over

  __device__ float score_scale() const { return scale * 1.4426950408889634f; }  ///< for exp2
  __device__ int64_t qkv_width() const { return (heads + 2 * kv_heads) * dim; }
  __device__ int64_t out_width() const { return heads * dim; }
  /// The first key that the query at `position` of a sequence sees: never smaller for later ones.
  /// Starts that make no sense, which a check reports, lead nowhere else.
  __device__ int first_key(int64_t first_row, int position) const {
    int first = window == 0 || position < window ? 0 : position - window + 1;
    if (starts == nullptr) return first;
    int start = starts[first_row + position];
    start = start > position ? position : start;
    return start > first ? start : first;
  }
  /// One past the last query that sees the key at `position`.
  __device__ int seeing_end(int64_t first_row, int position) const {
    int end = window == 0 || window >= length() - position ? length() : position + window;
    if (starts == nullptr) return end;
    int sees = position;
    while (end - sees > 1) {
      int middle = sees + (end - sees) / 2;
      (starts[first_row + middle] > position ? end : sees) = middle;
    }
    return end;
  }
  __device__ int64_t key_column(int64_t kv_head) const { return (heads + kv_head) * dim; }
  __device__ int64_t value_column(int64_t kv_head) const {
    return (heads + kv_heads + kv_head) * dim;
  }
};

}  // namespace stagecoach
