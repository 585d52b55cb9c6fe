// Causal attention, backward, without atomics: one kernel gives each tile of keys its gradients
// (over all queries that see it, of all heads that share it, in order), another each tile of
// queries. Scores are computed again, a tile at a time, and never leave registers.

#include "backends/gpu/kernels/attention.gpu.h"

namespace stagecoach::attention_backward_kernels {

template <typename T>
struct BackwardOperands {
  T* qkv_grad;
  const T* out_grad;
  const T* qkv;
  /// What attention_row_numbers leaves, each [H, R].
  const float* lse;
  const float* delta;

  /// Row `row` of a head's queries, keys, ...
  __device__ const T* line(const AttentionSizes& sizes, int64_t row, int64_t column) const {
    return qkv + row * sizes.qkv_width() + column;
  }
};

/// Which tile a block works on.
struct BackwardPanel {
  int64_t first_row;  ///< of its sequence
  int64_t head;       ///< of queries, or of keys
  int first;          ///< query or key
  int slice;          ///< first column of the gradients; keys only
};

/// Two numbers a query of streamed tiles: to shared memory, behind the tiles' stages.
template <typename Tile>
struct StreamedNumbers {
  float* numbers;  ///< kStream of lse, then of delta, for each stage

  __device__ void load(const float* lse, const float* delta, int valid, int stage) const {
    int i = static_cast<int>(threadIdx.x);
    if (i >= 2 * Tile::kStream) return;
    int row = i % Tile::kStream;
    bool inside = row < valid;
    const float* source = i < Tile::kStream ? lse : delta;
    copy_float(numbers + 2 * stage * Tile::kStream + i, inside ? source + row : source, inside);
  }
  __device__ const float* lse(int stage) const { return numbers + 2 * stage * Tile::kStream; }
  __device__ const float* delta(int stage) const { return lse(stage) + Tile::kStream; }
};

/// Keys after the query get minus infinity. `distance`: from the lane's first query to its key.
template <typename Tile>
__device__ inline void mask_after_keys(float (&scores)[1][Tile::kStreamTiles][4], int distance) {
#pragma unroll
  for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (n * 8 + i % 2 < distance + i / 2 * 8) scores[0][n][i] = -INFINITY;
    }
  }
}

/// Keys that a query does not see for a window's or a document's sake get minus infinity: of the
/// tile of queries from number `query` on.
template <typename Tile>
__device__ inline void mask_unseen_keys(float (&scores)[1][Tile::kStreamTiles][4],
                                        const AttentionSizes& sizes, const BackwardPanel& panel,
                                        int query) {
  auto first_key = [&](int position) {
    position = position < sizes.length() ? position : sizes.length() - 1;
    return sizes.first_key(panel.first_row, position);
  };
  LanePlace place;
  if (first_key(query + Tile::kStream - 1) <= panel.first + place.group * 16) return;
#pragma unroll
  for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      int first = first_key(query + n * 8 + place.column + column) - panel.first - place.row;
      if (first > 0) scores[0][n][column] = -INFINITY;
      if (first > 8) scores[0][n][2 + column] = -INFINITY;
    }
  }
}

/// One tile of queries against the block's keys: adds to their gradients.
template <typename T, typename Tile>
struct KeyStep {
  using Streamed = typename Tile::Streamed;
  static constexpr bool kAsync = Tile::kOnWarpgroups;
  typename Tile::Own k, v;
  int slice;
  float k_grad[1][Tile::kSlice / 8][4] = {};
  float v_grad[1][Tile::kSlice / 8][4] = {};

