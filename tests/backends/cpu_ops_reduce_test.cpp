#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

#include "tests/backends/op_test_rig.h"

namespace stagecoach {
namespace {

class ReduceTest : public testing::TestWithParam<DType> {
 protected:
  OpTestRig rig_;
};

TEST_P(ReduceTest, SumOfSquaresHasTheStatedBits) {
  constexpr int64_t kPiece = 65536;
  for (int64_t count :
       {int64_t{1}, int64_t{17}, kPiece - 1, kPiece, 3 * kPiece + 5, 9 * kPiece + 1, 16 * kPiece}) {
    Values in = rig_.random(count, GetParam());
    TensorView out = rig_.poisoned(DType::kF64, {1});
    rig_.run(make_call(OpKind::kSumOfSquares, {out}, {rig_.tensor(GetParam(), {count}, in)}));
    double expected = 0.0;
    for (int64_t first = 0; first < count; first += kPiece) {
      double lanes[32] = {};
      for (int64_t i = first; i < std::min(count, first + kPiece); ++i) {
        double value = in[static_cast<size_t>(i)];
        lanes[i % 32] += value * value;
      }
      for (int half = 16; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      }
      expected += lanes[0];
    }
    EXPECT_EQ(rig_.read(out)[0], expected) << count;
    EXPECT_NEAR(expected, reference::sum_of_squares(in), 1e-9 * expected);
  }
}

TEST_P(ReduceTest, SumOfSquaresShowsWhatIsNotFinite) {
  TensorView out = rig_.tensor(DType::kF64, {1}, {0.0});
  rig_.run(make_call(OpKind::kSumOfSquares, {out}, {rig_.poisoned(GetParam(), {100})}));
  EXPECT_NE(rig_.read(out)[0], rig_.read(out)[0]);
}

TEST_P(ReduceTest, ChecksumDependsOnOrder) {
  Values in = rig_.random(1000, GetParam());
  auto checksum = [&] {
    TensorView tensor = rig_.tensor(GetParam(), {1000}, in);
    TensorView out = rig_.poisoned(DType::kU64, {1});
    rig_.run(make_call(OpKind::kChecksum, {out}, {tensor}));
    std::vector<std::byte> data = rig_.bytes(tensor);
    std::vector<uint32_t> words(data.size() / 4);
    std::memcpy(words.data(), data.data(), data.size());
    uint64_t value = 0;
    std::memcpy(&value, rig_.bytes(out).data(), sizeof(value));
    EXPECT_EQ(value, reference::checksum(words));
    return value;
  };
  in[0] = 1.0;
  in[999] = 2.0;
  uint64_t before = checksum();
  std::swap(in[0], in[999]);
  EXPECT_NE(checksum(), before);
}

INSTANTIATE_TEST_SUITE_P(Storage, ReduceTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
