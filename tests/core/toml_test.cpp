#include <gtest/gtest.h>

#include "core/json.h"

namespace stagecoach {
namespace {

std::string refusal(std::string_view text) {
  Result<Json> result = parse_toml(text, "run.toml");
  if (result.is_ok()) return "accepted";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return result.status().message();
}

TEST(Toml, YieldsTablesInTheOrderWritten) {
  Result<Json> config = parse_toml(R"(
[train]
iterations = 100
lr = 3e-4
[model]
path = "qwen3-1.7b"  # comment
lora = {rank = 16, alpha = 32, targets = "all-linear"}
[data]
train = ["a.txt", "b.jsonl"]
shuffle = true
)",
                                   "run.toml");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->dump(),
            R"({"train":{"iterations":100,"lr":0.0003},"model":{"path":"qwen3-1.7b",)"
            R"("lora":{"rank":16,"alpha":32,"targets":"all-linear"}},)"
            R"("data":{"train":["a.txt","b.jsonl"],"shuffle":true}})");
  EXPECT_TRUE(config->find("train")->find("iterations")->is_integer());
  EXPECT_FALSE(config->find("train")->find("lr")->is_integer());
}

TEST(Toml, EmptyTextIsAnEmptyTable) {
  EXPECT_EQ(parse_toml("", "x")->dump(), "{}");
}

TEST(Toml, RefusesFaultsWithSourceLineAndColumn) {
  EXPECT_EQ(refusal("a = 1\nb = \n").substr(0, 16), "run.toml: line 2");
  EXPECT_EQ(refusal("a = 1\na = 2\n").substr(0, 16), "run.toml: line 2");
  EXPECT_EQ(refusal("[t]\nx = 1\n[t]\n").substr(0, 16), "run.toml: line 3");
  for (const char* text : {"a", "= 1", "a = [1", "a = \"x", "a = 1 b = 2", "[a", "a = \xff",
                           "a = 99999999999999999999"}) {
    EXPECT_EQ(refusal(text).substr(0, 24), "run.toml: line 1, column") << text;
  }
}

TEST(Toml, RefusesDatesAndTimes) {
  for (const char* value : {"2024-01-01", "12:30:00", "2024-01-01T12:30:00Z"}) {
    EXPECT_EQ(refusal(std::string("a = 1\nb = [") + value + "]").substr(0, 36),
              "run.toml: line 2, column 6: dates an")
        << value;
  }
}

TEST(Toml, RefusesBottomlessNesting) {
  EXPECT_NE(refusal("a = " + std::string(100000, '[')).find("run.toml: line 1"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
