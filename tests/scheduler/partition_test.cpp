#include "scheduler/partition.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "scheduler/plan_validation.h"
#include "scheduler/schedules/roundpipe.h"

namespace stagecoach {
namespace {

bool anything_fits(const std::vector<Stage>&) {
  return true;
}

PartitionRequest uniform_request(int layers, int devices, int micro_batches) {
  PartitionRequest request;
  for (int i = 0; i < layers; ++i) request.layers.push_back({1, 3, 3});
  request.devices = devices;
  request.micro_batches = micro_batches;
  request.fits = anything_fits;
  return request;
}

void expect_covers(const std::vector<Stage>& stages, int layers) {
  Plan plan = make_roundpipe_plan(stages, 2, 4, 1, 0, Dispatch::kRotation);
  EXPECT_TRUE(validate_plan(plan, layers, false).is_ok())
      << validate_plan(plan, layers, false).to_string();
}

double cost_of(const PartitionRequest& request, const std::vector<Stage>& stages) {
  double longest = 0;
  for (const Stage& stage : stages) {
    double sum = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      const LayerCost& cost = request.layers[layer];
      sum += stage.kind == ActionKind::kForward    ? cost.forward
             : stage.kind == ActionKind::kBackward ? cost.backward
                                                   : cost.fused_backward;
    }
    longest = std::max(longest, sum);
  }
  double n = request.devices;
  double slots = std::max(static_cast<double>(stages.size()), n);
  return (request.micro_batches * slots + n * (n - 1)) * longest;
}

/// Every way to cut layers [0, end) into consecutive stages.
void for_each_cut(int end, const std::function<void(const std::vector<int>&)>& visit) {
  for (int mask = 0; mask < (1 << std::max(0, end - 1)); ++mask) {
    std::vector<int> lasts;
    for (int layer = 0; layer + 1 < end; ++layer) {
      if (mask >> layer & 1) lasts.push_back(layer);
    }
    if (end > 0) lasts.push_back(end - 1);
    visit(lasts);
  }
}

double brute_force(const PartitionRequest& request) {
  int count = static_cast<int>(request.layers.size());
  double best = std::numeric_limits<double>::infinity();
  for (int fused = 0; fused < count; ++fused) {
    for_each_cut(fused, [&](const std::vector<int>& forward) {
      for_each_cut(fused, [&](const std::vector<int>& backward) {
        std::vector<Stage> stages;
        int first = 0;
        for (int last : forward) {
          stages.push_back({ActionKind::kForward, first, last});
          first = last + 1;
        }
        stages.push_back({ActionKind::kForwardBackward, fused, count - 1});
        first = 0;
        for (int last : backward) {
          stages.push_back({ActionKind::kBackward, first, last});
          first = last + 1;
        }
        best = std::min(best, cost_of(request, stages));
      });
    });
  }
  return best;
}

TEST(Partition, ForwardStagesHoldThreeLayersWhereBackwardStagesHoldOne) {
  Result<std::vector<Stage>> stages = partition_for_training(uniform_request(13, 4, 8));
  ASSERT_TRUE(stages.is_ok());
  EXPECT_EQ(stages->size(), 17u);
  expect_covers(*stages, 13);
}

TEST(Partition, MatchesBruteForceOnRandomModels) {
  std::mt19937_64 generator(20260101);
  std::uniform_real_distribution<double> forward(0.2, 2.0), factor(1.5, 4.0);
  for (int trial = 0; trial < 60; ++trial) {
    PartitionRequest request;
    int layers = 2 + static_cast<int>(generator() % 5);
    for (int i = 0; i < layers; ++i) {
      double f = forward(generator);
      double backward = f * factor(generator);
      request.layers.push_back({f, backward + f, backward + f});
    }
    request.devices = 1 + static_cast<int>(generator() % 4);
    request.micro_batches = 1 + static_cast<int>(generator() % 12);
    request.fits = anything_fits;
    Result<std::vector<Stage>> stages = partition_for_training(request);
    ASSERT_TRUE(stages.is_ok());
    expect_covers(*stages, layers);
    EXPECT_NEAR(cost_of(request, *stages), brute_force(request), 1e-6) << "trial " << trial;
  }
}

TEST(Partition, RespectsMemoryAndSaysWhenNothingFits) {
  PartitionRequest request = uniform_request(8, 2, 4);
  request.fits = [](const std::vector<Stage>& stages) {
    return std::all_of(stages.begin(), stages.end(),
                       [](const Stage& stage) { return stage.last_layer - stage.first_layer < 2; });
  };
  Result<std::vector<Stage>> stages = partition_for_training(request);
  ASSERT_TRUE(stages.is_ok());
  EXPECT_TRUE(request.fits(*stages));
  expect_covers(*stages, 8);
  request.fits = [](const std::vector<Stage>&) { return false; };
  EXPECT_EQ(partition_for_training(request).status().code(), StatusCode::kNotFound);
}

TEST(Partition, LayerLimitIsKept) {
  PartitionRequest request = uniform_request(9, 2, 4);
  request.max_stage_layers = 1;
  Result<std::vector<Stage>> stages = partition_for_training(request);
  ASSERT_TRUE(stages.is_ok());
  for (const Stage& stage : *stages) EXPECT_EQ(stage.first_layer, stage.last_layer);
  expect_covers(*stages, 9);
}

TEST(Partition, OneLayerIsOneFusedStage) {
  Result<std::vector<Stage>> stages = partition_for_training(uniform_request(1, 3, 2));
  ASSERT_TRUE(stages.is_ok());
  ASSERT_EQ(stages->size(), 1u);
  EXPECT_EQ(stages->front().kind, ActionKind::kForwardBackward);
}

TEST(Partition, InferenceCoversAllLayersForwardOnly) {
  PartitionRequest request = uniform_request(7, 3, 6);
  Result<std::vector<Stage>> stages = partition_for_inference(request);
  ASSERT_TRUE(stages.is_ok());
  Plan plan = make_roundpipe_plan(*stages, 3, 6, 1, 0, Dispatch::kRotation);
  EXPECT_TRUE(validate_plan(plan, 7, true).is_ok());
}

}  // namespace
}  // namespace stagecoach
