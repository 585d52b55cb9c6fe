// Products that cuBLASLt is given in parts, on a fake that computes on the host.
#if STAGECOACH_CUDA

#include "backends/cuda/cublaslt_parts.h"

#include <gtest/gtest.h>
#include <random>

#include "backends/cuda/cublaslt.h"
#include "tests/kernels/fake_cublaslt.h"
#include "tests/kernels/fake_library_memory.h"

namespace stagecoach {
namespace {

constexpr int64_t kStride = 48;  // elements: aligned for every type, longer than any row
constexpr int64_t kCount = kStride * kStride;

/// A matrix in memory that is aligned as a card's is.
struct Matrix {
  explicit Matrix(DType type) : dtype(type) {}
  std::byte* at(int64_t row, int64_t column) {
    return bytes + (row * kStride + column) * dtype_size_bytes(dtype);
  }
  float read(int64_t row, int64_t column) { return read_number(dtype, at(row, column)); }

  DType dtype;
  alignas(16) std::byte bytes[kCount * sizeof(float)];
};

void fill(Matrix& matrix, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> small(-3, 3);
  for (int64_t i = 0; i < kCount; ++i) {
    write_number(matrix.dtype, static_cast<float>(small(engine)), matrix.at(0, i));
  }
}

GpuProductShape shape_of(DType dtype, DType out, int64_t m, int64_t n, int64_t k) {
  GpuProductShape shape;
  shape.dtype = dtype;
  shape.out_dtype = out;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.a_stride = shape.b_stride = shape.out_stride = kStride;
  return shape;
}

class CublasLtPartsTest : public testing::Test {
 protected:
  void SetUp() override { fake_cublaslt() = FakeCublasLt(); }

  /// Runs a product of small integers, whose result every order of summing gives exactly.
  void expect_right(const GpuProductShape& shape) {
    SCOPED_TRACE(describe(shape));
    auto library = CublasLt::open(fake_cublaslt_functions(), {.least_cut_terms = 1});
    ASSERT_TRUE(library.is_ok());
    Matrix a(shape.dtype), b(shape.dtype), bias(shape.dtype), out(shape.out_dtype);
    fill(a, 1);
    fill(b, 2);
    fill(bias, 3);
    fill(out, 4);
    Matrix before = out;
    std::vector<std::byte> scratch(static_cast<size_t>(GpuLibraryRequest::kProductScratch));
    auto address = [](void* data) {
      return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(data));
    };
    GpuProductOperands operands{address(out.bytes), address(a.bytes), address(b.bytes),
                                shape.has_bias ? address(bias.bytes) : 0, 1.0f};
    auto found = (*library)->find(shape);
    ASSERT_TRUE(found.is_ok() && found->serves);
    int64_t asked = fake_cublaslt().heuristics;
    Status ran = (*library)->run(
        shape, operands, {nullptr, address(scratch.data()), GpuLibraryRequest::kProductScratch});
    ASSERT_TRUE(ran.is_ok()) << ran.to_string();
    EXPECT_EQ(fake_cublaslt().heuristics, asked) << "asked for while finding";
    for (int64_t row = 0; row < kStride; ++row) {
      for (int64_t column = 0; column < kStride; ++column) {
        float expected = before.read(row, column);
        if (row < shape.m && column < shape.n) {
          if (!shape.accumulate) expected = 0.0f;
          if (shape.has_bias) expected += bias.read(0, column);
          for (int64_t k = 0; k < shape.k; ++k) {
            expected += (shape.transpose_a ? a.read(k, row) : a.read(row, k)) *
                        (shape.transpose_b ? b.read(column, k) : b.read(k, column));
          }
        }
        ASSERT_EQ(out.read(row, column), rounded(shape.out_dtype, expected))
            << row << ", " << column;
      }
    }
  }
};

TEST_F(CublasLtPartsTest, OddExtentsAreCutWhereTheyAreContiguous) {
  constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
  GpuProductShape shape = shape_of(kBF16, kF32, 16, 33, 40);
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kN);
  EXPECT_EQ(cut_axis(shape, 16 * 33 * 40 + 1), ProductAxis::kNone) << "too small to gain";
  shape = shape_of(kBF16, kF32, 17, 32, 40);
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kNone);
  shape.transpose_a = true;
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kM);
  shape = shape_of(kBF16, kF32, 16, 32, 41);
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kK);
  shape.transpose_a = true;
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kNone);
  shape.transpose_b = true;
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kK);
  shape.b_stride = 41;
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kNone) << "no row would be aligned";
  shape = shape_of(kBF16, kF32, 16, 5, 40);
  EXPECT_EQ(cut_axis(shape, 1), ProductAxis::kNone) << "nothing would be left";
}

TEST_F(CublasLtPartsTest, PartsTogetherAreTheProduct) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int form = 0; form < 16; ++form) {
      for (auto [m, n, k] : {std::tuple(17, 33, 41), std::tuple(16, 33, 40), std::tuple(19, 32, 40),
                             std::tuple(16, 32, 45)}) {
        GpuProductShape shape = shape_of(dtype, dtype, m, n, k);
        shape.transpose_a = (form & 1) != 0;
        shape.transpose_b = (form & 2) != 0;
        shape.accumulate = (form & 4) != 0;
        shape.has_bias = (form & 8) != 0;
        expect_right(shape);
      }
    }
  }
  EXPECT_GT(fake_cublaslt().products, 3 * 16 * 4 * 3 / 2) << "most ran in parts";
}

TEST_F(CublasLtPartsTest, WhatIsNotServedInPartsRunsWhole) {
  // Rows of 48 numbers are aligned; nothing else is refused, so refuse parts by their number.
  fake_cublaslt().refused_columns = 1;
  expect_right(shape_of(DType::kBF16, DType::kF32, 16, 33, 40));
  EXPECT_EQ(fake_cublaslt().products, 1);
}

}  // namespace
}  // namespace stagecoach

#endif
