#include <gtest/gtest.h>
#include <set>

#include "tests/kernels/op_case.h"

namespace stagecoach {
namespace {

/// Every GPU kernel against the CPU oracle, without a GPU: its source runs on the host.
class EmulatedOpsTest : public testing::TestWithParam<DType> {
 protected:
  void expect_as_oracle() {
    auto oracle = oracle_machine();
    auto emulated = emulated_machine();
    CaseMaker maker(std::random_device{}());
    for (const auto& make : op_cases(GetParam(), false)) {
      OpCase test = make(maker);
      SCOPED_TRACE(std::string(op_kind_name(test.call.kind)) + ": " + test.name);
      Result<OpOutputs> actual = emulated->run(test);
      Result<OpOutputs> expected = oracle->run(test);
      Result<OpOutputs> exact = oracle->run(in_fp32(test));
      ASSERT_TRUE(expected.is_ok()) << expected.status().to_string();
      ASSERT_TRUE(exact.is_ok()) << exact.status().to_string();
      ASSERT_TRUE(actual.is_ok()) << actual.status().to_string();
      EXPECT_EQ(compare_outputs(test, *actual, *expected, *exact), "");
    }
  }
};

TEST_P(EmulatedOpsTest, AgreeWithTheOracle) {
  expect_as_oracle();
}

/// The comparison sees one wrong row, one NaN and one other bit.
TEST_P(EmulatedOpsTest, ComparisonSeesErrors) {
  auto oracle = oracle_machine();
  CaseMaker maker(1);
  std::set<OpKind> kinds;
  for (const auto& make : op_cases(GetParam(), false)) {
    OpCase test = make(maker);
    if (!kinds.insert(test.call.kind).second) continue;
    SCOPED_TRACE(op_kind_name(test.call.kind));
    Result<OpOutputs> expected = oracle->run(test);
    Result<OpOutputs> exact = oracle->run(in_fp32(test));
    ASSERT_TRUE(expected.is_ok() && exact.is_ok());
    EXPECT_EQ(compare_outputs(test, *expected, *expected, *exact), "");
    OpOutputs wrong = *expected;
    // The sign and the exponent of the first element.
    wrong[0].bytes[static_cast<size_t>(dtype_size_bytes(wrong[0].dtype)) - 1] ^= std::byte{0xc0};
    EXPECT_NE(compare_outputs(test, wrong, *expected, *exact), "");
    wrong = *expected;
    for (std::byte& byte : wrong[0].bytes) byte = std::byte{0xff};
    EXPECT_NE(compare_outputs(test, wrong, *expected, *exact), "");
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kOpKindCount));
}

/// What train/device_updater.h runs on a piece of a split master, twice. Returns halves and
/// moments.
std::vector<HostTensor> update_split_master(OpMachine& machine, const OpOutputs& start,
                                            const HostTensor& gradient) {
  const Shape& shape = gradient.shape;
  auto run = [&](OpCase test) {
    Result<OpOutputs> outputs = machine.run(test);
    EXPECT_TRUE(outputs.is_ok()) << outputs.status().to_string();
    return std::move(outputs).value();
  };
  HostTensor high = start[0], remainder = start[1];
  HostTensor first = CaseMaker::zeros(DType::kF32, shape), second = first;
  for (int64_t step = 1; step <= 2; ++step) {
    OpOutputs joined = run(make_case("join", OpKind::kJoinMaster,
                                     {CaseMaker::poisoned(DType::kF32, shape)}, {high, remainder}));
    OpCase update = make_case("update", OpKind::kAdamW, {joined[0], first, second}, {gradient});
    update.call.adamw = AdamWNumbers{1e-2f, 0.9f, 0.95f, 0.1f, step};
    update.call.epsilon = 1e-8f;
    update.call.scale = 0.37f;
    OpOutputs updated = run(update);
    first = updated[1];
    second = updated[2];
    OpOutputs split = run(make_case(
        "split", OpKind::kSplitMaster,
        {CaseMaker::poisoned(DType::kBF16, shape), CaseMaker::poisoned(DType::kI16, shape)},
        {updated[0]}));
    high = split[0];
    remainder = split[1];
  }
  return {high, remainder, first, second};
}

TEST_P(EmulatedOpsTest, AnUpdateOfASplitMasterGivesTheBitsOfTheOracle) {
  auto oracle = oracle_machine();
  auto emulated = emulated_machine();
  CaseMaker maker(3);
  Shape shape = {5003};
  OpOutputs start = maker.forward(
      make_case("split", OpKind::kSplitMaster,
                {CaseMaker::poisoned(DType::kBF16, shape), CaseMaker::poisoned(DType::kI16, shape)},
                {maker.random(DType::kF32, shape)}));
  HostTensor gradient = maker.random(GetParam(), shape);
  std::vector<HostTensor> expected = update_split_master(*oracle, start, gradient);
  std::vector<HostTensor> found = update_split_master(*emulated, start, gradient);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i].bytes, expected[i].bytes) << i;
  EXPECT_NE(found[1].bytes, start[1].bytes);
}

TEST_P(EmulatedOpsTest, IdsOutsideTheVocabularyAreReportedByTheirFirstRow) {
  auto emulated = emulated_machine();
  CaseMaker maker(2);
  int reported = 0;
  for (const auto& make : op_cases(GetParam(), false)) {
    OpCase test = make(maker);
    // What group_rows made of choices is not looked at again, nor are labels where they only count.
    bool is_routed = test.call.kind >= OpKind::kRouteBackward;
    if (is_routed && test.call.kind != OpKind::kGroupRows) continue;
    for (HostTensor& input : test.inputs) {
      if (input.is_none() || input.dtype != DType::kI32 || input.shape[0] < 40) continue;
      for (size_t row : {size_t{31}, size_t{20}}) input.bytes[4 * row + 3] = std::byte{0x7f};
      Result<OpOutputs> result = emulated->run(test);
      ASSERT_FALSE(result.is_ok());
      EXPECT_EQ(result.status().message(), "row 20");
      ++reported;
    }
  }
  EXPECT_GE(reported, 5);
}

INSTANTIATE_TEST_SUITE_P(Storage, EmulatedOpsTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace stagecoach
