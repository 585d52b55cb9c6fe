// Causal attention, forward: a block to a tile of queries, keys streamed past, softmax rescaled as
// its maximum grows. Scores exist a tile at a time.

#include "backends/gpu/kernels/attention.gpu.h"

namespace stagecoach::attention_kernels {

/// Softmax of two rows a lane: running maxima and sums of exponentials.
struct RunningSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};
};

/// Over the four lanes that share rows.
__device__ inline float quad_max(float value) {
  value = fmaxf(value, shuffle_xor(value, 1));
  return fmaxf(value, shuffle_xor(value, 2));
}
__device__ inline float quad_sum(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}

/// scores become exp(score - maximum), results so far are rescaled.
template <typename Tile>
__device__ inline void soften(float (&scores)[1][Tile::kScoreTiles][4],
                              float (&result)[1][Tile::kDim / 8][4], RunningSoftmax& softmax) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float maximum = softmax.maximum[half];
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
      maximum = fmaxf(maximum, fmaxf(scores[0][n][2 * half], scores[0][n][2 * half + 1]));
    }
    maximum = quad_max(maximum);
    // The first tile has a key for every query, so the maximum is finite from then on.
    float rescale = expf(softmax.maximum[half] - maximum);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[0][n][i] = expf(scores[0][n][i] - maximum);
        sum += scores[0][n][i];
      }
    }
    softmax.sum[half] = softmax.sum[half] * rescale + quad_sum(sum);
    softmax.maximum[half] = maximum;
#pragma unroll
    for (int n = 0; n < Tile::kDim / 8; ++n) {
      result[0][n][2 * half] *= rescale;
      result[0][n][2 * half + 1] *= rescale;
    }
  }
}

/// Scales scores; keys after the query, and past the sequence, get minus infinity.
template <typename Tile>
__device__ inline void mask(float (&scores)[1][Tile::kScoreTiles][4], float scale, int64_t query,
                            int64_t key, int64_t sequence) {
#pragma unroll
  for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int64_t position = key + n * 8 + i % 2;
      bool seen = position <= query + i / 2 * 8 && position < sequence;
      scores[0][n][i] = seen ? scores[0][n][i] * scale : -INFINITY;
    }
  }
}

/// `element` is the number of the lane's first probability, `stride` the distance between rows.
template <typename Tile>
__device__ inline void drop(float (&scores)[1][Tile::kScoreTiles][4],
                            const AttentionDropout& dropout, int64_t element, int64_t stride) {
#pragma unroll 1
  for (int n = 0; n < Tile::kScoreTiles; ++n) {
    for (int half = 0; half < 2; ++half) {
      float keep[2];
      keep_pair(dropout, element + half * 8 * stride + n * 8, keep);
#pragma unroll
      for (int m = 0; m < Tile::kScoreTiles; ++m) {
        // Unrolled so that registers are indexed by constants.
        if (m != n) continue;
        scores[0][m][2 * half] *= keep[0];
        scores[0][m][2 * half + 1] *= keep[1];
      }
    }
  }
}

