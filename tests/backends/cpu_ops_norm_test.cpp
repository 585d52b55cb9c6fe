#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

constexpr double kEpsilon = 1e-5;

struct NormCase {
  int64_t rows, columns;
};

constexpr NormCase kCases[] = {{1, 1}, {3, 17}, {100, 65}, {300, 192}, {5, 1601}};

class LayerNormTest : public testing::TestWithParam<DType> {
 protected:
  OpTestRig rig_;
};

TEST_P(LayerNormTest, Forward) {
  for (const NormCase& shape : kCases) {
    for (bool biased : {true, false}) {
      Values in = rig_.random(shape.rows * shape.columns, GetParam(), 3.0);
      for (double& value : in) value += 2.0;
      in = rounded(GetParam(), in);
      Values weight = rig_.random(shape.columns, GetParam());
      Values bias = rig_.random(shape.columns, GetParam());
      TensorView out = rig_.poisoned(GetParam(), {shape.rows, shape.columns});
      TensorView mean = rig_.poisoned(DType::kF32, {shape.rows});
      TensorView rstd = rig_.poisoned(DType::kF32, {shape.rows});
      TensorView none;
      OpCall call = make_call(OpKind::kLayerNormForward, {out, mean, rstd},
                              {rig_.tensor(GetParam(), {shape.rows, shape.columns}, in),
                               rig_.tensor(GetParam(), {shape.columns}, weight),
                               biased ? rig_.tensor(GetParam(), {shape.columns}, bias) : none});
      call.epsilon = static_cast<float>(kEpsilon);
      rig_.run(call);
      reference::LayerNorm expected =
          reference::layer_norm(in, weight, biased ? bias : Values(), kEpsilon);
      EXPECT_LE(relative_error(rig_.read(mean), expected.mean), 1e-5);
      EXPECT_LE(relative_error(rig_.read(rstd), expected.rstd), 1e-5);
      // A single column is normalised to zero, which has no relative error.
      if (shape.columns == 1 && !biased) continue;
      EXPECT_LE(relative_error(rig_.read(out), expected.out), tolerance(GetParam()));
    }
  }
}

TEST_P(LayerNormTest, TwoPassesKeepSmallDeviations) {
  Values in;
  for (int i = 0; i < 64; ++i) in.push_back(1024.0 + (i % 2 == 0 ? 8.0 : -8.0));
  TensorView out = rig_.poisoned(GetParam(), {1, 64});
  TensorView mean = rig_.poisoned(DType::kF32, {1});
  TensorView rstd = rig_.poisoned(DType::kF32, {1});
  OpCall call = make_call(
      OpKind::kLayerNormForward, {out, mean, rstd},
      {rig_.tensor(GetParam(), {1, 64}, in), rig_.tensor(GetParam(), {64}, Values(64, 1.0))});
  rig_.run(call);
  EXPECT_EQ(rig_.read(mean)[0], 1024.0);
  EXPECT_NEAR(rig_.read(rstd)[0], 0.125, 1e-6);
}

TEST_P(LayerNormTest, Backward) {
  for (const NormCase& shape : kCases) {
    if (shape.columns == 1) continue;
    for (bool accumulate : {false, true}) {
      Values in = rig_.random(shape.rows * shape.columns, GetParam());
      Values upper = rig_.random(shape.rows * shape.columns, GetParam());
      Values weight = rig_.random(shape.columns, GetParam());
      Values old = rig_.random(shape.rows * shape.columns, GetParam());
      reference::LayerNorm forward = reference::layer_norm(in, weight, {}, kEpsilon);
      reference::LayerNormGrads expected = reference::layer_norm_grads(upper, in, weight, kEpsilon);
      Shape matrix = {shape.rows, shape.columns};
      TensorView mean = rig_.tensor(DType::kF32, {shape.rows}, forward.mean);
      TensorView rstd = rig_.tensor(DType::kF32, {shape.rows}, forward.rstd);
      TensorView upper_tensor = rig_.tensor(GetParam(), matrix, upper);
      TensorView in_tensor = rig_.tensor(GetParam(), matrix, in);
      TensorView in_grad =
          accumulate ? rig_.tensor(GetParam(), matrix, old) : rig_.poisoned(GetParam(), matrix);
      OpCall call = make_call(
          OpKind::kLayerNormBackwardInput, {in_grad},
          {upper_tensor, in_tensor, rig_.tensor(GetParam(), {shape.columns}, weight), mean, rstd});
      call.accumulate = accumulate;
      rig_.run(call);
      EXPECT_LE(
          relative_error(rig_.read(in_grad), accumulate ? sum(old, expected.in) : expected.in),
          tolerance(GetParam()));
      Values first = rig_.random(shape.columns);
      TensorView weight_grad = rig_.tensor(DType::kF32, {shape.columns}, first);
      TensorView bias_grad = rig_.tensor(DType::kF32, {shape.columns}, first);
      TensorView none;
      rig_.run(make_call(OpKind::kLayerNormBackwardWeight,
                         {weight_grad, accumulate ? bias_grad : none},
                         {upper_tensor, in_tensor, mean, rstd}));
      EXPECT_LE(relative_error(rig_.read(weight_grad), sum(first, expected.weight)), 1e-5);
      EXPECT_LE(
          relative_error(rig_.read(bias_grad), accumulate ? sum(first, expected.bias) : first),
          1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, LayerNormTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
