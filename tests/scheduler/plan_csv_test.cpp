#include "scheduler/plan_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "scheduler/plan_validation.h"
#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

Result<Plan> read(std::string_view csv) {
  return plan_from_csv({"order.csv", csv}, std::nullopt);
}
Result<Plan> read(std::string_view csv, std::string_view sidecar) {
  return plan_from_csv({"order.csv", csv}, NamedText{"stages.csv", sidecar});
}

void expect_round_trip(const Plan& plan) {
  Result<Plan> back = read(plan_to_csv(plan), plan_to_sidecar(plan));
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_TRUE(*back == plan) << plan_to_text(*back) << "instead of\n" << plan_to_text(plan);
}

TEST(PlanCsv, EverySchedulesPlanComesBackExactly) {
  int checked = 0;
  for (const Schedule& schedule : all_schedules()) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int micro_batches : {1, stages, 2 * stages, 4 * stages, 4 * stages + 1}) {
        Result<Plan> plan = make_plan(schedule, pipeline(stages, micro_batches));
        if (!plan.is_ok()) continue;
        SCOPED_TRACE(schedule.name);
        expect_round_trip(*plan);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 400);
}

TEST(PlanCsv, LayerRangesAndPoliciesComeBack) {
  ScheduleParameters parameters = pipeline(2, 4);
  parameters.layers = {{0, 2}, {3, 8}};
  parameters.accumulation = 2;
  parameters.gate = 1;
  Result<const Schedule*> paci = find_schedule("paci");
  ASSERT_TRUE(paci.is_ok());
  Result<Plan> plan = make_plan(**paci, parameters);
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  EXPECT_EQ(plan->layer_count(), 9);
  expect_round_trip(*plan);
  ScheduleParameters rounds = slot_pipeline(3, 12, 4, 9, 4);
  rounds.iterations = 2;
  rounds.asynchronous = 1;
  ScheduleParameters barrier = pipeline(3, 6);
  barrier.iterations = 2;
  barrier.barrier = 1;
  expect_round_trip(run_valid("zb-h1", barrier).plan);
  expect_round_trip(run_valid("roundpipe", rounds).plan);
}

TEST(PlanCsv, WritesActionSyntax) {
  EXPECT_EQ(plan_to_csv(run_valid("1f1b", pipeline(2, 2)).plan),
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(plan_to_csv(run_valid("zb-h1", pipeline(2, 1)).plan), "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  EXPECT_EQ(plan_to_csv(run_valid("roundpipe", slot_pipeline(1, 1, 1, 2, 1)).plan),
            "0F0,(1F0;1B0)OVERLAP_F_B,0B0\n");
  EXPECT_THAT(plan_to_csv(run_valid("dualpipe", pipeline(2, 4)).plan),
              HasSubstr("(1F3;0B0)OVERLAP_F_B"));
}

TEST(PlanCsv, SidecarOfASmallPlan) {
  EXPECT_EQ(plan_to_sidecar(run_valid("1f1b", pipeline(2, 2)).plan),
            "schedule,1f1b\nmicro_batches,2\nrounds,1\naccumulation,0\nadmission,static\n"
            "version_rule,flush\nupdate_scope,layer\nresidence,bound\nweight_copies,1\nin_flight_"
            "limit,2,1\n"
            "stage,0,F,0,0\nstage,1,F,1,1\nstage,1,B,1,1\nstage,0,B,0,0\n");
}

TEST(PlanCsv, ReadsFilesOfOthersWithoutSidecar) {
  // Idle cells, blanks and CRLF as spreadsheets leave them.
  Result<Plan> plan = read("0F0, 0F1,,0B0,,0B1\r\n,1F0,1I0,1F1,1B1,1W0\r\n");
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  EXPECT_TRUE(validate_plan(*plan, 2, false).is_ok()) << validate_plan(*plan, 2, false).to_string();
  EXPECT_EQ(plan->residence, Residence::kBound);
  EXPECT_EQ(plan->micro_batches, 2);
  PlanTimeline timeline = simulate_plan(*plan, 2, [](int, int) { return 1; });
  EXPECT_EQ(order_text(*plan, timeline, OrderNotation::kChunks)[1],
            (std::vector<std::string>{"F0", "I0", "F1", "B1", "W0"}));
}

TEST(PlanCsv, StagesOnSeveralDevicesAreStreamed) {
  Result<Plan> plan = read("0F0,(1F0;1B0)OVERLAP_F_B\n0F1,(1F1;1B1)OVERLAP_F_B,0B0,0B1\n");
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->residence, Residence::kStreamed);
  EXPECT_EQ(plan_to_text(*plan), "g0| F0:0 FB1:0\ng1| F0:1 FB1:1 B2:0 B2:1\n");
}

