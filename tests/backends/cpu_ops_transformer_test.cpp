#include <cmath>
#include <gtest/gtest.h>

#include "tests/backends/op_reference_transformer.h"
#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

constexpr double kEpsilon = 1e-6;

class TransformerOpsTest : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  TensorView tensor(const Shape& shape, const Values& values) {
    return rig_.tensor(dtype(), shape, values);
  }
  void expect_near(const TensorView& actual, const Values& expected) {
    EXPECT_LE(relative_error(rig_.read(actual), expected), tolerance(actual.dtype));
  }

  OpTestRig rig_;
};

struct NormCase {
  int64_t rows, columns;
};
constexpr NormCase kNormCases[] = {{1, 1}, {3, 17}, {100, 65}, {300, 192}};

TEST_P(TransformerOpsTest, RmsNormForward) {
  for (const NormCase& size : kNormCases) {
    for (bool with_residual : {false, true}) {
      Shape matrix = {size.rows, size.columns};
      Values in = rig_.random(size.rows * size.columns, dtype(), 2.0);
      Values residual = rig_.random(size.rows * size.columns, dtype());
      Values weight = rig_.random(size.columns, dtype());
      TensorView out = rig_.poisoned(dtype(), matrix);
      TensorView rstd = rig_.poisoned(DType::kF32, {size.rows});
      TensorView total, residual_tensor;
      if (with_residual) {
        total = rig_.poisoned(dtype(), matrix);
        residual_tensor = tensor(matrix, residual);
      }
      OpCall call =
          make_call(OpKind::kRmsNormForward, {out, rstd, total},
                    {tensor(matrix, in), tensor({size.columns}, weight), residual_tensor});
      call.epsilon = static_cast<float>(kEpsilon);
      rig_.run(call);
      // What is normalised is the sum as it is stored.
      if (with_residual) in = rounded(dtype(), sum(in, residual));
      if (with_residual) expect_near(total, in);
      reference::RmsNorm expected = reference::rms_norm(in, weight, kEpsilon);
      expect_near(out, expected.out);
      expect_near(rstd, expected.rstd);
    }
  }
}

TEST_P(TransformerOpsTest, RmsNormBackward) {
  for (const NormCase& size : kNormCases) {
    if (size.columns == 1) continue;
    for (bool accumulate : {false, true}) {
      Shape matrix = {size.rows, size.columns};
      int64_t count = size.rows * size.columns;
      Values in = rig_.random(count, dtype());
      Values upper = rig_.random(count, dtype());
      Values old = rig_.random(count, dtype());
      Values weight = rig_.random(size.columns, dtype());
      Values first = rig_.random(size.columns);
      TensorView rstd =
          rig_.tensor(DType::kF32, {size.rows}, reference::rms_norm(in, weight, kEpsilon).rstd);
      TensorView in_grad = accumulate ? tensor(matrix, old) : rig_.poisoned(dtype(), matrix);
      TensorView weight_grad = rig_.tensor(DType::kF32, {size.columns}, first);
      TensorView upper_tensor = tensor(matrix, upper);
      TensorView in_tensor = tensor(matrix, in);
      OpCall call = make_call(OpKind::kRmsNormBackwardInput, {in_grad},
                              {upper_tensor, in_tensor, tensor({size.columns}, weight), rstd});
      call.accumulate = accumulate;
      rig_.run(call);
      rig_.run(make_call(OpKind::kRmsNormBackwardWeight, {weight_grad},
                         {upper_tensor, in_tensor, rstd}));
      reference::RmsNormGrads expected = reference::rms_norm_grads(upper, in, weight, kEpsilon);
      expect_near(in_grad, accumulate ? sum(old, expected.in) : expected.in);
      expect_near(weight_grad, sum(first, expected.weight));
    }
  }
}

struct HeadCase {
  int64_t rows, sequence;
  reference::PackedHeads sizes;
};
constexpr HeadCase kHeadCases[] = {
    {1, 1, {1, 1, 2}}, {34, 17, {4, 2, 16}}, {70, 35, {3, 1, 64}}, {100, 100, {2, 2, 80}}};

void set_heads(OpCall& call, const reference::PackedHeads& sizes) {
  call.heads = sizes.heads;
  call.kv_heads = sizes.kv_heads;
  call.head_dim = sizes.dim;
}

