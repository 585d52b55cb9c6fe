#include "scheduler/op_rates_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(OpRatesJson, IsReadAsItWasWritten) {
  std::vector<TimedOp> ops = {
      {{OpKind::kMatmul, DType::kBF16, "nt+>fp32", {8, 4, 16}, 1024}, 1500.5},
      {{OpKind::kAttentionBackward, DType::kF16, "", {64, 32, 128, 64, 32}, 5e9}, 2e6},
      {{OpKind::kAdd, DType::kF32, "", {4096}, 4096}, 1000}};
  Result<std::vector<TimedOp>> read = read_timed_ops(to_json(ops), "here");
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  ASSERT_EQ(read->size(), ops.size());
  for (size_t index = 0; index < ops.size(); ++index) {
    EXPECT_EQ((*read)[index].shape, ops[index].shape) << index;
    EXPECT_DOUBLE_EQ((*read)[index].time_ns, ops[index].time_ns) << index;
  }
}

TEST(OpRatesJson, WhatIsNoTimedOperationIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "here: ops is table; it must be a list"},
      {R"([1])", "here: op 0"},
      {R"([{"op": "matmull", "work": 1, "us": 1}])", "did you mean 'matmul'?"},
      {R"([{"op": "matmul", "work": 0, "us": 1}])", "work"},
      {R"([{"op": "matmul", "work": 1, "us": 0}])", "us"},
      {R"([{"op": "matmul", "work": 1, "us": 1e99}])", "us"},
      {R"([{"op": "matmul", "work": 1}])", "us"},
      {R"([{"op": "matmul", "work": 1, "us": 1, "dtype": "int8"}])", "int8"},
      {R"([{"op": "matmul", "work": 1, "us": 1, "sizes": [-1]}])", "sizes holds -1"},
      {R"([{"op": "matmul", "work": 1, "us": 1, "sizes": [1.5]}])", "sizes holds 1.5"},
      {R"([{"op": "matmul", "work": 1, "us": 1, "sizes": [1,1,1,1,1,1,1,1,1]}])", "at most 8"},
      {R"([{"op": "matmul", "work": 1, "us": 1, "size": []}])", "size"}};
  for (const auto& [text, words] : cases) {
    Result<Json> json = Json::parse(text);
    ASSERT_TRUE(json.is_ok()) << text;
    Result<std::vector<TimedOp>> read = read_timed_ops(*json, "here");
    ASSERT_FALSE(read.is_ok()) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(words)) << text;
  }
}

}  // namespace
}  // namespace stagecoach
