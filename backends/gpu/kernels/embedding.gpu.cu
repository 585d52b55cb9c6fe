// Embedding forward and backward, positions' gradient.

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach::embedding_kernels {

/// Rows found by one pass over part of the ids.
constexpr int kListRows = 512;
constexpr int kThreads = 256;
constexpr int kThreadColumns = 4;

template <typename T>
__device__ inline void gather(T* out, const int32_t* ids, const T* table, const T* positions,
                              int64_t rows, int64_t columns, int64_t vocabulary, int64_t sequence) {
  bool wide = columns % kPack == 0 && all_aligned(out, table, positions);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int64_t id = ids[row];
    if (id < 0 || id >= vocabulary) continue;  // check_rows reports it
    for_packs(columns, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float values[kWidth];
      load_pack(table + id * columns + first, values);
      if (positions != nullptr) {
        float more[kWidth];
        load_pack(positions + row % sequence * columns + first, more);
        for (int i = 0; i < kWidth; ++i) values[i] += more[i];
      }
      store_pack(out + row * columns + first, values);
    });
  }
}

/// Rows of one bucket of ids, found in order, and for each the next one with the same id.
struct RowList {
  int64_t rows[kListRows];
  int32_t ids[kListRows];
  int32_t next[kListRows];   ///< -1 at the end
  int32_t leads[kListRows];  ///< whether no earlier entry has this id
  int32_t group_counts[kThreads / kLanes];
  int32_t count;
};

