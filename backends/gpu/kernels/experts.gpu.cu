// Choosing experts, grouping rows by them, and the way back.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::experts_kernels {

/// Orders as numbers do: both zeros are one, and NaN is less than all.
__device__ inline uint32_t rank_of(float logit) {
  if (logit != logit) return 0;
  uint32_t bits = bits_of(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// An expert as a candidate: a larger rank goes first, then a lower number.
struct Candidate {
  uint32_t rank;
  int expert;  ///< a number above all where there is none

  __device__ bool goes_before(const Candidate& other) const {
    return rank > other.rank || (rank == other.rank && expert < other.expert);
  }
};
constexpr int kNobody = 0x7fffffff;

/// The first candidate after `last`, the same in all lanes.
template <typename T>
__device__ inline Candidate next_candidate(const T* logits, int64_t experts,
                                           const Candidate& last) {
  Candidate best{0, kNobody};
  for (int e = static_cast<int>(threadIdx.x % kLanes); e < experts; e += kLanes) {
    Candidate mine{rank_of(to_float(logits[e])), e};
    if (last.goes_before(mine) && mine.goes_before(best)) best = mine;
  }
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    // Bits travel through shuffles as they are.
    Candidate other{
        bits_of(shuffle_xor(float_of(best.rank), mask)),
        static_cast<int>(bits_of(shuffle_xor(float_of(static_cast<uint32_t>(best.expert)), mask)))};
    if (other.goes_before(best)) best = other;
  }
  return best;
}

/// Sum of exp(logit - maximum) over all experts, the same in all lanes.
template <typename T>
__device__ inline float sum_over_experts(const T* logits, int64_t experts, float maximum) {
  float sum = 0.0f;
  for (int64_t e = threadIdx.x % kLanes; e < experts; e += kLanes) {
    sum += expf(to_float(logits[e]) - maximum);
  }
  return lanes_sum(sum);
}

/// A group of lanes to a row.
template <typename T>
__device__ inline void choose(int32_t* choices, float* weights, const T* logits, int64_t rows,
                              int64_t experts, int64_t count, bool over_chosen) {
  int64_t groups = static_cast<int64_t>(gridDim.x) * kRowGroups;
  int64_t group = static_cast<int64_t>(blockIdx.x) * kRowGroups + threadIdx.x / kLanes;
  bool leads = threadIdx.x % kLanes == 0;
  for (int64_t row = group; row < rows; row += groups) {
    const T* line = logits + row * experts;
    Candidate last{0xffffffffu, -1};
    float maximum = 0.0f;
    float sum = 0.0f;
    for (int64_t k = 0; k < count; ++k) {
      last = next_candidate(line, experts, last);
      float logit = to_float(line[last.expert]);
      if (k == 0) maximum = logit;
      float share = expf(logit - maximum);
      sum += share;
      if (!leads) continue;
      choices[row * count + k] = last.expert;
      weights[row * count + k] = share;
    }
    if (!over_chosen) sum = sum_over_experts(line, experts, maximum);
    for (int64_t k = 0; leads && k < count; ++k) weights[row * count + k] /= sum;
  }
}

/// A group of lanes to a row.
template <typename T>
__device__ inline void route_grads(T* grad, const float* weights_grad, const T* logits,
                                   const int32_t* choices, const float* weights, int64_t rows,
                                   int64_t experts, int64_t count, bool over_chosen) {
  int64_t groups = static_cast<int64_t>(gridDim.x) * kRowGroups;
  int64_t group = static_cast<int64_t>(blockIdx.x) * kRowGroups + threadIdx.x / kLanes;
  for (int64_t row = group; row < rows; row += groups) {
    const T* line = logits + row * experts;
    float mean = 0.0f;
    for (int64_t k = row * count; k < (row + 1) * count; ++k) mean += weights[k] * weights_grad[k];
    float maximum = -INFINITY;
    for (int64_t e = threadIdx.x % kLanes; e < experts && !over_chosen; e += kLanes) {
      maximum = fmaxf(maximum, to_float(line[e]));
    }
    maximum = lanes_max(maximum);
    float factor = over_chosen ? 0.0f : -mean / sum_over_experts(line, experts, maximum);
    for (int64_t e = threadIdx.x % kLanes; e < experts; e += kLanes) {
      float value = over_chosen ? 0.0f : factor * expf(to_float(line[e]) - maximum);
      for (int64_t k = row * count; k < (row + 1) * count; ++k) {
        float upper = over_chosen ? weights_grad[k] - mean : weights_grad[k];
        if (choices[k] == e) value += weights[k] * upper;
      }
      from_float(value, grad + row * experts + e);
    }
  }
}

/// Operands of the load-balancing loss.
template <typename T>
struct BalanceOperands {
  const T* logits;
  const int32_t* order;
  const int32_t* offsets;
  const int32_t* labels;
  int64_t experts, count, sequence;
};

/// Places of [first, end) whose choice is numbered below `limit`.
__device__ inline int64_t places_below(const int32_t* order, int64_t first, int64_t end,
                                       int64_t limit) {
  int64_t start = first;
  while (first < end) {
    int64_t middle = (first + end) / 2;
    if (order[middle] < limit) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first - start;
}

/// Fills pulls[E], the gradient of a sequence's losses by their shares of a row's softmax, and says
/// how many of its rows count: those up to its last target. Choices are sorted, so none are counted
/// one by one. For a whole block of kRowThreads.
template <typename T>
__device__ inline int64_t find_pulls(float* pulls, const BalanceOperands<T>& from,
                                     int64_t sequence) {
  __shared__ int32_t ends[kRowThreads];
  __shared__ int32_t target_counts[kRowThreads];
  const int32_t* labels = from.labels + sequence * from.sequence;
  int32_t end = 0;
  int32_t targets = 0;
  for (int64_t row = threadIdx.x; row < from.sequence; row += kRowThreads) {
    if (labels[row] < 0) continue;
    end = static_cast<int32_t>(row) + 1;
    ++targets;
  }
  ends[threadIdx.x] = end;
  target_counts[threadIdx.x] = targets;
  __syncthreads();
  targets = 0;
  for (int i = 0; i < kRowThreads; ++i) {
    end = ends[i] > end ? ends[i] : end;
    targets += target_counts[i];
  }
  float rows = static_cast<float>(end);
  float pull = static_cast<float>(targets) / rows * (static_cast<float>(from.experts) / rows);
  int64_t first_choice = sequence * from.sequence * from.count;
  for (int64_t e = threadIdx.x; e < from.experts && end > 0; e += kRowThreads) {
    int64_t first = from.offsets[e];
    int64_t last = from.offsets[e + 1];
    int64_t chosen = places_below(from.order, first, last, first_choice + end * from.count) -
                     places_below(from.order, first, last, first_choice);
    pulls[e] = pull * static_cast<float>(chosen);
  }
  __syncthreads();
  return end;
}

/// What a row loses by its shares, and their softmax.
struct RowBalance {
  float maximum;
  float sum;
  float loss;
};

/// The same in all lanes.
template <typename T>
__device__ inline RowBalance balance_of(const T* logits, const float* pulls, int64_t experts) {
  float maximum = -INFINITY;
  for (int64_t e = threadIdx.x % kLanes; e < experts; e += kLanes) {
    maximum = fmaxf(maximum, to_float(logits[e]));
  }
  maximum = lanes_max(maximum);
  float sum = 0.0f;
  float loss = 0.0f;
  for (int64_t e = threadIdx.x % kLanes; e < experts; e += kLanes) {
    float share = expf(to_float(logits[e]) - maximum);
    sum += share;
    loss += share * pulls[e];
  }
  sum = lanes_sum(sum);
  return {maximum, sum, lanes_sum(loss) / sum};
}

/// body(row, whether it counts) for the rows of a block's part of its sequence, of which each has
/// `parts`; a group of lanes to a row.
template <typename T, typename Body>
__device__ inline void for_balanced_rows(float* pulls, const BalanceOperands<T>& from,
                                         int64_t parts, const Body& body) {
  int64_t sequence = static_cast<int64_t>(blockIdx.x) / parts;
  int64_t counted = find_pulls(pulls, from, sequence);
  int64_t group = static_cast<int64_t>(blockIdx.x) % parts * kRowGroups + threadIdx.x / kLanes;
  for (int64_t row = group; row < from.sequence; row += parts * kRowGroups) {
    body(sequence * from.sequence + row, row < counted);
  }
}

template <typename T>
__device__ inline void balance_losses(float* losses, float* pulls, const BalanceOperands<T>& from,
                                      int64_t parts) {
  for_balanced_rows(pulls, from, parts, [&](int64_t row, bool counts) {
    float loss = 0.0f;
    if (counts) loss = balance_of(from.logits + row * from.experts, pulls, from.experts).loss;
    if (threadIdx.x % kLanes == 0) losses[row] = loss;
  });
}

template <typename T>
__device__ inline void add_balance_grads(T* grad, float* pulls, const BalanceOperands<T>& from,
                                         int64_t parts, float scale) {
  for_balanced_rows(pulls, from, parts, [&](int64_t row, bool counts) {
    if (!counts) return;
    const T* line = from.logits + row * from.experts;
    RowBalance balance = balance_of(line, pulls, from.experts);
    float factor = scale / balance.sum;
    for (int64_t e = threadIdx.x % kLanes; e < from.experts; e += kLanes) {
      float share = factor * expf(to_float(line[e]) - balance.maximum);
      T* out = grad + row * from.experts + e;
      from_float(to_float(*out) + share * (pulls[e] - balance.loss), out);
    }
  });
}

/// out[place] = in of the place's row (times its weight). A block to a place.
template <typename T>
__device__ inline void gather(T* out, const T* in, const int32_t* order, const float* weights,
                              int64_t places, int64_t columns, int64_t count) {
  bool wide = columns % kPack == 0 && all_aligned(out, in);
  for (int64_t place = blockIdx.x; place < places; place += gridDim.x) {
    int64_t choice = order[place];
    float weight = weights == nullptr ? 1.0f : weights[choice];
    for_packs(columns, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float values[kWidth];
      load_pack(in + choice / count * columns + first, values);
      for (int i = 0; i < kWidth; ++i) values[i] *= weight;
      store_pack(out + place * columns + first, values);
    });
  }
}

/// out[row] = (residual +) sum over a row's places of (weight *) in (+ out). A block to a row.
template <typename T>
__device__ inline void combine(T* out, const T* in, const int32_t* places, const float* weights,
                               const T* residual, int64_t rows, int64_t columns, int64_t count,
                               bool add_to) {
  bool wide = columns % kPack == 0 && all_aligned(out, in, residual);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for_packs(columns, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float sums[kWidth] = {};
      float values[kWidth];
      for (int64_t s = row * count; s < (row + 1) * count; ++s) {
        load_pack(in + places[s] * columns + first, values);
        float weight = weights == nullptr ? 1.0f : weights[s];
        for (int i = 0; i < kWidth; ++i) sums[i] += weight * values[i];
      }
      if (residual != nullptr) {
        load_pack(residual + row * columns + first, values);
        for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
      }
      write_pack(out + row * columns + first, sums, add_to);
    });
  }
}

