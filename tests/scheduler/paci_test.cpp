#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "scheduler/plan_validation.h"
#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

ScheduleParameters paci(int stages, int micro_batches, int accumulation) {
  ScheduleParameters parameters = pipeline(stages, micro_batches);
  parameters.accumulation = accumulation;
  return parameters;
}

std::string digits(const std::vector<int>& versions) {
  std::string text;
  for (int version : versions) text += std::to_string(version);
  return text;
}

TEST(Paci, VersionTableOfReference) {
  ScheduleRun run = run_valid("paci", paci(4, 16, 4));
  EXPECT_EQ(digits(run.versions.forward[0]), "0000000111122223");
  EXPECT_EQ(digits(run.versions.forward[1]), "0000001111222233");
  EXPECT_EQ(digits(run.versions.forward[2]), "0000011112222333");
  EXPECT_EQ(digits(run.versions.forward[3]), "0000111122223333");
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(digits(run.versions.backward[stage]), "0000111122223333");
  }
}

TEST(Paci, MicroBatchesThatDriftAreThoseOfReference) {
  ScheduleRun run = run_valid("paci", paci(4, 32, 8));
  const std::vector<std::vector<int>> expected = {
      {8, 9, 10, 16, 17, 18, 24, 25, 26}, {8, 9, 16, 17, 24, 25}, {8, 16, 24}, {}};
  for (int stage = 0; stage < 4; ++stage) {
    std::vector<int> drifting;
    for (int m = 0; m < 32; ++m) {
      int drift = run.versions.backward[stage][m] - run.versions.forward[stage][m];
      EXPECT_LE(drift, 1);
      if (drift == 1) drifting.push_back(m);
    }
    EXPECT_EQ(drifting, expected[stage]);
  }
}

TEST(Paci, LargestDriftOfReference) {
  auto drift = [](int accumulation) {
    return run_valid("paci", paci(4, 8 * accumulation + 8, accumulation)).drift.max;
  };
  EXPECT_EQ(drift(1), (std::vector<int>{3, 2, 1, 0}));
  EXPECT_EQ(drift(2), (std::vector<int>{2, 1, 1, 0}));
  for (int accumulation : {3, 4, 5, 8}) {
    EXPECT_EQ(drift(accumulation), (std::vector<int>{1, 1, 1, 0}));
  }
  for (int accumulation : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(run_valid("paci", paci(4, 64, accumulation)).peak_activations,
              (std::vector<double>{4, 3, 2, 1}));
  }
}

TEST(Paci, MeanDriftIsDistanceOverAccumulation) {
  // Exact over whole windows in the steady state: window 0 has none, so it is left out.
  ScheduleRun run = run_valid("paci", paci(4, 80, 8));
  const double expected[] = {0.375, 0.25, 0.125, 0};
  for (int stage = 0; stage < 4; ++stage) {
    double sum = run.drift.mean[stage] * 80;
    EXPECT_NEAR(sum / 72, expected[stage], 1e-12);
  }
}

TEST(Paci, VersionsAndDriftEqualClosedFormsInStaticOrder) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int accumulation = 1; accumulation <= 16; ++accumulation) {
      for (int slack : {0, 1, stages - 1}) {
        ScheduleParameters parameters = paci(stages, 4 * accumulation + 2 * stages, accumulation);
        parameters.slack = slack;
        ScheduleRun run = run_valid("paci", parameters);
        for (int stage = 0; stage < stages; ++stage) {
          int limit = run.plan.in_flight_limit[stage];
          EXPECT_EQ(limit, stages - stage + std::min(slack, stages - 1 - stage));
          for (int m = 0; m < parameters.micro_batches; ++m) {
            ASSERT_EQ(run.versions.forward[stage][m], paci_forward_version(m, limit, accumulation));
            ASSERT_EQ(run.versions.backward[stage][m], paci_backward_version(m, accumulation));
          }
          EXPECT_LE(run.drift.max[stage], drift_bound(limit, accumulation));
        }
        EXPECT_EQ(gradient_delay(run.plan, run.versions), std::vector<int>(stages, 0));
        EXPECT_EQ(run.versions.kept, std::vector<int>(stages, 1));
        EXPECT_EQ(run.drift.max.back(), 0);  // the last stage never drifts
      }
    }
  }
}

TEST(Paci, WindowZeroHasNoDrift) {
  for (int stages = 1; stages <= 8; ++stages) {
    ScheduleRun run = run_valid("paci", paci(stages, 40, 10));
    for (int stage = 0; stage < stages; ++stage) {
      for (int m = 0; m < 10; ++m) {
        EXPECT_EQ(run.versions.forward[stage][m], 0);
        EXPECT_EQ(run.versions.backward[stage][m], 0);
      }
    }
  }
}

