#include <gtest/gtest.h>
#include <limits>

#include "tests/backends/op_reference_experts.h"
#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct ExpertCase {
  int64_t rows, experts, count, in_columns, out_columns;
};
/// One of each; experts with many rows and with none; products of more than one tile.
constexpr ExpertCase kCases[] = {{1, 1, 1, 1, 1},
                                 {3, 8, 2, 17, 5},
                                 {40, 4, 3, 33, 20},
                                 {300, 3, 1, 65, 270},
                                 {150, 64, 8, 24, 40}};

class ExpertOpsTest : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  TensorView tensor(const Shape& shape, const Values& values) {
    return rig_.tensor(dtype(), shape, values);
  }
  TensorView ids(const Shape& shape, const Ids& values) {
    TensorView view = rig_.tensor(values);
    view.shape = shape;
    return view;
  }
  Ids read_ids(const TensorView& view) {
    Values values = rig_.read(view);
    return {values.begin(), values.end()};
  }
  void expect_near(const TensorView& actual, const Values& expected) {
    EXPECT_LE(relative_error(rig_.read(actual), expected), tolerance(actual.dtype));
  }
  /// Choices of which the last expert of several gets none.
  Ids choices(const ExpertCase& size) {
    Values logits = rig_.random(size.rows * size.experts);
    auto width = static_cast<size_t>(size.experts);
    for (size_t i = width - 1; size.experts > size.count && i < logits.size(); i += width) {
      logits[i] = -9;
    }
    return reference::route(logits, size.experts, size.count, false).choices;
  }

  OpTestRig rig_;
};

TEST_P(ExpertOpsTest, Routing) {
  for (const ExpertCase& size : kCases) {
    for (bool over_chosen : {false, true}) {
      Shape wide = {size.rows, size.experts}, narrow = {size.rows, size.count};
      Values logits = rig_.random(wide.element_count(), dtype(), 2.0);
      TensorView choices = rig_.poisoned(DType::kI32, narrow);
      TensorView weights = rig_.poisoned(DType::kF32, narrow);
      TensorView logits_tensor = tensor(wide, logits);
      OpCall forward = make_call(OpKind::kRouteForward, {choices, weights}, {logits_tensor});
      forward.over_chosen = over_chosen;
      rig_.run(forward);
      reference::Routing expected = reference::route(logits, size.experts, size.count, over_chosen);
      EXPECT_EQ(read_ids(choices), expected.choices);
      expect_near(weights, expected.weights);

      Values upper = rig_.random(narrow.element_count());
      TensorView grad = rig_.poisoned(dtype(), wide);
      OpCall backward =
          make_call(OpKind::kRouteBackward, {grad},
                    {rig_.tensor(DType::kF32, narrow, upper), logits_tensor, choices, weights});
      backward.over_chosen = over_chosen;
      rig_.run(backward);
      // One expert's share is 1 whatever its logit; what is left is rounding.
      if (size.experts > 1 && (!over_chosen || size.count > 1)) {
        expect_near(grad, reference::route_grad(upper, logits, expected.choices, size.experts,
                                                size.count, over_chosen));
      }
    }
  }
}

TEST_P(ExpertOpsTest, EqualLogitsGoToTheLowestExpertAndNanToNobodyBeforeNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  Values logits = {1,         2,    2,         1,      2,    /**/ -0.0, 0,    -1,
                   0,         -2,   /**/ kNan, kLeast, kNan, 5,         kNan,
                   /**/ kNan, kNan, kNan,      kNan,   kNan};
  TensorView choices = rig_.poisoned(DType::kI32, {4, 3});
  rig_.run(make_call(OpKind::kRouteForward, {choices, rig_.poisoned(DType::kF32, {4, 3})},
                     {tensor({4, 5}, logits)}));
  EXPECT_EQ(read_ids(choices), Ids({1, 2, 4, 0, 1, 3, 3, 1, 0, 0, 1, 2}));
}

