#include "hal/op_rates.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace stagecoach {
namespace {

OpShape product(int64_t rows, int64_t columns, int64_t depth, const char* layout = "nt") {
  double flop =
      2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
  return {OpKind::kMatmul, DType::kBF16, layout, {rows, columns, depth}, flop};
}

OpShape sum_of(int64_t bytes) {
  return {OpKind::kAdd, DType::kBF16, "", {bytes}, static_cast<double>(bytes)};
}

/// A device whose products reach more of `peak` the larger they are, as those of cards do.
double product_ns(const OpShape& shape) {
  constexpr double kPeakFlopPerNs = 700e3;
  double smallest = 1e18;
  for (int64_t size : shape.sizes) smallest = std::min(smallest, static_cast<double>(size));
  return shape.work / (kPeakFlopPerNs * smallest / (smallest + 300));
}

TEST(OpRates, GiveWhatWasTimed) {
  OpRates rates;
  rates.add({product(4096, 2048, 2048), 5e4});
  rates.add({product(4096, 6144, 2048), 2e5});
  rates.add({sum_of(1 << 20), 3000});
  EXPECT_NEAR(rates.time_ns(product(4096, 2048, 2048)), 5e4, 100);
  EXPECT_NEAR(rates.time_ns(product(4096, 6144, 2048)), 2e5, 400);
  EXPECT_DOUBLE_EQ(rates.time_ns(sum_of(1 << 20)), 3000);
}

TEST(OpRates, TheSameOperationTwiceCountsByItsMean) {
  OpRates rates;
  for (double time_ns : {9000.0, 12000.0, 15000.0}) rates.add({sum_of(4096), time_ns});
  ASSERT_EQ(rates.ops().size(), 1u);
  EXPECT_DOUBLE_EQ(rates.ops()[0].time_ns, 12000);
}

TEST(OpRates, BytesLieOnLinesBetweenThoseThatWereTimed) {
  OpRates rates;
  rates.add({sum_of(3000), 4000});
  rates.add({sum_of(1000), 2000});
  EXPECT_DOUBLE_EQ(rates.time_ns(sum_of(2000)), 3000);
  EXPECT_DOUBLE_EQ(rates.time_ns(sum_of(6000)), 8000);  // beyond: in proportion
  EXPECT_DOUBLE_EQ(rates.time_ns(sum_of(750)), 1500);
  EXPECT_DOUBLE_EQ(rates.time_ns(sum_of(1)), OpRates::kLeastOpNs);
}

TEST(OpRates, KnowKindsAndWidths) {
  OpRates rates;
  rates.add({sum_of(1000), 2000});
  EXPECT_TRUE(rates.knows(OpKind::kAdd, DType::kF16));
  EXPECT_FALSE(rates.knows(OpKind::kAdd, DType::kF32));
  EXPECT_FALSE(rates.knows(OpKind::kMultiply, DType::kBF16));
}

TEST(OpRates, ProductsOfOtherSizesAreWithinATenth) {
  OpRates rates;
  for (int64_t rows : {2048, 4096, 8192}) {
    for (int64_t columns : {768, 2048, 4096, 12288}) {
      for (int64_t depth : {768, 2048, 4096, 12288}) {
        OpShape shape = product(rows, columns, depth);
        rates.add({shape, product_ns(shape)});
      }
    }
  }
  std::mt19937_64 generator(5);
  std::uniform_real_distribution<double> octaves(0, 4);
  for (int trial = 0; trial < 500; ++trial) {
    auto size = [&] { return static_cast<int64_t>(768 * std::exp2(octaves(generator))); };
    OpShape shape = product(2048 + size() / 2, size(), size());
    EXPECT_NEAR(rates.time_ns(shape) / product_ns(shape), 1, 0.1)
        << shape.sizes[0] << " x " << shape.sizes[1] << " x " << shape.sizes[2];
  }
}

TEST(OpShapes, OfCalls) {
  OpCall call;
  call.kind = OpKind::kMatmul;
  call.transpose_b = true;
  call.accumulate = true;
  call.outputs[0] = {{}, DType::kF32, Shape{8, 4}};
  call.inputs[0] = {{}, DType::kBF16, Shape{8, 16}};
  call.inputs[1] = {{}, DType::kBF16, Shape{4, 16}};
  OpShape shape = op_shape(call);
  EXPECT_EQ(shape.layout, "nt+>fp32");
  EXPECT_EQ(shape.sizes, (std::vector<int64_t>{8, 4, 16}));
  EXPECT_DOUBLE_EQ(shape.work, 2.0 * 8 * 4 * 16);
  call.transpose_a = true;
  call.inputs[0].shape = Shape{16, 8};
  EXPECT_EQ(op_shape(call).sizes, shape.sizes);
}

/// Kernels differ by what libraries do not have, times by several times.
TEST(OpShapes, OfAttentionTellWhichKernelItTakes) {
  OpCall call;
  call.kind = OpKind::kAttentionForward;
  call.sequence = 8;
  call.heads = call.kv_heads = 2;
  call.head_dim = 4;
  call.inputs[0] = {{}, DType::kBF16, Shape{16, 24}};
  EXPECT_EQ(op_shape(call).layout, "");
  call.window = 8;  // all there are
  EXPECT_EQ(op_shape(call).layout, "");
  call.window = 4;
  call.drop_probability = 0.1f;
  OpShape dropping = op_shape(call);
  EXPECT_EQ(dropping.layout, "dropout+window");
  EXPECT_EQ(dropping.sizes, (std::vector<int64_t>{16, 8, 8, 4, 4}));
  // Another kernel says something only where there is none like it.
  OpRates rates;
  OpShape plain = dropping;
  plain.layout = "";
  rates.add({plain, 1e4});
  EXPECT_NEAR(rates.time_ns(dropping), 1e4, 1);
  dropping.sizes[0] *= 4;
  dropping.work *= 4;
  rates.add({dropping, 2e5});
  EXPECT_NEAR(rates.time_ns(dropping), 2e5, 1);
  EXPECT_NEAR(rates.time_ns(plain), 1e4, 1);
}

}  // namespace
}  // namespace stagecoach
