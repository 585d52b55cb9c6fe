#include <algorithm>
#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct EmbeddingCase {
  int64_t batch, sequence, vocabulary, columns;
};

constexpr EmbeddingCase kCases[] = {{1, 1, 257, 7}, {3, 17, 1000, 65}, {2, 100, 4099, 192}};

class EmbeddingTest : public testing::TestWithParam<DType> {
 protected:
  OpTestRig rig_;
};

TEST_P(EmbeddingTest, ForwardAddsTokenAndPosition) {
  for (const EmbeddingCase& shape : kCases) {
    for (bool positioned : {true, false}) {
      int64_t rows = shape.batch * shape.sequence;
      Ids ids = rig_.random_ids(rows, shape.vocabulary);
      Values table = rig_.random(shape.vocabulary * shape.columns, GetParam());
      Values positions = rig_.random((shape.sequence + 3) * shape.columns, GetParam());
      TensorView out = rig_.poisoned(GetParam(), {rows, shape.columns});
      TensorView none;
      OpCall call = make_call(
          OpKind::kEmbeddingForward, {out},
          {rig_.tensor(ids), rig_.tensor(GetParam(), {shape.vocabulary, shape.columns}, table),
           positioned ? rig_.tensor(GetParam(), {shape.sequence + 3, shape.columns}, positions)
                      : none});
      call.sequence = shape.sequence;
      rig_.run(call);
      Values expected = reference::embedding(ids, table, positioned ? positions : Values(),
                                             shape.columns, shape.sequence);
      EXPECT_LE(relative_error(rig_.read(out), expected), tolerance(GetParam()));
    }
  }
}

TEST_P(EmbeddingTest, BackwardAddsToWhatIsThere) {
  for (const EmbeddingCase& shape : kCases) {
    int64_t rows = shape.batch * shape.sequence;
    // Few different ids, so that many rows meet in one.
    Ids ids = rig_.random_ids(rows, std::min<int64_t>(shape.vocabulary, 11));
    Values upper = rig_.random(rows * shape.columns, GetParam());
    Values table = rig_.random(shape.vocabulary * shape.columns);
    Values positions = rig_.random((shape.sequence + 3) * shape.columns);
    TensorView table_grad = rig_.tensor(DType::kF32, {shape.vocabulary, shape.columns}, table);
    TensorView positions_grad =
        rig_.tensor(DType::kF32, {shape.sequence + 3, shape.columns}, positions);
    OpCall call =
        make_call(OpKind::kEmbeddingBackward, {table_grad, positions_grad},
                  {rig_.tensor(GetParam(), {rows, shape.columns}, upper), rig_.tensor(ids)});
    call.sequence = shape.sequence;
    rig_.run(call);
    Values table_expected =
        reference::embedding_table_grad(upper, ids, shape.vocabulary, shape.columns);
    Values positions_expected = reference::embedding_positions_grad(upper, shape.sequence + 3,
                                                                    shape.columns, shape.sequence);
    EXPECT_LE(relative_error(rig_.read(table_grad), sum(table, table_expected)), 1e-5);
    EXPECT_LE(relative_error(rig_.read(positions_grad), sum(positions, positions_expected)), 1e-5);
  }
}

TEST_P(EmbeddingTest, EitherGradientMayBeNone) {
  Ids ids = {1, 2};
  TensorView upper = rig_.tensor(GetParam(), {2, 2}, {1, 2, 3, 4});
  TensorView grad = rig_.tensor(DType::kF32, {3, 2}, Values(6, 0.0));
  OpCall call = make_call(OpKind::kEmbeddingBackward, {grad}, {upper, rig_.tensor(ids)});
  call.sequence = 2;
  rig_.run(call);
  EXPECT_EQ(rig_.read(grad), (Values{0, 0, 1, 2, 3, 4}));
  grad = rig_.tensor(DType::kF32, {3, 2}, Values(6, 0.0));
  call.outputs = {TensorView(), grad, TensorView()};
  rig_.run(call);
  EXPECT_EQ(rig_.read(grad), (Values{1, 2, 3, 4, 0, 0}));
}

TEST_P(EmbeddingTest, IdsOutsideTheVocabularyAreDataLoss) {
  for (int32_t bad : {-1, 5, 1 << 30}) {
    Ids ids = {0, 4, bad, 1};
    TensorView table = rig_.tensor(GetParam(), {5, 3}, rig_.random(15, GetParam()));
    OpCall forward = make_call(OpKind::kEmbeddingForward, {rig_.poisoned(GetParam(), {4, 3})},
                               {rig_.tensor(ids), table});
    forward.sequence = 4;
    Status status = rig_.run_once(forward);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("ids[2] is " + std::to_string(bad)), std::string::npos)
        << status.to_string();
    TensorView upper = rig_.tensor(GetParam(), {4, 3}, rig_.random(12, GetParam()));
    TensorView grad = rig_.tensor(DType::kF32, {5, 3}, Values(15, 0.0));
    OpCall backward = make_call(OpKind::kEmbeddingBackward, {grad}, {upper, rig_.tensor(ids)});
    backward.sequence = 4;
    EXPECT_EQ(rig_.run_once(backward).code(), StatusCode::kDataLoss);
    EXPECT_EQ(rig_.read(grad), Values(15, 0.0));
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, EmbeddingTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
