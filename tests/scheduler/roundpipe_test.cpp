#include "scheduler/schedules/roundpipe.h"

#include <gtest/gtest.h>
#include <numeric>

#include "scheduler/plan_measures.h"
#include "scheduler/plan_simulation.h"
#include "scheduler/plan_validation.h"

namespace stagecoach {
namespace {

/// `forward` single-layer forward stages, a fused one, and their backward stages.
std::vector<Stage> chain(int forward) {
  std::vector<Stage> stages;
  for (int layer = 0; layer < forward; ++layer) {
    stages.push_back({ActionKind::kForward, layer, layer});
  }
  stages.push_back({ActionKind::kForwardBackward, forward, forward});
  for (int layer = forward - 1; layer >= 0; --layer) {
    stages.push_back({ActionKind::kBackward, layer, layer});
  }
  return stages;
}

int64_t unit(int, int) {
  return 1;
}

TimelineMeasures measured(const Plan& plan) {
  return measure_timeline(plan, simulate_plan(plan, plan.layer_count(), unit));
}

TEST(RoundPipe, GoldenOrderOfReference) {
  // Sf = 2, Sb = 3 (the fused stage counts as backward), N = 4, M = 8, M_R = 4: the second round
  // starts on device 5 mod 4 = 1.
  Plan plan = make_roundpipe_plan(chain(2), 4, 8, 2, 0, Dispatch::kRotation);
  EXPECT_EQ(plan_to_text(plan),
            "g0| F0:0 F0:1 F0:2 F0:3 B4:0 B4:1 B4:2 B4:3 B3:4 B3:5 B3:6 B3:7\n"
            "g1| F1:0 F1:1 F1:2 F1:3 F0:4 F0:5 F0:6 F0:7 B4:4 B4:5 B4:6 B4:7\n"
            "g2| FB2:0 FB2:1 FB2:2 FB2:3 F1:4 F1:5 F1:6 F1:7\n"
            "g3| B3:0 B3:1 B3:2 B3:3 FB2:4 FB2:5 FB2:6 FB2:7\n");
  ASSERT_TRUE(validate_plan(plan, 3, false).is_ok());
  EXPECT_EQ(measured(plan).makespan_ns, 13);
}

TEST(RoundPipe, GoldenMakespanOfTheFigure) {
  // Thirteen layers: F1-3 F4-6 F7-9 F10-12 | FB13 B12 … B1; makespan 37, bubble 3/37.
  std::vector<Stage> stages;
  for (int first = 0; first < 12; first += 3) {
    stages.push_back({ActionKind::kForward, first, first + 2});
  }
  stages.push_back({ActionKind::kForwardBackward, 12, 12});
  for (int layer = 11; layer >= 0; --layer) stages.push_back({ActionKind::kBackward, layer, layer});
  Plan plan = make_roundpipe_plan(stages, 4, 8, 2, 0, Dispatch::kRotation);
  ASSERT_TRUE(validate_plan(plan, 13, false).is_ok());
  EXPECT_EQ(measured(plan).makespan_ns, 37);
  EXPECT_NEAR(measured(plan).bubble_makespan, 3.0 / 37.0, 1e-12);
}

TEST(RoundPipe, BubbleEqualsClosedFormWhereItHolds) {
  for (int devices = 1; devices <= 8; ++devices) {
    for (int rounds = 1; rounds <= 4; ++rounds) {
      for (int forward = 1; forward <= 12; ++forward) {
        for (int round_size : {devices, 2 * devices}) {
          int stage_count = 2 * forward + 1;
          bool exact = round_size == devices || (rounds * stage_count) % devices == 0;
          // With fewer slots than devices the next round starts beside this one.
          if (!exact || stage_count < devices) continue;
          Plan plan = make_roundpipe_plan(chain(forward), devices, rounds * round_size, rounds, 0,
                                          Dispatch::kRotation);
          ASSERT_TRUE(validate_plan(plan, forward + 1, false).is_ok());
          double n = devices, work = static_cast<double>(rounds * round_size) * stage_count;
          double expected = n * (n - 1) / (work + n * (n - 1));
          EXPECT_NEAR(measured(plan).bubble_makespan, expected, 1e-9)
              << "N=" << devices << " rounds=" << rounds << " M_R=" << round_size
              << " S=" << stage_count;
        }
      }
    }
  }
}

TEST(RoundPipe, RotationContinuesFromFirstSlot) {
  Plan first = make_roundpipe_plan(chain(2), 3, 3, 1, 0, Dispatch::kRotation);
  Plan later = make_roundpipe_plan(chain(2), 3, 3, 1, 5, Dispatch::kRotation);
  EXPECT_EQ(first.device_actions[0][0].stage, 0);
  EXPECT_EQ(later.device_actions[2][0].stage, 0);
}

TEST(RoundPipe, StaticDispatchBindsStages) {
  Plan plan = make_roundpipe_plan(chain(3), 4, 8, 1, 0, Dispatch::kStatic);
  for (int device = 0; device < 4; ++device) {
    for (const Action& action : plan.device_actions[device]) {
      EXPECT_EQ(action.stage * 4 / 7, device);
    }
  }
  EXPECT_TRUE(validate_plan(plan, 4, false).is_ok());
}

}  // namespace
}  // namespace stagecoach
