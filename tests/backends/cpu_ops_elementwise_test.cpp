#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "core/random.h"
#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

constexpr int64_t kCounts[] = {1, 17, 1000, 16384, 40001};

class ElementwiseTest : public testing::TestWithParam<DType> {
 protected:
  TensorView target(int64_t count, bool accumulate, const Values& old) {
    return accumulate ? rig_.tensor(GetParam(), {count}, old) : rig_.poisoned(GetParam(), {count});
  }
  void expect_out(const TensorView& out, const Values& expected) {
    EXPECT_LE(relative_error(rig_.read(out), expected), tolerance(out.dtype));
  }

  OpTestRig rig_;
};

TEST_P(ElementwiseTest, Gelu) {
  for (int64_t count : kCounts) {
    Values in = rig_.random(count, GetParam(), 2.0);
    Values upper = rig_.random(count, GetParam());
    Values old = rig_.random(count, GetParam());
    Values forward;
    Values backward;
    for (size_t i = 0; i < in.size(); ++i) {
      forward.push_back(reference::gelu(in[i]));
      backward.push_back(upper[i] * reference::gelu_slope(in[i]));
    }
    TensorView in_tensor = rig_.tensor(GetParam(), {count}, in);
    TensorView upper_tensor = rig_.tensor(GetParam(), {count}, upper);
    TensorView out = rig_.poisoned(GetParam(), {count});
    rig_.run(make_call(OpKind::kGeluForward, {out}, {in_tensor}));
    expect_out(out, forward);
    for (bool accumulate : {false, true}) {
      TensorView grad = target(count, accumulate, old);
      OpCall call = make_call(OpKind::kGeluBackward, {grad}, {upper_tensor, in_tensor});
      call.accumulate = accumulate;
      rig_.run(call);
      expect_out(grad, accumulate ? sum(old, backward) : backward);
    }
  }
}

TEST_P(ElementwiseTest, GeluFarFromZero) {
  Values in = {-60000, -300, -20, -9, 0, 9, 20, 300, 60000};
  TensorView out = rig_.poisoned(GetParam(), {9});
  rig_.run(make_call(OpKind::kGeluForward, {out}, {rig_.tensor(GetParam(), {9}, in)}));
  Values result = rig_.read(out);
  Values held = rounded(GetParam(), in);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(result[i], 0.0, 1e-6);
  for (size_t i = 5; i < 9; ++i) EXPECT_EQ(result[i], held[i]);
}

TEST_P(ElementwiseTest, AddAndMultiply) {
  for (int64_t count : kCounts) {
    Values a = rig_.random(count, GetParam());
    Values b = rig_.random(count, GetParam());
    Values old = rig_.random(count, GetParam());
    TensorView a_tensor = rig_.tensor(GetParam(), {count}, a);
    TensorView b_tensor = rig_.tensor(GetParam(), {count}, b);
    TensorView out = rig_.poisoned(GetParam(), {count});
    rig_.run(make_call(OpKind::kAdd, {out}, {a_tensor, b_tensor}));
    expect_out(out, sum(a, b));
    for (bool accumulate : {false, true}) {
      out = target(count, accumulate, old);
      OpCall call = make_call(OpKind::kMultiply, {out}, {a_tensor, b_tensor});
      call.accumulate = accumulate;
      rig_.run(call);
      expect_out(out, accumulate ? sum(old, product(a, b)) : product(a, b));
    }
  }
}

TEST_P(ElementwiseTest, InPlace) {
  Values a = rig_.random(3000, GetParam());
  Values b = rig_.random(3000, GetParam());
  TensorView b_tensor = rig_.tensor(GetParam(), {3000}, b);
  TensorView a_tensor = rig_.tensor(GetParam(), {3000}, a);
  rig_.run(make_call(OpKind::kAdd, {a_tensor}, {a_tensor, b_tensor}));
  expect_out(a_tensor, sum(a, b));
  a_tensor = rig_.tensor(GetParam(), {3000}, a);
  rig_.run(make_call(OpKind::kMultiply, {a_tensor}, {b_tensor, a_tensor}));
  expect_out(a_tensor, product(a, b));
  Values forward;
  for (double x : b) forward.push_back(reference::gelu(x));
  rig_.run(make_call(OpKind::kGeluForward, {b_tensor}, {b_tensor}));
  expect_out(b_tensor, forward);
}

