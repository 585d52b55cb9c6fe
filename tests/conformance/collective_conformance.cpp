#include <cmath>
#include <cstring>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

constexpr size_t kRanks = 2;
constexpr ByteCount kPieceBytes = 512;  // smaller than the tensors, so several pieces move

class CollectiveConformance : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    for (size_t rank = 0; rank < kRanks; ++rank) streams_.push_back(new_stream("rank", rank));
    auto made = make_host_staged_collective({streams_[0].get(), streams_[1].get()}, kPieceBytes);
    ASSERT_TRUE(is_ok(made));
    collective_ = std::move(made).value();
  }
  void TearDown() override {
    collective_.reset();
    buffers_.clear();
    streams_.clear();
    ConformanceTest::TearDown();
  }

  TensorView tensor(const std::vector<float>& values, size_t rank) {
    buffers_.push_back(upload(values, rank));
    return {buffers_.back()->view(), DType::kF32, Shape{static_cast<int64_t>(values.size())}};
  }
  /// Holds NaN until written.
  TensorView output(size_t count, size_t rank) {
    return tensor(std::vector<float>(count, std::nanf("")), rank);
  }
  TensorView half_tensor(const std::vector<float>& values, size_t rank) {
    std::vector<uint32_t> words(values.size() / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      words[i / 2] |= static_cast<uint32_t>(to_bfloat16(values[i]).bits) << (16 * (i % 2));
    }
    std::vector<float> packed(words.size());
    std::memcpy(packed.data(), words.data(), words.size() * sizeof(float));
    buffers_.push_back(upload(packed, rank));
    return {buffers_.back()->view(), DType::kBF16, Shape{static_cast<int64_t>(values.size())}};
  }
  std::vector<float> read_half(const TensorView& view) {
    std::vector<float> values;
    for (uint32_t word : download_words(view.memory)) {
      for (int half = 0; half < 2; ++half) {
        values.push_back(to_float(BFloat16{static_cast<uint16_t>(word >> (16 * half))}));
      }
    }
    return values;
  }
  static std::vector<float> values(size_t count, float first, float step) {
    std::vector<float> result(count);
    for (size_t i = 0; i < count; ++i) result[i] = first + step * static_cast<float>(i);
    return result;
  }
  void wait_for(const Result<std::vector<Timepoint>>& ends) {
    ASSERT_TRUE(is_ok(ends));
    ASSERT_EQ(ends.value().size(), kRanks);
    for (Timepoint end : ends.value()) ASSERT_TRUE(is_ok(wait_until_reached(end)));
  }

  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<Collective> collective_;
  std::vector<BufferHandle> buffers_;
};

// V3: every rank gets all inputs in rank order, over several pieces.
TEST_P(CollectiveConformance, V3_AllGather) {
  constexpr size_t kCount = 300;
  std::vector<float> left = values(kCount, 1, 1), right = values(kCount, -1, 0.5f);
  TensorView first = tensor(left, 0), second = tensor(right, 1);
  TensorView first_out = output(2 * kCount, 0), second_out = output(2 * kCount, 1);
  wait_for(collective_->all_gather({first, second}, {first_out, second_out}));
  std::vector<float> expected = left;
  expected.insert(expected.end(), right.begin(), right.end());
  EXPECT_EQ(download(first_out.memory), expected);
  EXPECT_EQ(download(second_out.memory), expected);
}

// V3: inputs may already lie in their place.
TEST_P(CollectiveConformance, V3_AllGatherInPlace) {
  constexpr size_t kCount = 200;
  std::vector<float> expected = values(2 * kCount, 3, 2);
  std::vector<TensorView> in, out;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    std::vector<float> mine(2 * kCount, std::nanf(""));
    std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(rank * kCount), kCount,
                mine.begin() + static_cast<std::ptrdiff_t>(rank * kCount));
    out.push_back(tensor(mine, rank));
    ByteCount bytes = kCount * sizeof(float);
    in.push_back({out[rank].memory.slice(static_cast<ByteCount>(rank) * bytes, bytes), DType::kF32,
                  Shape{kCount}});
  }
  wait_for(collective_->all_gather(in, out));
  for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(download(out[rank].memory), expected);
}

