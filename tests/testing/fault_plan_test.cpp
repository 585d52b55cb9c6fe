#include "testing/fault_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "hal/op_call.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(FaultPlan, EveryKindOfEveryVerbSurvivesPrintingAndParsing) {
  int64_t nth = 0;
  FaultPlan all;
  for (std::string_view verb : all_fault_verbs()) {
    for (FaultKind kind : all_fault_kinds()) {
      if (!fault_applies(kind, verb)) continue;
      ++nth;
      int device = static_cast<int>(nth % 4) - 1;
      int64_t delay_ns = kind == FaultKind::kDelay ? 1000 + nth : 0;
      all.faults.push_back(Fault{device, std::string(verb), nth, kind, delay_ns});
    }
  }
  std::string text = format_fault_plan(all);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  Result<FaultPlan> parsed = parse_fault_plan(text);
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_TRUE(*parsed == all);
  EXPECT_EQ(format_fault_plan(*parsed), text);
}

TEST(FaultPlan, HasAFormThatPeopleCanWrite) {
  Result<FaultPlan> parsed = parse_fault_plan("1.copy#17=fail_later,*.matmul#3=delay:2ms");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  FaultPlan expected{{Fault{1, "copy", 17, FaultKind::kFailLater, 0},
                      Fault{Fault::kAnyDevice, "matmul", 3, FaultKind::kDelay, 2'000'000}}};
  EXPECT_TRUE(*parsed == expected);
  EXPECT_EQ(format_fault_plan(FaultPlan{}), "");
  ASSERT_TRUE(parse_fault_plan("").is_ok());
  EXPECT_TRUE(parse_fault_plan("")->faults.empty());
}

TEST(FaultPlan, RefusesWhatItCannotReadAndSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"copy#1=fail", "form"},
      {"0.copy=fail", "form"},
      {"0=copy.1#fail", "form"},
      {"x.copy#1=fail", "index or '*'"},
      {"-1.copy#1=fail", "index or '*'"},
      {"99999999999.copy#1=fail", "index or '*'"},
      {"0.kopy#1=fail", "did you mean 'copy'"},
      {"0.copy#0=fail", "number from 1"},
      {"0.copy#1x=fail", "number from 1"},
      {"0.copy#1=fial", "did you mean 'fail'"},
      {"0.copy#1=delay", "takes a duration"},
      {"0.copy#1=fail:2ms", "takes a duration"},
      {"0.copy#1=delay:soon", "soon"},
      {"0.copy#1=delay:0ms", "above 0"},
      {"0.copy#1=exhaust", "cannot happen to 'copy'"},
      {"0.allocate#1=corrupt", "cannot happen to 'allocate'"},
      {"0.synchronize#1=never_completes", "cannot happen to 'synchronize'"},
      {"0.copy#1=fail,", "comma"},
      {",0.copy#1=fail", "form"},
  };
  for (const auto& [text, hint] : cases) {
    Result<FaultPlan> parsed = parse_fault_plan(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(parsed.status().to_string(), HasSubstr(hint)) << text;
  }
}

TEST(FaultPlan, KnowsEveryOperationAsAVerbThatCanBeCorrupted) {
  for (int i = 0; i < kOpKindCount; ++i) {
    std::string_view verb = op_kind_name(static_cast<OpKind>(i));
    EXPECT_TRUE(fault_applies(FaultKind::kCorrupt, verb)) << verb;
    EXPECT_TRUE(fault_applies(FaultKind::kFail, verb)) << verb;
    EXPECT_FALSE(fault_applies(FaultKind::kExhaust, verb)) << verb;
  }
  EXPECT_FALSE(fault_applies(FaultKind::kFail, "dance"));
  EXPECT_FALSE(fault_applies(FaultKind::kCorrupt, "record"));
  EXPECT_TRUE(fault_applies(FaultKind::kNeverCompletes, "record"));
}

const CallCounts kCounts = {
    {{0, "copy"}, 40}, {{0, "allocate"}, 3}, {{1, "matmul"}, 17}, {{1, "synchronize"}, 1}};

TEST(RandomFault, RepeatsForASeedAndDiffersBetweenSeeds) {
  std::set<std::string> plans;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FaultPlan plan = random_fault(seed, kCounts);
    EXPECT_TRUE(plan == random_fault(seed, kCounts));
    plans.insert(format_fault_plan(plan));
  }
  EXPECT_GT(plans.size(), 100u);
}

TEST(RandomFault, DrawsOnlyCallsThatWereMadeAndKindsThatApply) {
  std::set<FaultKind> kinds;
  std::set<int64_t> nths_of_matmul;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    FaultPlan plan = random_fault(seed, kCounts);
    ASSERT_EQ(plan.faults.size(), 1u);
    const Fault& fault = plan.faults.front();
    auto made = kCounts.find({fault.device, fault.verb});
    ASSERT_NE(made, kCounts.end());
    EXPECT_GE(fault.nth, 1);
    EXPECT_LE(fault.nth, made->second);
    EXPECT_TRUE(fault_applies(fault.kind, fault.verb));
    EXPECT_EQ(fault.delay_ns > 0, fault.kind == FaultKind::kDelay);
    EXPECT_LE(fault.delay_ns, 20'000'000);
    kinds.insert(fault.kind);
    if (fault.verb == "matmul") nths_of_matmul.insert(fault.nth);
  }
  EXPECT_EQ(kinds.size(), all_fault_kinds().size());
  EXPECT_EQ(nths_of_matmul.size(), 17u);
}

TEST(RandomFault, ConsecutiveSeedsCoverEveryVerbOfEveryDevice) {
  std::set<std::pair<int, std::string>> seen;
  for (uint64_t seed = 1000; seed < 1000 + kCounts.size(); ++seed) {
    Fault fault = random_fault(seed, kCounts).faults.front();
    seen.insert({fault.device, fault.verb});
  }
  EXPECT_EQ(seen.size(), kCounts.size());
}

TEST(RandomFault, KeepsToTheKindsAskedForAndFailsWhereNoneApplies) {
  const FaultKind only[] = {FaultKind::kExhaust};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Fault fault = random_fault(seed, kCounts, only).faults.front();
    EXPECT_EQ(fault.kind, fault.verb == "allocate" ? FaultKind::kExhaust : FaultKind::kFail);
  }
}

TEST(LeastCounts, KeepsWhatEveryRunHasAndTheSmallestOfIt) {
  std::vector<CallCounts> runs = {{{{0, "copy"}, 5}, {{0, "query_event"}, 90}, {{1, "wait"}, 2}},
                                  {{{0, "copy"}, 5}, {{0, "query_event"}, 70}}};
  CallCounts expected = {{{0, "copy"}, 5}, {{0, "query_event"}, 70}};
  EXPECT_EQ(least_counts(runs), expected);
  EXPECT_TRUE(least_counts({}).empty());
}

}  // namespace
}  // namespace stagecoach
