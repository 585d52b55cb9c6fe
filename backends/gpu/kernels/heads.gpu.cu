// Operations on the query and key heads of packed qkv rows: rotary embedding and per-head RMS norm.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::heads_kernels {

/// Rotates the pairs (i, i + dim / 2) of the first `heads` heads of rows of `width` elements.
template <typename T>
__device__ inline void rotate(T* qkv, const float* cosines, const float* sines, int64_t rows,
                              int64_t width, int64_t heads, int64_t dim, int64_t sequence,
                              float sign) {
  int64_t half = dim / 2;
  int64_t count = rows * heads * half;
  for_grid_packs(count, false, [&](auto, int64_t index) {
    int64_t i = index % half;
    int64_t head = index / half % heads;
    int64_t row = index / (half * heads);
    T* low = qkv + row * width + head * dim + i;
    float cosine = cosines[row % sequence * half + i];
    float sine = sign * sines[row % sequence * half + i];
    float x = to_float(low[0]);
    float y = to_float(low[half]);
    from_float(x * cosine - y * sine, &low[0]);
    from_float(y * cosine + x * sine, &low[half]);
  });
}

/// One group of lanes to a head of a row; heads past the normed ones are copied.
struct HeadOfRow {
  int64_t row;
  int64_t head;
  int64_t base;  ///< of the head's first element
};

template <typename Body>
__device__ inline void for_heads(int64_t rows, int64_t heads, int64_t dim, const Body& body) {
  int64_t groups = static_cast<int64_t>(gridDim.x) * (blockDim.x / kLanes);
  int64_t group = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  for (int64_t i = group; i < rows * heads; i += groups) {
    body(HeadOfRow{i / heads, i % heads, i * dim});
  }
}

template <typename T>
__device__ inline void head_norm(T* out, float* rstds, const T* in, const T* q_weight,
                                 const T* k_weight, int64_t rows, int64_t q_heads, int64_t kv_heads,
                                 int64_t dim, float epsilon) {
  int lane = static_cast<int>(threadIdx.x % kLanes);
  int64_t normed = q_heads + kv_heads;
  for_heads(rows, normed + kv_heads, dim, [&](const HeadOfRow& at) {
    if (at.head >= normed) {
      for (int64_t d = lane; d < dim; d += kLanes) out[at.base + d] = in[at.base + d];
      return;
    }
    float squares = 0.0f;
    for (int64_t d = lane; d < dim; d += kLanes) {
      float x = to_float(in[at.base + d]);
      squares += x * x;
    }
    float rstd = 1.0f / sqrtf(lanes_sum(squares) / static_cast<float>(dim) + epsilon);
    const T* weight = at.head < q_heads ? q_weight : k_weight;
    for (int64_t d = lane; d < dim; d += kLanes) {
      from_float(to_float(in[at.base + d]) * rstd * to_float(weight[d]), &out[at.base + d]);
    }
    if (lane == 0) rstds[at.row * normed + at.head] = rstd;
  });
}

template <typename T>
__device__ inline void head_norm_backward(T* in_grad, const T* out_grad, const T* in,
                                          const T* q_weight, const T* k_weight, const float* rstds,
                                          int64_t rows, int64_t q_heads, int64_t kv_heads,
                                          int64_t dim) {
  int lane = static_cast<int>(threadIdx.x % kLanes);
  int64_t normed = q_heads + kv_heads;
  for_heads(rows, normed + kv_heads, dim, [&](const HeadOfRow& at) {
    if (at.head >= normed) {
      for (int64_t d = lane; d < dim; d += kLanes) in_grad[at.base + d] = out_grad[at.base + d];
      return;
    }
    const T* weight = at.head < q_heads ? q_weight : k_weight;
    float rstd = rstds[at.row * normed + at.head];
    float product = 0.0f;
    for (int64_t d = lane; d < dim; d += kLanes) {
      product += to_float(out_grad[at.base + d]) * to_float(weight[d]) *
                 (to_float(in[at.base + d]) * rstd);
    }
    float mean = lanes_sum(product) / static_cast<float>(dim);
    for (int64_t d = lane; d < dim; d += kLanes) {
      float normal = to_float(in[at.base + d]) * rstd;
      float grad = to_float(out_grad[at.base + d]) * to_float(weight[d]);
      from_float(rstd * (grad - normal * mean), &in_grad[at.base + d]);
    }
  });
}

/// sums[tile, 0..dim) of the query heads' weight gradient, [dim, 2 dim) of the key heads'. A thread
/// to each of the 2 * dim, blockIdx.y to a tile of `tile` rows.
template <typename T>
__device__ inline void head_norm_weight_partials(float* sums, const T* out_grad, const T* in,
                                                 const float* rstds, int64_t rows, int64_t q_heads,
                                                 int64_t kv_heads, int64_t dim, int64_t tile) {
  int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= 2 * dim) return;
  bool keys = index >= dim;
  int64_t first_head = keys ? q_heads : 0;
  int64_t heads = keys ? kv_heads : q_heads;
  int64_t normed = q_heads + kv_heads;
  int64_t first = static_cast<int64_t>(blockIdx.y) * tile;
  int64_t end = first + tile < rows ? first + tile : rows;
  float sum = 0.0f;
  for (int64_t row = first; row < end; ++row) {
    int64_t base = (row * (normed + kv_heads) + first_head) * dim + index % dim;
#pragma unroll 4
    for (int64_t head = 0; head < heads; ++head) {
      float x = to_float(in[base + head * dim]) * rstds[row * normed + first_head + head];
      sum += to_float(out_grad[base + head * dim]) * x;
    }
  }
  sums[blockIdx.y * 2 * dim + index] = sum;
}

#define STAGECOACH_HEADS(T, NAME)                                                                 \
  extern "C" __global__ void rotary_##NAME(T* qkv, const float* cosines, const float* sines,      \
                                           int64_t rows, int64_t width, int64_t heads,            \
                                           int64_t dim, int64_t sequence, float sign) {           \
    rotate(qkv, cosines, sines, rows, width, heads, dim, sequence, sign);                         \
  }                                                                                               \
  extern "C" __global__ void qk_norm_forward_##NAME(                                              \
      T* out, float* rstds, const T* in, const T* q_weight, const T* k_weight, int64_t rows,      \
      int64_t q_heads, int64_t kv_heads, int64_t dim, float epsilon) {                            \
    head_norm(out, rstds, in, q_weight, k_weight, rows, q_heads, kv_heads, dim, epsilon);         \
  }                                                                                               \
  extern "C" __global__ void qk_norm_backward_input_##NAME(                                       \
      T* in_grad, const T* out_grad, const T* in, const T* q_weight, const T* k_weight,           \
      const float* rstds, int64_t rows, int64_t q_heads, int64_t kv_heads, int64_t dim) {         \
    head_norm_backward(in_grad, out_grad, in, q_weight, k_weight, rstds, rows, q_heads, kv_heads, \
                       dim);                                                                      \
  }                                                                                               \
  extern "C" __global__ void qk_norm_weight_partials_##NAME(                                      \
      float* sums, const T* out_grad, const T* in, const float* rstds, int64_t rows,              \
      int64_t q_heads, int64_t kv_heads, int64_t dim, int64_t tile) {                             \
    head_norm_weight_partials(sums, out_grad, in, rstds, rows, q_heads, kv_heads, dim, tile);     \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_HEADS)

}  // namespace stagecoach::heads_kernels
