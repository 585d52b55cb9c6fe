#include "tests/backends/op_reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "tests/backends/op_reference_experts.h"
#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

double dot(const Values& left, const Values& right) {
  double total = 0.0;
  for (size_t i = 0; i < left.size(); ++i) total += left[i] * right[i];
  return total;
}

/// Gradients the reference states agree with central differences of its forward pass.
class OpReferenceTest : public testing::Test {
 protected:
  /// `loss` is of `input`, whose gradient is said to be `grad`.
  static void expect_gradient(const Values& input, const Values& grad,
                              const std::function<double(const Values&)>& loss) {
    constexpr double kStep = 1e-5;
    ASSERT_EQ(grad.size(), input.size());
    Values differences;
    for (size_t i = 0; i < input.size(); ++i) {
      Values moved = input;
      moved[i] = input[i] + kStep;
      double above = loss(moved);
      moved[i] = input[i] - kStep;
      differences.push_back((above - loss(moved)) / (2.0 * kStep));
    }
    EXPECT_LE(relative_error(grad, differences), 1e-7);
  }

  OpTestRig rig_;
};

TEST_F(OpReferenceTest, EmbeddingGradients) {
  Ids ids = {3, 0, 3, 1, 3, 2};
  Values table = rig_.random(4 * 5);
  Values positions = rig_.random(4 * 5);
  Values upper = rig_.random(6 * 5);
  expect_gradient(table, reference::embedding_table_grad(upper, ids, 4, 5), [&](const Values& x) {
    return dot(upper, reference::embedding(ids, x, positions, 5, 3));
  });
  expect_gradient(
      positions, reference::embedding_positions_grad(upper, 4, 5, 3),
      [&](const Values& x) { return dot(upper, reference::embedding(ids, table, x, 5, 3)); });
}

TEST_F(OpReferenceTest, LayerNormGradients) {
  Values in = rig_.random(3 * 7);
  Values weight = rig_.random(7);
  Values bias = rig_.random(7);
  Values upper = rig_.random(3 * 7);
  reference::LayerNormGrads grads = reference::layer_norm_grads(upper, in, weight, 1e-5);
  auto loss = [&](const Values& x, const Values& w, const Values& b) {
    return dot(upper, reference::layer_norm(x, w, b, 1e-5).out);
  };
  expect_gradient(in, grads.in, [&](const Values& x) { return loss(x, weight, bias); });
  expect_gradient(weight, grads.weight, [&](const Values& x) { return loss(in, x, bias); });
  expect_gradient(bias, grads.bias, [&](const Values& x) { return loss(in, weight, x); });
}

TEST_F(OpReferenceTest, MatmulAndItsGradients) {
  // By hand: [1 2; 3 4] * [5 6; 7 8].
  EXPECT_EQ(reference::matmul({1, 2, 3, 4}, {5, 6, 7, 8}, 2, 2, 2, false, false),
            (Values{19, 22, 43, 50}));
  EXPECT_EQ(reference::matmul({1, 3, 2, 4}, {5, 7, 6, 8}, 2, 2, 2, true, true),
            (Values{19, 22, 43, 50}));
  Values a = rig_.random(3 * 4);
  Values b = rig_.random(4 * 5);
  Values upper = rig_.random(3 * 5);
  expect_gradient(a, reference::matmul(upper, b, 3, 4, 5, false, true), [&](const Values& x) {
    return dot(upper, reference::matmul(x, b, 3, 5, 4, false, false));
  });
  expect_gradient(b, reference::matmul(a, upper, 4, 5, 3, true, false), [&](const Values& x) {
    return dot(upper, reference::matmul(a, x, 3, 5, 4, false, false));
  });
  Values bias = rig_.random(5);
  expect_gradient(bias, reference::column_sum(upper, 5), [&](const Values& x) {
    double total = 0.0;
    for (size_t i = 0; i < upper.size(); ++i) total += upper[i] * x[i % 5];
    return total;
  });
}

TEST_F(OpReferenceTest, GeluSlope) {
  Values in = rig_.random(20, DType::kF32, 2.0);
  Values slopes;
  for (double x : in) slopes.push_back(reference::gelu_slope(x));
  expect_gradient(in, slopes, [](const Values& x) {
    double total = 0.0;
    for (double value : x) total += reference::gelu(value);
    return total;
  });
}