/// Operands of combine_backward.
template <typename T>
struct CombineOperands {
  const T* product_grad;
  const T* in;
  const int32_t* places;
  const float* weights;
  const T* out_grad;  ///< null without bias
  const T* bias;
  const int32_t* choices;
};

/// A block of kRowThreads to a choice. in_grad may be product_grad.
template <typename T>
__device__ inline void combine_grads(T* in_grad, float* weights_grad,
                                     const CombineOperands<T>& from, int64_t choice_count,
                                     int64_t columns, int64_t count, int64_t bias_columns) {
  bool wide = columns % kPack == 0 && all_aligned(in_grad, from.product_grad, from.in);
  for (int64_t s = blockIdx.x; s < choice_count; s += gridDim.x) {
    int64_t place = from.places[s] * columns;
    float weight = from.weights[s];
    float sum = 0.0f;
    for_packs(columns, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float grads[kWidth];
      float values[kWidth];
      load_pack(from.product_grad + place + first, grads);
      load_pack(from.in + place + first, values);
      for (int i = 0; i < kWidth; ++i) {
        sum += grads[i] * values[i];
        grads[i] *= weight;
      }
      store_pack(in_grad + place + first, grads);
    });
    if (from.bias != nullptr) {
      const T* bias = from.bias + from.choices[s] * bias_columns;
      const T* out_grad = from.out_grad + s / count * bias_columns;
      for (int64_t c = threadIdx.x; c < bias_columns; c += blockDim.x) {
        sum += to_float(bias[c]) * to_float(out_grad[c]);
      }
    }
    float total = block_sum(sum);
    if (threadIdx.x == 0) weights_grad[s] = total;
  }
}

