// Causal attention, backward, without atomics: one kernel gives each tile of keys its gradients
// (over all queries that see it, of all heads that share it, in order), another each tile of
// queries. Scores are computed again, a tile at a time.

#include "backends/gpu/kernels/attention.gpu.h"

namespace stagecoach::attention_backward_kernels {

template <typename T>
struct BackwardOperands {
  T* qkv_grad;
  const T* out_grad;
  const T* qkv;
  const float* lse;
  const float* delta;  ///< [R, H]: sum over a head of out * out_grad
};

/// Where shared memory holds what.
template <typename T, typename Tile>
struct BackwardShared {
  T* q;
  T* out_grad;
  T* k;
  T* v;
  T* scores;  ///< 16 lines of each group
  float* lse;
  float* delta;

  __device__ explicit BackwardShared(T* memory) {
    q = memory;
    out_grad = q + Tile::kElements;
    k = out_grad + Tile::kElements;
    v = k + Tile::kElements;
    scores = v + Tile::kElements;
    lse = reinterpret_cast<float*>(scores + Tile::kRows * Tile::kScoreStride);
    delta = lse + Tile::kRows;
    scores += threadIdx.x / kLanes * 16 * Tile::kScoreStride;
  }
};

template <typename T, typename Tile>
__device__ inline void load_queries(const BackwardShared<T, Tile>& shared,
                                    const BackwardOperands<T>& operands,
                                    const AttentionSizes& sizes, int64_t first_row, int64_t head,
                                    int64_t query) {
  int64_t valid = sizes.sequence - query;
  load_head<Tile>(shared.q,
                  operands.qkv + (first_row + query) * sizes.qkv_width() + head * sizes.dim,
                  sizes.qkv_width(), valid, sizes.dim, heads_aligned<T>(sizes.dim, operands.qkv));
  load_head<Tile>(shared.out_grad,
                  operands.out_grad + (first_row + query) * sizes.out_width() + head * sizes.dim,
                  sizes.out_width(), valid, sizes.dim,
                  heads_aligned<T>(sizes.dim, operands.out_grad));
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows; i += Tile::kThreads) {
    int64_t index = (first_row + query + i) * sizes.heads + head;
    shared.lse[i] = i < valid ? operands.lse[index] : 0.0f;
    shared.delta[i] = i < valid ? operands.delta[index] : 0.0f;
  }
}

template <typename T, typename Tile>
__device__ inline void load_keys(const BackwardShared<T, Tile>& shared,
                                 const BackwardOperands<T>& operands, const AttentionSizes& sizes,
                                 int64_t first_row, int64_t kv_head, int64_t key) {
  const T* line = operands.qkv + (first_row + key) * sizes.qkv_width();
  bool aligned = heads_aligned<T>(sizes.dim, operands.qkv);
  load_head<Tile>(shared.k, line + sizes.key_column(kv_head), sizes.qkv_width(),
                  sizes.sequence - key, sizes.dim, aligned);
  load_head<Tile>(shared.v, line + sizes.value_column(kv_head), sizes.qkv_width(),
                  sizes.sequence - key, sizes.dim, aligned);
}

/// From a score and its gradient's first part: the probability after dropout, and the gradient.
struct ScoreGrad {
  float dropped;
  float grad;
};
__device__ inline ScoreGrad score_grad(float score, float grad, float lse, float delta, float keep,
                                       float scale, bool seen) {
  float probability = seen ? expf(score * scale - lse) : 0.0f;
  return {probability * keep, probability * (grad * keep - delta) * scale};
}