TEST_F(OpReferenceTest, AttentionGradients) {
  for (bool dropped : {false, true}) {
    reference::Attention sizes{5, 4, 2, 3, 0.6};
    int64_t rows = 2 * sizes.sequence;
    Values qkv = rig_.random(rows * sizes.qkv_columns());
    Values upper = rig_.random(rows * sizes.heads * sizes.head_dim);
    Values keep;
    if (dropped) {
      keep = reference::dropout_factors({7, 1, 2, 3, 4}, 0.3f, rows * sizes.heads * sizes.sequence);
    }
    expect_gradient(qkv, reference::attention_grad(sizes, upper, qkv, keep), [&](const Values& x) {
      return dot(upper, reference::attention(sizes, x, keep).out);
    });
  }
}

TEST_F(OpReferenceTest, GradientsOfMaskedAttentionWithSinks) {
  for (bool dropped : {false, true}) {
    reference::Attention sizes{
        6, 4, 2, 3, 0.6, 3, rig_.random(4), {0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 0, 0}};
    int64_t rows = 2 * sizes.sequence;
    Values qkv = rig_.random(rows * sizes.qkv_columns());
    Values upper = rig_.random(rows * sizes.heads * sizes.head_dim);
    Values keep;
    if (dropped) {
      keep = reference::dropout_factors({7, 1, 2, 3, 4}, 0.3f, rows * sizes.heads * sizes.sequence);
    }
    expect_gradient(qkv, reference::attention_grad(sizes, upper, qkv, keep), [&](const Values& x) {
      return dot(upper, reference::attention(sizes, x, keep).out);
    });
    expect_gradient(sizes.sinks, reference::attention_sinks_grad(sizes, upper, qkv, keep),
                    [&](const Values& x) {
                      reference::Attention moved = sizes;
                      moved.sinks = x;
                      return dot(upper, reference::attention(moved, qkv, keep).out);
                    });
  }
}

/// By hand: two equal scores and a sink that weighs as much as both leave a quarter each.
TEST_F(OpReferenceTest, SinksTakeTheirShare) {
  reference::Attention sizes{3, 1, 1, 1, 1.0, 2, {std::log(2.0)}};
  Values out = reference::attention(sizes, {0, 1, 100, 0, 1, 4, 0, 1, 8}, {}).out;
  EXPECT_NEAR(out[0], 100.0 / 3.0, 1e-12);
  EXPECT_NEAR(out[1], (100.0 + 4.0) / 4.0, 1e-12);
  EXPECT_NEAR(out[2], (4.0 + 8.0) / 4.0, 1e-12);
}

TEST_F(OpReferenceTest, AttentionOfOneTokenIsItsValue) {
  reference::Attention sizes{1, 2, 1, 3, 1.0};
  Values qkv = rig_.random(sizes.qkv_columns());
  Values out = reference::attention(sizes, qkv, {}).out;
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], qkv[9 + i % 3], 1e-12);
}

TEST_F(OpReferenceTest, CrossEntropyGradients) {
  Values hidden = rig_.random(4 * 5);
  Values weight = rig_.random(6 * 5);
  Ids labels = {2, -1, 5, 0};
  for (LossTerms terms :
       {LossTerms{}, LossTerms{0.3f, 0.0f}, LossTerms{0.0f, 0.25f}, LossTerms{0.3f, 0.25f}}) {
    auto loss = [&](const Values& h, const Values& w) {
      Values losses = reference::cross_entropy(h, w, labels, terms).loss;
      double total = 0.0;
      for (double value : losses) total += value;
      return 0.7 * total;
    };
    reference::CrossEntropyGrads grads =
        reference::cross_entropy_grads(hidden, weight, labels, 0.7, terms);
    expect_gradient(hidden, grads.hidden, [&](const Values& x) { return loss(x, weight); });
    expect_gradient(weight, grads.weight, [&](const Values& x) { return loss(hidden, x); });
  }
}

TEST_F(OpReferenceTest, SquaredErrorGradient) {
  Values prediction = rig_.random(3 * 4);
  Values target = rig_.random(3 * 4);
  expect_gradient(prediction, reference::squared_error_grad(prediction, target, 4, 0.7),
                  [&](const Values& x) {
                    Values losses = reference::squared_error(x, target, 4);
                    return 0.7 * (losses[0] + losses[1] + losses[2]);
                  });
}

