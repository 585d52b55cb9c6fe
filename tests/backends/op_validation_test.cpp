#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

/// Every rule of validate_op refuses, with a message that says what it saw.
class OpValidationTest : public testing::Test {
 protected:
  TensorView f32(const Shape& shape) { return rig_.poisoned(DType::kF32, shape); }
  TensorView bf16(const Shape& shape) { return rig_.poisoned(DType::kBF16, shape); }
  TensorView i32(const Shape& shape) { return rig_.poisoned(DType::kI32, shape); }

  OpCall matmul() { return make_call(OpKind::kMatmul, {f32({4, 6})}, {f32({4, 5}), f32({5, 6})}); }
  OpCall attention() {
    OpCall call = make_call(OpKind::kAttentionForward, {f32({6, 8}), f32({6, 2})}, {f32({6, 16})});
    call.sequence = 3;
    call.heads = 2;
    call.kv_heads = 1;
    call.head_dim = 4;
    return call;
  }
  OpCall embedding() {
    OpCall call =
        make_call(OpKind::kEmbeddingForward, {f32({6, 5})}, {i32({6}), f32({9, 5}), f32({3, 5})});
    call.sequence = 3;
    return call;
  }
  OpCall dropout() { return make_call(OpKind::kDropout, {f32({6})}, {f32({6}), f32({6})}); }

  void expect_valid(const OpCall& call) {
    Status status = validate_op(call, rig_.device());
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  void expect_refused(const OpCall& call, const std::string& message) {
    Status status = validate_op(call, rig_.device());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_NE(status.message().find(message), std::string::npos)
        << "expected: " << message << "\nfound:    " << status.message();
  }
  /// `call` is right, and wrong after `spoil`.
  void expect_refused(OpCall call, const std::function<void(OpCall&)>& spoil,
                      const std::string& message) {
    expect_valid(call);
    spoil(call);
    expect_refused(call, message);
  }

  OpTestRig rig_;
};

TEST_F(OpValidationTest, NamesOperationAndLabel) {
  OpCall call = matmul();
  call.label = "layer3.output";
  call.inputs[1] = f32({7, 6});
  expect_refused(call,
                 "matmul 'layer3.output': operand b has shape [7,6], expected dimension 0 to be 5");
}

TEST_F(OpValidationTest, UnknownKind) {
  OpCall call = matmul();
  call.kind = static_cast<OpKind>(kOpKindCount);
  expect_refused(call, fmt::format("operation kind {} is unknown", kOpKindCount));
}

TEST_F(OpValidationTest, OperandCounts) {
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[1] = TensorView(); },
      "operand b is none, expected a tensor");
  expect_refused(
      matmul(), [](OpCall& call) { call.outputs[0] = TensorView(); },
      "operand out is none, expected a tensor");
  expect_refused(
      matmul(), [this](OpCall& call) { call.inputs[4] = f32({1}); },
      "input 4 is set, expected 3 inputs");
  expect_refused(
      matmul(), [this](OpCall& call) { call.outputs[1] = f32({1}); },
      "output 1 is set, expected 1 outputs");
  OpCall backward = make_call(OpKind::kEmbeddingBackward, {f32({9, 5})}, {f32({6, 5}), i32({6})});
  backward.sequence = 3;
  expect_refused(
      backward, [](OpCall& call) { call.outputs[0] = TensorView(); },
      "table_grad and positions_grad are none, expected one of them");
}

