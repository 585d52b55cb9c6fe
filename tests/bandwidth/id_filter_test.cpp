#include "tools/bandwidth/id_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int turn = 0; turn < times; ++turn) all += text;
  return all;
}

bool matches(const std::string& filter, const std::string& id) {
  Result<IdFilter> parsed = IdFilter::parse(filter);
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  return parsed.is_ok() && parsed->matches(id);
}

TEST(IdFilters, FindIdsAnywhereByExtendedExpressions) {
  EXPECT_TRUE(matches("", "copy/cpu:0/up"));
  EXPECT_TRUE(matches("^(copy|duplex)/", "duplex/cpu:0"));
  EXPECT_FALSE(matches("^(copy|duplex)/", "host/copy/threads1"));
  EXPECT_TRUE(matches("cpu:[[:digit:]]{1,2}/(up|down)", "copy/cpu:11/up/pinned"));
  EXPECT_TRUE(matches("[](){}+]+$", "a]"));
  EXPECT_TRUE(matches("threads1$", "host/read/threads1"));
  EXPECT_FALSE(matches("threads1$", "host/read/threads12"));
}

// Each of these took std::regex, or the C library's own, down or on for hours.
TEST(IdFilters, TakeNoMoreThanTheyMayWhateverIsAskedFor) {
  std::string id = repeated("a", 200) + "/y";
  EXPECT_FALSE(matches("(.*)*x$", id));
  EXPECT_FALSE(matches("(a|aa)*x$", id));
  EXPECT_TRUE(matches(repeated("(", 400) + "a" + repeated(")", 400), id));
  EXPECT_TRUE(matches(repeated("(", 300) + "a" + repeated(")*", 300), id));
  EXPECT_TRUE(matches(repeated("(|", 300) + "a" + repeated(")", 300), id));
  for (const std::string& filter :
       {repeated("(", 16500) + repeated(")", 16500), std::string(1001, 'a')}) {
    EXPECT_THAT(IdFilter::parse(filter).status().message(), HasSubstr("it may have 1000 at most"));
  }
  for (const std::string& filter :
       {repeated("(", 100) + "a" + repeated(")+", 100), "a" + repeated("+", 100),
        std::string("((a{1,255}){1,255}){1,255}"), std::string("a{99999999999999999999}")}) {
    EXPECT_THAT(IdFilter::parse(filter).status().message(), HasSubstr("repetitions")) << filter;
  }
}

TEST(IdFilters, RefuseWhatPosixDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a)\\1", "refer back"}, {"\\d+", "no '\\d'"},     {"(?:a)", "no groups with '(?'"},
      {"[a", "not closed"},     {"(", "--filter is '('"}, {"a{2,1}", "--filter is"}};
  for (const auto& [filter, message] : cases) {
    Result<IdFilter> parsed = IdFilter::parse(filter);
    ASSERT_FALSE(parsed.is_ok()) << filter;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(parsed.status().message(), HasSubstr(message));
  }
  EXPECT_TRUE(matches("[\\1]", "1"));
  EXPECT_TRUE(matches("cpu\\.", "cpu."));
}

}  // namespace
}  // namespace stagecoach