/// One tile of keys of one kv head, columns [slice, slice + kSlice) of its gradients.
template <typename T, typename Tile, int Slice>
__device__ inline void key_gradients(const BackwardOperands<T>& operands,
                                     const AttentionSizes& sizes, const AttentionDropout& dropout,
                                     int64_t sequence_index, int64_t kv_head, int64_t first_key,
                                     int slice, T* memory) {
  BackwardShared<T, Tile> shared(memory);
  int group = static_cast<int>(threadIdx.x / kLanes);
  int64_t first_row = sequence_index * sizes.sequence;
  int64_t key = first_key + group * 16 + threadIdx.x % kLanes / 4;
  int lane_column = static_cast<int>(threadIdx.x % 4) * 2;
  int depth = (sizes.dim + 15) / 16 * 16;
  int tiles = (depth - slice) / 8 < Slice / 8 ? (depth - slice) / 8 : Slice / 8;
  int64_t share = sizes.heads / sizes.kv_heads;
  float k_grad[1][Slice / 8][4] = {};
  float v_grad[1][Slice / 8][4] = {};
  __syncthreads();
  load_keys(shared, operands, sizes, first_row, kv_head, first_key);
  for (int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head) {
    for (int64_t query = first_key; query < sizes.sequence; query += Tile::kRows) {
      __syncthreads();
      load_queries(shared, operands, sizes, first_row, head, query);
      __syncthreads();
      float scores[1][Tile::kScoreTiles][4] = {};
      float grads[1][Tile::kScoreTiles][4] = {};
      int lines = group * 16 * Tile::kStride;
      multiply_tiles<T>(scores, TileOperand<T, true>{shared.k + lines, Tile::kStride},
                        TileOperand<T, true>{shared.q, Tile::kStride}, depth);
      multiply_tiles<T>(grads, TileOperand<T, true>{shared.v + lines, Tile::kStride},
                        TileOperand<T, true>{shared.out_grad, Tile::kStride}, depth);
#pragma unroll
      for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int at = n * 8 + lane_column + i % 2;
          int64_t position = key + i / 2 * 8;
          bool seen = position <= query + at && query + at < sizes.sequence;
          float keep = 1.0f;
          if (dropout.drops != 0) {
            int64_t row = first_row + query + at;
            keep = keep_one(dropout, (row * sizes.heads + head) * sizes.sequence + position);
          }
          ScoreGrad both = score_grad(scores[0][n][i], grads[0][n][i], shared.lse[at],
                                      shared.delta[at], keep, sizes.scale, seen);
          scores[0][n][i] = both.dropped;
          grads[0][n][i] = both.grad;
        }
      }
      put_scores<Tile>(shared.scores, scores);
      TileOperand<T, true> lines_of_scores{shared.scores, Tile::kScoreStride};
      multiply_tiles<T>(v_grad, lines_of_scores,
                        TileOperand<T, false>{shared.out_grad + slice, Tile::kStride}, Tile::kRows,
                        tiles);
      lanes_sync();
      put_scores<Tile>(shared.scores, grads);
      multiply_tiles<T>(k_grad, lines_of_scores,
                        TileOperand<T, false>{shared.q + slice, Tile::kStride}, Tile::kRows, tiles);
      lanes_sync();
    }
  }
  int64_t valid = sizes.sequence - first_key - group * 16;
  T* line = operands.qkv_grad + (first_row + first_key + group * 16) * sizes.qkv_width() + slice;
  write_head(line + sizes.key_column(kv_head), sizes.qkv_width(), valid, sizes.dim - slice, k_grad,
             1.0f, 1.0f);
  write_head(line + sizes.value_column(kv_head), sizes.qkv_width(), valid, sizes.dim - slice,
             v_grad, 1.0f, 1.0f);
}

/// One tile of queries of one head.
template <typename T, typename Tile>
__device__ inline void query_gradients(const BackwardOperands<T>& operands,
                                       const AttentionSizes& sizes, const AttentionDropout& dropout,
                                       int64_t sequence_index, int64_t head, int64_t first_query,
                                       T* memory) {
  BackwardShared<T, Tile> shared(memory);
  int group = static_cast<int>(threadIdx.x / kLanes);
  int64_t first_row = sequence_index * sizes.sequence;
  int at = group * 16 + static_cast<int>(threadIdx.x % kLanes / 4);
  int lane_column = static_cast<int>(threadIdx.x % 4) * 2;
  int depth = (sizes.dim + 15) / 16 * 16;
  int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  float q_grad[1][Tile::kDim / 8][4] = {};
  __syncthreads();
  load_queries(shared, operands, sizes, first_row, head, first_query);
  for (int64_t key = 0; key < first_query + Tile::kRows && key < sizes.sequence;
       key += Tile::kRows) {
    __syncthreads();
    load_keys(shared, operands, sizes, first_row, kv_head, key);
    __syncthreads();
    float scores[1][Tile::kScoreTiles][4] = {};
    float grads[1][Tile::kScoreTiles][4] = {};
    int lines = group * 16 * Tile::kStride;
    multiply_tiles<T>(scores, TileOperand<T, true>{shared.q + lines, Tile::kStride},
                      TileOperand<T, true>{shared.k, Tile::kStride}, depth);
    multiply_tiles<T>(grads, TileOperand<T, true>{shared.out_grad + lines, Tile::kStride},
                      TileOperand<T, true>{shared.v, Tile::kStride}, depth);
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int line = at + i / 2 * 8;
        int64_t query = first_query + line;
        int64_t position = key + n * 8 + lane_column + i % 2;
        bool seen = position <= query && query < sizes.sequence;
        float keep = 1.0f;
        if (dropout.drops != 0) {
          int64_t row = first_row + query;
          keep = keep_one(dropout, (row * sizes.heads + head) * sizes.sequence + position);
        }
        grads[0][n][i] = score_grad(scores[0][n][i], grads[0][n][i], shared.lse[line],
                                    shared.delta[line], keep, sizes.scale, seen)
                             .grad;
      }
    }
    lanes_sync();
    put_scores<Tile>(shared.scores, grads);
    multiply_tiles<T>(q_grad, TileOperand<T, true>{shared.scores, Tile::kScoreStride},
                      TileOperand<T, false>{shared.k, Tile::kStride}, Tile::kRows, depth / 8);
  }
  int64_t valid = sizes.sequence - first_query - group * 16;
  T* line = operands.qkv_grad + (first_row + first_query + group * 16) * sizes.qkv_width();
  write_head(line + head * sizes.dim, sizes.qkv_width(), valid, sizes.dim, q_grad, 1.0f, 1.0f);
}