TEST_P(ExpertOpsTest, BalanceOfSequences) {
  for (const ExpertCase& size : kCases) {
    for (int64_t sequences : {int64_t{1}, int64_t{2}, int64_t{3}}) {
      if (size.rows % sequences != 0) continue;
      int64_t sequence = size.rows / sequences;
      Values logits = rig_.random(size.rows * size.experts, dtype(), 2.0);
      Ids chosen = reference::route(logits, size.experts, size.count, false).choices;
      reference::Grouping groups = reference::group(chosen, size.experts);
      // Prompts, and of the last of several sequences no target at all.
      Ids labels(static_cast<size_t>(size.rows));
      for (int64_t row = 0; row < size.rows; ++row) {
        bool is_ignored = row % 3 == 1 || (sequences > 1 && row >= size.rows - sequence);
        labels[static_cast<size_t>(row)] = is_ignored ? -1 : 7;
      }
      Shape wide = {size.rows, size.experts};
      TensorView logits_tensor = tensor(wide, logits);
      TensorView order = ids({size.rows * size.count}, groups.order);
      TensorView offsets = ids({size.experts + 1}, groups.offsets);
      TensorView labels_tensor = rig_.tensor(labels);
      TensorView losses = rig_.poisoned(DType::kF32, {size.rows});
      OpCall forward = make_call(OpKind::kBalanceForward, {losses},
                                 {logits_tensor, order, offsets, labels_tensor});
      forward.sequence = sequence;
      rig_.run(forward);
      expect_near(losses,
                  reference::balance(logits, chosen, labels, size.experts, size.count, sequence));

      Values old = rig_.random(wide.element_count(), dtype());
      TensorView grad = tensor(wide, old);
      OpCall backward = make_call(OpKind::kBalanceBackward, {grad},
                                  {logits_tensor, order, offsets, labels_tensor});
      backward.sequence = sequence;
      backward.scale = 0.75f;
      rig_.run(backward);
      Values expected =
          reference::balance_grad(logits, chosen, labels, size.experts, size.count, sequence);
      for (double& value : expected) value *= 0.75;
      expect_near(grad, sum(old, expected));
    }
  }
}

/// A sequence's numbers are the same bits whatever lies beside it: micro-batches change nothing.
TEST_P(ExpertOpsTest, BalanceOfASequenceDoesNotDependOnOthers) {
  constexpr int64_t kExperts = 8, kCount = 2, kSequence = 21;
  Values logits = rig_.random(2 * kSequence * kExperts, dtype(), 2.0);
  Ids labels(2 * kSequence, 3);
  labels[kSequence - 1] = labels.back() = -1;
  auto run = [&](int64_t first, int64_t count) {
    Values part(logits.begin() + first * kExperts, logits.begin() + (first + count) * kExperts);
    Ids chosen = reference::route(part, kExperts, kCount, false).choices;
    reference::Grouping groups = reference::group(chosen, kExperts);
    TensorView grad = tensor({count, kExperts}, Values(part.size()));
    OpCall call =
        make_call(OpKind::kBalanceBackward, {grad},
                  {tensor({count, kExperts}, part), ids({count * kCount}, groups.order),
                   ids({kExperts + 1}, groups.offsets),
                   rig_.tensor(Ids(labels.begin() + first, labels.begin() + first + count))});
    call.sequence = kSequence;
    rig_.run(call);
    return rig_.read(grad);
  };
  Values both = run(0, 2 * kSequence), second = run(kSequence, kSequence);
  Values tail(both.begin() + kSequence * kExperts, both.end());
  EXPECT_EQ(tail, second);
  EXPECT_NE(tail, Values(tail.size()));
}