/// Appends the rows among [first, first + blockDim.x) whose id is in [low, high), in order.
__device__ inline void append_rows(RowList& list, const int32_t* ids, int64_t rows, int64_t first,
                                   int64_t low, int64_t high) {
  int64_t row = first + threadIdx.x;
  int32_t id = row < rows ? ids[row] : -1;
  int32_t found = row < rows && id >= low && id < high ? 1 : 0;
  int lane = static_cast<int>(threadIdx.x % kLanes);
  int32_t before = found;
  for (int distance = 1; distance < kLanes; distance *= 2) {
    int32_t other = shuffle_up(before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == kLanes - 1) list.group_counts[threadIdx.x / kLanes] = before;
  __syncthreads();
  int32_t place = list.count + before - found;
  int32_t total = 0;
  for (int group = 0; group < kThreads / kLanes; ++group) {
    if (group < static_cast<int>(threadIdx.x / kLanes)) place += list.group_counts[group];
    total += list.group_counts[group];
  }
  if (found != 0) {
    list.rows[place] = row;
    list.ids[place] = id;
  }
  __syncthreads();
  if (threadIdx.x == 0) list.count += total;
  __syncthreads();
}

__device__ inline void link_rows(RowList& list) {
  for (int i = static_cast<int>(threadIdx.x); i < list.count; i += kThreads) {
    int next = -1;
    for (int j = i + 1; j < list.count && next < 0; ++j) {
      if (list.ids[j] == list.ids[i]) next = j;
    }
    int lead = 1;
    for (int j = 0; j < i && lead != 0; ++j) {
      if (list.ids[j] == list.ids[i]) lead = 0;
    }
    list.next[i] = next;
    list.leads[i] = lead;
  }
  __syncthreads();
}

/// Adds the listed rows to the table's gradient, those of one id in order, and empties the list.
template <typename T>
__device__ inline void add_listed(RowList& list, float* table_grad, const T* out_grad,
                                  int64_t columns, int64_t first_column) {
  link_rows(list);
  for (int lead = 0; lead < list.count; ++lead) {
    if (list.leads[lead] == 0) continue;
    float sums[kThreadColumns];
    float* target = table_grad + static_cast<int64_t>(list.ids[lead]) * columns;
    for (int i = 0; i < kThreadColumns; ++i) {
      int64_t column = first_column + i * kThreads;
      sums[i] = column < columns ? target[column] : 0.0f;
    }
#pragma unroll 2
    for (int entry = lead; entry >= 0; entry = list.next[entry]) {
      const T* source = out_grad + list.rows[entry] * columns;
      for (int i = 0; i < kThreadColumns; ++i) {
        int64_t column = first_column + i * kThreads;
        if (column < columns) sums[i] += to_float(source[column]);
      }
    }
    for (int i = 0; i < kThreadColumns; ++i) {
      int64_t column = first_column + i * kThreads;
      if (column < columns) target[column] = sums[i];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) list.count = 0;
  __syncthreads();
}

/// table_grad[id] += out_grad[row] in the order of rows. A block owns `bucket` consecutive ids
/// (blockIdx.x) and a range of columns (blockIdx.y) and reads all ids: nothing is sorted, and no
/// two blocks write one place.
template <typename T>
__device__ inline void scatter_rows(float* table_grad, const T* out_grad, const int32_t* ids,
                                    int64_t rows, int64_t columns, int64_t vocabulary,
                                    int64_t bucket) {
  __shared__ RowList list;
  int64_t low = static_cast<int64_t>(blockIdx.x) * bucket;
  int64_t high = low + bucket < vocabulary ? low + bucket : vocabulary;
  int64_t first_column = static_cast<int64_t>(blockIdx.y) * kThreads * kThreadColumns + threadIdx.x;
  if (threadIdx.x == 0) list.count = 0;
  __syncthreads();
  for (int64_t first = 0; first < rows; first += kThreads) {
    append_rows(list, ids, rows, first, low, high);
    if (list.count > kListRows - kThreads) {
      add_listed(list, table_grad, out_grad, columns, first_column);
    }
  }
  add_listed(list, table_grad, out_grad, columns, first_column);
}

/// positions_grad[p] += out_grad of every sequence's row p, sequences in order.
template <typename T>
__device__ inline void add_positions(float* positions_grad, const T* out_grad, int64_t rows,
                                     int64_t columns, int64_t sequence) {
  for_grid_packs(sequence * columns, false, [&](auto, int64_t index) {
    float sum = positions_grad[index];
    for (int64_t row = 0; row < rows; row += sequence) {
      sum += to_float(out_grad[row * columns + index]);
    }
    positions_grad[index] = sum;
  });
}

/// Leaves in `error` (page-locked host memory, null: nothing is wanted) the first row that is
/// wrong. One block, and one thread that writes: links to the host have no atomics.
template <typename Wrong>
__device__ inline void report_first(int64_t rows, uint64_t* error, const Wrong& is_wrong) {
  constexpr uint64_t kNone = ~0ull;
  __shared__ uint64_t found[kThreads];
  uint64_t mine = kNone;
  for (int64_t row = threadIdx.x; row < rows && mine == kNone; row += kThreads) {
    if (is_wrong(row)) mine = static_cast<uint64_t>(row);
  }
  found[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0 || error == nullptr) return;
  for (int i = 1; i < kThreads; ++i) mine = found[i] < mine ? found[i] : mine;
  if (mine < *error) *error = mine;
}

/// Ids are in [least, limit).
extern "C" __global__ void __launch_bounds__(kThreads)
    check_rows(const int32_t* ids, int64_t rows, int64_t least, int64_t limit, uint64_t* error) {
  report_first(rows, error, [&](int64_t row) { return ids[row] < least || ids[row] >= limit; });
}

/// A document begins at its row's own position in a sequence, or where the row before's does.
extern "C" __global__ void __launch_bounds__(kThreads)
    check_document_starts(const int32_t* starts, int64_t rows, int64_t sequence, uint64_t* error) {
  report_first(rows, error, [&](int64_t row) {
    int64_t position = row % sequence;
    return starts[row] != position && (position == 0 || starts[row] != starts[row - 1]);
  });
}

#define STAGECOACH_EMBEDDING(T, NAME)                                                              \
  extern "C" __global__ void embedding_forward_##NAME(                                             \
      T* out, const int32_t* ids, const T* table, const T* positions, int64_t rows,                \
      int64_t columns, int64_t vocabulary, int64_t sequence) {                                     \
    gather(out, ids, table, positions, rows, columns, vocabulary, sequence);                       \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) embedding_backward_##NAME(                \
      float* table_grad, const T* out_grad, const int32_t* ids, int64_t rows, int64_t columns,     \
      int64_t vocabulary, int64_t bucket) {                                                        \
    scatter_rows(table_grad, out_grad, ids, rows, columns, vocabulary, bucket);                    \
  }                                                                                                \
  extern "C" __global__ void positions_backward_##NAME(                                            \
      float* positions_grad, const T* out_grad, int64_t rows, int64_t columns, int64_t sequence) { \
    add_positions(positions_grad, out_grad, rows, columns, sequence);                              \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_EMBEDDING)

}  // namespace stagecoach::embedding_kernels