TEST_F(OpReferenceTest, ExpertGradients) {
  constexpr int64_t kExperts = 5, kCount = 2, kIn = 3, kOut = 4, kRows = 6;
  Values in = rig_.random(kRows * kIn), logits = rig_.random(kRows * kExperts);
  Values matrices = rig_.random(kExperts * kIn * kOut), upper = rig_.random(kRows * kOut);
  for (bool over_chosen : {false, true}) {
    reference::Routing routing = reference::route(logits, kExperts, kCount, over_chosen);
    reference::Grouping groups = reference::group(routing.choices, kExperts);
    auto loss = [&](const Values& x, const Values& l, const Values& w) {
      Values weights = reference::route(l, kExperts, kCount, over_chosen).weights;
      Values rows = reference::gather(x, groups.order, {}, kIn, kCount);
      Values products = reference::grouped_matmul(rows, w, {}, groups.experts, kIn, kOut, false);
      Values out = reference::combine(products, groups.places, weights, {}, kOut, kCount);
      double total = 0.0;
      for (size_t i = 0; i < out.size(); ++i) total += out[i] * upper[i];
      return total;
    };
    Values rows = reference::gather(in, groups.order, {}, kIn, kCount);
    Values products =
        reference::grouped_matmul(rows, matrices, {}, groups.experts, kIn, kOut, false);
    Values plain = reference::gather(upper, groups.order, {}, kOut, kCount);
    Values weighted = reference::gather(upper, groups.order, routing.weights, kOut, kCount);
    Values weights_grad(routing.weights.size());
    for (size_t s = 0; s < weights_grad.size(); ++s) {
      auto first = static_cast<size_t>(groups.places[s]) * kOut;
      for (size_t o = 0; o < kOut; ++o) weights_grad[s] += products[first + o] * plain[first + o];
    }
    expect_gradient(
        logits,
        reference::route_grad(weights_grad, logits, routing.choices, kExperts, kCount, over_chosen),
        [&](const Values& l) { return loss(in, l, matrices); });
    expect_gradient(matrices,
                    reference::grouped_outer(rows, weighted, groups.experts, kExperts, kIn, kOut),
                    [&](const Values& w) { return loss(in, logits, w); });
    Values rows_grad =
        reference::grouped_matmul(weighted, matrices, {}, groups.experts, kOut, kIn, true);
    expect_gradient(in, reference::combine(rows_grad, groups.places, {}, {}, kIn, kCount),
                    [&](const Values& x) { return loss(x, logits, matrices); });
  }
}

TEST_F(OpReferenceTest, BalanceOfExperts) {
  constexpr int64_t kExperts = 5, kCount = 2, kSequence = 4;
  Values logits = rig_.random(3 * kSequence * kExperts);
  // A whole sequence, one with padding and a row without a target of its own, and one of nothing.
  Ids labels = {1, 2, 3, 4, 5, -1, 6, -1, -1, -1, -1, -1};
  Ids choices = reference::route(logits, kExperts, kCount, false).choices;
  auto losses = [&](const Values& l) {
    return reference::balance(l, choices, labels, kExperts, kCount, kSequence);
  };
  expect_gradient(logits,
                  reference::balance_grad(logits, choices, labels, kExperts, kCount, kSequence),
                  [&](const Values& l) {
                    double total = 0;
                    for (double loss : losses(l)) total += loss;
                    return total;
                  });
  Values found = losses(logits);
  for (size_t row = 7; row < found.size(); ++row) EXPECT_EQ(found[row], 0);
  // Of even shares it is the number of choices, whatever they are.
  Values even = losses(Values(logits.size(), 0.5));
  EXPECT_NEAR(even[0] + even[1] + even[2] + even[3], 4 * kCount, 1e-12);
  EXPECT_NEAR(even[4] + even[5] + even[6], 2 * kCount, 1e-12);
}

TEST_F(OpReferenceTest, DropoutKeepsTheStatedShare) {
  constexpr int64_t kCount = 100000;
  Values factors = reference::dropout_factors({rig_.engine()(), 1, 2, 3, 4}, 0.25f, kCount);
  double kept = static_cast<double>(
      std::count_if(factors.begin(), factors.end(), [](double factor) { return factor != 0.0; }));
  // Five standard deviations of a binomial.
  EXPECT_NEAR(kept, 0.75 * kCount, 5.0 * std::sqrt(kCount * 0.75 * 0.25));
}

}  // namespace
}  // namespace stagecoach
