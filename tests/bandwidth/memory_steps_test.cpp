#include "tools/bandwidth/memory_steps.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/usable_memory.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A host that gives so much and no more.
struct LimitedHost {
  ByteCount limit = 0, taken = 0, largest = 0;

  Status steps(ByteCount most, ByteCount left = ByteCount{1} << 60) {
    MemorySteps steps;
    steps.most = most;
    steps.left = [this, left] { return left - taken; };
    steps.take = [this](ByteCount size) {
      if (taken + size > limit) return resource_exhausted("no more");
      taken += size;
      largest = std::max(largest, size);
      return Status::ok();
    };
    steps.say = [this](ByteCount bytes, int64_t) { EXPECT_EQ(bytes, taken); };
    return take_memory_steps(steps);
  }
};

TEST(MemoryStepping, FindsTheEndWithoutTakingMuchAtOnce) {
  LimitedHost host{5000 * kMiB};
  EXPECT_EQ(host.steps(64 * kGiB).message(), "no more");
  EXPECT_LE(host.limit - host.taken, MemorySteps::kLeast);
  EXPECT_EQ(host.largest, MemorySteps::kLargest);
  LimitedHost enough{5000 * kMiB};
  EXPECT_TRUE(enough.steps(3000 * kMiB).is_ok());
  EXPECT_EQ(enough.taken, 3000 * kMiB);
  LimitedHost nothing{0};
  EXPECT_FALSE(nothing.steps(kGiB).is_ok());
  EXPECT_EQ(nothing.taken, 0);
}

// More than 8 GiB, and more than 32 bits count.
TEST(MemoryStepping, CountsBeyond32Bits) {
  LimitedHost host{20 * kGiB + 512 * kMiB};
  EXPECT_FALSE(host.steps(40 * kGiB).is_ok());
  EXPECT_GT(host.taken, 20 * kGiB);
}

TEST(MemoryStepping, LeavesWhatIsToStayFree) {
  LimitedHost host{kGiB};
  EXPECT_THAT(host.steps(kGiB, 100 * kMiB).message(), HasSubstr("less than a tenth free"));
  EXPECT_LE(host.taken, 100 * kMiB);
  EXPECT_GT(host.taken, 98 * kMiB);
  HostLimits limits;
  limits.free_bytes = 10 * kGiB;
  EXPECT_EQ(allowed_bytes(limits, true), 9 * kGiB);
  // Memory that appears when it is touched: what is free now is no limit, the control group is.
  EXPECT_GT(allowed_bytes(limits, false), kGiB * kKiB);
  limits.limited_bytes = 20 * kGiB;
  EXPECT_EQ(allowed_bytes(limits, false), 18 * kGiB);
}

// Killed in the middle of a line: what it had said before counts.
TEST(MemoryStepping, AKilledProcessLeavesWhatItHad) {
  ChildOutcome outcome;
  outcome.signal = 9;
  outcome.output =
      "touched 4194304 bytes in 100 ns\ntouched 12884901888 bytes in 300 ns\ntouched 9";
  StepsOutcome steps = read_steps(outcome);
  EXPECT_EQ(steps.bytes, 12 * kGiB);
  EXPECT_EQ(steps.time_ns, 300);
  EXPECT_THAT(steps.stopped, HasSubstr("signal 9"));
  EXPECT_FALSE(steps.is_poisoned);
}

/// What the process of its own would have answered.
auto answering(int signal, const std::string& output,
               std::vector<std::vector<std::string>>& asked) {
  return [signal, output, &asked](const std::vector<std::string>& arguments) {
    asked.push_back(arguments);
    ChildOutcome outcome;
    outcome.exit_code = signal == 0 ? 0 : -1;
    outcome.signal = signal;
    outcome.output = output;
    return Result<ChildOutcome>(outcome);
  };
}