TEST_F(OpValidationTest, DTypes) {
  expect_refused(
      matmul(),
      [this](OpCall& call) {
        call.inputs[0] = i32({4, 5});
      },
      "operand a is int32, expected fp32, bf16 or fp16");
  expect_refused(
      matmul(),
      [this](OpCall& call) {
        call.inputs[1] = bf16({5, 6});
      },
      "operand b is bf16, expected fp32 as a is");
  expect_refused(
      matmul(),
      [this](OpCall& call) {
        call.outputs[0] = bf16({4, 6});
      },
      "operand out is bf16, expected fp32 as a is");
  OpCall mixed = make_call(OpKind::kMatmul, {f32({4, 6})}, {bf16({4, 5}), bf16({5, 6})});
  expect_refused(
      mixed,
      [this](OpCall& call) {
        call.outputs[0] = rig_.poisoned(DType::kF16, {4, 6});
      },
      "operand out is fp16, expected bf16 or fp32 as a is");
  expect_refused(
      embedding(), [this](OpCall& call) { call.inputs[0] = f32({6}); },
      "operand ids is fp32, expected int32");
  expect_refused(
      attention(),
      [this](OpCall& call) {
        call.outputs[1] = bf16({6, 2});
      },
      "operand lse is bf16, expected fp32");
  OpCall sum = make_call(OpKind::kSumOfSquares, {rig_.poisoned(DType::kF64, {1})}, {bf16({6})});
  expect_refused(
      sum, [this](OpCall& call) { call.outputs[0] = f32({1}); },
      "operand out is fp32, expected fp64");
  expect_refused(
      sum, [this](OpCall& call) { call.inputs[0] = i32({6}); },
      "operand in is int32, expected fp32, bf16 or fp16");
  OpCall checksum = make_call(OpKind::kChecksum, {rig_.poisoned(DType::kU64, {1})}, {i32({6})});
  expect_refused(
      checksum, [this](OpCall& call) { call.outputs[0] = rig_.poisoned(DType::kF64, {1}); },
      "operand out is fp64, expected uint64");
  expect_refused(
      checksum, [this](OpCall& call) { call.inputs[0] = bf16({3}); },
      "operand in has 6 bytes, expected a multiple of 4");
}

TEST_F(OpValidationTest, Shapes) {
  expect_refused(
      matmul(), [this](OpCall& call) { call.inputs[0] = f32({20}); },
      "operand a has shape [20], expected 2 dimension(s)");
  expect_refused(
      matmul(), [](OpCall& call) { call.transpose_a = true; },
      "operand b has shape [5,6], expected dimension 0 to be 4");
  expect_refused(
      matmul(),
      [this](OpCall& call) {
        call.outputs[0] = f32({4, 7});
      },
      "operand out has shape [4,7], expected dimension 1 to be 6");
  expect_refused(
      matmul(), [this](OpCall& call) { call.inputs[2] = f32({4}); },
      "operand bias has shape [4], expected dimension 0 to be 6");
  expect_refused(
      embedding(),
      [this](OpCall& call) {
        call.inputs[2] = f32({2, 5});
      },
      "operand positions has shape [2,5], expected dimension 0 to be at least 3");
  expect_refused(
      dropout(),
      [this](OpCall& call) {
        call.inputs[1] = f32({2, 3});
      },
      "operand residual has shape [2,3], expected [6] as in has");
  expect_refused(
      attention(),
      [this](OpCall& call) {
        call.inputs[0] = f32({6, 24});
      },
      "operand qkv has shape [6,24], expected dimension 1 to be 16");
  OpCall sum = make_call(OpKind::kSumOfSquares, {rig_.poisoned(DType::kF64, {1})}, {f32({6})});
  expect_refused(
      sum, [this](OpCall& call) { call.outputs[0] = rig_.poisoned(DType::kF64, {2}); },
      "operand out has shape [2], expected dimension 0 to be 1");
}

TEST_F(OpValidationTest, SizesMustBePositiveAndFit) {
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].shape.dims[1] = 0; },
      "operand a has shape [4,0], expected positive sizes");
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].shape.dims[0] = -4; },
      "operand a has shape [-4,5], expected positive sizes");
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].shape.dims[2] = 2; },
      "operand a has shape [4,5], expected positive sizes");
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].shape.rank = 5; },
      "operand a has 5 dimensions, expected at most 4");
  expect_refused(
      matmul(),
      [](OpCall& call) {
        call.inputs[0].shape = {int64_t{1} << 32, int64_t{1} << 32};
      },
      "expected a size that fits 63 bits");
}

TEST_F(OpValidationTest, MemoryMustHoldTheTensor) {
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].memory.size -= 4; },
      "operand a has 76 bytes of memory, expected at least 80 for [4,5] fp32");
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].memory.offset = 4; },
      "operand a is bytes 4 + 80 of buffer 'test', expected inside its 80");
  expect_refused(
      matmul(), [](OpCall& call) { call.inputs[0].memory.offset = -4; },
      "operand a is bytes -4 + 80");
  OpCall call = matmul();
  call.inputs[0] = TensorView{f32({6, 5}).memory.buffer->slice(2, 80), DType::kF32, {4, 5}};
  expect_refused(call, "operand a starts at byte 2, expected a multiple of 4");
}

