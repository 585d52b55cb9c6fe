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
  int64_t first;      ///< query or key
  int slice;          ///< first column of the gradients; keys only
};

/// Probabilities from scores, 0 where not seen.
__device__ inline float probability(float score, float scale, float lse, bool seen) {
  return seen ? exp2_fast(fmaf(score, scale, -lse)) : 0.0f;
}

/// Two numbers a query of streamed tiles: to shared memory, behind the tiles' stages.
template <typename Tile>
struct StreamedNumbers {
  float* numbers;  ///< kStream of lse, then of delta, for each stage

  __device__ void load(const float* lse, const float* delta, int64_t valid, int stage) const {
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

/// The bits of kept probabilities where a lane's rows are keys. `element` is the number of the
/// first, `stride` the distance between queries.
template <int Tiles>
__device__ inline uint32_t kept_of_keys(const AttentionDropout& dropout, int64_t element,
                                        int64_t stride) {
  uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < 4 * Tiles; ++i) {
    uint64_t index =
        static_cast<uint64_t>(element + (i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8);
    uint32_t word = word_of(random_words(dropout.stream, index / 4), static_cast<int>(index % 4));
    kept |= (word >= dropout.threshold ? 1u : 0u) << i;
  }
  return kept;
}

/// One tile of queries against the block's keys: adds to their gradients.
template <typename T, typename Tile>
struct KeyStep {
  using Streamed = typename Tile::Streamed;
  static constexpr bool kAsync = Tile::kOnWarpgroups;
  typename Tile::Own k, v;
  int depth, slice, tiles;
  float k_grad[1][Tile::kSlice / 8][4] = {};
  float v_grad[1][Tile::kSlice / 8][4] = {};

  /// `distance`: from the first query to the lane's first key; `masks`: it may be positive.
  template <typename Kept>
  __device__ void add(Streamed q, Streamed out_grad, const float* lse, const float* delta,
                      const AttentionSizes& sizes, int distance, bool masks, float factor,
                      const Kept& kept) {
    float scores[1][Tile::kStreamTiles][4];
    float grads[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, k, q, depth);
    products_commit<kAsync>();
    score_product<T, Tile>(grads, v, out_grad, depth);
    products_commit<kAsync>();
    products_wait<kAsync, 1>(scores);
    int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int at = n * 8 + column + i % 2;
        bool seen = !masks || distance + i / 2 * 8 <= at;
        scores[0][n][i] = probability(scores[0][n][i], sizes.score_scale(), lse[at], seen);
      }
    }
    products_wait<kAsync, 0>(grads);
    uint32_t bits = kept();
    if (factor != 1.0f) drop_scores(grads, bits, factor);
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float part = fmaf(grads[0][n][i], sizes.scale, -delta[n * 8 + column + i % 2]);
        grads[0][n][i] = scores[0][n][i] * part;
      }
    }
    if (factor != 1.0f) drop_scores(scores, bits, factor);
    RegisterRows<T, Tile::kStreamTiles> probabilities(scores);
    RegisterRows<T, Tile::kStreamTiles> score_grads(grads);
    products_begin<kAsync>();
    result_product<T, Tile>(v_grad, probabilities, out_grad, slice, tiles);
    result_product<T, Tile>(k_grad, score_grads, q, slice, tiles);
    products_commit<kAsync>();
    products_wait<kAsync, 0>(v_grad);
    products_wait<kAsync, 0>(k_grad);
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
  int depth = (sizes.dim + 15) / 16 * 16;
  KeyStep<T, Tile> step{{shared}, {shared + Tile::kOwnElements}, depth, panel.slice,
                        (depth - panel.slice) / 8};
  int64_t width = sizes.qkv_width();
  int64_t share = sizes.heads / sizes.kv_heads;
  int64_t rows = sizes.sequences * sizes.sequence;
  int64_t key_row = panel.first_row + panel.first;
  // Tiles of queries from the one on that holds the first key; those of all heads that share it.
  int64_t first_tile = panel.first / Tile::kStream;
  int64_t tiles = (sizes.sequence + Tile::kStream - 1) / Tile::kStream - first_tile;
  __syncthreads();
  copy_head<Tile>(step.k, operands.line(sizes, key_row, sizes.key_column(panel.head)), width,
                  sizes.sequence - panel.first, sizes.dim);
  copy_head<Tile>(step.v, operands.line(sizes, key_row, sizes.value_column(panel.head)), width,
                  sizes.sequence - panel.first, sizes.dim);
  auto load = [&](int64_t tile, int stage) {
    int64_t head = panel.head * share + tile / tiles;
    int64_t query = (first_tile + tile % tiles) * Tile::kStream;
    int64_t row = panel.first_row + query;
    int64_t valid = sizes.sequence - query;
    T* to = streamed + 2 * stage * Tile::kStreamElements;
    copy_head<Tile>(typename Tile::Streamed{to}, operands.line(sizes, row, head * sizes.dim), width,
                    valid, sizes.dim);
    copy_head<Tile>(typename Tile::Streamed{to + Tile::kStreamElements},
                    operands.out_grad + row * sizes.out_width() + head * sizes.dim,
                    sizes.out_width(), valid, sizes.dim);
    numbers.load(operands.lse + head * rows + row, operands.delta + head * rows + row, valid,
                 stage);
    copies_commit();
  };
  auto work = [&](int64_t tile, int stage) {
    int64_t head = panel.head * share + tile / tiles;
    int64_t query = (first_tile + tile % tiles) * Tile::kStream;
    // The rows before these 64 are keys that some of the queries see.
    if (query + Tile::kStream <= panel.first + place.last_row - 63) return;
    T* from = streamed + 2 * stage * Tile::kStreamElements;
    auto kept = [&] {
      if (dropout.drops == 0) return 0u;
      int64_t row = panel.first_row + query + place.column;
      int64_t element = (row * sizes.heads + head) * sizes.sequence + panel.first + place.row;
      return kept_of_keys<Tile::kStreamTiles>(dropout, element, sizes.heads * sizes.sequence);
    };
    step.add(typename Tile::Streamed{from}, typename Tile::Streamed{from + Tile::kStreamElements},
             numbers.lse(stage), numbers.delta(stage), sizes,
             static_cast<int>(panel.first - query) + place.row,
             query < panel.first + place.group * 16 + 15, dropout.factor, kept);
  };
  stream_tiles(tiles * share, stages, load, work);
  int64_t first = panel.first + place.group * 16;
  T* line = operands.qkv_grad + (panel.first_row + first) * width + panel.slice;
  write_head(line + sizes.key_column(panel.head), width, sizes.sequence - first,
             sizes.dim - panel.slice, step.k_grad, 1.0f, 1.0f);
  write_head(line + sizes.value_column(panel.head), width, sizes.sequence - first,
             sizes.dim - panel.slice, step.v_grad, 1.0f, 1.0f);
}