TEST_P(ElementwiseTest, DropoutDrawsByElement) {
  constexpr float kProbability = 0.3f;
  for (int64_t count : kCounts) {
    RandomKey key{rig_.engine()(), 3, 1, 4, 1};
    Values in = rig_.random(count, GetParam());
    Values other = rig_.random(count, GetParam());
    Values expected = product(in, reference::dropout_factors(key, kProbability, count));
    TensorView in_tensor = rig_.tensor(GetParam(), {count}, in);
    TensorView none;
    for (int form = 0; form < 3; ++form) {
      bool residual = form == 1;
      bool accumulate = form == 2;
      TensorView out = target(count, accumulate, other);
      OpCall call =
          make_call(OpKind::kDropout, {out},
                    {in_tensor, residual ? rig_.tensor(GetParam(), {count}, other) : none});
      call.drop_probability = kProbability;
      call.key = key;
      call.accumulate = accumulate;
      rig_.run(call);
      expect_out(out, form == 0 ? expected : sum(expected, other));
    }
  }
}

TEST_P(ElementwiseTest, DropoutBackwardReplaysTheMask) {
  constexpr int64_t kCount = 50000;
  OpCall call = make_call(OpKind::kDropout, {rig_.poisoned(GetParam(), {kCount})},
                          {rig_.tensor(GetParam(), {kCount}, Values(kCount, 1.0))});
  call.drop_probability = 0.2f;
  call.key = RandomKey{rig_.engine()(), 0, 0, 0, 0};
  rig_.run(call);
  Values first = rig_.read(call.outputs[0]);
  rig_.run(call);
  EXPECT_EQ(rig_.read(call.outputs[0]), first);
  double kept = 0.0;
  for (double value : first) kept += value != 0.0 ? 1.0 : 0.0;
  EXPECT_NEAR(kept, 0.8 * kCount, 5.0 * std::sqrt(kCount * 0.8 * 0.2));
  call.key.iteration = 1;
  rig_.run(call);
  EXPECT_NE(rig_.read(call.outputs[0]), first);
}

TEST_P(ElementwiseTest, NoDropoutIsACopy) {
  Values in = rig_.random(3000, GetParam());
  TensorView out = rig_.poisoned(GetParam(), {3000});
  rig_.run(make_call(OpKind::kDropout, {out}, {rig_.tensor(GetParam(), {3000}, in)}));
  EXPECT_EQ(rig_.read(out), in);
}

TEST_P(ElementwiseTest, AccumulateAddsInFp32) {
  for (int64_t count : kCounts) {
    Values in = rig_.random(count, GetParam());
    Values old = rig_.random(count);
    TensorView out = rig_.tensor(DType::kF32, {count}, old);
    rig_.run(make_call(OpKind::kAccumulate, {out}, {rig_.tensor(GetParam(), {count}, in)}));
    EXPECT_LE(relative_error(rig_.read(out), sum(old, in)), 1e-6);
  }
}

TEST_P(ElementwiseTest, ConvertRoundsAsCoreDoes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (DType in_type : {DType::kF32, DType::kBF16, DType::kF16}) {
    Values in = rig_.random(40001, in_type, 100.0);
    // Ties, the largest half and beyond, subnormal halves and their ties, infinities.
    for (double special : {1.00390625, 1.01171875, 2049.0, 2051.0, 65504.0, 65519.0, 65520.0, 1e30,
                           6.1e-5, 5.9604645e-8, 2.98023224e-8, 8.9e-8, kInfinity, -kInfinity}) {
      in.push_back(special);
    }
    in = rounded(in_type, in);
    int64_t count = static_cast<int64_t>(in.size());
    TensorView out = rig_.poisoned(GetParam(), {count});
    rig_.run(make_call(OpKind::kConvert, {out}, {rig_.tensor(in_type, {count}, in)}));
    EXPECT_EQ(rig_.read(out), rounded(GetParam(), in));
    TensorView nan = rig_.poisoned(in_type, {3});
    TensorView nan_out = rig_.tensor(GetParam(), {3}, {1, 2, 3});
    rig_.run(make_call(OpKind::kConvert, {nan_out}, {nan}));
    for (double value : rig_.read(nan_out)) EXPECT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, ElementwiseTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
