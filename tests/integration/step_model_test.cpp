// The planner's step model against the executor itself, in virtual time.
#include "scheduler/step_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "backends/sim/sim_backend.h"
#include "scheduler/network_profile.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/stage_packing.h"
#include "scheduler/stage_planner.h"
#include "scheduler/virtual_run.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr double kFlopPerS = 1e12;

struct Case {
  Network network;
  MicroBatchShape shape;
  StepSetup setup;
};

/// A small GPT-2 on cards whose links take from a tenth to as long as their arithmetic.
Case random_case(std::mt19937_64& generator) {
  auto pick = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(generator() % (most - least + 1));
  };
  Gpt2Config model;
  model.n_layer = pick(1, 12);
  model.n_head = 4;
  model.n_embd = 64 * pick(1, 6);
  model.n_inner = model.n_embd * pick(2, 5);
  model.vocab_size = 256 * pick(1, 40);
  model.n_positions = 256;
  auto network = make_gpt2(model, NetworkHead::kLoss, pick(0, 1) != 0 ? DType::kBF16 : DType::kF32);
  EXPECT_TRUE(network.is_ok());
  Case one{std::move(network).value(), {pick(1, 4), 32 * pick(1, 8)}, {}};
  one.setup.devices.resize(static_cast<size_t>(pick(1, 6)));
  one.setup.rounds = static_cast<int>(pick(1, 2));
  one.setup.micro_batches =
      one.setup.rounds * (one.setup.device_count() + static_cast<int>(pick(0, 6)));
  one.setup.layers = profile_network(one.network, one.shape, {kFlopPerS, 1e18});
  double compute = 0, bytes = 0;
  for (LayerProfile& layer : one.setup.layers) {
    layer.update_ns = 0;
    compute += layer.forward_ns + layer.recompute_ns + layer.backward_ns;
    bytes += 2 * static_cast<double>(layer.boundary_bytes +
                                     layer.parameter_bytes / one.setup.round_size());
  }
  double share = 0.1 * static_cast<double>(pick(1, 10));
  for (PlannedDevice& device : one.setup.devices) {
    device.up_bytes_per_ns = device.down_bytes_per_ns = bytes / (share * compute);
  }
  return one;
}

/// What one pass of the executor took.
struct Executed {
  double span_ns = 0;   ///< of compute
  double total_ns = 0;  ///< from the first upload to the last gradient
};

Executed executed(const Case& one, const std::vector<Stage>& stages) {
  SimMachineProfile profile;
  double rate = one.setup.devices[0].up_bytes_per_ns * 1e9;
  SimCard card{"test", "test card", 64 * kGiB, kFlopPerS, 1e18, rate, 2 * rate, "made up"};
  profile.cards.assign(one.setup.devices.size(), card);
  profile.host_work_bytes_per_s = 1e18;
  profile.host_memory_bytes_per_s = one.setup.host_bytes_per_ns * 1e9;
  for (const SharedUplink& uplink : one.setup.uplinks) {
    profile.uplinks.push_back({uplink.up_bytes_per_ns * 1e9, uplink.down_bytes_per_ns * 1e9});
  }
  for (const PlannedDevice& device : one.setup.devices) {
    profile.uplink_of_card.push_back(device.uplink);
  }
  profile.copy_latency_ns = profile.kernel_latency_ns = 0;
  profile.costs = HostCosts{0, 0, 0};
  auto machine = std::make_shared<SimMachine>(std::move(profile));
  auto devices = open_sim_devices(machine);
  auto host_work = make_sim_host_queue(*machine, "host");
  Plan plan = make_roundpipe_plan(stages, one.setup.device_count(), one.setup.micro_batches,
                                  one.setup.rounds, 0, Dispatch::kRotation);
  VirtualRun run;
  run.network = &one.network;
  run.shape = one.shape;
  run.plan = &plan;
  for (const auto& device : devices) run.devices.push_back(device.get());
  run.host_work = host_work.get();
  auto reports = run_virtually(run);
  EXPECT_TRUE(reports.is_ok()) << reports.status().to_string();
  if (!reports.is_ok()) return {};
  return {static_cast<double>(reports->front().span_ns),
          static_cast<double>(machine->time().now_ns())};
}

