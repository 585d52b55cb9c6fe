#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct LossCase {
  int64_t rows, vocabulary, columns;
};

constexpr LossCase kCases[] = {{1, 257, 16}, {17, 1000, 65}, {300, 257, 32}, {100, 4099, 48}};

class CrossEntropyTest : public testing::TestWithParam<DType> {
 protected:
  void make_inputs(const LossCase& shape) {
    hidden_ = rig_.random(shape.rows * shape.columns, GetParam());
    weight_ = rig_.random(shape.vocabulary * shape.columns, GetParam(), 0.3);
    labels_ = rig_.random_ids(shape.rows, shape.vocabulary);
    for (size_t i = 2; i < labels_.size(); i += 5) labels_[i] = -1;
    hidden_tensor_ = rig_.tensor(GetParam(), {shape.rows, shape.columns}, hidden_);
    weight_tensor_ = rig_.tensor(GetParam(), {shape.vocabulary, shape.columns}, weight_);
    labels_tensor_ = rig_.tensor(labels_);
    Values lse = reference::cross_entropy(hidden_, weight_, labels_).lse;
    lse_tensor_ = rig_.tensor(DType::kF32, {shape.rows}, lse);
  }

  OpTestRig rig_;
  Values hidden_, weight_;
  Ids labels_;
  TensorView hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_;
};

TEST_P(CrossEntropyTest, Forward) {
  for (const LossCase& shape : kCases) {
    make_inputs(shape);
    TensorView loss = rig_.poisoned(DType::kF32, {shape.rows});
    TensorView lse = rig_.poisoned(DType::kF32, {shape.rows});
    rig_.run(make_call(OpKind::kLinearCrossEntropyForward, {loss, lse},
                       {hidden_tensor_, weight_tensor_, labels_tensor_}));
    reference::CrossEntropy expected = reference::cross_entropy(hidden_, weight_, labels_);
    EXPECT_LE(relative_error(rig_.read(loss), expected.loss), 1e-5);
    EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
    for (size_t i = 2; i < labels_.size(); i += 5) EXPECT_EQ(rig_.read(loss)[i], 0.0);
  }
}

TEST_P(CrossEntropyTest, BackwardInput) {
  for (const LossCase& shape : kCases) {
    for (bool accumulate : {false, true}) {
      make_inputs(shape);
      Shape matrix = {shape.rows, shape.columns};
      Values old = rig_.random(matrix.element_count(), GetParam());
      TensorView grad =
          accumulate ? rig_.tensor(GetParam(), matrix, old) : rig_.poisoned(GetParam(), matrix);
      OpCall call = make_call(OpKind::kLinearCrossEntropyBackwardInput, {grad},
                              {hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_});
      call.scale = 0.125f;
      call.accumulate = accumulate;
      rig_.run(call);
      Values expected = reference::cross_entropy_grads(hidden_, weight_, labels_, 0.125).hidden;
      EXPECT_LE(relative_error(rig_.read(grad), accumulate ? sum(old, expected) : expected),
                tolerance(GetParam()));
    }
  }
}

TEST_P(CrossEntropyTest, BackwardWeightAddsToWhatIsThere) {
  for (const LossCase& shape : kCases) {
    make_inputs(shape);
    Shape matrix = {shape.vocabulary, shape.columns};
    Values old = rig_.random(matrix.element_count(), DType::kF32, 0.1);
    TensorView grad = rig_.tensor(DType::kF32, matrix, old);
    OpCall call = make_call(OpKind::kLinearCrossEntropyBackwardWeight, {grad},
                            {hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_});
    call.scale = 0.125f;
    rig_.run(call);
    Values expected = reference::cross_entropy_grads(hidden_, weight_, labels_, 0.125).weight;
    EXPECT_LE(relative_error(rig_.read(grad), sum(old, expected)), 1e-5);
  }
}

constexpr LossTerms kTerms[] = {{0.02f, 0.0f}, {0.0f, 0.3f}, {0.01f, 0.1f}};

TEST_P(CrossEntropyTest, ForwardWithLossTerms) {
  for (const LossCase& shape : kCases) {
    for (const LossTerms& terms : kTerms) {
      make_inputs(shape);
      TensorView loss = rig_.poisoned(DType::kF32, {shape.rows});
      TensorView lse = rig_.poisoned(DType::kF32, {shape.rows});
      OpCall call = make_call(OpKind::kLinearCrossEntropyForward, {loss, lse},
                              {hidden_tensor_, weight_tensor_, labels_tensor_});
      call.loss_terms = terms;
      rig_.run(call);
      reference::CrossEntropy expected = reference::cross_entropy(hidden_, weight_, labels_, terms);
      EXPECT_LE(relative_error(rig_.read(loss), expected.loss), 1e-5);
      EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
      for (size_t i = 2; i < labels_.size(); i += 5) EXPECT_EQ(rig_.read(loss)[i], 0.0);
    }
  }
}

