#include <cmath>
#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

struct AttentionCase {
  int64_t batch, sequence, heads, kv_heads, head_dim;
};

/// What of attention's masks and sinks a case has.
struct Masks {
  int64_t window = 0;
  bool has_sinks = false;
  int64_t longest_document = 0;  // 0: no documents
};

constexpr Masks kMasks[] = {{},
                            {1},
                            {5},
                            {64},
                            {67, true},
                            {0, true},
                            {0, false, 1},
                            {0, false, 40},
                            {0, true, 90},
                            {23, true, 70}};

constexpr AttentionCase kCases[] = {{1, 1, 1, 1, 16},  {3, 1, 2, 2, 5},    {3, 17, 2, 1, 16},
                                    {1, 64, 1, 1, 64}, {1, 100, 4, 2, 64}, {2, 130, 3, 3, 80}};

class AttentionTest : public testing::TestWithParam<DType> {
 protected:
  /// Per head, the absolute values of what a sink's gradient is the sum of: by row, its probability
  /// times products of the result and its gradient.
  Values summed_for_sinks(const reference::AttentionResult& result, const Values& out_grad) const {
    Values sums(static_cast<size_t>(sizes_.heads), 0.0);
    for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
      for (size_t head = 0; head < sums.size(); ++head) {
        size_t place = row * sums.size() + head;
        double products = 0.0;
        for (int64_t d = 0; d < sizes_.head_dim; ++d) {
          size_t element = place * static_cast<size_t>(sizes_.head_dim) + static_cast<size_t>(d);
          products += std::abs(out_grad[element] * result.out[element]);
        }
        sums[head] += std::exp(sizes_.sinks[head] - result.lse[place]) * products;
      }
    }
    return sums;
  }

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

  /// Documents of 1 to `longest` rows, cut off where a sequence ends.
  Ids document_starts(int64_t longest) {
    Ids starts;
    std::uniform_int_distribution<int64_t> length(1, longest);
    int64_t left = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      int64_t position = row % sizes_.sequence;
      bool begins = left == 0 || position == 0;
      starts.push_back(begins ? static_cast<int32_t>(position) : starts.back());
      left = begins ? length(rig_.engine()) - 1 : left - 1;
    }
    return starts;
  }

  void make_inputs(const AttentionCase& shape, float drop_probability, const Masks& masks) {
    make_inputs(shape, drop_probability);
    sizes_.window = masks.window;
    if (masks.has_sinks) sizes_.sinks = rig_.random(shape.heads, storage_, 3.0);
    if (masks.longest_document > 0)
      sizes_.document_starts = document_starts(masks.longest_document);
  }

  TensorView sinks_tensor() {
    if (sizes_.sinks.empty()) return {};
    return rig_.tensor(storage_, {sizes_.heads}, sizes_.sinks);
  }
  TensorView starts_tensor() {
    return sizes_.document_starts.empty() ? TensorView{} : rig_.tensor(sizes_.document_starts);
  }

  OpCall attention_call(OpKind kind, std::initializer_list<TensorView> outputs,
                        std::initializer_list<TensorView> inputs) {
    OpCall call = make_call(kind, outputs, inputs);
    call.sequence = sizes_.sequence;
    call.heads = sizes_.heads;
    call.kv_heads = sizes_.kv_heads;
    call.head_dim = sizes_.head_dim;
    call.window = sizes_.window;
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
      EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
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

TEST_P(AttentionTest, MasksAndSinks) {
  for (const AttentionCase& shape : kCases) {
    for (const Masks& masks : kMasks) {
      for (float drop_probability : {0.0f, 0.25f}) {
        make_inputs(shape, drop_probability, masks);
        SCOPED_TRACE(testing::Message()
                     << "sequence " << shape.sequence << " window " << masks.window << " sinks "
                     << masks.has_sinks << " documents " << masks.longest_document);
        Shape out_shape = {rows_, shape.heads * shape.head_dim};
        TensorView qkv = qkv_tensor(qkv_), sinks = sinks_tensor(), starts = starts_tensor();
        TensorView out = rig_.poisoned(storage_, out_shape);
        TensorView lse = rig_.poisoned(DType::kF32, {rows_, shape.heads});
        rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv, sinks, starts}));
        reference::AttentionResult expected = reference::attention(sizes_, qkv_, keep_);
        EXPECT_LE(relative_error(rig_.read(out), expected.out), tolerance(storage_));
        EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
        Values upper = rig_.random(out_shape.element_count(), storage_);
        TensorView out_grad = rig_.tensor(storage_, out_shape, upper);
        TensorView grad = rig_.poisoned(storage_, {rows_, sizes_.qkv_columns()});
        rig_.run(attention_call(OpKind::kAttentionBackward, {grad},
                                {out_grad, qkv, out, lse, sinks, starts}));
        EXPECT_LE(
            relative_error(rig_.read(grad), reference::attention_grad(sizes_, upper, qkv_, keep_)),
            tolerance(storage_));
        if (sizes_.sinks.empty()) continue;
        Values before = rig_.random(shape.heads);
        TensorView sinks_grad = rig_.tensor(DType::kF32, {shape.heads}, before);
        rig_.run(attention_call(OpKind::kAttentionSinkBackward, {sinks_grad},
                                {out_grad, out, lse, sinks}));
        Values change = reference::attention_sinks_grad(sizes_, upper, qkv_, keep_);
        Values found = rig_.read(sinks_grad), summed = summed_for_sinks(expected, upper);
        for (size_t head = 0; head < found.size(); ++head) {
          // What is summed may nearly cancel, so errors are those of its parts.
          EXPECT_NEAR(found[head], before[head] + change[head],
                      tolerance(storage_) * (std::abs(before[head]) + summed[head]));
        }
      }
    }
  }
}