TEST(PlanCsv, BadOrdersAreRefusedByLineAndColumn) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"0F0,0X1\n", "order.csv: line 1, column 5: '0X1' has kind 'X'"},
      {"0F0\n1F0, 1B\n", "line 2, column 6: '1B' needs a stage and a micro-batch"},
      {"0F0\n0F0,F0\n", "line 2, column 5: 'F0' is no action"},
      {"0F0,0SEND_F0\n", "line 1, column 5: '0SEND_F0' has kind 'SEND_F'"},
      {"0F0,1.5F0\n", "line 1, column 5: '1.5F0' has kind '.'"},
      {"0F99999999999\n", "line 1, column 1: '0F99999999999' needs"},
      {"-1F0\n", "line 1, column 1: '-1F0' is no action"},
      {"12\n", "line 1, column 1: '12' is no action"},
      {"0F0,(0F1;0B0)\n", "line 1, column 5: '(0F1;0B0)' must read (ACTION;ACTION)OVERLAP_F_B"},
      {"0F0,(0F1;0B0)OVERLAP\n", "line 1, column 5"},
      {"(0F1)OVERLAP_F_B\n", "line 1, column 1: '(0F1)OVERLAP_F_B' must hold two actions"},
      {"(0F1;0Q1)OVERLAP_F_B\n", "line 1, column 6: '0Q1' has kind 'Q'"},
      {"(0B1;0F1)OVERLAP_F_B\n", "must be a forward and a backward"},
      {"", "line 1, column 1: no rows"}};
  for (const auto& [text, message] : bad) {
    Result<Plan> plan = read(text);
    ASSERT_FALSE(plan.is_ok()) << text;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.status().message(), HasSubstr(std::string(message)));
  }
}

TEST(PlanCsv, BadSidecarsAreRefusedByLineAndColumn) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"colour,red\n", "stages.csv: line 1, column 1: 'colour' is unknown; keys are schedule"},
      {"rounds,x\n", "line 1, column 8: 'x' must be a number"},
      {"\nrounds,1,2\n", "line 2, column 1: 'rounds' needs one value"},
      {"residence,floating\n", "line 1, column 11: 'floating' must be one of streamed, bound"},
      {"admission,\n", "line 1, column 11: '' must be one of static, gate"},
      {"stage,0,F,0\n", "line 1, column 1: 'stage' needs NUMBER,KIND,FIRST,LAST"},
      {"stage,0,G,0,0\n", "line 1, column 9: 'G' must be one of F, B, FB, I, W"},
      {"stage,0,F,2,1\n", "line 1, column 13: '1' must be at least the first layer, 2"},
      {"stage,0,F,0,0\nstage,0,F,1,1\n", "line 2, column 7: '0' is already a stage of kind F"},
      {"micro_batches,1\nstage,1,F,0,0\n",
       "order.csv: line 1, column 1: '0F0' names stage 0 of kind F, which stages.csv does not "
       "have"},
      {"micro_batches,0\nstage,0,F,0,0\n",
       "'0F0' names micro-batch 0; stages.csv says there are 0"}};
  for (const auto& [text, message] : bad) {
    Result<Plan> plan = read("0F0\n", text);
    ASSERT_FALSE(plan.is_ok()) << text;
    EXPECT_THAT(plan.status().message(), HasSubstr(std::string(message)));
  }
}

TEST(PlanCsv, HugeNumbersAreRefusedWithoutTakingMemory) {
  Result<Plan> plan = read("1000000F1000000\n");
  ASSERT_TRUE(plan.is_ok());
  EXPECT_THAT(validate_plan(*plan, plan->layer_count(), false).message(),
              HasSubstr("its entries run only 1"));
}

TEST(PlanCsv, RandomDamageNeverCrashes) {
  std::string good = plan_to_csv(run_valid("dualpipe", pipeline(4, 8)).plan);
  std::string sidecar = plan_to_sidecar(run_valid("dualpipe", pipeline(4, 8)).plan);
  std::mt19937 generator(7);
  const std::string letters = "0123456789FBIW,;()\n\r _-OVERLAP";
  for (int trial = 0; trial < 3000; ++trial) {
    std::string damaged = good, side = sidecar;
    for (int change = 0; change < 3; ++change) {
      std::string& text = generator() % 2 == 0 ? damaged : side;
      text[generator() % text.size()] = letters[generator() % letters.size()];
    }
    Result<Plan> plan = read(damaged, side);
    if (!plan.is_ok()) continue;
    Status status = validate_plan(*plan, plan->layer_count(), false);
    if (!status.is_ok()) continue;
    // Still a plan: then it is one that runs to its end.
    PlanTimeline timeline = simulate_plan(*plan, plan->layer_count(), [](int, int) { return 1; });
    for (int device = 0; device < plan->device_count(); ++device) {
      EXPECT_EQ(timeline.order[device].size(), plan->device_actions[device].size());
    }
  }
}

}  // namespace
}  // namespace stagecoach