TEST(SlowStepModel, AgreesWithTheExecutor) {
  std::mt19937_64 generator(42);
  std::vector<double> errors;
  for (int trial = 0; trial < 200; ++trial) {
    Case one = random_case(generator);
    Result<PlannedStages> planned = plan_stages(one.setup);
    ASSERT_TRUE(planned.is_ok());
    const StepPrediction& prediction = planned->prediction;
    double span_ns = executed(one, planned->slots.stages).span_ns;
    double error = std::abs(prediction.makespan_ns / span_ns - 1);
    EXPECT_LE(error, 0.02) << "trial " << trial;
    errors.push_back(error);
    // What planning counts on is what the executor carves, or more.
    const std::vector<Stage>& stages = planned->slots.stages;
    EXPECT_GE(CostTable(one.setup.layers).bytes(stages).total(),
              device_memory_need(one.network, stages, one.shape).total());
  }
  std::sort(errors.begin(), errors.end());
  RecordProperty("median", std::to_string(errors[errors.size() / 2]));
  RecordProperty("worst", std::to_string(errors.back()));
}

/// How far predicted times may lie from those of the executor.
struct Nearness {
  double least_ratio = 0, most_ratio = 0, median_error = 0;
};

/// Plans 120 random models and runs them where `limit` makes devices share `share` of what their
/// links could carry. The executor's flows share it evenly, the model's in order of slots.
template <typename Limit>
void expect_near_the_executor(uint64_t seed, const Nearness& near, Limit limit) {
  std::mt19937_64 generator(seed);
  std::vector<double> ratios, errors;
  double most_delay = 0;
  for (int trial = 0; trial < 120; ++trial) {
    Case one = random_case(generator);
    Result<PlannedStages> planned = plan_stages(one.setup);
    ASSERT_TRUE(planned.is_ok());
    double share = 0.2 * static_cast<double>(2 + generator() % 4);
    limit(one.setup, share);
    const SlotPlan& slots = planned->slots;
    double predicted_ns = predict_step(one.setup, CostTable(one.setup.layers), slots).makespan_ns;
    double span_ns = executed(one, slots.stages).span_ns;
    ratios.push_back(predicted_ns / span_ns);
    errors.push_back(std::abs(ratios.back() - 1));
    EXPECT_GE(ratios.back(), near.least_ratio) << "trial " << trial << ", share " << share;
    EXPECT_LE(ratios.back(), near.most_ratio) << "trial " << trial << ", share " << share;
    most_delay = std::max(most_delay, span_ns / planned->prediction.makespan_ns);
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[errors.size() / 2], near.median_error);
  ::testing::Test::RecordProperty("median", std::to_string(errors[errors.size() / 2]));
  ::testing::Test::RecordProperty("least",
                                  std::to_string(*std::min_element(ratios.begin(), ratios.end())));
  ::testing::Test::RecordProperty("most",
                                  std::to_string(*std::max_element(ratios.begin(), ratios.end())));
  // The limit was one.
  EXPECT_GE(most_delay, 1.1);
}

// Host memory that carries two fifths to all of what the links could.
TEST(SlowStepModel, SharedHostMemoryIsNearTheExecutor) {
  expect_near_the_executor(44, {0.78, 1.15, 0.005}, [](StepSetup& setup, double share) {
    double links = 2 * setup.devices[0].up_bytes_per_ns * setup.device_count();
    setup.host_bytes_per_ns = share * links;
  });
}

// Uplinks of two cards each. Here slots that are served first hold up others that would not have
// had to wait: predictions are rather too long than too short.
TEST(SlowStepModel, SharedUplinksAreNearTheExecutor) {
  expect_near_the_executor(45, {0.9, 1.5, 0.05}, [](StepSetup& setup, double share) {
    double both = 2 * setup.devices[0].up_bytes_per_ns;
    for (int device = 0; device + 1 < setup.device_count(); device += 2) {
      setup.devices[device].uplink = setup.devices[device + 1].uplink =
          static_cast<int>(setup.uplinks.size());
      setup.uplinks.push_back({"uplink", share * both, share * both});
    }
  });
}

// What the executor takes decides which plan is better.
TEST(SlowStepModel, PlansRunFasterThanByRoundPipesRule) {
  std::mt19937_64 generator(43);
  double sum = 0;
  constexpr int kModels = 120;
  for (int trial = 0; trial < kModels; ++trial) {
    Case one = random_case(generator);
    Result<PlannedStages> rule = plan_by_roundpipe_rule(one.setup);
    Result<PlannedStages> planned = plan_stages(one.setup);
    ASSERT_TRUE(rule.is_ok()) << rule.status().to_string();
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    double ratio =
        executed(one, planned->slots.stages).total_ns / executed(one, rule->slots.stages).total_ns;
    EXPECT_LE(ratio, 1.05) << "trial " << trial;
    sum += ratio;
  }
  RecordProperty("mean_ratio", std::to_string(sum / kModels));
}

}  // namespace
}  // namespace stagecoach::testing