TEST_P(ExpertOpsTest, GroupingGatheringAndCombining) {
  for (const ExpertCase& size : kCases) {
    Shape narrow = {size.rows, size.count};
    int64_t places = narrow.element_count();
    Ids chosen = choices(size);
    reference::Grouping expected = reference::group(chosen, size.experts);
    TensorView order = rig_.poisoned(DType::kI32, {places});
    TensorView place_tensor = rig_.poisoned(DType::kI32, narrow);
    TensorView offsets = rig_.poisoned(DType::kI32, {size.experts + 1});
    rig_.run(make_call(OpKind::kGroupRows, {order, place_tensor, offsets}, {ids(narrow, chosen)}));
    EXPECT_EQ(read_ids(order), expected.order);
    EXPECT_EQ(read_ids(place_tensor), expected.places);
    EXPECT_EQ(read_ids(offsets), expected.offsets);

    int64_t columns = size.in_columns;
    Values in = rig_.random(size.rows * columns, dtype());
    Values grouped = rig_.random(places * columns, dtype());
    for (bool weighted : {false, true}) {
      Values weights = weighted ? rig_.random(places) : Values();
      TensorView weights_tensor =
          weighted ? rig_.tensor(DType::kF32, narrow, weights) : TensorView();
      TensorView gathered = rig_.poisoned(dtype(), {places, columns});
      rig_.run(make_call(OpKind::kGatherRows, {gathered},
                         {tensor({size.rows, columns}, in), order, weights_tensor}));
      expect_near(gathered, reference::gather(in, expected.order, weights, columns, size.count));
      for (bool accumulate : {false, true}) {
        // The one adds to a gradient, the other to a residual.
        Values old = rig_.random(size.rows * columns, dtype());
        TensorView old_tensor = tensor({size.rows, columns}, old);
        TensorView out = accumulate ? old_tensor : rig_.poisoned(dtype(), {size.rows, columns});
        OpCall combine = make_call(OpKind::kCombineRows, {out},
                                   {tensor({places, columns}, grouped), place_tensor,
                                    weights_tensor, accumulate ? TensorView() : old_tensor});
        combine.accumulate = accumulate;
        rig_.run(combine);
        expect_near(
            out, reference::combine(grouped, expected.places, weights, old, columns, size.count));
      }
    }
  }
}

TEST_P(ExpertOpsTest, GroupedProductsInBothOrientations) {
  for (const ExpertCase& size : kCases) {
    reference::Grouping groups = reference::group(choices(size), size.experts);
    int64_t places = size.rows * size.count;
    TensorView offsets = ids({size.experts + 1}, groups.offsets);
    Values a = rig_.random(places * size.in_columns, dtype());
    Values b = rig_.random(size.experts * size.in_columns * size.out_columns, dtype());
    for (bool transpose : {false, true}) {
      for (bool biased : {false, true}) {
        Values bias = biased ? rig_.random(size.experts * size.out_columns, dtype()) : Values();
        Shape shape = {size.experts, size.in_columns, size.out_columns};
        if (transpose) std::swap(shape.dims[1], shape.dims[2]);
        TensorView out = rig_.poisoned(dtype(), {places, size.out_columns});
        TensorView bias_tensor =
            biased ? tensor({size.experts, size.out_columns}, bias) : TensorView();
        OpCall call = make_call(
            OpKind::kGroupedMatmul, {out},
            {tensor({places, size.in_columns}, a), tensor(shape, b), offsets, bias_tensor});
        call.transpose_b = transpose;
        rig_.run(call);
        expect_near(out, reference::grouped_matmul(a, b, bias, groups.experts, size.in_columns,
                                                   size.out_columns, transpose));
      }
    }
  }
}