TEST_P(TransformerOpsTest, RotaryTurnsAndTurnsBack) {
  for (const HeadCase& size : kHeadCases) {
    Shape matrix = {size.rows, size.sizes.all() * size.sizes.dim};
    int64_t half = size.sizes.dim / 2;
    Values qkv = rig_.random(matrix.element_count(), dtype());
    Values angles = rig_.random((size.sequence + 1) * half);
    Values cosines, sines;
    for (double angle : angles) {
      cosines.push_back(static_cast<double>(static_cast<float>(std::cos(angle))));
      sines.push_back(static_cast<double>(static_cast<float>(std::sin(angle))));
    }
    TensorView turned = tensor(matrix, qkv);
    OpCall call = make_call(OpKind::kRotary, {turned},
                            {rig_.tensor(DType::kF32, {size.sequence + 1, half}, cosines),
                             rig_.tensor(DType::kF32, {size.sequence + 1, half}, sines)});
    set_heads(call, size.sizes);
    call.sequence = size.sequence;
    rig_.run(call);
    expect_near(turned, reference::rotary(size.sizes, qkv, cosines, sines, size.sequence, false));
    Values before = rig_.read(turned);
    call.inverse = true;
    rig_.run(call);
    expect_near(turned, reference::rotary(size.sizes, before, cosines, sines, size.sequence, true));
    expect_near(turned, qkv);
  }
}

TEST_P(TransformerOpsTest, QkNorm) {
  for (const HeadCase& size : kHeadCases) {
    const reference::PackedHeads& heads = size.sizes;
    Shape matrix = {size.rows, heads.all() * heads.dim};
    Values in = rig_.random(matrix.element_count(), dtype());
    Values upper = rig_.random(matrix.element_count(), dtype());
    Values weights[2] = {rig_.random(heads.dim, dtype()), rig_.random(heads.dim, dtype())};
    int64_t ends[3] = {0, heads.heads, heads.normed()};
    Values out = in, in_grad = upper, rstds(static_cast<size_t>(size.rows * heads.normed()));
    Values weight_grads[2];
    for (int kind = 0; kind < 2; ++kind) {
      int64_t first = ends[kind], end = ends[kind + 1];
      Values part = reference::take_heads(heads, in, first, end);
      reference::RmsNorm forward = reference::rms_norm(part, weights[kind], kEpsilon);
      reference::put_heads(heads, out, first, end, forward.out);
      for (int64_t i = 0; i < static_cast<int64_t>(forward.rstd.size()); ++i) {
        int64_t row = i / (end - first), head = first + i % (end - first);
        rstds[static_cast<size_t>(row * heads.normed() + head)] =
            forward.rstd[static_cast<size_t>(i)];
      }
      reference::RmsNormGrads grads = reference::rms_norm_grads(
          reference::take_heads(heads, upper, first, end), part, weights[kind], kEpsilon);
      reference::put_heads(heads, in_grad, first, end, grads.in);
      weight_grads[kind] = grads.weight;
    }
    TensorView in_tensor = tensor(matrix, in);
    TensorView upper_tensor = tensor(matrix, upper);
    TensorView q_weight = tensor({heads.dim}, weights[0]);
    TensorView k_weight = tensor({heads.dim}, weights[1]);
    TensorView result = rig_.poisoned(dtype(), matrix);
    TensorView rstd = rig_.poisoned(DType::kF32, {size.rows, heads.normed()});
    OpCall call =
        make_call(OpKind::kQkNormForward, {result, rstd}, {in_tensor, q_weight, k_weight});
    set_heads(call, heads);
    call.epsilon = static_cast<float>(kEpsilon);
    rig_.run(call);
    expect_near(result, out);
    expect_near(rstd, rstds);
    TensorView grad = rig_.poisoned(dtype(), matrix);
    call = make_call(OpKind::kQkNormBackwardInput, {grad},
                     {upper_tensor, in_tensor, q_weight, k_weight, rstd});
    set_heads(call, heads);
    rig_.run(call);
    expect_near(grad, in_grad);
    Values first = rig_.random(heads.dim);
    TensorView q_grad = rig_.tensor(DType::kF32, {heads.dim}, first);
    TensorView k_grad = rig_.tensor(DType::kF32, {heads.dim}, first);
    call =
        make_call(OpKind::kQkNormBackwardWeight, {q_grad, k_grad}, {upper_tensor, in_tensor, rstd});
    set_heads(call, heads);
    rig_.run(call);
    expect_near(q_grad, sum(first, weight_grads[0]));
    expect_near(k_grad, sum(first, weight_grads[1]));
  }
}

/// Rows of a gate and of an up side by side.
Values packed(const Values& gate, const Values& up, int64_t columns) {
  Values result;
  for (size_t first = 0; first < gate.size(); first += static_cast<size_t>(columns)) {
    for (const Values* part : {&gate, &up}) {
      auto begin = part->begin() + static_cast<std::ptrdiff_t>(first);
      result.insert(result.end(), begin, begin + columns);
    }
  }
  return result;
}