TEST_F(OpValidationTest, MemoryMustBeOfThisDevice) {
  Allocation pinned = rig_.device().allocate_pinned(80, "host");
  ASSERT_EQ(pinned.outcome, AllocationOutcome::kOk);
  expect_refused(
      matmul(), [&](OpCall& call) { call.inputs[0].memory = pinned.buffer->view(); },
      "operand a is pinned memory, expected device memory");
  OpTestRig other;
  expect_refused(
      matmul(),
      [&](OpCall& call) {
        call.inputs[0] = other.poisoned(DType::kF32, {4, 5});
      },
      "operand a is memory of cpu:0, expected of cpu:0");
}

TEST_F(OpValidationTest, Aliasing) {
  OpCall call = matmul();
  call.outputs[0].memory = call.inputs[0].memory.buffer->view();
  call.outputs[0].shape = {4, 5};
  call.inputs[1] = f32({5, 5});
  expect_refused(call, "output out shares bytes 0 to 80 of buffer 'test' with operand a");
  OpCall norm = make_call(OpKind::kLayerNormForward, {f32({6, 5}), f32({6}), f32({6})},
                          {f32({6, 5}), f32({5})});
  expect_refused(
      norm, [](OpCall& spoiled) { spoiled.outputs[2] = spoiled.outputs[1]; },
      "output mean shares bytes 0 to 24 of buffer 'test' with operand rstd");
  Buffer& buffer = *f32({12}).memory.buffer;
  OpCall in_place = dropout();
  in_place.outputs[0].memory = buffer.slice(0, 24);
  in_place.inputs[0].memory = buffer.slice(0, 24);
  expect_valid(in_place);
  in_place.inputs[0].memory = buffer.slice(24, 24);
  expect_valid(in_place);
  in_place.inputs[0].memory = buffer.slice(4, 24);
  expect_refused(in_place,
                 "output out shares bytes 4 to 24 of buffer 'test' with operand in, "
                 "expected the same tensor or none in common");
}

TEST_F(OpValidationTest, Numbers) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  expect_refused(
      attention(), [](OpCall& call) { call.accumulate = true; }, "accumulate is set");
  expect_refused(
      attention(), [](OpCall& call) { call.scale = kNaN; },
      "scale is nan, expected a finite number");
  expect_refused(
      attention(), [](OpCall& call) { call.epsilon = -1.0f; },
      "epsilon is -1, expected a finite number >= 0");
  for (float probability : {-0.1f, 1.0f, kNaN}) {
    expect_refused(
        attention(), [=](OpCall& call) { call.drop_probability = probability; }, "expected [0, 1)");
  }
  expect_refused(
      attention(), [](OpCall& call) { call.sequence = 0; }, "sequence is 0, expected > 0");
  expect_refused(
      attention(), [](OpCall& call) { call.sequence = 4; },
      "there are 6 rows, expected whole sequences of 4 rows");
  expect_refused(
      attention(), [](OpCall& call) { call.head_dim = 0; },
      "heads, kv_heads and head_dim are 2, 1 and 0, expected > 0");
  expect_refused(
      attention(), [](OpCall& call) { call.window = -1; }, "window is -1, expected >= 0");
  expect_refused(
      attention(), [this](OpCall& call) { call.inputs[1] = f32({3}); },
      "operand sinks has shape [3], expected dimension 0 to be 2");
  expect_refused(
      attention(), [this](OpCall& call) { call.inputs[2] = i32({3}); },
      "operand document_starts has shape [3], expected dimension 0 to be 6");
  OpCall gated = make_call(OpKind::kGatedSiluForward, {f32({4, 8})}, {f32({4, 8}), f32({4, 8})});
  expect_refused(
      gated, [](OpCall& call) { call.gated.is_interleaved = true; },
      "up is set with is_interleaved");
  for (float limit : {0.0f, kNaN}) {
    expect_refused(
        gated, [=](OpCall& call) { call.gated.limit = limit; }, "a limit > 0");
  }
  expect_refused(
      attention(), [](OpCall& call) { call.kv_heads = 3; },
      "heads is 2, expected a multiple of kv_heads 3");
  expect_refused(
      attention(), [](OpCall& call) { call.head_dim = int64_t{1} << 40; }, "are too large");
  expect_refused(
      dropout(), [](OpCall& call) { call.accumulate = true; },
      "residual is set with accumulate, expected one of the two");
}

