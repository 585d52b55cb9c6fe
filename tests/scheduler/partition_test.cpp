#include "scheduler/partition.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "scheduler/plan_validation.h"
#include "scheduler/schedules/roundpipe.h"

namespace stagecoach {
namespace {

PartitionRequest uniform_request(int layers, int devices, int micro_batches) {
  PartitionRequest request;
  request.forward_costs.assign(static_cast<size_t>(layers), 1);
  request.devices = devices;
  request.micro_batches = micro_batches;
  request.fits = [](const std::vector<Stage>&) { return true; };
  return request;
}

void expect_covers(const std::vector<Stage>& stages, int layers) {
  Plan plan = make_roundpipe_plan(stages, 3, 6, 1, 0, Dispatch::kRotation);
  EXPECT_TRUE(validate_plan(plan, layers, true).is_ok())
      << validate_plan(plan, layers, true).to_string();
}

double cost_of(const PartitionRequest& request, const std::vector<Stage>& stages) {
  double longest = 0;
  for (const Stage& stage : stages) {
    double sum = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      sum += request.forward_costs[layer];
    }
    longest = std::max(longest, sum);
  }
  double n = request.devices;
  double slots = std::max(static_cast<double>(stages.size()), n);
  return (request.micro_batches * slots + n * (n - 1)) * longest;
}

/// The least cost over every way to cut the layers into consecutive stages.
double brute_force(const PartitionRequest& request) {
  int count = static_cast<int>(request.forward_costs.size());
  double best = std::numeric_limits<double>::infinity();
  for (int mask = 0; mask < (1 << (count - 1)); ++mask) {
    std::vector<Stage> stages;
    int first = 0;
    for (int layer = 0; layer < count; ++layer) {
      if (layer + 1 < count && (mask >> layer & 1) == 0) continue;
      stages.push_back({ActionKind::kForward, first, layer});
      first = layer + 1;
    }
    best = std::min(best, cost_of(request, stages));
  }
  return best;
}

TEST(Partition, ForwardStagesMatchBruteForceOnRandomModels) {
  std::mt19937_64 generator(20260101);
  std::uniform_real_distribution<double> forward(0.2, 2.0);
  for (int trial = 0; trial < 100; ++trial) {
    PartitionRequest request = uniform_request(2 + static_cast<int>(generator() % 8),
                                               1 + static_cast<int>(generator() % 4),
                                               1 + static_cast<int>(generator() % 12));
    for (double& cost : request.forward_costs) cost = forward(generator);
    Result<std::vector<Stage>> stages = partition_for_inference(request);
    ASSERT_TRUE(stages.is_ok());
    expect_covers(*stages, static_cast<int>(request.forward_costs.size()));
    EXPECT_NEAR(cost_of(request, *stages), brute_force(request), 1e-6) << "trial " << trial;
  }
}

TEST(Partition, RespectsMemoryAndSaysWhenNothingFits) {
  PartitionRequest request = uniform_request(8, 2, 4);
  request.fits = [](const std::vector<Stage>& stages) {
    return std::all_of(stages.begin(), stages.end(),
                       [](const Stage& stage) { return stage.last_layer - stage.first_layer < 2; });
  };
  Result<std::vector<Stage>> stages = partition_for_inference(request);
  ASSERT_TRUE(stages.is_ok());
  EXPECT_TRUE(request.fits(*stages));
  expect_covers(*stages, 8);
  request.fits = [](const std::vector<Stage>&) { return false; };
  EXPECT_EQ(partition_for_inference(request).status().code(), StatusCode::kNotFound);
}

TEST(Partition, LayerLimitIsKept) {
  PartitionRequest request = uniform_request(9, 2, 4);
  request.max_stage_layers = 1;
  Result<std::vector<Stage>> stages = partition_for_inference(request);
  ASSERT_TRUE(stages.is_ok());
  for (const Stage& stage : *stages) EXPECT_EQ(stage.first_layer, stage.last_layer);
  expect_covers(*stages, 9);
}

TEST(Partition, EvenCutsHaveTheLeastLongestStage) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> any(0.1, 3.0);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> costs(2 + generator() % 9);
    for (double& cost : costs) cost = any(generator);
    int layers = static_cast<int>(costs.size());
    int count = 1 + static_cast<int>(generator() % costs.size());
    auto longest = [&](const std::vector<int>& ends) {
      double most = 0;
      int first = 0;
      for (int end : ends) {
        double sum = 0;
        for (; first < end; ++first) sum += costs[first];
        most = std::max(most, sum);
      }
      return most;
    };
    double least = std::numeric_limits<double>::infinity();
    for (int mask = 0; mask < (1 << (layers - 1)); ++mask) {
      std::vector<int> ends;
      for (int layer = 1; layer <= layers; ++layer) {
        if (layer == layers || (mask >> (layer - 1) & 1) != 0) ends.push_back(layer);
      }
      if (static_cast<int>(ends.size()) == count) least = std::min(least, longest(ends));
    }
    std::vector<int> ends;
    for (const auto& [first, last] : partition_evenly(costs, count)) ends.push_back(last + 1);
    ASSERT_EQ(static_cast<int>(ends.size()), count);
    EXPECT_NEAR(longest(ends), least, 1e-9) << "trial " << trial;
  }
}

}  // namespace
}  // namespace stagecoach