TEST_P(CrossEntropyTest, BackwardWithLossTerms) {
  for (const LossCase& shape : kCases) {
    for (const LossTerms& terms : kTerms) {
      make_inputs(shape);
      TensorView hidden_grad = rig_.poisoned(GetParam(), {shape.rows, shape.columns});
      OpCall call = make_call(OpKind::kLinearCrossEntropyBackwardInput, {hidden_grad},
                              {hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_});
      float scale = terms.z_loss > 0.0f ? 0.125f : -0.125f;
      call.scale = scale;
      call.loss_terms = terms;
      rig_.run(call);
      reference::CrossEntropyGrads expected =
          reference::cross_entropy_grads(hidden_, weight_, labels_, double{scale}, terms);
      EXPECT_LE(relative_error(rig_.read(hidden_grad), expected.hidden), tolerance(GetParam()));
      Shape matrix = {shape.vocabulary, shape.columns};
      Values old = rig_.random(matrix.element_count(), DType::kF32, 0.1);
      call.kind = OpKind::kLinearCrossEntropyBackwardWeight;
      call.outputs[0] = rig_.tensor(DType::kF32, matrix, old);
      rig_.run(call);
      EXPECT_LE(relative_error(rig_.read(call.outputs[0]), sum(old, expected.weight)), 1e-5);
    }
  }
}

TEST_P(CrossEntropyTest, LargeLogitsStayFinite) {
  make_inputs({17, 257, 16});
  for (double& value : hidden_) value *= 300.0;
  hidden_ = rounded(GetParam(), hidden_);
  TensorView loss = rig_.poisoned(DType::kF32, {17});
  TensorView lse = rig_.poisoned(DType::kF32, {17});
  rig_.run(make_call(OpKind::kLinearCrossEntropyForward, {loss, lse},
                     {rig_.tensor(GetParam(), {17, 16}, hidden_), weight_tensor_, labels_tensor_}));
  reference::CrossEntropy expected = reference::cross_entropy(hidden_, weight_, labels_);
  EXPECT_LE(relative_error(rig_.read(loss), expected.loss), 1e-5);
}

TEST_P(CrossEntropyTest, LabelsOutsideTheVocabularyAreDataLoss) {
  for (int32_t bad : {-2, 257, -100}) {
    make_inputs({17, 257, 16});
    labels_[4] = bad;
    labels_tensor_ = rig_.tensor(labels_);
    TensorView row_loss = rig_.poisoned(DType::kF32, {17});
    TensorView lse = rig_.poisoned(DType::kF32, {17});
    Status status = rig_.run_once(make_call(OpKind::kLinearCrossEntropyForward, {row_loss, lse},
                                            {hidden_tensor_, weight_tensor_, labels_tensor_}));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("labels[4] is " + std::to_string(bad)), std::string::npos)
        << status.to_string();
    EXPECT_EQ(
        rig_.run_once(make_call(OpKind::kLinearCrossEntropyBackwardInput,
                                {rig_.poisoned(GetParam(), {17, 16})},
                                {hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_}))
            .code(),
        StatusCode::kDataLoss);
    EXPECT_EQ(
        rig_.run_once(make_call(OpKind::kLinearCrossEntropyBackwardWeight,
                                {rig_.poisoned(DType::kF32, {257, 16})},
                                {hidden_tensor_, weight_tensor_, labels_tensor_, lse_tensor_}))
            .code(),
        StatusCode::kDataLoss);
  }
}

TEST_P(CrossEntropyTest, SquaredError) {
  for (const LossCase& shape : kCases) {
    Shape matrix = {shape.rows, shape.columns};
    Values prediction = rig_.random(matrix.element_count(), GetParam());
    Values target = rig_.random(matrix.element_count());
    Values old = rig_.random(matrix.element_count(), GetParam());
    TensorView prediction_tensor = rig_.tensor(GetParam(), matrix, prediction);
    TensorView target_tensor = rig_.tensor(DType::kF32, matrix, target);
    TensorView loss = rig_.poisoned(DType::kF32, {shape.rows});
    rig_.run(make_call(OpKind::kSquaredErrorForward, {loss}, {prediction_tensor, target_tensor}));
    EXPECT_LE(relative_error(rig_.read(loss),
                             reference::squared_error(prediction, target, shape.columns)),
              1e-5);
    for (bool accumulate : {false, true}) {
      TensorView grad =
          accumulate ? rig_.tensor(GetParam(), matrix, old) : rig_.poisoned(GetParam(), matrix);
      OpCall call =
          make_call(OpKind::kSquaredErrorBackward, {grad}, {prediction_tensor, target_tensor});
      call.scale = 3.0f;
      call.accumulate = accumulate;
      rig_.run(call);
      Values expected = reference::squared_error_grad(prediction, target, shape.columns, 3.0);
      EXPECT_LE(relative_error(rig_.read(grad), accumulate ? sum(old, expected) : expected),
                tolerance(GetParam()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, CrossEntropyTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