template <typename T, typename Tile>
__device__ inline void attend(T* out, float* lse, const T* qkv, const AttentionSizes& sizes,
                              const AttentionDropout& dropout, int64_t sequence_index, int64_t head,
                              int64_t panel, T* shared) {
  T* q = shared;
  T* k = q + Tile::kElements;
  T* v = k + Tile::kElements;
  int group = static_cast<int>(threadIdx.x / kLanes);
  T* p = v + Tile::kElements + group * 16 * Tile::kScoreStride;
  int64_t first_query = panel * Tile::kRows;
  int64_t first_row = sequence_index * sizes.sequence;
  int64_t width = sizes.qkv_width();
  int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  bool aligned = heads_aligned<T>(sizes.dim, qkv);
  int depth = (sizes.dim + 15) / 16 * 16;
  int64_t row = first_query + group * 16 + threadIdx.x % kLanes / 4;  // the lane's upper one
  int lane_column = static_cast<int>(threadIdx.x % 4) * 2;
  __syncthreads();
  load_head<Tile>(q, qkv + (first_row + first_query) * width + head * sizes.dim, width,
                  sizes.sequence - first_query, sizes.dim, aligned);
  float result[1][Tile::kDim / 8][4] = {};
  RunningSoftmax softmax;
  for (int64_t key = 0; key < first_query + Tile::kRows && key < sizes.sequence;
       key += Tile::kRows) {
    const T* line = qkv + (first_row + key) * width;
    __syncthreads();
    load_head<Tile>(k, line + sizes.key_column(kv_head), width, sizes.sequence - key, sizes.dim,
                    aligned);
    load_head<Tile>(v, line + sizes.value_column(kv_head), width, sizes.sequence - key, sizes.dim,
                    aligned);
    __syncthreads();
    float scores[1][Tile::kScoreTiles][4] = {};
    TileOperand<T, true> queries{q + group * 16 * Tile::kStride, Tile::kStride};
    multiply_tiles<T>(scores, queries, TileOperand<T, true>{k, Tile::kStride}, depth);
    mask<Tile>(scores, sizes.scale, row, key + lane_column, sizes.sequence);
    soften<Tile>(scores, result, softmax);
    if (dropout.drops != 0) {
      int64_t element = ((first_row + row) * sizes.heads + head) * sizes.sequence;
      drop<Tile>(scores, dropout, element + key + lane_column, sizes.heads * sizes.sequence);
    }
    lanes_sync();  // the last turn's probabilities have been read
    put_scores<Tile>(p, scores);
    multiply_tiles<T>(result, TileOperand<T, true>{p, Tile::kScoreStride},
                      TileOperand<T, false>{v, Tile::kStride}, Tile::kRows, depth / 8);
  }
  int64_t valid = sizes.sequence - first_query - group * 16;
  T* target = out + (first_row + first_query + group * 16) * sizes.out_width() + head * sizes.dim;
  write_head(target, sizes.out_width(), valid, sizes.dim, result, 1.0f / softmax.sum[0],
             1.0f / softmax.sum[1]);
  for (int half = 0; half < 2; ++half) {
    int64_t query = row + half * 8;
    if (lane_column != 0 || query >= sizes.sequence) continue;
    lse[(first_row + query) * sizes.heads + head] = softmax.maximum[half] + logf(softmax.sum[half]);
  }
}

/// Panels of the last queries, which see most keys, come first.
template <typename T, typename Tile>
__device__ inline void attention_forward(T* out, float* lse, const T* qkv,
                                         const AttentionSizes& sizes,
                                         const AttentionDropout& dropout, T* shared) {
  int64_t panels = (sizes.sequence + Tile::kRows - 1) / Tile::kRows;
  int64_t together = sizes.sequences * sizes.heads;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together;
    attend<T, Tile>(out, lse, qkv, sizes, dropout, rest / sizes.heads, rest % sizes.heads,
                    panels - 1 - work / together, shared);
  }
}

#define STAGECOACH_ATTENTION(T, NAME, DIM)                                                        \
  using Tile_##NAME##_##DIM =                                                                     \
      AttentionTile<T, DIM, stagecoach::attention_tile_rows(sizeof(T), DIM, false, kIsHip)>;      \
  extern "C" __global__ void __launch_bounds__(Tile_##NAME##_##DIM::kThreads)                     \
      attention_forward_d##DIM##_##NAME(T* out, float* lse, const T* qkv, int64_t sequences,      \
                                        int64_t sequence, int64_t heads, int64_t kv_heads,        \
                                        int32_t dim, float scale, uint64_t key, uint64_t counter, \
                                        uint32_t threshold, float factor, int32_t drops) {        \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                            \
    attention_forward<T, Tile_##NAME##_##DIM>(                                                    \
        out, lse, qkv, AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale},          \
        AttentionDropout{RandomStream{key, counter}, threshold, factor, drops},                   \
        reinterpret_cast<T*>(shared));                                                            \
  }

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION)

}  // namespace stagecoach::attention_kernels