  /// `mask` gives scores of keys that are not seen minus infinity.
  template <typename Mask, typename Kept>
  __device__ void add(Streamed q, Streamed out_grad, const float* lse, const float* delta,
                      const AttentionSizes& sizes, const Mask& mask,
                      const AttentionDropout& dropout, const Kept& kept) {
    float scores[1][Tile::kStreamTiles][4];
    float grads[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, k, q, sizes.depth());
    products_commit<kAsync>();
    score_product<T, Tile>(grads, v, out_grad, sizes.depth());
    products_commit<kAsync>();
    products_wait<kAsync, 1>(scores);
    int column = static_cast<int>(threadIdx.x % 4) * 2;
    mask(scores);
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float exponent = fmaf(scores[0][n][i], sizes.score_scale(), -lse[n * 8 + column + i % 2]);
        scores[0][n][i] = exp2_fast(exponent);
      }
    }
    products_wait<kAsync, 0>(grads);
    uint32_t bits = 0;
    if (Tile::kGeneral && dropout.drops != 0) {
      bits = kept();
      drop_scores(grads, bits, dropout.factor);
    }
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float part = fmaf(grads[0][n][i], sizes.scale, -delta[n * 8 + column + i % 2]);
        grads[0][n][i] = scores[0][n][i] * part;
      }
    }
    if (Tile::kGeneral && dropout.drops != 0) drop_scores(scores, bits, dropout.factor);
    RegisterRows<T, Tile::kStreamTiles> probabilities(scores);
    RegisterRows<T, Tile::kStreamTiles> score_grads(grads);
    int tiles = (sizes.depth() - slice) / 8;
    products_begin<kAsync>();
    result_product<T, Tile>(v_grad, probabilities, out_grad, slice, tiles);
    result_product<T, Tile>(k_grad, score_grads, q, slice, tiles);
    products_commit<kAsync>();
    products_wait<kAsync, 0>(v_grad);
    products_wait<kAsync, 0>(k_grad);
  }
};

/// Walks over the tiles of queries of one head after another.
struct TilePlace {
  int64_t head;
  int query;

  __device__ void advance(int step, int length, int first) {
    query += step;
    if (query < length) return;
    query = first;
    ++head;
  }
};

/// One past the last query that sees a key of the tile.
template <typename Tile>
__device__ inline int queries_end(const AttentionSizes& sizes, const BackwardPanel& panel) {
  if constexpr (!Tile::kGeneral) return sizes.length();
  int end = panel.first + Tile::kOwn;
  int last_key = (end < sizes.length() ? end : sizes.length()) - 1;
  return sizes.seeing_end(panel.first_row, last_key);
}