// V3: each rank gets the sum of its piece.
TEST_P(CollectiveConformance, V3_ReduceScatter) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  constexpr size_t kCount = 600;
  std::vector<float> left = values(kCount, 0.1f, 0.3f), right = values(kCount, 5, -0.7f);
  TensorView first_out = output(kCount / 2, 0), second_out = output(kCount / 2, 1);
  wait_for(
      collective_->reduce_scatter({tensor(left, 0), tensor(right, 1)}, {first_out, second_out}));
  std::vector<float> first = download(first_out.memory), second = download(second_out.memory);
  for (size_t i = 0; i < kCount; ++i) {
    float expected = left[i] + right[i];  // rank order, fp32
    EXPECT_EQ(i < kCount / 2 ? first[i] : second[i - kCount / 2], expected) << i;
  }
}

// V3: one rank gets the sum, whichever it is, again and again.
TEST_P(CollectiveConformance, V3_ReduceToAnyRoot) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  constexpr size_t kCount = 257;
  std::vector<float> left = values(kCount, 0.1f, 1), right = values(kCount, 0.7f, -3);
  TensorView first = tensor(left, 0), second = tensor(right, 1);
  for (int round = 0; round < 4; ++round) {
    int root = round % 2;
    TensorView out = output(kCount, static_cast<size_t>(root));
    wait_for(collective_->reduce({first, second}, out, root));
    std::vector<float> sums = download(out.memory);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[i], left[i] + right[i]) << i;
  }
}

// V3: 16-bit sums are taken in fp32 and rounded once.
TEST_P(CollectiveConformance, V3_SixteenBitSumsAreRoundedOnce) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  constexpr size_t kCount = 600;
  std::vector<float> left = values(kCount, 256, 2), right = values(kCount, 0.5f, 0.0625f);
  TensorView out = half_tensor(std::vector<float>(kCount, std::nanf("")), 0);
  wait_for(collective_->reduce({half_tensor(left, 0), half_tensor(right, 1)}, out, 0));
  std::vector<float> sums = read_half(out);
  for (size_t i = 0; i < kCount; ++i) {
    float exact = to_float(to_bfloat16(left[i])) + to_float(to_bfloat16(right[i]));
    EXPECT_EQ(sums[i], to_float(to_bfloat16(exact))) << i;
  }
}

// E1, invalid argument: tensors that do not fit together.
TEST_P(CollectiveConformance, E1_BadTensorsAreRefused) {
  TensorView first = tensor(values(8, 0, 1), 0), second = tensor(values(8, 0, 1), 1);
  TensorView short_one = tensor(values(4, 0, 1), 1);
  TensorView first_out = output(16, 0), second_out = output(16, 1);
  auto refused = [](const auto& result) {
    EXPECT_TRUE(has_code(result, StatusCode::kInvalidArgument));
  };
  refused(collective_->all_gather({first}, {first_out}));
  refused(collective_->all_gather({first, short_one}, {first_out, second_out}));
  refused(collective_->all_gather({first, second}, {first, second}));
  refused(collective_->all_gather({second, first}, {first_out, second_out}));
  refused(collective_->reduce({first, second}, first_out, 0));
  refused(collective_->reduce({first, second}, first, 2));
  refused(collective_->reduce({first, second}, first, -1));
  refused(collective_->reduce_scatter({first, second}, {first, second}));
  for (auto& stream : streams_) EXPECT_TRUE(is_ok(stream->synchronize()));
}

// E1, invalid argument: a collective over nothing, or without room.
TEST_P(CollectiveConformance, E1_BadCollectivesAreRefused) {
  EXPECT_TRUE(has_code(make_host_staged_collective({}, kPieceBytes), StatusCode::kInvalidArgument));
  EXPECT_TRUE(
      has_code(make_host_staged_collective({streams_[0].get()}, 1), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(make_host_staged_collective({streams_[0].get(), nullptr}, kPieceBytes),
                       StatusCode::kInvalidArgument));
}

// E5: the failure of one rank reaches the others.
TEST_P(CollectiveConformance, E5_AFailedRankFailsTheOthers) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  TensorView first = tensor(values(8, 0, 1), 0), second = tensor(values(8, 0, 1), 1);
  streams_[1]->abandon(cancelled("rank lost"));
  auto ends = collective_->reduce({first, second}, output(8, 0), 0);
  EXPECT_TRUE(has_code(ends, StatusCode::kCancelled));
}

STAGECOACH_CONFORMANCE_SUITE(CollectiveConformance);

}  // namespace
}  // namespace stagecoach