TEST_F(OpValidationTest, NamesAndFlop) {
  EXPECT_EQ(op_kind_name(OpKind::kEmbeddingForward), "embedding_forward");
  EXPECT_EQ(op_kind_name(OpKind::kChecksum), "checksum");
  EXPECT_EQ(op_flop(matmul()), 2.0 * 4 * 6 * 5);
  EXPECT_EQ(op_flop(attention()), 2.0 * 2 * (3 * 4 / 2) * 4 * 2 * 2);
  OpCall backward = attention();
  backward.kind = OpKind::kAttentionBackward;
  EXPECT_EQ(op_flop(backward), 2.5 * op_flop(attention()));
  OpCall narrow = attention();
  narrow.window = 2;  // 1, 2 and 2 keys
  EXPECT_EQ(op_flop(narrow), 2.0 * 2 * 5 * 4 * 2 * 2);
  OpCall loss = make_call(OpKind::kLinearCrossEntropyForward, {}, {f32({6, 5}), f32({9, 5})});
  EXPECT_EQ(op_flop(loss), 2.0 * 6 * 9 * 5);
  loss.kind = OpKind::kLinearCrossEntropyBackwardWeight;
  EXPECT_EQ(op_flop(loss), 4.0 * 6 * 9 * 5);
}

TEST_F(OpValidationTest, LossTerms) {
  OpCall loss = make_call(OpKind::kLinearCrossEntropyForward, {f32({6}), f32({6})},
                          {f32({6, 5}), f32({9, 5}), i32({6})});
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinity = std::numeric_limits<float>::infinity();
  for (LossTerms bad : {LossTerms{-0.1f, 0.0f}, LossTerms{nan, 0.0f}, LossTerms{infinity, 0.0f},
                        LossTerms{0.0f, -0.1f}, LossTerms{0.0f, 1.0f}, LossTerms{0.0f, nan}}) {
    expect_refused(
        loss, [&](OpCall& call) { call.loss_terms = bad; },
        "expected a finite number >= 0 and one in [0, 1)");
  }
}

TEST_F(OpValidationTest, Experts) {
  // Six rows, two of five experts each.
  auto group = [this] {
    return make_call(OpKind::kGroupRows, {i32({12}), i32({6, 2}), i32({6})}, {i32({6, 2})});
  };
  auto product = [this] {
    OpCall call = make_call(OpKind::kGroupedMatmul, {f32({12, 7})},
                            {f32({12, 3}), f32({5, 7, 3}), i32({6}), f32({5, 7})});
    call.transpose_b = true;
    return call;
  };
  auto combine = [this] {
    return make_call(OpKind::kCombineBackward, {f32({12, 3}), f32({6, 2})},
                     {f32({12, 3}), f32({12, 3}), i32({6, 2}), f32({6, 2}), f32({6, 7}),
                      f32({5, 7}), i32({6, 2})});
  };
  expect_refused(make_call(OpKind::kRouteForward, {i32({6, 6}), f32({6, 6})}, {f32({6, 5})}),
                 "6 experts are chosen, expected at most the 5 that there are");
  auto balance = [this] {
    OpCall call = make_call(OpKind::kBalanceForward, {f32({6})},
                            {f32({6, 5}), i32({12}), i32({6}), i32({6})});
    call.sequence = 3;
    return call;
  };
  expect_refused(
      balance(), [](OpCall& call) { call.sequence = 4; },
      "there are 6 rows, expected whole sequences of 4 rows");
  expect_refused(
      balance(), [this](OpCall& call) { call.inputs[3] = i32({5}); },
      "operand labels has shape [5], expected dimension 0 to be 6");
  expect_refused(
      group(), [this](OpCall& call) { call.outputs[0] = i32({11}); },
      "there are 11 grouped rows, expected 2 for each of 6 rows");
  expect_refused(make_call(OpKind::kGatherRows, {f32({13, 3})}, {f32({6, 3}), i32({13})}),
                 "there are 13 grouped rows, expected as many for each of 6 rows");
  expect_refused(
      product(), [this](OpCall& call) { call.inputs[2] = i32({5}); },
      "there are 5 offsets, expected one more than experts, 5");
  expect_refused(
      product(), [](OpCall& call) { call.transpose_b = false; },
      "operand b has shape [5,7,3], expected dimension 1 to be 3");
  expect_refused(
      product(), [this](OpCall& call) { call.inputs[2] = f32({6}); },
      "operand offsets is fp32, expected int32");
  expect_refused(
      combine(), [](OpCall& call) { call.inputs[5] = {}; },
      "some of out_grad, bias and choices are none, expected all or none of them");
}

}  // namespace
}  // namespace stagecoach