/// One tile of keys of one kv head, kSlice columns of its gradients.
template <typename T, typename Tile>
__device__ inline void key_gradients(const BackwardOperands<T>& operands,
                                     const AttentionSizes& sizes, const AttentionDropout& dropout,
                                     const BackwardPanel& panel, int stages, T* shared) {
  LanePlace place;
  T* streamed = shared + 2 * Tile::kOwnElements;
  StreamedNumbers<Tile> numbers{
      reinterpret_cast<float*>(streamed + 2 * stages * Tile::kStreamElements)};
  KeyStep<T, Tile> step{{shared}, {shared + Tile::kOwnElements}, panel.slice};
  int64_t width = sizes.qkv_width();
  int share = static_cast<int>(sizes.heads / sizes.kv_heads);
  int64_t rows = sizes.sequences * sizes.sequence;
  int64_t key_row = panel.first_row + panel.first;
  // Tiles of queries from the one on that holds the first key, up to the last that sees the last
  // key; those of all heads that share it.
  int first_query = panel.first / Tile::kStream * Tile::kStream;
  int end = queries_end<Tile>(sizes, panel);
  int tiles = (end - first_query + Tile::kStream - 1) / Tile::kStream;
  TilePlace loaded{panel.head * share, first_query};
  TilePlace worked = loaded;
  __syncthreads();
  copy_head<Tile>(step.k, operands.line(sizes, key_row, sizes.key_column(panel.head)), width,
                  sizes.length() - panel.first, sizes.dim);
  copy_head<Tile>(step.v, operands.line(sizes, key_row, sizes.value_column(panel.head)), width,
                  sizes.length() - panel.first, sizes.dim);
  auto load = [&](int, int stage) {
    int64_t head = loaded.head;
    int64_t row = panel.first_row + loaded.query;
    int valid = sizes.length() - loaded.query;
    T* to = streamed + 2 * stage * Tile::kStreamElements;
    copy_head<Tile>(typename Tile::Streamed{to}, operands.line(sizes, row, head * sizes.dim), width,
                    valid, sizes.dim);
    copy_head<Tile>(typename Tile::Streamed{to + Tile::kStreamElements},
                    operands.out_grad + row * sizes.out_width() + head * sizes.dim,
                    sizes.out_width(), valid, sizes.dim);
    numbers.load(operands.lse + head * rows + row, operands.delta + head * rows + row, valid,
                 stage);
    copies_commit();
    loaded.advance(Tile::kStream, end, first_query);
  };
  auto work = [&](int, int stage) {
    int64_t head = worked.head;
    int query = worked.query;
    worked.advance(Tile::kStream, end, first_query);
    // The rows before these 64 are keys that some of the queries see.
    if (query + Tile::kStream <= panel.first + place.last_row - 63) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    auto kept = [&] {
      int64_t row = panel.first_row + query + place.column;
      int64_t element = (row * sizes.heads + head) * sizes.sequence + panel.first + place.row;
      return kept_of_keys<Tile::kStreamTiles>(dropout, element, sizes.heads * sizes.sequence,
                                              rows_are_blocks(sizes.sequence));
    };
    auto mask = [&](float(&scores)[1][Tile::kStreamTiles][4]) {
      if (query < panel.first + place.group * 16 + 15) {
        mask_after_keys<Tile>(scores, panel.first - query + place.row - place.column);
      }
      if constexpr (Tile::kGeneral) mask_unseen_keys<Tile>(scores, sizes, panel, query);
    };
    step.add(typename Tile::Streamed{from}, typename Tile::Streamed{from + Tile::kStreamElements},
             numbers.lse(stage), numbers.delta(stage), sizes, mask, dropout, kept);
  };
  stream_tiles(tiles * share, stages, load, work);
  int first = panel.first + place.group * 16;
  T* line = operands.qkv_grad + (panel.first_row + first) * width + panel.slice;
  write_head(line + sizes.key_column(panel.head), width, sizes.length() - first,
             sizes.dim - panel.slice, step.k_grad, 1.0f, 1.0f);
  write_head(line + sizes.value_column(panel.head), width, sizes.length() - first,
             sizes.dim - panel.slice, step.v_grad, 1.0f, 1.0f);
}

/// One tile of keys and values against the block's queries: adds to their gradients.
template <typename T, typename Tile, typename Own>
struct QueryStep {
  using Streamed = typename Tile::Streamed;
  static constexpr bool kAsync = Tile::kOnWarpgroups;
  const Own& q;
  const Own& out_grad;
  float lse[2] = {};  ///< of the lane's two rows
  float delta[2] = {};
  float q_grad[1][Tile::kDim / 8][4] = {};

  __device__ QueryStep(const Own& queries, const Own& grads) : q(queries), out_grad(grads) {}

  __device__ void load_numbers(const BackwardOperands<T>& operands, const AttentionSizes& sizes,
                               const BackwardPanel& panel) {
    int64_t first = panel.head * sizes.sequences * sizes.sequence + panel.first_row;
    for (int half = 0; half < 2; ++half) {
      int query = panel.first + LanePlace().row + half * 8;
      if (query >= sizes.length()) continue;
      lse[half] = operands.lse[first + query];
      delta[half] = operands.delta[first + query];
    }
  }

  /// `mask` gives scores of keys that are not seen minus infinity.
  template <typename Mask, typename Kept>
  __device__ void add(Streamed keys, Streamed values, const AttentionSizes& sizes, const Mask& mask,
                      const AttentionDropout& dropout, const Kept& kept) {
    float scores[1][Tile::kStreamTiles][4];
    float grads[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, q, keys, sizes.depth());
    products_commit<kAsync>();
    score_product<T, Tile>(grads, out_grad, values, sizes.depth());
    products_commit<kAsync>();
    products_wait<kAsync, 1>(scores);
    mask(scores);
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[0][n][i] = exp2_fast(fmaf(scores[0][n][i], sizes.score_scale(), -lse[i / 2]));
      }
    }
    products_wait<kAsync, 0>(grads);
    if (Tile::kGeneral && dropout.drops != 0) drop_scores(grads, kept(), dropout.factor);
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        grads[0][n][i] = scores[0][n][i] * fmaf(grads[0][n][i], sizes.scale, -delta[i / 2]);
      }
    }
    RegisterRows<T, Tile::kStreamTiles> score_grads(grads);
    products_begin<kAsync>();
    result_product<T, Tile>(q_grad, score_grads, keys, 0, sizes.depth() / 8);
    products_commit<kAsync>();
    products_wait<kAsync, 0>(q_grad);
  }
};

