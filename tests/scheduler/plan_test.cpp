#include "scheduler/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/plan_validation.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

Plan two_layer_plan() {
  Plan plan;
  plan.micro_batches = 2;
  plan.stages = {{ActionKind::kForward, 0, 0},
                 {ActionKind::kForwardBackward, 1, 1},
                 {ActionKind::kBackward, 0, 0}};
  plan.device_actions = {{{0, 0}, {0, 1}, {2, 0}, {2, 1}}, {{1, 0}, {1, 1}}};
  return plan;
}

TEST(Plan, ValidPlanPasses) {
  EXPECT_TRUE(validate_plan(two_layer_plan(), 2, false).is_ok());
}

TEST(Plan, MissingActionIsNamed) {
  Plan plan = two_layer_plan();
  plan.device_actions[0].pop_back();
  Status status = validate_plan(plan, 2, false);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("micro-batch 1 of layer 0 1 times forward and 0 times"));
}

TEST(Plan, DoubledActionIsRefused) {
  Plan plan = two_layer_plan();
  plan.device_actions[1].push_back({0, 0});
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("2 times forward"));
}

TEST(Plan, DeadlockIsNamed) {
  Plan plan = two_layer_plan();
  // The backward of micro-batch 0 before its forward can never start.
  plan.device_actions[0] = {{2, 0}, {0, 0}, {0, 1}, {2, 1}};
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("device 0 never gets the input of B2:0"));
}

TEST(Plan, IndicesOutsideAreRefused) {
  Plan plan = two_layer_plan();
  plan.device_actions[0][0].stage = 3;
  EXPECT_FALSE(validate_plan(plan, 2, false).is_ok());
  plan = two_layer_plan();
  plan.device_actions[0][0].micro_batch = 2;
  EXPECT_FALSE(validate_plan(plan, 2, false).is_ok());
  plan = two_layer_plan();
  plan.stages[0].last_layer = 2;
  EXPECT_FALSE(validate_plan(plan, 2, false).is_ok());
  plan = two_layer_plan();
  plan.rounds = 3;
  EXPECT_FALSE(validate_plan(plan, 2, false).is_ok());
}

TEST(Plan, InferenceWantsNoBackward) {
  Plan plan;
  plan.micro_batches = 1;
  plan.stages = {{ActionKind::kForward, 0, 1}};
  plan.device_actions = {{{0, 0}}};
  EXPECT_TRUE(validate_plan(plan, 2, true).is_ok());
  EXPECT_FALSE(validate_plan(plan, 2, false).is_ok());
}

/// Two stages bound to two devices, two micro-batches, backward in halves.
Plan bound_plan() {
  Plan plan;
  plan.micro_batches = 2;
  plan.residence = Residence::kBound;
  plan.stages = {{ActionKind::kForward, 0, 0},        {ActionKind::kForward, 1, 1},
                 {ActionKind::kInputGradient, 1, 1},  {ActionKind::kInputGradient, 0, 0},
                 {ActionKind::kWeightGradient, 1, 1}, {ActionKind::kWeightGradient, 0, 0}};
  plan.device_actions = {{{0, 0}, {0, 1}, {3, 0}, {5, 0}, {3, 1}, {5, 1}},
                         {{1, 0}, {2, 0}, {1, 1}, {2, 1}, {4, 0}, {4, 1}}};
  return plan;
}

TEST(Plan, HalvesCoverLikeAWholeBackward) {
  EXPECT_TRUE(validate_plan(bound_plan(), 2, false).is_ok())
      << validate_plan(bound_plan(), 2, false).to_string();
  Plan plan = bound_plan();
  plan.device_actions[1].pop_back();
  EXPECT_THAT(
      validate_plan(plan, 2, false).message(),
      HasSubstr("micro-batch 1 of layer 1 1 times forward, 1 times to its input gradient (B "
                "or I) and 0 times to its weight gradient"));
}

TEST(Plan, WeightHalfBeforeInputHalfDeadlocks) {
  Plan plan = bound_plan();
  std::swap(plan.device_actions[0][2], plan.device_actions[0][3]);
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("device 0 never gets the input of W5:0, entry 2"));
}

TEST(Plan, BoundLayersStayOnTheirDevice) {
  Plan plan = bound_plan();
  plan.device_actions[1].push_back(plan.device_actions[0].back());
  plan.device_actions[0].pop_back();
  EXPECT_THAT(
      validate_plan(plan, 2, false).message(),
      HasSubstr("binds layer 0 to 2 devices, but weights exist 1 times: device 1, entry 6"));
  plan.weight_copies = 2;
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("runs micro-batch 1 of layer 0 on device 0 and at device 1, entry 6"));
}

TEST(Plan, InFlightLimitIsKept) {
  Plan plan = bound_plan();
  plan.in_flight_limit = {2, 1};
  EXPECT_TRUE(validate_plan(plan, 2, false).is_ok());
  plan.in_flight_limit = {1, 1};
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("2 forwards in flight at device 0, entry 1 (F0:1); the limit is 1"));
  plan.in_flight_limit = {1};
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("1 in-flight limits for 2"));
  plan.in_flight_limit = {1, 0};
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("limits device 1 to 0"));
}

TEST(Plan, FlushNeedsAllBackwardsOfTheUpdateBefore) {
  Plan plan = bound_plan();
  plan.accumulation = 1;  // micro-batch 1 needs the result of micro-batch 0
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("needs version 1 of layer 0 at device 0, entry 1 (F0:1), but only 0 of 1"));
  plan.version_rule = VersionRule::kCurrent;
  EXPECT_TRUE(validate_plan(plan, 2, false).is_ok());
  plan.version_rule = VersionRule::kDelayed;
  EXPECT_TRUE(validate_plan(plan, 2, false).is_ok());
}

TEST(Plan, StreamedLayersThatNeverGetTheirVersionDeadlock) {
  Plan plan = two_layer_plan();
  plan.accumulation = 1;
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("device 0 never gets version 1 of the weights of F0:1, entry 1"));
}

TEST(Plan, SharedSlotsNeedBothInputs) {
  Plan plan = bound_plan();
  // I of micro-batch 0 cannot start with the forward it follows from.
  plan.device_actions[1][0].with_next = true;
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("plan deadlocks"));
  plan = bound_plan();
  plan.device_actions[1].back().with_next = true;
  EXPECT_THAT(
      validate_plan(plan, 2, false).message(),
      HasSubstr("device 1, entry 5 (W4:1) share a slot with the next entry; it is the last"));
}

TEST(Plan, GateNeedsLimitsAndOneStageADevice) {
  Plan plan = bound_plan();
  plan.admission = Admission::kGate;
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("has no in-flight limits"));
  plan.in_flight_limit = {2, 1};
  EXPECT_THAT(validate_plan(plan, 2, false).message(), HasSubstr("runs F and B only, not I"));
  plan = two_layer_plan();
  plan.stages[1].kind = ActionKind::kForward;
  plan.admission = Admission::kGate;
  plan.in_flight_limit = {2, 1};
  plan.device_actions[0].push_back({1, 0});
  EXPECT_THAT(validate_plan(plan, 2, false).message(),
              HasSubstr("one stage a device and one action at a time; device 0, entry 4 (F1:0)"));
}

TEST(Plan, StageNumbersAreLayerRanges) {
  EXPECT_EQ(stage_numbers(bound_plan()), (std::vector<int>{0, 1, 1, 0, 1, 0}));
  EXPECT_EQ(bound_plan().layer_count(), 2);
}

}  // namespace
}  // namespace stagecoach