/// Leaves in `error` (page-locked host memory, null: nothing is wanted) the first of the numbers
/// that the threads of a block found; ~0 is none.
__device__ inline void report_first(uint64_t found, uint64_t* error) {
  __shared__ uint64_t all[kRowThreads];
  all[threadIdx.x] = found;
  __syncthreads();
  if (threadIdx.x != 0 || error == nullptr) return;
  for (int i = 1; i < kRowThreads; ++i) found = all[i] < found ? all[i] : found;
  if (found < *error) *error = found;
}

/// order, places and offsets of choices; a block of kRowThreads to an expert, which finds its rows
/// by itself. A choice outside the experts is reported and counts as the nearest.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    group_rows(int32_t* order, int32_t* places, int32_t* offsets, const int32_t* choices,
               int64_t count, int64_t experts, uint64_t* error) {
  constexpr uint64_t kNone = ~0ull;
  __shared__ int32_t lower_counts[kRowThreads];
  __shared__ int32_t own_counts[kRowThreads];
  int64_t expert = blockIdx.x;
  auto expert_of = [&](int64_t s) {
    int64_t choice = choices[s] < 0 ? 0 : choices[s];
    return choice < experts ? choice : experts - 1;
  };
  int64_t share = (count + kRowThreads - 1) / kRowThreads;
  int64_t first = threadIdx.x * share < count ? threadIdx.x * share : count;
  int64_t end = first + share < count ? first + share : count;
  int32_t lower = 0;
  int32_t own = 0;
  uint64_t outside = kNone;
  for (int64_t s = first; s < end; ++s) {
    int64_t choice = expert_of(s);
    lower += choice < expert ? 1 : 0;
    own += choice == expert ? 1 : 0;
    if (choice != choices[s] && outside == kNone) outside = static_cast<uint64_t>(s);
  }
  lower_counts[threadIdx.x] = lower;
  own_counts[threadIdx.x] = own;
  __syncthreads();
  int32_t start = 0;
  int32_t place = 0;
  for (int i = 0; i < kRowThreads; ++i) {
    start += lower_counts[i];
    if (i < static_cast<int>(threadIdx.x)) place += own_counts[i];
  }
  place += start;
  for (int64_t s = first; s < end; ++s) {
    if (expert_of(s) != expert) continue;
    order[place] = static_cast<int32_t>(s);
    places[s] = place;
    ++place;
  }
  if (expert == 0) report_first(outside, error);
  if (threadIdx.x != 0) return;
  offsets[expert] = start;
  if (expert == 0) offsets[experts] = static_cast<int32_t>(count);
}