/// Keys and values past the queries, which `q` and `out_grad` hold.
template <typename T, typename Tile, typename Own>
__device__ inline void query_gradients(const BackwardOperands<T>& operands,
                                       const AttentionSizes& sizes, const AttentionDropout& dropout,
                                       const BackwardPanel& panel, int stages, const Own& q,
                                       const Own& out_grad, T* streamed) {
  LanePlace place;
  int64_t width = sizes.qkv_width();
  int64_t kv_head = panel.head / (sizes.heads / sizes.kv_heads);
  QueryStep<T, Tile, Own> step(q, out_grad);
  step.load_numbers(operands, sizes, panel);
  FirstKeys<Tile> first_keys(sizes, panel.first_row, panel.first);
  int unseen = unseen_tiles<Tile>(sizes, panel.first_row, panel.first);
  auto load = [&](int tile, int stage) {
    int key = (unseen + tile) * Tile::kStream;
    int64_t row = panel.first_row + key;
    T* to = streamed + 2 * stage * Tile::kStreamElements;
    copy_head<Tile>(typename Tile::Streamed{to},
                    operands.line(sizes, row, sizes.key_column(kv_head)), width,
                    sizes.length() - key, sizes.dim);
    copy_head<Tile>(typename Tile::Streamed{to + Tile::kStreamElements},
                    operands.line(sizes, row, sizes.value_column(kv_head)), width,
                    sizes.length() - key, sizes.dim);
    copies_commit();
  };
  auto work = [&](int tile, int stage) {
    int key = (unseen + tile) * Tile::kStream;
    if (key > panel.first + place.last_row) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    auto kept = [&] {
      int64_t row = panel.first_row + panel.first + place.row;
      int64_t element = (row * sizes.heads + panel.head) * sizes.sequence + key + place.column;
      return kept_of_queries<Tile::kStreamTiles>(dropout, element, sizes.heads * sizes.sequence,
                                                 rows_are_blocks(sizes.sequence));
    };
    auto mask = [&](float(&scores)[1][Tile::kStreamTiles][4]) {
      if (key + Tile::kStream > panel.first + place.group * 16) {
        mask_after_queries<Tile>(scores, panel.first - key + place.row - place.column);
      }
      first_keys.mask(scores, key);
    };
    step.add(typename Tile::Streamed{from}, typename Tile::Streamed{from + Tile::kStreamElements},
             sizes, mask, dropout, kept);
  };
  int seen = panel.first + Tile::kOwn;
  if (seen > sizes.length()) seen = sizes.length();
  stream_tiles((seen + Tile::kStream - 1) / Tile::kStream - unseen, stages, load, work);
  int first = panel.first + place.group * 16;
  write_head(operands.qkv_grad + (panel.first_row + first) * width + panel.head * sizes.dim, width,
             sizes.length() - first, sizes.dim, step.q_grad, 1.0f, 1.0f);
}

/// Fetches a tile of queries and gradients of results.
template <typename T, typename Tile>
__device__ inline void query_panel(const BackwardOperands<T>& operands, const AttentionSizes& sizes,
                                   const AttentionDropout& dropout, const BackwardPanel& panel,
                                   int stages, T* shared) {
  int64_t row = panel.first_row + panel.first;
  int valid = sizes.length() - panel.first;
  const T* queries = operands.line(sizes, row, panel.head * sizes.dim);
  const T* grads = operands.out_grad + row * sizes.out_width() + panel.head * sizes.dim;
  typename Tile::Own own{shared};
  typename Tile::Own own_grads{shared + Tile::kOwnElements};
  T* streamed = shared + 2 * Tile::kOwnElements;
  __syncthreads();
  copy_head<Tile>(own, queries, sizes.qkv_width(), valid, sizes.dim);
  copy_head<Tile>(own_grads, grads, sizes.out_width(), valid, sizes.dim);
  copies_commit();
#if STAGECOACH_MATRIX_UNITS
  if constexpr (Tile::kResident) {
    ResidentRows<T, Tile::kDim> q, out_grad;
    copies_wait<0>();
    __syncthreads();
    q.load(own, LanePlace().group);
    out_grad.load(own_grads, LanePlace().group);
    query_gradients<T, Tile>(operands, sizes, dropout, panel, stages, q, out_grad, streamed);
  } else
#endif
  {
    query_gradients<T, Tile>(operands, sizes, dropout, panel, stages, own, own_grads, streamed);
  }
}

