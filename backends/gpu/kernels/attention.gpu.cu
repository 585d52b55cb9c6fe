// Causal attention, forward: a block to a tile of queries, keys streamed past, softmax rescaled as
// its maximum grows. Scores exist a tile at a time, in registers.

#include "backends/gpu/kernels/attention.gpu.h"

namespace stagecoach::attention_kernels {

/// Softmax of two rows a lane: running maxima of scores, and sums of exponentials.
struct RunningSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  ///< of this lane's columns
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

/// scores become 2^((score - maximum) * scale), results so far are rescaled.
template <typename Tile>
__device__ inline void soften(float (&scores)[1][Tile::kStreamTiles][4],
                              float (&result)[1][Tile::kDim / 8][4], RunningSoftmax& softmax,
                              float scale) {
  float rescale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float maximum = softmax.maximum[half];
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
      maximum = fmaxf(maximum, fmaxf(scores[0][n][2 * half], scores[0][n][2 * half + 1]));
    }
    // The first tile has a key for every query, so the maximum is finite from then on; where tiles
    // may have none for some, nothing is summed of these yet.
    maximum = quad_max(maximum);
    float offset = Tile::kGeneral && maximum == -INFINITY ? 0.0f : maximum * scale;
    rescale[half] = exp2_fast(fmaf(softmax.maximum[half], scale, -offset));
    float sum = softmax.sum[half] * rescale[half];
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[0][n][i] = exp2_fast(fmaf(scores[0][n][i], scale, -offset));
        sum += scores[0][n][i];
      }
    }
    softmax.sum[half] = sum;
    softmax.maximum[half] = maximum;
  }
  // After the first tiles maxima seldom grow.
  if (!any_lane(rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
  for (int n = 0; n < Tile::kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) result[0][n][i] *= rescale[i / 2];
  }
}

template <typename T>
struct ForwardOperands {
  T* out;
  float* lse;
  const T* qkv;
  const T* sinks;  ///< null: none
};

/// A row's factor, and its lse.
struct RowEnd {
  float factor, lse;
};

/// `sink` joins the sum of exponentials; null: none does.
template <typename T>
__device__ inline RowEnd end_row(float maximum, float sum, const T* sink) {
  if (sink == nullptr) return {1.0f / sum, maximum + logf(sum)};
  float score = to_float(*sink);
  float top = fmaxf(maximum, score);
  float share = expf(maximum - top);
  float total = sum * share + expf(score - top);
  return {share / total, top + logf(total)};
}

/// Which tile a block works on.
struct QueryPanel {
  int64_t first_row;  ///< of its sequence
  int64_t head;
  int first_query;
};

template <typename T, typename Tile>
__device__ inline void write_results(const ForwardOperands<T>& operands,
                                     const AttentionSizes& sizes, const QueryPanel& panel,
                                     const float (&result)[1][Tile::kDim / 8][4],
                                     const RunningSoftmax& softmax) {
  LanePlace place;
  const T* sink = operands.sinks == nullptr ? nullptr : operands.sinks + panel.head;
  float factors[2];
  for (int half = 0; half < 2; ++half) {
    RowEnd end = end_row(softmax.maximum[half] * sizes.scale, quad_sum(softmax.sum[half]), sink);
    factors[half] = end.factor;
    int query = panel.first_query + place.row + half * 8;
    if (place.column != 0 || query >= sizes.length()) continue;
    operands.lse[(panel.first_row + query) * sizes.heads + panel.head] = end.lse;
  }
  int first = panel.first_query + place.group * 16;
  write_head(operands.out + (panel.first_row + first) * sizes.out_width() + panel.head * sizes.dim,
             sizes.out_width(), sizes.length() - first, sizes.dim, result, factors[0], factors[1]);
}

/// What a block's queries have seen so far.
template <typename T, typename Tile>
struct Attention {
  using Streamed = typename Tile::Streamed;
  static constexpr bool kAsync = Tile::kOnWarpgroups;
  const AttentionSizes& sizes;
  const AttentionDropout& dropout;
  const QueryPanel& panel;
  FirstKeys<Tile> first_keys;
  LanePlace place;
  float result[1][Tile::kDim / 8][4] = {};
  RunningSoftmax softmax;

  /// Takes in keys from number `key` on and their values.
  template <typename Own>
  __device__ void take(const Own& own, int key, Streamed keys, Streamed values) {
    float scores[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, own, keys, sizes.depth());
    products_commit<kAsync>();
    products_wait<kAsync, 0>(scores);
    if (key + Tile::kStream > panel.first_query + place.group * 16) {
      mask_after_queries<Tile>(scores, panel.first_query - key + place.row - place.column);
    }
    first_keys.mask(scores, key);
    soften<Tile>(scores, result, softmax, sizes.score_scale());
    if (Tile::kGeneral && dropout.drops != 0) {
      int64_t row = panel.first_row + panel.first_query + place.row;
      int64_t element = (row * sizes.heads + panel.head) * sizes.sequence + key + place.column;
      uint32_t kept = kept_of_queries<Tile::kStreamTiles>(
          dropout, element, sizes.heads * sizes.sequence, rows_are_blocks(sizes.sequence));
      drop_scores(scores, kept, dropout.factor);
    }
    RegisterRows<T, Tile::kStreamTiles> rows(scores);
    products_begin<kAsync>();
    result_product<T, Tile>(result, rows, values, 0, sizes.depth() / 8);
    products_commit<kAsync>();
    products_wait<kAsync, 0>(result);
  }
};