/// The first keys, which most queries see, come first; slices of one tile lie side by side.
template <typename T, typename Tile>
__device__ inline void all_key_gradients(const BackwardOperands<T>& operands,
                                         const AttentionSizes& sizes,
                                         const AttentionDropout& dropout, T* memory) {
  int64_t panels = (sizes.sequence + Tile::kRows - 1) / Tile::kRows;
  constexpr int kSlice = Tile::kSlice;
  int64_t slices = (sizes.dim + kSlice - 1) / kSlice;
  int64_t together = sizes.sequences * sizes.kv_heads * slices;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together / slices;
    key_gradients<T, Tile, kSlice>(operands, sizes, dropout, rest / sizes.kv_heads,
                                   rest % sizes.kv_heads, work / together * Tile::kRows,
                                   static_cast<int>(work % slices) * kSlice, memory);
  }
}

template <typename T, typename Tile>
__device__ inline void all_query_gradients(const BackwardOperands<T>& operands,
                                           const AttentionSizes& sizes,
                                           const AttentionDropout& dropout, T* memory) {
  int64_t panels = (sizes.sequence + Tile::kRows - 1) / Tile::kRows;
  int64_t together = sizes.sequences * sizes.heads;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together;
    query_gradients<T, Tile>(operands, sizes, dropout, rest / sizes.heads, rest % sizes.heads,
                             (panels - 1 - work / together) * Tile::kRows, memory);
  }
}

/// A group of lanes to a head of a row.
template <typename T>
__device__ inline void head_products(float* delta, const T* out, const T* out_grad, int64_t count,
                                     int64_t dim) {
  int64_t groups = static_cast<int64_t>(gridDim.x) * (blockDim.x / kLanes);
  int64_t group = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  for (int64_t i = group; i < count; i += groups) {
    float sum = 0.0f;
    for (int64_t d = threadIdx.x % kLanes; d < dim; d += kLanes) {
      sum += to_float(out[i * dim + d]) * to_float(out_grad[i * dim + d]);
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sum += shuffle_xor(sum, distance);
    }
    if (threadIdx.x % kLanes == 0) delta[i] = sum;
  }
}

#define STAGECOACH_ATTENTION_DELTA(T, NAME)                                                        \
  extern "C" __global__ void attention_delta_##NAME(float* delta, const T* out, const T* out_grad, \
                                                    int64_t count, int64_t dim) {                  \
    head_products(delta, out, out_grad, count, dim);                                               \
  }
STAGECOACH_FOR_STORAGE(STAGECOACH_ATTENTION_DELTA)

#define STAGECOACH_ATTENTION_PASS(T, NAME, DIM, PASS, BODY)                                   \
  extern "C" __global__ void __launch_bounds__(Tile_##NAME##_##DIM::kThreads)                 \
      attention_backward_##PASS##_d##DIM##_##NAME(                                            \
          T* qkv_grad, const T* out_grad, const T* qkv, const float* lse, const float* delta, \
          int64_t sequences, int64_t sequence, int64_t heads, int64_t kv_heads, int32_t dim,  \
          float scale, uint64_t key, uint64_t counter, uint32_t threshold, float factor,      \
          int32_t drops) {                                                                    \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                        \
    BODY(BackwardOperands<T>{qkv_grad, out_grad, qkv, lse, delta},                            \
         AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale},                    \
         AttentionDropout{RandomStream{key, counter}, threshold, factor, drops},              \
         reinterpret_cast<T*>(shared));                                                       \
  }
#define STAGECOACH_ATTENTION_BACKWARD(T, NAME, DIM)                                          \
  using Tile_##NAME##_##DIM =                                                                \
      AttentionTile<T, DIM, stagecoach::attention_tile_rows(sizeof(T), DIM, true, kIsHip)>;  \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, keys, (all_key_gradients<T, Tile_##NAME##_##DIM>)) \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, queries, (all_query_gradients<T, Tile_##NAME##_##DIM>))

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION_BACKWARD)

}  // namespace stagecoach::attention_backward_kernels