/// Keys and values past the queries, which `q` and `out_grad` hold.
template <typename T, typename Tile, typename Own>
__device__ inline void query_gradients(const BackwardOperands<T>& operands,
                                       const AttentionSizes& sizes, const AttentionDropout& dropout,
                                       const BackwardPanel& panel, int stages, const Own& q,
                                       const Own& out_grad, T* streamed) {
  constexpr bool kAsync = Tile::kOnWarpgroups;
  LanePlace place;
  int depth = (sizes.dim + 15) / 16 * 16;
  int64_t width = sizes.qkv_width();
  int64_t kv_head = panel.head / (sizes.heads / sizes.kv_heads);
  int64_t rows = sizes.sequences * sizes.sequence;
  float lse[2] = {};
  float delta[2] = {};
  for (int half = 0; half < 2; ++half) {
    int64_t query = panel.first + place.row + half * 8;
    if (query >= sizes.sequence) continue;
    lse[half] = operands.lse[panel.head * rows + panel.first_row + query];
    delta[half] = operands.delta[panel.head * rows + panel.first_row + query];
  }
  float q_grad[1][Tile::kDim / 8][4] = {};
  auto load = [&](int64_t tile, int stage) {
    int64_t key = tile * Tile::kStream;
    int64_t row = panel.first_row + key;
    T* to = streamed + 2 * stage * Tile::kStreamElements;
    copy_head<Tile>(typename Tile::Streamed{to},
                    operands.line(sizes, row, sizes.key_column(kv_head)), width,
                    sizes.sequence - key, sizes.dim);
    copy_head<Tile>(typename Tile::Streamed{to + Tile::kStreamElements},
                    operands.line(sizes, row, sizes.value_column(kv_head)), width,
                    sizes.sequence - key, sizes.dim);
    copies_commit();
  };
  auto work = [&](int64_t tile, int stage) {
    int64_t key = tile * Tile::kStream;
    if (key > panel.first + place.last_row) return;
    typename Tile::Streamed keys{streamed + 2 * stage * Tile::kStreamElements};
    typename Tile::Streamed values{keys.data + Tile::kStreamElements};
    float scores[1][Tile::kStreamTiles][4];
    float grads[1][Tile::kStreamTiles][4];
    products_begin<kAsync>();
    score_product<T, Tile>(scores, q, keys, depth);
    products_commit<kAsync>();
    score_product<T, Tile>(grads, out_grad, values, depth);
    products_commit<kAsync>();
    products_wait<kAsync, 1>(scores);
    bool masks = key + Tile::kStream > panel.first + place.group * 16;
    int distance = static_cast<int>(panel.first - key) + place.row - place.column;
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bool seen = !masks || n * 8 + i % 2 <= distance + i / 2 * 8;
        scores[0][n][i] = probability(scores[0][n][i], sizes.score_scale(), lse[i / 2], seen);
      }
    }
    products_wait<kAsync, 0>(grads);
    if (dropout.drops != 0) {
      int64_t row = panel.first_row + panel.first + place.row;
      int64_t element = (row * sizes.heads + panel.head) * sizes.sequence + key + place.column;
      drop_scores(grads,
                  kept_of_queries<Tile::kStreamTiles>(dropout, element,
                                                      sizes.heads * sizes.sequence),
                  dropout.factor);
    }
