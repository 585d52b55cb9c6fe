#include <functional>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_ops.h"
#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

/// Each method of Ops, on a stream, leaves the bits that its call, filled in as ops.h documents,
/// leaves when run directly.
class OpsStreamTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 6, kColumns = 8, kVocabulary = 9, kSequence = 3, kHeads = 2;

  void SetUp() override {
    auto stream = rig_.device().create_stream({"compute"});
    ASSERT_TRUE(stream.is_ok()) << stream.status().to_string();
    stream_ = std::move(*stream);
  }
  void TearDown() override { EXPECT_TRUE(stream_->synchronize().is_ok()); }

  TensorView f32(const Shape& shape) {
    return rig_.tensor(DType::kF32, shape, rig_.random(shape.element_count()));
  }
  TensorView rows() { return f32({kRows, kColumns}); }
  TensorView weight() { return f32({kVocabulary, kColumns}); }
  TensorView columns() { return f32({kColumns}); }
  TensorView per_row() { return f32({kRows}); }
  TensorView ids() { return rig_.tensor(rig_.random_ids(kRows, kVocabulary)); }

  /// `call` is expected of the method that `submit` calls, which must write the same operands.
  void expect_same(OpCall call, const std::function<Result<Timepoint>(Ops&, Stream&)>& submit) {
    auto snapshot = [&] {
      std::vector<std::vector<std::byte>> contents;
      for (const TensorView& output : call.outputs) {
        contents.push_back(output.is_none() ? std::vector<std::byte>() : rig_.bytes(output));
      }
      return contents;
    };
    auto before = snapshot();
    Result<Timepoint> timepoint = submit(rig_.device().ops(), *stream_);
    ASSERT_TRUE(timepoint.is_ok()) << timepoint.status().to_string();
    ASSERT_TRUE(stream_->synchronize().is_ok());
    auto through_stream = snapshot();
    for (size_t i = 0; i < before.size(); ++i) restore(call.outputs[i], before[i]);
    Status status = rig_.run_once(call);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(snapshot() == through_stream) << op_kind_name(call.kind);
    EXPECT_FALSE(before == through_stream) << op_kind_name(call.kind);
    EXPECT_FALSE(rig_.device().ops().provider(call.kind).empty());
  }

  static void restore(const TensorView& tensor, const std::vector<std::byte>& contents) {
    if (tensor.is_none()) return;
    auto address =
        tensor.memory.buffer->device_address() + static_cast<uintptr_t>(tensor.memory.offset);
    std::copy(contents.begin(), contents.end(), reinterpret_cast<std::byte*>(address));
  }

  OpTestRig rig_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(OpsStreamTest, Embedding) {
  Ops::EmbeddingForward forward{rows(),    ids(),  weight(), f32({kSequence, kColumns}),
                                kSequence, "embed"};
  OpCall call = make_call(OpKind::kEmbeddingForward, {forward.out},
                          {forward.ids, forward.table, forward.positions});
  call.sequence = kSequence;
  expect_same(call,
              [&](Ops& ops, Stream& stream) { return ops.embedding_forward(stream, forward); });
  Ops::EmbeddingBackward backward{weight(), f32({kSequence, kColumns}), rows(), ids(), kSequence,
                                  "embed"};
  call = make_call(OpKind::kEmbeddingBackward, {backward.table_grad, backward.positions_grad},
                   {backward.out_grad, backward.ids});
  call.sequence = kSequence;
  expect_same(call,
              [&](Ops& ops, Stream& stream) { return ops.embedding_backward(stream, backward); });
}

TEST_F(OpsStreamTest, LayerNorm) {
  Ops::LayerNormForward forward{rows(),    per_row(), per_row(), rows(),
                                columns(), columns(), 1e-3f,     "norm"};
  OpCall call = make_call(OpKind::kLayerNormForward, {forward.out, forward.mean, forward.rstd},
                          {forward.in, forward.weight, forward.bias});
  call.epsilon = 1e-3f;
  expect_same(call,
              [&](Ops& ops, Stream& stream) { return ops.layer_norm_forward(stream, forward); });
  Ops::LayerNormBackwardInput input{rows(),    rows(),    rows(), columns(),
                                    per_row(), per_row(), true,   "norm"};
  call = make_call(OpKind::kLayerNormBackwardInput, {input.in_grad},
                   {input.out_grad, input.in, input.weight, input.mean, input.rstd});
  call.accumulate = true;
  expect_same(
      call, [&](Ops& ops, Stream& stream) { return ops.layer_norm_backward_input(stream, input); });
  Ops::LayerNormBackwardWeight weights{columns(), columns(), rows(), rows(),
                                       per_row(), per_row(), "norm"};
  call = make_call(OpKind::kLayerNormBackwardWeight, {weights.weight_grad, weights.bias_grad},
                   {weights.out_grad, weights.in, weights.mean, weights.rstd});
  expect_same(call, [&](Ops& ops, Stream& stream) {
    return ops.layer_norm_backward_weight(stream, weights);
  });
}