/// A window of 8 is 8 keys, not 9: what row i - 8 holds leaves row i alone, what row i - 7 holds
/// does not; likewise its gradient.
TEST_P(AttentionTest, AWindowIsAsManyKeysAsItSays) {
  constexpr int64_t kRow = 20, kWindow = 8;
  make_inputs({1, 32, 1, 1, 16}, 0.0f);
  sizes_.window = kWindow;
  Values upper(static_cast<size_t>(rows_ * 16), 0.0);
  std::fill_n(upper.begin() + kRow * 16, 16, 1.0);  // of row 20 alone
  TensorView out_grad = rig_.tensor(storage_, {rows_, 16}, upper);
  auto row_after = [&](int64_t changed, Values& key_grad) {
    Values qkv = qkv_;
    // Its key and its value.
    std::fill_n(qkv.begin() + changed * 48 + 16, 32, 1.0);
    TensorView out = rig_.poisoned(storage_, {rows_, 16});
    TensorView lse = rig_.poisoned(DType::kF32, {rows_, 1});
    TensorView grad = rig_.poisoned(storage_, {rows_, 48});
    TensorView tensor = qkv_tensor(qkv);
    rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {tensor}));
    rig_.run(attention_call(OpKind::kAttentionBackward, {grad}, {out_grad, tensor, out, lse}));
    Values grads = rig_.read(grad), results = rig_.read(out);
    key_grad.assign(grads.begin() + changed * 48 + 16, grads.begin() + changed * 48 + 48);
    return Values(results.begin() + kRow * 16, results.begin() + kRow * 16 + 16);
  };
  Values grad;
  Values before = row_after(kRow + 1, grad);
  EXPECT_EQ(row_after(kRow - kWindow, grad), before);
  EXPECT_EQ(grad, Values(32, 0.0));
  EXPECT_NE(row_after(kRow - kWindow + 1, grad), before);
  EXPECT_NE(grad, Values(32, 0.0));
}

/// Sinks that weigh far more than all keys, or nothing, overflow nowhere.
TEST_P(AttentionTest, ExtremeSinksStayFinite) {
  make_inputs({1, 70, 2, 1, 16}, 0.0f);
  sizes_.sinks = {200.0, -200.0};
  TensorView out = rig_.poisoned(storage_, {rows_, 32});
  TensorView lse = rig_.poisoned(DType::kF32, {rows_, 2});
  TensorView qkv = qkv_tensor(qkv_), sinks = sinks_tensor();
  rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv, sinks}));
  reference::AttentionResult expected = reference::attention(sizes_, qkv_, {});
  EXPECT_LE(relative_error(rig_.read(out), expected.out), tolerance(storage_));
  EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
}

/// NaN in keys outside a window or a document, which would spread from any product that they enter.
TEST_P(AttentionTest, UnseenKeysAreNotRead) {
  make_inputs({1, 200, 1, 1, 16}, 0.0f);
  sizes_.window = 20;
  for (size_t i = 0; i < static_cast<size_t>(30 * sizes_.qkv_columns()); ++i) {
    qkv_[i] = std::nan("");
  }
  TensorView out = rig_.poisoned(storage_, {rows_, 16});
  TensorView lse = rig_.poisoned(DType::kF32, {rows_, 1});
  TensorView qkv = qkv_tensor(qkv_);
  rig_.run(attention_call(OpKind::kAttentionForward, {out, lse}, {qkv}));
  TensorView grad = rig_.poisoned(storage_, {rows_, sizes_.qkv_columns()});
  rig_.run(attention_call(OpKind::kAttentionBackward, {grad}, {out, qkv, out, lse}));
  // Queries from 128 on see keys from 109 on: their panel starts behind what is not a number.
  Values results = rig_.read(out), grads = rig_.read(grad);
  for (size_t i = 128 * 16; i < results.size(); ++i) ASSERT_TRUE(std::isfinite(results[i])) << i;
  for (size_t i = 128 * 48; i < grads.size(); ++i) ASSERT_TRUE(std::isfinite(grads[i])) << i;
}

TEST_P(AttentionTest, WrongDocumentStartsAreDataLoss) {
  make_inputs({2, 4, 1, 1, 16}, 0.0f);
  TensorView out = rig_.poisoned(storage_, {rows_, 16});
  TensorView lse = rig_.poisoned(DType::kF32, {rows_, 1});
  for (const Ids& starts : {Ids{0, 0, 2, 2, 0, 1, 1, 2}, Ids{0, 0, 2, 2, 1, 1, 2, 2},
                            Ids{0, 0, 2, 0, 0, 0, 0, 0}, Ids{0, 0, 3, 3, 0, 0, 0, 0}}) {
    Status status = rig_.run_once(attention_call(OpKind::kAttentionForward, {out, lse},
                                                 {qkv_tensor(qkv_), {}, rig_.tensor(starts)}));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("document_starts["), std::string::npos) << status.to_string();
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
  EXPECT_LE(logarithm_error(rig_.read(lse), expected.lse), 1e-5);
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