#pragma unroll
    for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        grads[0][n][i] = scores[0][n][i] * fmaf(grads[0][n][i], sizes.scale, -delta[i / 2]);
      }
    }
    RegisterRows<T, Tile::kStreamTiles> score_grads(grads);
    products_begin<kAsync>();
    result_product<T, Tile>(q_grad, score_grads, keys, 0, depth / 8);
    products_commit<kAsync>();
    products_wait<kAsync, 0>(q_grad);
  };
  int64_t seen = panel.first + Tile::kOwn;
  if (seen > sizes.sequence) seen = sizes.sequence;
  stream_tiles((seen + Tile::kStream - 1) / Tile::kStream, stages, load, work);
  int64_t first = panel.first + place.group * 16;
  write_head(operands.qkv_grad + (panel.first_row + first) * width + panel.head * sizes.dim, width,
             sizes.sequence - first, sizes.dim, q_grad, 1.0f, 1.0f);
}

/// Fetches a tile of queries and gradients of results.
template <typename T, typename Tile>
__device__ inline void query_panel(const BackwardOperands<T>& operands, const AttentionSizes& sizes,
                                   const AttentionDropout& dropout, const BackwardPanel& panel,
                                   int stages, T* shared) {
  int64_t row = panel.first_row + panel.first;
  int64_t valid = sizes.sequence - panel.first;
  const T* queries = operands.line(sizes, row, panel.head * sizes.dim);
  const T* grads = operands.out_grad + row * sizes.out_width() + panel.head * sizes.dim;
  typename Tile::Own first{shared};
  __syncthreads();
  copy_head<Tile>(first, queries, sizes.qkv_width(), valid, sizes.dim);
#if STAGECOACH_MATRIX_UNITS
  if constexpr (Tile::kShape.own_in_registers) {
    ResidentRows<T, Tile::kDim> q, out_grad;
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    q.load(first, LanePlace().group);
    __syncthreads();
    copy_head<Tile>(first, grads, sizes.out_width(), valid, sizes.dim);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    out_grad.load(first, LanePlace().group);
    query_gradients<T, Tile>(operands, sizes, dropout, panel, stages, q, out_grad, shared);
    return;
  }
#endif
  if constexpr (!Tile::kShape.own_in_registers) {
    typename Tile::Own second{shared + Tile::kOwnElements};
    copy_head<Tile>(second, grads, sizes.out_width(), valid, sizes.dim);
    query_gradients<T, Tile>(operands, sizes, dropout, panel, stages, first, second,
                             shared + 2 * Tile::kOwnElements);
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
                        work / together * Tile::kOwn, static_cast<int>(work % slices) * kSlice};
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
                        (panels - 1 - work / together) * Tile::kOwn, 0};
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

#define STAGECOACH_ATTENTION_NUMBERS(T, NAME)                                                  \
  extern "C" __global__ void attention_row_numbers_##NAME(                                     \
      float* results, const T* out, const T* out_grad, const float* lse, int64_t rows,         \
      int64_t heads, int64_t dim, float scale) {                                               \
    row_numbers(results, out, out_grad, lse, rows, heads, dim, scale);                         \
  }
STAGECOACH_FOR_STORAGE(STAGECOACH_ATTENTION_NUMBERS)

#define STAGECOACH_ATTENTION_PASS(T, NAME, DIM, PASS, SHAPE, BODY)                              \
  using PASS##_##NAME##_##DIM = AttentionTile<T, DIM, AttentionPass::SHAPE>;                    \
  extern "C" __global__ void __launch_bounds__(PASS##_##NAME##_##DIM::kThreads, 1)              \
      attention_backward_##PASS##_d##DIM##_##NAME(                                              \
          T* qkv_grad, const T* out_grad, const T* qkv, const float* numbers,                   \
          int64_t sequences, int64_t sequence, int64_t heads, int64_t kv_heads, int32_t dim,    \
          float scale, uint64_t key, uint64_t counter, uint32_t threshold, float factor,        \
          int32_t drops, int32_t stages) {                                                      \
    STAGECOACH_DYNAMIC_SHARED(shared);                                                          \
    BODY<T, PASS##_##NAME##_##DIM>(                                                             \
        {qkv_grad, out_grad, qkv, numbers, numbers + sequences * sequence * heads},             \
        AttentionSizes{sequences, sequence, heads, kv_heads, dim, scale},                       \
        AttentionDropout{RandomStream{key, counter}, threshold, drops != 0 ? factor : 1.0f,     \
                         drops},                                                                \
        stages, reinterpret_cast<T*>(shared));                                                  \
  }
#define STAGECOACH_ATTENTION_BACKWARD(T, NAME, DIM)                              \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, keys, kKeys, all_key_gradients)        \
  STAGECOACH_ATTENTION_PASS(T, NAME, DIM, queries, kQueries, all_query_gradients)

STAGECOACH_FOR_ATTENTION(STAGECOACH_ATTENTION_BACKWARD)

}  // namespace stagecoach::attention_backward_kernels