TEST_P(TransformerOpsTest, GatedSiluInOneTensorAndInTwo) {
  for (const NormCase& size : kNormCases) {
    Shape matrix = {size.rows, size.columns};
    Shape wide = {size.rows, 2 * size.columns};
    Values gate = rig_.random(matrix.element_count(), dtype(), 3.0);
    Values up = rig_.random(matrix.element_count(), dtype());
    Values upper = rig_.random(matrix.element_count(), dtype());
    Values expected = reference::gated_silu(gate, up);
    reference::GatedSiluGrads grads = reference::gated_silu_grads(upper, gate, up);
    TensorView out = rig_.poisoned(dtype(), matrix);
    TensorView gate_tensor = tensor(matrix, gate), up_tensor = tensor(matrix, up);
    TensorView both = tensor(wide, packed(gate, up, size.columns));
    rig_.run(make_call(OpKind::kGatedSiluForward, {out}, {gate_tensor, up_tensor}));
    expect_near(out, expected);
    out = rig_.poisoned(dtype(), matrix);
    rig_.run(make_call(OpKind::kGatedSiluForward, {out}, {both}));
    expect_near(out, expected);
    TensorView gate_grad = rig_.poisoned(dtype(), matrix);
    TensorView up_grad = rig_.poisoned(dtype(), matrix);
    TensorView both_grad = rig_.poisoned(dtype(), wide);
    TensorView upper_tensor = tensor(matrix, upper);
    rig_.run(make_call(OpKind::kGatedSiluBackward, {gate_grad, up_grad},
                       {upper_tensor, gate_tensor, up_tensor}));
    expect_near(gate_grad, grads.gate);
    expect_near(up_grad, grads.up);
    rig_.run(make_call(OpKind::kGatedSiluBackward, {both_grad}, {upper_tensor, both}));
    expect_near(both_grad, packed(grads.gate, grads.up, size.columns));
  }
}

/// As GPT-OSS has it, with many numbers beyond the limit.
TEST_P(TransformerOpsTest, GatedSiluWithLimitsInTurn) {
  const float alpha = 1.702f, limit = 1.75f;
  reference::Gated numbers{double{alpha}, double{limit}, 1.0};
  for (const NormCase& size : kNormCases) {
    Shape matrix = {size.rows, size.columns};
    Shape wide = {size.rows, 2 * size.columns};
    Values gate = rig_.random(matrix.element_count(), dtype(), 2.0);
    Values up = rig_.random(matrix.element_count(), dtype(), 2.0);
    gate[0] = double{limit};  // just not cut off
    Values upper = rig_.random(matrix.element_count(), dtype());
    auto in_turn = [](const Values& gates, const Values& ups) {
      Values both;
      for (size_t i = 0; i < gates.size(); ++i) both.insert(both.end(), {gates[i], ups[i]});
      return both;
    };
    OpCall forward = make_call(OpKind::kGatedSiluForward, {rig_.poisoned(dtype(), matrix)},
                               {tensor(wide, in_turn(gate, up))});
    forward.gated = GatedNumbers{alpha, limit, 1.0f, true};
    rig_.run(forward);
    expect_near(forward.outputs[0], reference::gated_silu(gate, up, numbers));
    OpCall backward = make_call(OpKind::kGatedSiluBackward, {rig_.poisoned(dtype(), wide)},
                                {tensor(matrix, upper), forward.inputs[0]});
    backward.gated = forward.gated;
    rig_.run(backward);
    reference::GatedSiluGrads grads = reference::gated_silu_grads(upper, gate, up, numbers);
    expect_near(backward.outputs[0], in_turn(grads.gate, grads.up));
  }
}

TEST_P(TransformerOpsTest, GatedSiluGradients) {
  if (dtype() != DType::kF32)
    GTEST_SKIP() << "compares two fp64 references: what the device stores plays no part";
  Values gate = rig_.random(40, DType::kF32, 2.0), up = rig_.random(40, DType::kF32, 2.0);
  reference::Gated numbers{1.702, 1.75, 1.0};
  reference::GatedSiluGrads grads = reference::gated_silu_grads(Values(40, 1.0), gate, up, numbers);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < 40; ++i) {
    auto slope = [&](double gate_step, double up_step) {
      double above = reference::gated_silu({gate[i] + gate_step}, {up[i] + up_step}, numbers)[0];
      double below = reference::gated_silu({gate[i] - gate_step}, {up[i] - up_step}, numbers)[0];
      return (above - below) / (2.0 * kStep);
    };
    EXPECT_NEAR(grads.gate[i], slope(kStep, 0.0), 1e-6);
    EXPECT_NEAR(grads.up[i], slope(0.0, kStep), 1e-6);
  }
}

