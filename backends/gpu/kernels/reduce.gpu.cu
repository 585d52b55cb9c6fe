// Sums and checksums in orders that hardware and grid do not change.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::reduce_kernels {

/// Length of a piece of sum_of_squares, as hal/square_sum.h has it; kLanes are its lanes.
constexpr int64_t kPiece = 64 * 1024;
constexpr int kSquareThreads = 128;
constexpr int kSquareGroups = kSquareThreads / kLanes;  ///< each has a piece

/// A thread to a column, blockIdx.y to a tile of rows, as norm_weight_partials.
template <typename T>
__device__ inline void column_partials(float* sums, const T* in, int64_t rows, int64_t columns,
                                       int64_t tile) {
  int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  int64_t first = static_cast<int64_t>(blockIdx.y) * tile;
  int64_t end = first + tile < rows ? first + tile : rows;
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t row = first; row < end; ++row) sum += to_float(in[row * columns + column]);
  sums[blockIdx.y * columns + column] = sum;
}

/// sums[piece] = the piece's squares in the order of hal/square_sum.h. blockDim.x is
/// kSquareThreads.
template <typename T>
__device__ inline void piece_squares(double* sums, const T* in, int64_t count) {
  __shared__ double lanes[kSquareThreads];
  int lane = static_cast<int>(threadIdx.x) % kLanes;
  int64_t piece = static_cast<int64_t>(blockIdx.x) * kSquareGroups + threadIdx.x / kLanes;
  int64_t first = piece * kPiece, end = first + kPiece < count ? first + kPiece : count;
  double total = 0.0;
#pragma unroll 16
  for (int64_t index = first + lane; index < end; index += kLanes) {
    double value = static_cast<double>(to_float(in[index]));
    total += value * value;
  }
  lanes[threadIdx.x] = total;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  if (lane == 0 && first < count) sums[piece] = lanes[threadIdx.x];
}

template <typename T>
__device__ inline void count_not_finite(uint32_t* counts, const T* in, int64_t count) {
  float found = 0.0f;
  int64_t threads = static_cast<int64_t>(gridDim.x) * kRowThreads;
  int64_t thread = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  // The host cuts the grid so that a block's count stays far below 2^24, where floats are exact.
  for_packs(count, all_aligned(in), thread, threads, [&](auto width, int64_t first) {
    float values[decltype(width)::value];
    load_pack(in + first, values);
    for (float value : values) found += (bits_of(value) & 0x7f800000u) == 0x7f800000u ? 1.0f : 0.0f;
  });
  float total = block_sum(found);
  if (threadIdx.x == 0) counts[blockIdx.x] = static_cast<uint32_t>(total);
}

/// out[c] += the tiles' sums of column `first` + c, in order. Rows of sums are `stride` long.
extern "C" __global__ void sum_tiles(float* out, const float* sums, int64_t tiles, int64_t stride,
                                     int64_t first, int64_t columns) {
  int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float total = sums[first + column];
  for (int64_t tile = 1; tile < tiles; ++tile) total += sums[tile * stride + first + column];
  out[column] += total;
}

/// One thread adds what the block fetches: pieces in order.
extern "C" __global__ void sum_pieces(double* out, const double* sums, int64_t pieces) {
  __shared__ double fetched[kRowThreads];
  double total = 0.0;
  for (int64_t first = 0; first < pieces; first += kRowThreads) {
    __syncthreads();
    int64_t mine = first + threadIdx.x;
    fetched[threadIdx.x] = mine < pieces ? sums[mine] : 0.0;
    __syncthreads();
    for (int i = 0; i < kRowThreads && threadIdx.x == 0; ++i) total += fetched[i];
  }
  if (threadIdx.x == 0) *out = total;
}

extern "C" __global__ void sum_counts(uint64_t* out, const uint32_t* counts, int64_t blocks) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  uint64_t total = 0;
  for (int64_t i = 0; i < blocks; ++i) total += counts[i];
  *out = total;
}

/// h = h * 0x100000001b3 ^ word. Each step needs the one before it, so one thread hashes while the
/// others fetch the words to come.
extern "C" __global__ void checksum(uint64_t* out, const uint32_t* in, int64_t words) {
  constexpr int kWords = 8 * kRowThreads;
  __shared__ uint32_t fetched[2][kWords];
  uint64_t hash = 0xcbf29ce484222325u;
  int turn = 0;
  for (int64_t first = 0; first < words + kWords; first += kWords, turn ^= 1) {
    for (int i = static_cast<int>(threadIdx.x) - kLanes; i >= 0 && i < kWords;
         i += kRowThreads - kLanes) {
      if (first + i < words) fetched[turn][i] = in[first + i];
    }
    // The first group hashes what came the turn before.
    int64_t begun = first - kWords;
    if (threadIdx.x == 0 && begun >= 0) {
      int64_t count = words - begun < kWords ? words - begun : kWords;
      for (int64_t i = 0; i < count; ++i) hash = hash * 0x100000001b3u ^ fetched[turn ^ 1][i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = hash;
}

#define STAGECOACH_REDUCE(T, NAME)                                                              \
  extern "C" __global__ void column_sum_partials_##NAME(float* sums, const T* in, int64_t rows, \
                                                        int64_t columns, int64_t tile) {        \
    column_partials(sums, in, rows, columns, tile);                                             \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(kSquareThreads)                                  \
      square_pieces_##NAME(double* sums, const T* in, int64_t count) {                          \
    piece_squares(sums, in, count);                                                             \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                     \
      finite_counts_##NAME(uint32_t* counts, const T* in, int64_t count) {                      \
    count_not_finite(counts, in, count);                                                        \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_REDUCE)

}  // namespace stagecoach::reduce_kernels
