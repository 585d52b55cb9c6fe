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

/// One tile of queries against the block's keys: adds to their gradients.
template <typename T, typename Tile>
struct KeyStep {
  using Streamed = typename Tile::Streamed;
  static constexpr bool kAsync = Tile::kOnWarpgroups;
  typename Tile::Own k, v;
  int slice;
  float k_grad[1][Tile::kSlice / 8][4] = {};
  float v_grad[1][Tile::kSlice / 8][4] = {};

  /// `distance`: from the first query to the lane's first key; `masks`: some are not seen.
  template <typename Kept>
  __device__ void add(Streamed q, Streamed out_grad, const float* lse, const float* delta,
                      const AttentionSizes& sizes, int distance, bool masks,
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
    if (masks) mask_after_keys<Tile>(scores, distance - column);
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
    if (Tile::kMayDrop && dropout.drops != 0) {
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
    if (Tile::kMayDrop && dropout.drops != 0) drop_scores(scores, bits, dropout.factor);
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
  // Tiles of queries from the one on that holds the first key; those of all heads that share it.
  int first_query = panel.first / Tile::kStream * Tile::kStream;
  int tiles = (sizes.length() - first_query + Tile::kStream - 1) / Tile::kStream;
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
    loaded.advance(Tile::kStream, sizes.length(), first_query);
  };
  auto work = [&](int, int stage) {
    int64_t head = worked.head;
    int query = worked.query;
    worked.advance(Tile::kStream, sizes.length(), first_query);
    // The rows before these 64 are keys that some of the queries see.
    if (query + Tile::kStream <= panel.first + place.last_row - 63) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    auto kept = [&] {
      int64_t row = panel.first_row + query + place.column;
      int64_t element = (row * sizes.heads + head) * sizes.sequence + panel.first + place.row;
      return kept_of_keys<Tile::kStreamTiles>(dropout, element, sizes.heads * sizes.sequence,
                                              rows_are_blocks(sizes.sequence));
    };
    step.add(typename Tile::Streamed{from}, typename Tile::Streamed{from + Tile::kStreamElements},
             numbers.lse(stage), numbers.delta(stage), sizes, panel.first - query + place.row,
             query < panel.first + place.group * 16 + 15, dropout, kept);
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

  /// `distance`: from the lane's first key to its query; `masks`: some keys are not seen.
  template <typename Kept>
  __device__ void add(Streamed keys, Streamed values, const AttentionSizes& sizes, int distance,
                      bool masks, const AttentionDropout& dropout, const Kept& kept) {
    float scores[1][Tile::kStreamTiles][4];
    float grads[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, q, keys, sizes.depth());
    products_commit<kAsync>();
    score_product<T, Tile>(grads, out_grad, values, sizes.depth());
    products_commit<kAsync>();
    products_wait<kAsync, 1>(scores);
    if (masks) mask_after_queries<Tile>(scores, distance);
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[0][n][i] = exp2_fast(fmaf(scores[0][n][i], sizes.score_scale(), -lse[i / 2]));
      }
    }
    products_wait<kAsync, 0>(grads);
    if (Tile::kMayDrop && dropout.drops != 0) drop_scores(grads, kept(), dropout.factor);
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
  auto load = [&](int tile, int stage) {
    int key = tile * Tile::kStream;
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
    int key = tile * Tile::kStream;
    if (key > panel.first + place.last_row) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    auto kept = [&] {
      int64_t row = panel.first_row + panel.first + place.row;
      int64_t element = (row * sizes.heads + panel.head) * sizes.sequence + key + place.column;
      return kept_of_queries<Tile::kStreamTiles>(dropout, element, sizes.heads * sizes.sequence,
                                                 rows_are_blocks(sizes.sequence));
    };
    step.add(typename Tile::Streamed{from}, typename Tile::Streamed{from + Tile::kStreamElements},
             sizes, panel.first - key + place.row - place.column,
             key + Tile::kStream > panel.first + place.group * 16, dropout, kept);
  };
  int seen = panel.first + Tile::kOwn;
  if (seen > sizes.length()) seen = sizes.length();
  stream_tiles((seen + Tile::kStream - 1) / Tile::kStream, stages, load, work);
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

/// For each row of each head what the backward kernels need: lse as an exponent of two, and the sum
/// of out * out_grad times the scores' scale. Both [H, R]. 16 lanes to a head of a row.
template <typename T>
__device__ inline void row_numbers(float* results, const T* out, const T* out_grad,
                                   const float* lse, int64_t rows, int64_t heads, int64_t dim,
                                   float scale) {
  constexpr int kGroup = 16;
  bool wide = dim % kPack == 0 && all_aligned(out, out_grad);
  int64_t groups = static_cast<int64_t>(gridDim.x) * (blockDim.x / kGroup);
  int64_t group = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kGroup) + threadIdx.x / kGroup;
  // Whole groups of lanes take part in the exchanges, also where the work ends in their middle.
  int64_t whole = (rows * heads + kLanes / kGroup - 1) / (kLanes / kGroup) * (kLanes / kGroup);
  for (int64_t i = group; i < whole; i += groups) {
    bool inside = i < rows * heads;
    float sum = 0.0f;
    auto add = [&](auto width, int64_t d) {
      float a[decltype(width)::value], b[decltype(width)::value];
      load_pack(out + i * dim + d, a);
      load_pack(out_grad + i * dim + d, b);
      for (int k = 0; k < decltype(width)::value; ++k) sum = fmaf(a[k], b[k], sum);
    };
    if (inside) for_packs(dim, wide, threadIdx.x % kGroup, kGroup, add);
    for (int distance = kGroup / 2; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
    if (threadIdx.x % kGroup != 0 || !inside) continue;
    int64_t place = i % heads * rows + i / heads;
    results[place] = lse[i] * 1.4426950408889634f;
    results[rows * heads + place] = sum * scale;
  }
}

#define STAGECOACH_ATTENTION_NUMBERS(T, NAME)                                          \
  extern "C" __global__ void attention_row_numbers_##NAME(                             \
      float* results, const T* out, const T* out_grad, const float* lse, int64_t rows, \
      int64_t heads, int64_t dim, float scale) {                                       \
    row_numbers(results, out, out_grad, lse, rows, heads, dim, scale);                 \
  }
STAGECOACH_FOR_STORAGE(STAGECOACH_ATTENTION_NUMBERS)

#define STAGECOACH_ATTENTION_PASS(T, NAME, DIM, DROP, MAY_DROP, PASS, SHAPE, BODY)               \
  using PASS##_##DROP##NAME##_##DIM = AttentionTile<T, DIM, AttentionPass::SHAPE, MAY_DROP>;     \
  extern "C" __global__ void __launch_bounds__(PASS##_##DROP##NAME##_##DIM::kThreads,            \
                                               PASS##_##DROP##NAME##_##DIM::kBlocks)             \
      attention_backward_##PASS##_##DROP##d##DIM##_##NAME(                                       \
          T* qkv_grad, const T* out_grad, const T* qkv, const float* numbers, int64_t sequences, \
          int64_t sequence, int64_t heads, int64_t kv_heads, int32_t dim, float scale,           \
          uint64_t key, uint64_t counter, uint32_t threshold, float factor, int32_t drops,       \
          int32_t stages) {                                                                      \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                           \
    BODY<T, PASS##_##DROP##NAME##_##DIM>(                                                        \
        {qkv_grad, out_grad, qkv, numbers, numbers + sequences * sequence * heads},              \
        AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale},                        \
        AttentionDropout{RandomStream{key, counter}, threshold, factor, drops}, stages,          \
        reinterpret_cast<T*>(shared));                                                           \
  }
#define STAGECOACH_ATTENTION_BACKWARD(T, NAME, DIM, DROP, MAY_DROP)                       \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, DROP, MAY_DROP, keys, kKeys, all_key_gradients) \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, DROP, MAY_DROP, queries, kQueries, all_query_gradients)

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION_BACKWARD)

}  // namespace stagecoach::attention_backward_kernels