/// Keys and values past the queries, which `own` holds.
template <typename T, typename Tile, typename Own>
__device__ inline void attend(const ForwardOperands<T>& operands, const AttentionSizes& sizes,
                              const AttentionDropout& dropout, const QueryPanel& panel, int stages,
                              const Own& own, T* streamed) {
  int64_t width = sizes.qkv_width();
  int64_t kv_head = panel.head / (sizes.heads / sizes.kv_heads);
  const T* keys = operands.qkv + panel.first_row * width + sizes.key_column(kv_head);
  const T* values = operands.qkv + panel.first_row * width + sizes.value_column(kv_head);
  int seen = panel.first_query + Tile::kOwn;
  if (seen > sizes.length()) seen = sizes.length();
  int unseen = unseen_tiles<Tile>(sizes, panel.first_row, panel.first_query);
  Attention<T, Tile> attention{sizes, dropout, panel, {sizes, panel.first_row, panel.first_query},
                               {},    {},      {}};
  auto load = [&](int tile, int stage) {
    int key = (unseen + tile) * Tile::kStream;
    T* to = streamed + 2 * stage * Tile::kStreamElements;
    copy_head<Tile>(typename Tile::Streamed{to}, keys + key * width, width, sizes.length() - key,
                    sizes.dim);
    copy_head<Tile>(typename Tile::Streamed{to + Tile::kStreamElements}, values + key * width,
                    width, sizes.length() - key, sizes.dim);
    copies_commit();
  };
  auto work = [&](int tile, int stage) {
    int key = (unseen + tile) * Tile::kStream;
    if (key > panel.first_query + attention.place.last_row) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    attention.take(own, key, typename Tile::Streamed{from},
                   typename Tile::Streamed{from + Tile::kStreamElements});
  };
  stream_tiles((seen + Tile::kStream - 1) / Tile::kStream - unseen, stages, load, work);
  write_results<T, Tile>(operands, sizes, panel, attention.result, attention.softmax);
}

/// Fetches a tile of queries, and attends.
template <typename T, typename Tile>
__device__ inline void attend_panel(const ForwardOperands<T>& operands, const AttentionSizes& sizes,
                                    const AttentionDropout& dropout, const QueryPanel& panel,
                                    int stages, T* shared) {
  typename Tile::Own queries{shared};
  int64_t width = sizes.qkv_width();
  __syncthreads();
  copy_head<Tile>(
      queries,
      operands.qkv + (panel.first_row + panel.first_query) * width + panel.head * sizes.dim, width,
      sizes.length() - panel.first_query, sizes.dim);
  copies_commit();
  T* streamed = shared + Tile::kOwnElements;
#if STAGECOACH_MATRIX_UNITS
  if constexpr (Tile::kResident) {
    ResidentRows<T, Tile::kDim> own;
    copies_wait<0>();
    __syncthreads();
    own.load(queries, LanePlace().group);
    attend<T, Tile>(operands, sizes, dropout, panel, stages, own, streamed);
  } else
#endif
  {
    attend<T, Tile>(operands, sizes, dropout, panel, stages, queries, streamed);
  }
}

/// Panels of the last queries, which see most keys, come first.
template <typename T, typename Tile>
__device__ inline void attention_forward(const ForwardOperands<T>& operands,
                                         const AttentionSizes& sizes,
                                         const AttentionDropout& dropout, int stages, T* shared) {
  int64_t panels = (sizes.sequence + Tile::kOwn - 1) / Tile::kOwn;
  int64_t together = sizes.sequences * sizes.heads;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together;
    QueryPanel panel{rest / sizes.heads * sizes.sequence, rest % sizes.heads,
                     static_cast<int>(panels - 1 - work / together) * Tile::kOwn};
    attend_panel<T, Tile>(operands, sizes, dropout, panel, stages, shared);
  }
}

#define STAGECOACH_ATTENTION(T, NAME, DIM, KIND, GENERAL)                                    \
  using KIND##Tile_##NAME##_##DIM = AttentionTile<T, DIM, AttentionPass::kForward, GENERAL>; \
  extern "C" __global__ void __launch_bounds__(KIND##Tile_##NAME##_##DIM::kThreads,          \
                                               KIND##Tile_##NAME##_##DIM::kBlocks)           \
      attention_forward_##KIND##d##DIM##_##NAME(                                             \
          T* out, float* lse, const T* qkv, const T* sinks, const int32_t* starts,           \
          int64_t sequences, int64_t sequence, int64_t heads, int64_t kv_heads, int32_t dim, \
          float scale, int32_t window, uint64_t key, uint64_t counter, uint32_t threshold,   \
          float factor, int32_t drops, int32_t stages) {                                     \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                       \
    attention_forward<T, KIND##Tile_##NAME##_##DIM>(                                         \
        {out, lse, qkv, sinks},                                                              \
        AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale, window, starts},    \
        AttentionDropout{RandomStream{key, counter}, threshold, factor, drops}, stages,      \
        reinterpret_cast<T*>(shared));                                                       \
  }

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION)

}  // namespace stagecoach::attention_kernels