TEST(PinLimits, AreFoundInAProcessOfItsOwnAndWhatFollowsIsMeasured) {
  std::vector<std::vector<std::string>> asked;
  BandwidthOptions options = short_options("pin");
  options.working_set = 256 * kKiB;
  options.max_pinned = kGiB;
  options.run_steps = answering(
      0,
      "pinned 536870912 bytes in 250000000 ns\nstopped: 8 bytes refused\npinning again: refused\n",
      asked);
  BandwidthReport report = run_suite(open_devices("cpu:2[memory=16M]"), options);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].back(), std::to_string(kGiB));
  const MeasurementRecord* limit = report.find("pin/limit/cpu:0/pinned");
  ASSERT_NE(limit, nullptr);
  EXPECT_TRUE(limit->is_ok());
  EXPECT_DOUBLE_EQ(limit->median(), 0.5);
  EXPECT_DOUBLE_EQ(limit->median(1), 0.5);  // seconds a GiB
  EXPECT_TRUE(report.find("pin/cpu:1/pinned/256K")->is_ok());
  std::string text;
  for (const Finding& one : find_problems(report)) text += one.text + one.remedy;
  EXPECT_THAT(text, HasSubstr("512.00 MiB of pinned memory is all that can be had of 1.00 GiB"));
  EXPECT_THAT(text, HasSubstr("--mem registered,pageable"));
  EXPECT_THAT(text, HasSubstr("nothing could be had any more"));
  EXPECT_EQ(bandwidth_exit_code(report, false), 0);
}

TEST(PinLimits, AProcessThatIsKilledTellsHowFarItCame) {
  std::vector<std::vector<std::string>> asked;
  BandwidthOptions options = short_options("pin");
  options.filter = "limit/cpu:0/registered";
  options.run_steps = answering(9, "pinned 1073741824 bytes in 1000 ns\n", asked);
  BandwidthReport report = run_suite(open_devices("cpu:1[memory=16M]"), options);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_TRUE(report.records[0].is_ok());
  EXPECT_DOUBLE_EQ(report.records[0].median(), 1);
  EXPECT_THAT(report.records[0].info.params.find("stopped")->as_string(), HasSubstr("signal 9"));
  options.run_steps = answering(9, "", asked);
  report = run_suite(open_devices("cpu:1[memory=16M]"), options);
  EXPECT_EQ(report.records[0].status, MeasurementStatus::kSkipped);
}

// Totals say too much or too little; what can be touched is what there is.
TEST(UsableMemory, IsWhatCouldBeTouchedLessATenth) {
  std::vector<std::vector<std::string>> asked;
  BandwidthPlan plan;
  plan.groups.resize(2);
  plan.groups[0].pinned_bytes = 6 * kGiB;
  plan.groups[0].host_bytes = 3 * kGiB;
  plan.groups[1].host_bytes = 8 * kGiB;
  BandwidthOptions options;
  options.run_steps = answering(9, fmt::format("touched {} bytes in 5 ns\n", 5 * kGiB), asked);
  UsableMemory memory = find_usable_memory(plan, options);
  EXPECT_EQ(memory.needed, 9 * kGiB);
  EXPECT_EQ(asked[0].back(), std::to_string(10 * kGiB));
  EXPECT_EQ(memory.bytes, 5 * kGiB / 10 * 9);
  EXPECT_THAT(memory.note, HasSubstr("signal 9"));
  options.run_steps = answering(0, fmt::format("touched {} bytes in 5 ns\n", 10 * kGiB), asked);
  memory = find_usable_memory(plan, options);
  EXPECT_EQ(memory.bytes, 9 * kGiB);
  EXPECT_THAT(memory.note, IsEmpty());
  options.run_steps = answering(9, "", asked);
  EXPECT_EQ(find_usable_memory(plan, options).bytes, MemorySteps::kLeast) << "killed at once";
  options.run_steps = [](const std::vector<std::string>&) {
    ChildOutcome interrupted;
    interrupted.exit_code = 130;
    interrupted.output = "touched 4194304 bytes in 5 ns\n";
    return Result<ChildOutcome>(interrupted);
  };
  EXPECT_THAT(find_usable_memory(plan, options).note, IsEmpty());
  options.run_steps = answering(0, "", asked);
  asked.clear();
  plan.groups.resize(0);
  EXPECT_THAT(find_usable_memory(plan, options).note, IsEmpty());
  EXPECT_TRUE(asked.empty()) << "little memory is not asked about";
}

}  // namespace
}  // namespace stagecoach