TEST_F(OpsStreamTest, MatmulAndColumnSum) {
  Ops::Matmul matmul{f32({5, 7}), f32({4, 5}), f32({7, 4}), f32({7}), true, true, true, "matmul"};
  OpCall call = make_call(OpKind::kMatmul, {matmul.out}, {matmul.a, matmul.b, matmul.bias});
  call.transpose_a = call.transpose_b = call.accumulate = true;
  expect_same(call, [&](Ops& ops, Stream& stream) { return ops.matmul(stream, matmul); });
  Ops::ColumnSum sum{columns(), rows(), "sum"};
  expect_same(make_call(OpKind::kColumnSum, {sum.out}, {sum.in}),
              [&](Ops& ops, Stream& stream) { return ops.column_sum(stream, sum); });
}

TEST_F(OpsStreamTest, Elementwise) {
  Ops::GeluForward gelu{rows(), rows(), "gelu"};
  expect_same(make_call(OpKind::kGeluForward, {gelu.out}, {gelu.in}),
              [&](Ops& ops, Stream& stream) { return ops.gelu_forward(stream, gelu); });
  Ops::GeluBackward gelu_grad{rows(), rows(), rows(), true, "gelu"};
  OpCall call =
      make_call(OpKind::kGeluBackward, {gelu_grad.in_grad}, {gelu_grad.out_grad, gelu_grad.in});
  call.accumulate = true;
  expect_same(call, [&](Ops& ops, Stream& stream) { return ops.gelu_backward(stream, gelu_grad); });
  Ops::Add add{rows(), rows(), rows(), "add"};
  expect_same(make_call(OpKind::kAdd, {add.out}, {add.a, add.b}),
              [&](Ops& ops, Stream& stream) { return ops.add(stream, add); });
  Ops::Multiply multiply{rows(), rows(), rows(), true, "multiply"};
  call = make_call(OpKind::kMultiply, {multiply.out}, {multiply.a, multiply.b});
  call.accumulate = true;
  expect_same(call, [&](Ops& ops, Stream& stream) { return ops.multiply(stream, multiply); });
  Ops::Dropout dropout{rows(), rows(), rows(), 0.5f, RandomKey{5, 4, 3, 2, 1}, false, "dropout"};
  call = make_call(OpKind::kDropout, {dropout.out}, {dropout.in, dropout.residual});
  call.drop_probability = 0.5f;
  call.key = dropout.key;
  expect_same(call, [&](Ops& ops, Stream& stream) { return ops.dropout(stream, dropout); });
  Ops::Accumulate accumulate{rows(), rows(), "accumulate"};
  expect_same(make_call(OpKind::kAccumulate, {accumulate.out}, {accumulate.in}),
              [&](Ops& ops, Stream& stream) { return ops.accumulate(stream, accumulate); });
  Ops::Convert convert{rig_.poisoned(DType::kBF16, {kRows, kColumns}), rows(), "convert"};
  expect_same(make_call(OpKind::kConvert, {convert.out}, {convert.in}),
              [&](Ops& ops, Stream& stream) { return ops.convert(stream, convert); });
}

TEST_F(OpsStreamTest, Attention) {
  RandomKey key{5, 4, 3, 2, 1};
  auto with_sizes = [&](OpCall call) {
    call.sequence = kSequence;
    call.heads = kHeads;
    call.kv_heads = 1;
    call.head_dim = 4;
    call.window = 2;
    call.scale = 0.5f;
    call.drop_probability = 0.25f;
    call.key = key;
    return call;
  };
  auto set_sizes = [&](auto& request) {
    request.sequence = kSequence;
    request.heads = kHeads;
    request.kv_heads = 1;
    request.head_dim = 4;
    request.window = 2;
    request.scale = 0.5f;
    request.drop_probability = 0.25f;
    request.key = key;
    request.label = "attention";
  };
  Ids positions;
  for (int64_t row = 0; row < kRows; ++row) {
    positions.push_back(static_cast<int32_t>(row % kSequence / 2 * 2));
  }
  Ops::AttentionForward forward;
  forward.out = f32({kRows, 8});
  forward.lse = f32({kRows, kHeads});
  forward.qkv = f32({kRows, 16});
  forward.sinks = f32({kHeads});
  forward.document_starts = rig_.tensor(positions);
  set_sizes(forward);
  expect_same(with_sizes(make_call(OpKind::kAttentionForward, {forward.out, forward.lse},
                                   {forward.qkv, forward.sinks, forward.document_starts})),
              [&](Ops& ops, Stream& stream) { return ops.attention_forward(stream, forward); });
  Ops::AttentionBackward backward;
  backward.qkv_grad = f32({kRows, 16});
  backward.out_grad = f32({kRows, 8});
  backward.qkv = f32({kRows, 16});
  backward.out = f32({kRows, 8});
  backward.lse = f32({kRows, kHeads});
  backward.sinks = forward.sinks;
  backward.document_starts = forward.document_starts;
  set_sizes(backward);
  expect_same(with_sizes(make_call(OpKind::kAttentionBackward, {backward.qkv_grad},
                                   {backward.out_grad, backward.qkv, backward.out, backward.lse,
                                    backward.sinks, backward.document_starts})),
              [&](Ops& ops, Stream& stream) { return ops.attention_backward(stream, backward); });
  Ops::AttentionSinkBackward sinks;
  sinks.sinks_grad = f32({kHeads});
  sinks.out_grad = backward.out_grad;
  sinks.out = backward.out;
  sinks.lse = backward.lse;
  sinks.sinks = forward.sinks;
  sinks.heads = kHeads;
  sinks.head_dim = 4;
  sinks.label = "sinks";
  expect_same(with_sizes(make_call(OpKind::kAttentionSinkBackward, {sinks.sinks_grad},
                                   {sinks.out_grad, sinks.out, sinks.lse, sinks.sinks})),
              [&](Ops& ops, Stream& stream) { return ops.attention_sink_backward(stream, sinks); });
}