TEST_P(TransformerOpsTest, NotANumberPassesLimits) {
  OpCall call = make_call(OpKind::kGatedSiluForward, {rig_.poisoned(dtype(), {1, 2})},
                          {tensor({1, 4}, {std::nan(""), 1.0, 1.0, std::nan("")})});
  call.gated = GatedNumbers{1.702f, 7.0f, 1.0f, true};
  rig_.run(call);
  for (double value : rig_.read(call.outputs[0])) EXPECT_TRUE(std::isnan(value));
}

TEST_P(TransformerOpsTest, AdamW) {
  for (int64_t step : {1, 1000}) {
    constexpr int64_t kCount = 20001;
    reference::AdamWState state{rig_.random(kCount), rig_.random(kCount, DType::kF32, 0.1), {}};
    for (double value : rig_.random(kCount)) state.second.push_back(value * value);
    state.second = rounded(DType::kF32, state.second);
    Values gradient = rig_.random(kCount, dtype());
    TensorView parameters = rig_.tensor(DType::kF32, {kCount}, state.parameters);
    TensorView first = rig_.tensor(DType::kF32, {kCount}, state.first);
    TensorView second = rig_.tensor(DType::kF32, {kCount}, state.second);
    OpCall call =
        make_call(OpKind::kAdamW, {parameters, first, second}, {tensor({kCount}, gradient)});
    call.adamw = AdamWNumbers{1e-2f, 0.9f, 0.95f, 0.1f, step};
    call.epsilon = 1e-8f;
    call.scale = 0.5f;
    rig_.run(call);
    auto wide = [](float value) { return static_cast<double>(value); };
    state = reference::adamw(
        state, gradient,
        {wide(1e-2f), wide(0.9f), wide(0.95f), wide(1e-8f), wide(0.1f), 0.5, step});
    EXPECT_LE(relative_error(rig_.read(parameters), state.parameters), 1e-6);
    EXPECT_LE(relative_error(rig_.read(first), state.first), 1e-6);
    EXPECT_LE(relative_error(rig_.read(second), state.second), 1e-6);
  }
}

TEST_P(TransformerOpsTest, FiniteCheckCounts) {
  Values values = rig_.random(40000, dtype());
  TensorView out = rig_.poisoned(DType::kU64, {1});
  rig_.run(make_call(OpKind::kFiniteCheck, {out}, {tensor({40000}, values)}));
  EXPECT_EQ(rig_.read(out)[0], 0.0);
  for (size_t i : {0, 777, 39999}) values[i] = i == 777 ? std::nan("") : -INFINITY;
  rig_.run(make_call(OpKind::kFiniteCheck, {out}, {tensor({40000}, values)}));
  EXPECT_EQ(rig_.read(out)[0], 3.0);
}

TEST_P(TransformerOpsTest, WrongShapesAreRefused) {
  TensorView matrix = rig_.poisoned(dtype(), {4, 8});
  TensorView wide = rig_.poisoned(dtype(), {4, 16});
  TensorView other = rig_.poisoned(dtype(), {4, 8});
  auto message = [&](const OpCall& call) { return validate_op(call, rig_.device()).message(); };
  EXPECT_NE(message(make_call(OpKind::kGatedSiluForward, {matrix}, {other})).find("expected 16"),
            std::string::npos);
  EXPECT_NE(message(make_call(OpKind::kGatedSiluForward, {matrix}, {wide, wide})).find("gate has"),
            std::string::npos);
  OpCall odd = make_call(OpKind::kRotary, {matrix}, {other, other});
  odd.sequence = 4;
  odd.heads = odd.kv_heads = 1;
  odd.head_dim = 3;
  EXPECT_NE(message(odd).find("even number"), std::string::npos);
  TensorView state = rig_.poisoned(DType::kF32, {8});
  TensorView moment = rig_.poisoned(DType::kF32, {8});
  TensorView variance = rig_.poisoned(DType::kF32, {8});
  OpCall update =
      make_call(OpKind::kAdamW, {state, moment, variance}, {rig_.poisoned(dtype(), {8})});
  EXPECT_TRUE(validate_op(update, rig_.device()).is_ok());
  update.adamw.step = 0;
  EXPECT_NE(message(update).find("step 0"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Storage, TransformerOpsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