TEST(Paci, GateWithEqualTimesGivesTheStaticOrder) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches : {1, stages, 4 * stages + 1}) {
      for (int slack : {0, stages - 1}) {
        ScheduleParameters parameters = paci(stages, micro_batches, 2);
        parameters.slack = slack;
        ScheduleRun fixed = run_valid("paci", parameters);
        parameters.gate = 1;
        ScheduleRun gated = run_valid("paci", parameters);
        // With slack the gate may admit earlier than 1F1B's turn; without it the orders agree.
        if (slack == 0) {
          EXPECT_EQ(gated.order, fixed.order) << stages << " " << micro_batches;
        }
        EXPECT_LE(gated.measures.makespan_ns, fixed.measures.makespan_ns);
      }
    }
  }
}

/// Forwards in flight on `device` at most, from the order in which actions ran.
int largest_in_flight(const ScheduleRun& run, int device) {
  int in_flight = 0, largest = 0;
  for (int index : run.timeline.order[device]) {
    const Action& action = run.plan.device_actions[device][index];
    in_flight += run.plan.stage_of(action).kind == ActionKind::kForward ? 1 : -1;
    largest = std::max(largest, in_flight);
  }
  return largest;
}

TEST(Paci, GateBoundsInFlightAndDriftUnderRandomTimesAndLatencies) {
  std::mt19937 generator(20260605);
  auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(generator);
  };
  constexpr int kCases = 1500;
  int drifting = 0;
  for (int trial = 0; trial < kCases; ++trial) {
    int stages = number(1, 8), accumulation = number(1, 10);
    ScheduleParameters parameters = paci(stages, number(1, 6 * stages + 20), accumulation);
    parameters.slack = number(0, stages);
    parameters.gate = 1;
    Result<const Schedule*> schedule = find_schedule("paci");
    ASSERT_TRUE(schedule.is_ok());
    ScheduleRun run;
    Result<Plan> plan = make_plan(**schedule, parameters);
    ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
    run.plan = *plan;
    // Stage times differ by up to 50 times, and each action by itself; hops up to 3 stages.
    std::vector<int64_t> scale;
    for (int stage = 0; stage < stages; ++stage) scale.push_back(number(1, 50));
    int64_t longest_hop = number(0, 150);
    run.timeline = simulate_plan(
        run.plan, stages, [&](int device, int) { return scale[device] * number(1, 4); },
        [&](int from, int to, int m) {
          // Some messages overtake others: a latency of its own for each of them.
          std::minstd_rand hash(static_cast<uint32_t>(1 + trial + 8191 * m + 131 * from + 17 * to));
          hash.discard(3);
          return static_cast<int64_t>(hash() % static_cast<uint64_t>(longest_hop + 1));
        });
    run.versions = weight_versions(run.plan, run.timeline);
    run.drift = version_drift(run.versions);
    for (int stage = 0; stage < stages; ++stage) {
      ASSERT_EQ(run.timeline.order[stage].size(), 2u * parameters.micro_batches) << trial;
      int limit = run.plan.in_flight_limit[stage];
      EXPECT_LE(largest_in_flight(run, stage), limit) << trial;
      EXPECT_LE(run.drift.max[stage], drift_bound(limit, accumulation)) << trial;
      for (int m = 0; m < std::min(accumulation, parameters.micro_batches); ++m) {
        EXPECT_EQ(run.versions.forward[stage][m] + run.versions.backward[stage][m], 0) << trial;
      }
      // An optimizer elsewhere, whose result lands up to a window later: one version more.
      int64_t window_ns = scale[stage] * accumulation;
      Drift late = version_drift(weight_versions(run.plan, run.timeline, window_ns));
      EXPECT_LE(late.max[stage], drift_bound(limit, accumulation) + 1) << trial;
      drifting += run.drift.max[stage] > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(drifting, kCases / 4);  // the bound was put to the test
}

TEST(Paci, GateWithAFlushIsOneFOneB) {
  // Stage 1 admits the next window only when all backwards of this one are back: 3 * 33.
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.iterations = 3;
  ScheduleRun fixed = run_valid("1f1b", parameters);
  Plan gated = fixed.plan;
  gated.admission = Admission::kGate;
  ASSERT_TRUE(validate_plan(gated, 4, false).is_ok());
  PlanTimeline timeline =
      simulate_plan(gated, 4, uniform_durations(gated, parameters.times, 1), uniform_hops(0));
  EXPECT_EQ(timeline.order, fixed.timeline.order);
  EXPECT_DOUBLE_EQ(units(measure_timeline(gated, timeline).makespan_ns), 99);
}

/// Trains a chain of numbers, y = w_N … w_1 x towards a target, in the order a plan ran: weights of
/// every stage after each update.
class ToyTraining {
 public:
  ToyTraining(const ScheduleRun& run, double learning_rate)
      : weights_(run.plan.device_count(), {0.9}), run_(run), learning_rate_(learning_rate) {
    struct Step {
      int64_t end_ns;
      int device;
      int index;
    };
    std::vector<Step> steps;
    for (int device = 0; device < run.plan.device_count(); ++device) {
      for (int index : run.timeline.order[device]) {
        steps.push_back({run.timeline.actions[device][index].end_ns, device, index});
      }
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step& a, const Step& b) { return a.end_ns < b.end_ns; });
    size_t stages = weights_.size(), count = run.plan.micro_batches;
    boundary_.assign(stages + 1, std::vector<double>(count));
    gradient_ = boundary_;
    sum_.assign(stages, 0);
    done_.assign(stages, 0);
    for (size_t m = 0; m < count; ++m) boundary_[0][m] = 1 + 0.1 * static_cast<double>(m % 7);
    for (const Step& step : steps) act(step.device, step.index);
  }

  const std::vector<std::vector<double>>& weights() const { return weights_; }

 private:
  void act(int stage, int index) {
    const Action& action = run_.plan.device_actions[stage][index];
    int m = action.micro_batch;
    if (run_.plan.stage_of(action).kind == ActionKind::kForward) {
      boundary_[stage + 1][m] = weights_[stage].back() * boundary_[stage][m];
      return;
    }
    if (stage + 1 == static_cast<int>(weights_.size())) {
      gradient_[stage + 1][m] = (boundary_[stage + 1][m] - 2) / run_.plan.window_size();
    }
    // Saved input, current weight.
    gradient_[stage][m] = gradient_[stage + 1][m] * weights_[stage].back();
    sum_[stage] += gradient_[stage + 1][m] * boundary_[stage][m];
    if (++done_[stage] % run_.plan.window_size() != 0) return;
    weights_[stage].push_back(weights_[stage].back() - learning_rate_ * sum_[stage]);
    sum_[stage] = 0;
  }

  std::vector<std::vector<double>> weights_;  ///< per stage and version
  const ScheduleRun& run_;
  double learning_rate_;
  std::vector<std::vector<double>> boundary_, gradient_;
  std::vector<double> sum_;
  std::vector<int> done_;
};