/// out[E, columns] += sums of each expert's rows. blockIdx.y is the expert.
template <typename T>
__device__ inline void add_columns(float* out, const T* in, const int32_t* offsets,
                                   int64_t columns) {
  int64_t expert = blockIdx.y;
  int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  int64_t first = offsets[expert];
  int64_t end = offsets[expert + 1];
  if (column >= columns || first == end) return;
  float sum = 0.0f;
  for (int64_t row = first; row < end; ++row) sum += to_float(in[row * columns + column]);
  out[expert * columns + column] += sum;
}

#define STAGECOACH_EXPERTS(T, NAME)                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                       \
      route_forward_##NAME(int32_t* choices, float* weights, const T* logits, int64_t rows,       \
                           int64_t experts, int64_t count, int32_t over_chosen) {                 \
    choose(choices, weights, logits, rows, experts, count, over_chosen != 0);                     \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads) route_backward_##NAME(                \
      T* grad, const float* weights_grad, const T* logits, const int32_t* choices,                \
      const float* weights, int64_t rows, int64_t experts, int64_t count, int32_t over_chosen) {  \
    route_grads(grad, weights_grad, logits, choices, weights, rows, experts, count,               \
                over_chosen != 0);                                                                \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads) balance_forward_##NAME(               \
      float* losses, const T* logits, const int32_t* order, const int32_t* offsets,               \
      const int32_t* labels, int64_t experts, int64_t count, int64_t sequence, int64_t parts) {   \
    STAGECOACH_DYNAMIC_SHARED(pulls);                                                             \
    balance_losses(losses, reinterpret_cast<float*>(pulls),                                       \
                   BalanceOperands<T>{logits, order, offsets, labels, experts, count, sequence},  \
                   parts);                                                                        \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                       \
      balance_backward_##NAME(T* grad, const T* logits, const int32_t* order,                     \
                              const int32_t* offsets, const int32_t* labels, int64_t experts,     \
                              int64_t count, int64_t sequence, int64_t parts, float scale) {      \
    STAGECOACH_DYNAMIC_SHARED(pulls);                                                             \
    add_balance_grads(                                                                            \
        grad, reinterpret_cast<float*>(pulls),                                                    \
        BalanceOperands<T>{logits, order, offsets, labels, experts, count, sequence}, parts,      \
        scale);                                                                                   \
  }                                                                                               \
  extern "C" __global__ void gather_rows_##NAME(T* out, const T* in, const int32_t* order,        \
                                                const float* weights, int64_t places,             \
                                                int64_t columns, int64_t count) {                 \
    gather(out, in, order, weights, places, columns, count);                                      \
  }                                                                                               \
  extern "C" __global__ void combine_rows_##NAME(                                                 \
      T* out, const T* in, const int32_t* places, const float* weights, const T* residual,        \
      int64_t rows, int64_t columns, int64_t count, int32_t add_to) {                             \
    combine(out, in, places, weights, residual, rows, columns, count, add_to != 0);               \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads) combine_backward_##NAME(              \
      T* in_grad, float* weights_grad, const T* product_grad, const T* in, const int32_t* places, \
      const float* weights, const T* out_grad, const T* bias, const int32_t* choices,             \
      int64_t choice_count, int64_t columns, int64_t count, int64_t bias_columns) {               \
    combine_grads(in_grad, weights_grad,                                                          \
                  CombineOperands<T>{product_grad, in, places, weights, out_grad, bias, choices}, \
                  choice_count, columns, count, bias_columns);                                    \
  }                                                                                               \
  extern "C" __global__ void grouped_column_sum_##NAME(float* out, const T* in,                   \
                                                       const int32_t* offsets, int64_t columns) { \
    add_columns(out, in, offsets, columns);                                                       \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_EXPERTS)

}  // namespace stagecoach::experts_kernels