TEST_P(ExpertOpsTest, GradientsOfWeightsAddToWhatIsThereAndLeaveExpertsWithoutRowsAlone) {
  for (const ExpertCase& size : kCases) {
    reference::Grouping groups = reference::group(choices(size), size.experts);
    int64_t places = size.rows * size.count;
    int64_t matrix = size.in_columns * size.out_columns;
    TensorView offsets = ids({size.experts + 1}, groups.offsets);
    Values a = rig_.random(places * size.in_columns, dtype());
    Values b = rig_.random(places * size.out_columns, dtype());
    Values old = rig_.random(size.experts * matrix);
    Values old_bias = rig_.random(size.experts * size.out_columns);
    TensorView b_tensor = tensor({places, size.out_columns}, b);
    TensorView grad =
        rig_.tensor(DType::kF32, {size.experts, size.in_columns, size.out_columns}, old);
    TensorView bias_grad = rig_.tensor(DType::kF32, {size.experts, size.out_columns}, old_bias);
    rig_.run(make_call(OpKind::kGroupedMatmulWeight, {grad},
                       {tensor({places, size.in_columns}, a), b_tensor, offsets}));
    rig_.run(make_call(OpKind::kGroupedColumnSum, {bias_grad}, {b_tensor, offsets}));
    Values outer = reference::grouped_outer(a, b, groups.experts, size.experts, size.in_columns,
                                            size.out_columns);
    Values ones(static_cast<size_t>(places), 1.0);
    expect_near(grad, sum(old, outer));
    expect_near(bias_grad,
                sum(old_bias, reference::grouped_outer(ones, b, groups.experts, size.experts, 1,
                                                       size.out_columns)));
    if (size.experts <= size.count) continue;
    ASSERT_EQ(groups.offsets.end()[-1], groups.offsets.end()[-2]);
    Values after = rig_.read(grad);
    EXPECT_TRUE(std::equal(old.end() - matrix, old.end(), after.end() - matrix));
  }
}

/// out = sum over k of w (in W + bias), from in and its weights.
TEST_P(ExpertOpsTest, BackwardOfAWeightedSum) {
  for (const ExpertCase& size : kCases) {
    Shape narrow = {size.rows, size.count};
    int64_t places = narrow.element_count();
    Ids chosen = choices(size);
    reference::Grouping groups = reference::group(chosen, size.experts);
    Values in = rig_.random(places * size.in_columns, dtype());
    Values product_grad = rig_.random(places * size.in_columns, dtype());
    Values weights = rig_.random(places);
    Values out_grad = rig_.random(size.rows * size.out_columns, dtype());
    for (bool biased : {false, true}) {
      Values bias = rig_.random(size.experts * size.out_columns, dtype());
      for (bool in_place : {false, true}) {
        TensorView product_tensor = tensor({places, size.in_columns}, product_grad);
        TensorView in_grad =
            in_place ? product_tensor : rig_.poisoned(dtype(), {places, size.in_columns});
        TensorView weights_grad = rig_.poisoned(DType::kF32, narrow);
        TensorView none;
        rig_.run(make_call(OpKind::kCombineBackward, {in_grad, weights_grad},
                           {product_tensor, tensor({places, size.in_columns}, in),
                            ids(narrow, groups.places), rig_.tensor(DType::kF32, narrow, weights),
                            biased ? tensor({size.rows, size.out_columns}, out_grad) : none,
                            biased ? tensor({size.experts, size.out_columns}, bias) : none,
                            biased ? ids(narrow, chosen) : none}));
        Values expected_in(product_grad.size()), expected_weights;
        for (size_t s = 0; s < chosen.size(); ++s) {
          double dot = 0;
          for (int64_t c = 0; c < size.in_columns; ++c) {
            auto at = static_cast<size_t>(groups.places[s] * size.in_columns + c);
            dot += in[at] * product_grad[at];
            expected_in[at] = weights[s] * product_grad[at];
          }
          auto row = static_cast<int64_t>(s) / size.count;
          for (int64_t o = 0; biased && o < size.out_columns; ++o) {
            dot += bias[static_cast<size_t>(chosen[s] * size.out_columns + o)] *
                   out_grad[static_cast<size_t>(row * size.out_columns + o)];
          }
          expected_weights.push_back(dot);
        }
        expect_near(in_grad, expected_in);
        expect_near(weights_grad, expected_weights);
      }
    }
  }
}

TEST_P(ExpertOpsTest, AChoiceThatIsNoExpertIsDataLoss) {
  for (int32_t wrong : {-1, 4}) {
    OpCall call = make_call(OpKind::kGroupRows,
                            {rig_.poisoned(DType::kI32, {4}), rig_.poisoned(DType::kI32, {2, 2}),
                             rig_.poisoned(DType::kI32, {5})},
                            {ids({2, 2}, {0, 3, wrong, 1})});
    EXPECT_EQ(rig_.run_once(call).code(), StatusCode::kDataLoss);
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, ExpertOpsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
