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

}  // namespace
}  // namespace stagecoach
