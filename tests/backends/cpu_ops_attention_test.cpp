#include <cmath>
#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct AttentionCase {
  int64_t batch, sequence, heads, kv_heads, head_dim;
};

constexpr AttentionCase kCases[] = {{1, 1, 1, 1, 16},  {3, 1, 2, 2, 5},    {3, 17, 2, 1, 16},
                                    {1, 64, 1, 1, 64}, {1, 100, 4, 2, 64}, {2, 130, 3, 3, 80}};

class AttentionTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { storage_ = GetParam(); }

  void make_inputs(const AttentionCase& shape, float drop_probability) {
    sizes_ = {shape.sequence, shape.heads, shape.kv_heads, shape.head_dim,
              1.0 / std::sqrt(static_cast<double>(shape.head_dim))};
    rows_ = shape.batch * shape.sequence;
    drop_probability_ = drop_probability;
    key_ = RandomKey{rig_.engine()(), 1, 2, 3, 4};
    qkv_ = rig_.random(rows_ * sizes_.qkv_columns(), storage_);
    keep_ = {};
    if (drop_probability > 0.0f) {
      keep_ =
          reference::dropout_factors(key_, drop_probability, rows_ * shape.heads * shape.sequence);
    }
  }

  OpCall attention_call(OpKind kind, std::initializer_list<TensorView> outputs,
                        std::initializer_list<TensorView> inputs) {
    OpCall call = make_call(kind, outputs, inputs);
    call.sequence = sizes_.sequence;
    call.heads = sizes_.heads;
    call.kv_heads = sizes_.kv_heads;
    call.head_dim = sizes_.head_dim;
    call.scale = static_cast<float>(sizes_.scale);
    call.drop_probability = drop_probability_;
    call.key = key_;
    return call;
  }

  TensorView qkv_tensor(const Values& values) {
    return rig_.tensor(storage_, {rows_, sizes_.qkv_columns()}, values);
  }

  OpTestRig rig_;
  DType storage_ = DType::kF32;
  reference::Attention sizes_ = {};
  int64_t rows_ = 0;
  float drop_probability_ = 0.0f;
  RandomKey key_;
  Values qkv_;
  Values keep_;
};

TEST_P(AttentionTest, Forward) {
  for (const AttentionCase& shape : kCases) {
    for (float drop_probability : {0.0f, 0.25f}) {
      make_inputs(shape, drop_probability);
      TensorView out = rig_.poisoned(storage_, {rows_, shape.heads * shape.head_dim});
      TensorView lse = rig_.poisoned(DType::kF32, {rows_, shape.heads});
      rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv_tensor(qkv_)}));
      reference::AttentionResult expected = reference::attention(sizes_, qkv_, keep_);
      EXPECT_LE(relative_error(rig_.read(out), expected.out), tolerance(storage_));
      EXPECT_LE(relative_error(rig_.read(lse), expected.lse), 1e-5);
    }
  }
}

TEST_P(AttentionTest, Backward) {
  for (const AttentionCase& shape : kCases) {
    for (float drop_probability : {0.0f, 0.25f}) {
      make_inputs(shape, drop_probability);
      Shape out_shape = {rows_, shape.heads * shape.head_dim};
      Values upper = rig_.random(out_shape.element_count(), storage_);
      reference::AttentionResult forward = reference::attention(sizes_, qkv_, keep_);
      TensorView grad = rig_.poisoned(storage_, {rows_, sizes_.qkv_columns()});
      rig_.run(attention_call(OpKind::kAttentionBackward, {grad},
                              {rig_.tensor(storage_, out_shape, upper), qkv_tensor(qkv_),
                               rig_.tensor(storage_, out_shape, forward.out),
                               rig_.tensor(DType::kF32, {rows_, shape.heads}, forward.lse)}));
      Values expected = reference::attention_grad(sizes_, upper, qkv_, keep_);
      EXPECT_LE(relative_error(rig_.read(grad), expected), tolerance(storage_))
          << "sequence " << shape.sequence << " head_dim " << shape.head_dim << " dropping "
          << drop_probability;
    }
  }
}

TEST_P(AttentionTest, LargeScoresStayFinite) {
  make_inputs({1, 70, 1, 1, 16}, 0.0f);
  for (double& value : qkv_) value *= 50.0;
  qkv_ = rounded(storage_, qkv_);
  TensorView out = rig_.poisoned(storage_, {rows_, 16});
  TensorView lse = rig_.poisoned(DType::kF32, {rows_, 1});
  rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv_tensor(qkv_)}));
  reference::AttentionResult expected = reference::attention(sizes_, qkv_, {});
  // Scores of tens of thousands leave a few bits of fp32 behind the point.
  EXPECT_LE(relative_error(rig_.read(out), expected.out), 1e-2);
  EXPECT_LE(relative_error(rig_.read(lse), expected.lse), 1e-5);
}

TEST_P(AttentionTest, LaterTokensDoNotMatter) {
  make_inputs({1, 90, 2, 1, 16}, 0.0f);
  auto forward = [&] {
    TensorView out = rig_.poisoned(storage_, {rows_, 32});
    TensorView lse = rig_.poisoned(DType::kF32, {rows_, 2});
    rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv_tensor(qkv_)}));
    return rig_.read(out);
  };
  constexpr int64_t kSeen = 70;
  Values before = forward();
  for (size_t i = static_cast<size_t>(kSeen * sizes_.qkv_columns()); i < qkv_.size(); ++i) {
    qkv_[i] = 7.0;
  }
  Values after = forward();
  before.resize(kSeen * 32);
  after.resize(kSeen * 32);
  EXPECT_EQ(before, after);
}

INSTANTIATE_TEST_SUITE_P(Storage, AttentionTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