TEST(Paci, FirstUpdateEqualsTheSynchronousOneBitForBit) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int accumulation : {1, 2, 5, 8}) {
      ScheduleParameters flush = pipeline(stages, accumulation);
      flush.iterations = 4;
      ToyTraining synchronous(run_valid("1f1b", flush), 0.05);
      ScheduleRun run = run_valid("paci", paci(stages, 4 * accumulation, accumulation));
      ToyTraining asynchronous(run, 0.05);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(asynchronous.weights()[stage][1], synchronous.weights()[stage][1]);
        // One stage is plain accumulation; more drift from the second window on.
        bool equal = asynchronous.weights()[stage] == synchronous.weights()[stage];
        EXPECT_EQ(equal, stages == 1) << stages << " " << accumulation;
      }
      EXPECT_EQ(ToyTraining(run, 0).weights().front(), std::vector<double>(5, 0.9));
    }
  }
}

TEST(PipeDream, VersionsOfReference) {
  ScheduleRun run = run_valid("pipedream", pipeline(4, 8));
  EXPECT_EQ(digits(run.versions.forward[0]), "00001234");
  EXPECT_EQ(digits(run.versions.forward[1]), "00012345");
  EXPECT_EQ(digits(run.versions.forward[2]), "00123456");
  EXPECT_EQ(digits(run.versions.forward[3]), "01234567");
  EXPECT_EQ(run.versions.backward, run.versions.forward);
  EXPECT_EQ(run.drift.max, std::vector<int>(4, 0));
}

TEST(PipeDream, KeepsAVersionForEachMicroBatchInFlight) {
  for (int stages = 2; stages <= 8; ++stages) {
    ScheduleRun run = run_valid("pipedream", pipeline(stages, 4 * stages));
    std::vector<int> delay = gradient_delay(run.plan, run.versions);
    for (int rank = 0; rank < stages; ++rank) {
      EXPECT_EQ(run.versions.kept[rank], stages - rank);
      EXPECT_EQ(run.peak_activations[rank], stages - rank);
      EXPECT_EQ(delay[rank], stages - 1 - rank);
      for (int m = 0; m < 4 * stages; ++m) {
        EXPECT_EQ(run.versions.forward[rank][m], std::max(0, m - (stages - 1 - rank)));
      }
    }
  }
}

TEST(PipeDream2bw, VersionsOfReference) {
  ScheduleRun run = run_valid("pipedream-2bw", paci(4, 16, 4));
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(digits(run.versions.forward[stage]), "0000000011112222");
  }
  EXPECT_EQ(run.versions.backward, run.versions.forward);
  EXPECT_EQ(run.versions.kept, std::vector<int>(4, 2));
  EXPECT_EQ(gradient_delay(run.plan, run.versions), std::vector<int>(4, 1));
}

TEST(PipeDream2bw, NeverWaitsForItsVersion) {
  // The version a window needs is complete on every rank before its first forward: no idle time
  // beyond one fill and drain for any a >= N.
  for (int stages = 2; stages <= 8; ++stages) {
    for (int accumulation = stages; accumulation <= 2 * stages; ++accumulation) {
      ScheduleRun run = run_valid("pipedream-2bw", paci(stages, 5 * accumulation, accumulation));
      EXPECT_DOUBLE_EQ(makespan(run), 3.0 * (5 * accumulation + stages - 1));
    }
  }
}

}  // namespace
}  // namespace stagecoach
