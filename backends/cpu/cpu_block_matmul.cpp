#include "backends/cpu/cpu_scratch.h"
#include "backends/cpu/cpu_vector.h"
#include "core/multiversion.h"

namespace stagecoach::vec {

namespace {

using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;
/// Rows of c computed at once: with two vectors a row, eight sums hide the latency of one.
constexpr int kRows = 4;

/// Operands of one product, in the words of block_matmul.
struct Product {
  int64_t k;
  const float* a;
  int64_t a_row;
  int64_t a_column;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool add_to;
};

/// c[row .. row + Rows, column .. column + Vectors * 16]; sums run over p in order.
template <int Rows, int Vectors>
STAGECOACH_ALWAYS_INLINE void block(const Product& product, int64_t row, int64_t column) {
  Lanes sums[Rows][Vectors] = {};
  const float* a = product.a + row * product.a_row;
  const float* b = product.b + column;
  for (int64_t p = 0; p < product.k; ++p) {
    for (int v = 0; v < Vectors; ++v) {
      const Lanes& b_lanes = *reinterpret_cast<const Lanes*>(b + v * kLanes);
      for (int r = 0; r < Rows; ++r) sums[r][v] += b_lanes * a[r * product.a_row];
    }
    a += product.a_column;
    b += product.ldb;
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      auto& c =
          *reinterpret_cast<Lanes*>(product.c + (row + r) * product.ldc + column + v * kLanes);
      c = product.add_to ? c + sums[r][v] : sums[r][v];
    }
  }
}

template <int Vectors>
STAGECOACH_ALWAYS_INLINE void block_columns(const Product& product, int64_t m, int64_t column) {
  int64_t row = 0;
  for (; row + kRows <= m; row += kRows) block<kRows, Vectors>(product, row, column);
  for (; row < m; ++row) block<1, Vectors>(product, row, column);
}

/// All whole vectors of columns; returns how many columns that was.
STAGECOACH_MULTIVERSION int64_t whole_vectors(const Product& product, int64_t m, int64_t n) {
  int64_t column = 0;
  for (; column + 2 * kLanes <= n; column += 2 * kLanes) block_columns<2>(product, m, column);
  for (; column + kLanes <= n; column += kLanes) block_columns<1>(product, m, column);
  return column;
}

}  // namespace

void block_matmul(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_column,
                  const float* b, int64_t ldb, float* c, int64_t ldc, bool add_to) {
  int64_t done = whole_vectors(Product{k, a, a_row, a_column, b, ldb, c, ldc, add_to}, m, n);
  int64_t left = n - done;
  if (left == 0) return;
  // The last columns are padded to a whole vector beside the operands.
  ScratchFrame frame;
  float* padded_b = frame.floats(k * kLanes);
  float* padded_c = frame.floats(m * kLanes);
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t l = 0; l < kLanes; ++l) {
      padded_b[p * kLanes + l] = l < left ? b[p * ldb + done + l] : 0.0f;
    }
  }
  whole_vectors(Product{k, a, a_row, a_column, padded_b, kLanes, padded_c, kLanes, false}, m,
                kLanes);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < left; ++l) {
      float& target = c[i * ldc + done + l];
      float value = padded_c[i * kLanes + l];
      target = add_to ? target + value : value;
    }
  }
}

}  // namespace stagecoach::vec