TEST_F(OpsStreamTest, Losses) {
  LossTerms terms{0.01f, 0.1f};
  Ops::LinearCrossEntropyForward forward{per_row(), per_row(), rows(), weight(),
                                         ids(),     "loss",    terms};
  OpCall call = make_call(OpKind::kLinearCrossEntropyForward, {forward.loss, forward.lse},
                          {forward.hidden, forward.weight, forward.labels});
  call.loss_terms = terms;
  expect_same(call, [&](Ops& ops, Stream& stream) {
    return ops.linear_cross_entropy_forward(stream, forward);
  });
  Ops::LinearCrossEntropyBackwardInput input{rows(), rows(), weight(), ids(), per_row(),
                                             0.5f,   true,   "loss",   terms};
  call = make_call(OpKind::kLinearCrossEntropyBackwardInput, {input.hidden_grad},
                   {input.hidden, input.weight, input.labels, input.lse});
  call.loss_terms = terms;
  call.scale = 0.5f;
  call.accumulate = true;
  expect_same(call, [&](Ops& ops, Stream& stream) {
    return ops.linear_cross_entropy_backward_input(stream, input);
  });
  Ops::LinearCrossEntropyBackwardWeight weights{weight(),  rows(), weight(), ids(),
                                                per_row(), 0.5f,   "loss",   terms};
  call = make_call(OpKind::kLinearCrossEntropyBackwardWeight, {weights.weight_grad},
                   {weights.hidden, weights.weight, weights.labels, weights.lse});
  call.loss_terms = terms;
  call.scale = 0.5f;
  expect_same(call, [&](Ops& ops, Stream& stream) {
    return ops.linear_cross_entropy_backward_weight(stream, weights);
  });
  Ops::SquaredErrorForward error{per_row(), rows(), rows(), "error"};
  expect_same(
      make_call(OpKind::kSquaredErrorForward, {error.loss}, {error.prediction, error.target}),
      [&](Ops& ops, Stream& stream) { return ops.squared_error_forward(stream, error); });
  Ops::SquaredErrorBackward error_grad{rows(), rows(), rows(), 0.5f, true, "error"};
  call = make_call(OpKind::kSquaredErrorBackward, {error_grad.prediction_grad},
                   {error_grad.prediction, error_grad.target});
  call.scale = 0.5f;
  call.accumulate = true;
  expect_same(call, [&](Ops& ops, Stream& stream) {
    return ops.squared_error_backward(stream, error_grad);
  });
}

TEST_F(OpsStreamTest, Reductions) {
  Ops::SumOfSquares sum{rig_.poisoned(DType::kF64, {1}), rows(), "sum"};
  expect_same(make_call(OpKind::kSumOfSquares, {sum.out}, {sum.in}),
              [&](Ops& ops, Stream& stream) { return ops.sum_of_squares(stream, sum); });
  Ops::Checksum checksum{rig_.poisoned(DType::kU64, {1}), rows(), "checksum"};
  expect_same(make_call(OpKind::kChecksum, {checksum.out}, {checksum.in}),
              [&](Ops& ops, Stream& stream) { return ops.checksum(stream, checksum); });
}

TEST_F(OpsStreamTest, RefusesBeforeAnythingIsQueued) {
  Timepoint before = stream_->last_submitted();
  Result<Timepoint> refused =
      rig_.device().ops().add(*stream_, {rows(), rows(), columns(), "wrong"});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->last_submitted(), before);
}

TEST_F(OpsStreamTest, NotesTheUseOfEveryOperand) {
  // Long enough to be still running if one of the waits below did not wait.
  constexpr int64_t kCount = int64_t{4} << 20;
  Ops::Add add{rig_.poisoned(DType::kF32, {kCount}), rig_.poisoned(DType::kF32, {kCount}),
               rig_.poisoned(DType::kF32, {kCount}), "add"};
  for (const TensorView& tensor : {add.out, add.a, add.b}) {
    Result<Timepoint> timepoint = rig_.device().ops().add(*stream_, add);
    ASSERT_TRUE(timepoint.is_ok());
    tensor.memory.buffer->wait_for_uses();
    Result<bool> done = reached(*timepoint);
    ASSERT_TRUE(done.is_ok());
    EXPECT_TRUE(*done);
  }
}

}  // namespace
}  // namespace stagecoach