/// The first keys, which most queries see, come first; slices of one tile lie side by side.
template <typename T, typename Tile>
__device__ inline void all_key_gradients(const BackwardOperands<T>& operands,
                                         const AttentionSizes& sizes,
                                         const AttentionDropout& dropout, int stages, T* shared) {
  int64_t panels = (sizes.sequence + Tile::kOwn - 1) / Tile::kOwn;
  constexpr int kSlice = Tile::kSlice;
  int64_t slices = (sizes.dim + kSlice - 1) / kSlice;
  int64_t together = sizes.sequences * sizes.kv_heads * slices;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together / slices;
    BackwardPanel panel{rest / sizes.kv_heads * sizes.sequence, rest % sizes.kv_heads,
                        static_cast<int>(work / together) * Tile::kOwn,
                        static_cast<int>(work % slices) * kSlice};
    key_gradients<T, Tile>(operands, sizes, dropout, panel, stages, shared);
  }
}

template <typename T, typename Tile>
__device__ inline void all_query_gradients(const BackwardOperands<T>& operands,
                                           const AttentionSizes& sizes,
                                           const AttentionDropout& dropout, int stages, T* shared) {
  int64_t panels = (sizes.sequence + Tile::kOwn - 1) / Tile::kOwn;
  int64_t together = sizes.sequences * sizes.heads;
  for (int64_t work = blockIdx.x; work < panels * together; work += gridDim.x) {
    int64_t rest = work % together;
    BackwardPanel panel{rest / sizes.heads * sizes.sequence, rest % sizes.heads,
                        static_cast<int>(panels - 1 - work / together) * Tile::kOwn, 0};
    query_panel<T, Tile>(operands, sizes, dropout, panel, stages, shared);
  }
}

#define STAGECOACH_ATTENTION_PASS(T, NAME, DIM, KIND, GENERAL, PASS, SHAPE, BODY)              \
  using PASS##_##KIND##NAME##_##DIM = AttentionTile<T, DIM, AttentionPass::SHAPE, GENERAL>;    \
  extern "C" __global__ void __launch_bounds__(PASS##_##KIND##NAME##_##DIM::kThreads,          \
                                               PASS##_##KIND##NAME##_##DIM::kBlocks)           \
      attention_backward_##PASS##_##KIND##d##DIM##_##NAME(                                     \
          T* qkv_grad, const T* out_grad, const T* qkv, const float* numbers,                  \
          const int32_t* starts, int64_t sequences, int64_t sequence, int64_t heads,           \
          int64_t kv_heads, int32_t dim, float scale, int32_t window, uint64_t key,            \
          uint64_t counter, uint32_t threshold, float factor, int32_t drops, int32_t stages) { \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                         \
    BODY<T, PASS##_##KIND##NAME##_##DIM>(                                                      \
        {qkv_grad, out_grad, qkv, numbers, numbers + sequences * sequence * heads},            \
        AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale, window, starts},      \
        AttentionDropout{RandomStream{key, counter}, threshold, factor, drops}, stages,        \
        reinterpret_cast<T*>(shared));                                                         \
  }
#define STAGECOACH_ATTENTION_BACKWARD(T, NAME, DIM, KIND, GENERAL)                       \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, KIND, GENERAL, keys, kKeys, all_key_gradients) \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, KIND, GENERAL, queries, kQueries, all_query_gradients)

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION_BACKWARD)

}  // namespace stagecoach::attention_backward_kernels
