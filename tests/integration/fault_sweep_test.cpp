#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "testing/interceptor.h"
#include "tests/integration/fault_sweep_fixture.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

/// No progress for this long ends runs that hang. The default of ten seconds has a test of its own.
constexpr int64_t kTimeoutNs = 1'000'000'000;
/// What a failing run may take beyond that on a busy machine.
constexpr double kSlackSeconds = 8;

constexpr uint64_t kSweepPieces = 13;
constexpr uint64_t kSeedsOfPiece = 40;
constexpr uint64_t kSweepSeeds = kSweepPieces * kSeedsOfPiece;
static_assert(kSweepSeeds >= 500);

constexpr const char* kUpdates[] = {"overlap", "async", "barrier"};

/// The run that follows `plan`. How often some verbs are called depends on timing: when the call
/// was not reached an earlier one is taken, down to the first, which every run makes.
FaultedRun run_until_fired(FaultPlan& plan, TinyRun run) {
  Fault& fault = plan.faults.front();
  if (fault.kind == FaultKind::kNeverCompletes) run.options.timeout_ns = kTimeoutNs;
  while (true) {
    FaultedRun outcome = train_with_faults(run, plan);
    if (outcome.fired || fault.nth == 1) return outcome;
    EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
    EXPECT_EQ(outcome.weights_sha256, fault_free_run(run.options.update).weights_sha256);
    fault.nth = (fault.nth + 1) / 2;
  }
}

void expect_failure(const FaultedRun& outcome, const Fault& fault, StatusCode code) {
  ASSERT_FALSE(outcome.status.is_ok()) << "the run went on";
  EXPECT_EQ(outcome.status.code(), code);
  const FailureSite& site = outcome.status.site();
  EXPECT_EQ(site.device, "cpu:" + std::to_string(fault.device));
  EXPECT_FALSE(site.verb.empty());
  EXPECT_FALSE(site.label.empty());
  EXPECT_LT(outcome.seconds, static_cast<double>(kTimeoutNs) * 1e-9 + kSlackSeconds);
}

void expect_same_result(const FaultedRun& outcome, const std::string& update) {
  ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  EXPECT_EQ(outcome.weights_sha256, fault_free_run(update).weights_sha256);
}

/// What each kind of fault must lead to.
void expect_right_end(const FaultedRun& outcome, const Fault& fault, const std::string& update) {
  switch (fault.kind) {
    case FaultKind::kFail:
    case FaultKind::kFailLater:
      expect_failure(outcome, fault, StatusCode::kInternal);
      EXPECT_EQ(outcome.status.site().verb, fault.verb);
      break;
    case FaultKind::kDeviceLost:
      // Another thread's next call on the device may be the first to be answered.
      expect_failure(outcome, fault, StatusCode::kDeviceLost);
      break;
    case FaultKind::kNeverCompletes:
      expect_failure(outcome, fault, StatusCode::kDeadlineExceeded);
      break;
    case FaultKind::kExhaust:
      // Host memory that cannot be pinned is pageable.
      if (fault.verb == verbs::kAllocatePinned) return expect_same_result(outcome, update);
      expect_failure(outcome, fault, StatusCode::kResourceExhausted);
      break;
    case FaultKind::kDelay:
      expect_same_result(outcome, update);
      break;
    case FaultKind::kCorrupt:
      // Not-a-number is refused as data loss; a target that became "ignored" changes the result.
      if (outcome.status.is_ok()) {
        EXPECT_NE(outcome.weights_sha256, fault_free_run(update).weights_sha256)
            << "went unnoticed";
      } else {
        EXPECT_EQ(outcome.status.code(), StatusCode::kDataLoss);
      }
      break;
  }
}

void try_seeds(uint64_t first, uint64_t count, const std::string& schedule = "roundpipe") {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::string update = kUpdates[random_word({seed, 0, 0, 0, 0}, 0) % std::size(kUpdates)];
    FaultPlan plan = random_fault(seed, certain_counts(schedule, update));
    FaultedRun outcome = run_until_fired(plan, sweep_run(schedule, update));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + update + ": " + format_fault_plan(plan) +
                 " -> " + outcome.status.to_string());
    EXPECT_TRUE(outcome.fired);
    expect_right_end(outcome, plan.faults.front(), update);
  }
}

TEST(FaultSweep, CoversEveryVerbThatTrainingCallsOnBothDevices) {
  ASSERT_TRUE(fault_free_run().status.is_ok()) << fault_free_run().status.to_string();
  std::set<std::string> verbs_of[2];
  for (const auto& [key, count] : certain_counts()) verbs_of[key.first].insert(key.second);
  for (const std::set<std::string>& called : verbs_of) {
    for (std::string_view verb :
         {verbs::kCopy, verbs::kFill, verbs::kRecord, verbs::kWait, verbs::kQueryEvent,
          verbs::kCreateStream, verbs::kCreateEvent, verbs::kAllocate}) {
      EXPECT_TRUE(called.contains(std::string(verb))) << verb;
    }
    EXPECT_TRUE(called.contains("matmul"));
    EXPECT_TRUE(called.contains("attention_backward"));
  }
  // As many consecutive seeds as there are pairs of verb and device touch each of them.
  EXPECT_GE(kSweepSeeds, 5 * certain_counts().size());
}

/// A part of the sweep that sanitizer builds run too.
TEST(FaultSweep, FirstSeeds) {
  try_seeds(kSweepSeeds, 40);
}

TEST(FaultSweep, BoundSchedules) {
  try_seeds(kSweepSeeds + 40, 12, "1f1b");
  try_seeds(kSweepSeeds + 52, 12, "zb-v");
}

// An update that fails is a job of the host's queue that fails, be it while the next pass runs.
TEST(FaultSweep, HostWorkThatFailsEndsTheRunWithItsCause) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    for (const char* update : kUpdates) {
      for (int failing = 0; failing < 3; ++failing) {
        TinyRun run = sweep_run(schedule, update);
        run.learning_rate = [failing](int iteration) {
          return iteration == failing ? std::numeric_limits<double>::infinity() : 3e-3;
        };
        FaultedRun outcome = train_with_faults(run, FaultPlan{});
        SCOPED_TRACE(std::string(schedule) + ", " + update + ", step " + std::to_string(failing));
        ASSERT_EQ(outcome.status.code(), StatusCode::kDataLoss) << outcome.status.to_string();
        EXPECT_EQ(outcome.status.site().device, "host");
        EXPECT_EQ(outcome.status.site().label, "update");
        EXPECT_THAT(outcome.status.to_string(),
                    HasSubstr("update " + std::to_string(failing + 1) + ":"));
        EXPECT_LT(outcome.seconds, kSlackSeconds);
      }
    }
  }
}

/// The sweep, in pieces that run side by side.
class SlowFaultSweep : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, SlowFaultSweep, ::testing::Range<uint64_t>(0, kSweepPieces));

TEST_P(SlowFaultSweep, EndsWithOneMessageAndWithoutAHang) {
  try_seeds(GetParam() * kSeedsOfPiece, kSeedsOfPiece);
}

TEST(SlowFaultHang, IsNoticedAfterTenSecondsWhateverTheTimeout) {
  Result<FaultPlan> plan = parse_fault_plan("1.matmul#20=never_completes");
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  FaultedRun outcome = train_with_faults(sweep_run(), *plan);
  EXPECT_EQ(outcome.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status.to_string(), HasSubstr("(device cpu:1, stream compute, verb "));
  EXPECT_GT(outcome.seconds, 10);
  EXPECT_LT(outcome.seconds, 10 + kSlackSeconds);
}

}  // namespace
}  // namespace stagecoach::testing
