#include <gtest/gtest.h>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

/// Layer times of a model on one card, in ms per micro-batch of 4 x 2048 tokens, and the hand-over
/// between cards, as published with RoundPipe (arXiv 2604.27085, artifact).
struct PublishedModel {
  int blocks;
  double block_forward, block_backward, head_forward, head_backward, hop;
};
constexpr PublishedModel k1_7B = {28, 7.43, 15.83, 22.07, 43.71, 1.6};
constexpr PublishedModel k32B = {64, 40.56, 91.17, 54.93, 108.29, 4.0};

constexpr double kMs = 1e6;

/// Stages of so many layers each; the last layer is the head. Blocks recompute their forward before
/// backward, the head does not.
std::vector<StageTimes> stages_of(const PublishedModel& model, const std::vector<int>& layers) {
  std::vector<StageTimes> stages;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    int blocks = stage + 1 == layers.size() ? layers[stage] - 1 : layers[stage];
    double forward = blocks * model.block_forward;
    double backward = blocks * (model.block_backward + model.block_forward);
    if (stage + 1 == layers.size()) {
      forward += model.head_forward;
      backward += model.head_backward;
    }
    StageTimes times;
    times.forward_ns = static_cast<int64_t>(forward * kMs);
    times.backward_ns = static_cast<int64_t>(backward * kMs);
    times.input_ns = times.weight_ns = times.backward_ns / 2;
    stages.push_back(times);
  }
  return stages;
}

/// Idle share by makespan in per cent: 8 devices, 16 micro-batches, one isolated iteration.
double bubble(const char* schedule, const PublishedModel& model, const std::vector<int>& layers) {
  ScheduleParameters parameters = pipeline(8, 16);
  if (layers.size() > 8) parameters.chunks = static_cast<int>(layers.size()) / 8;
  parameters.times.hop_ns = static_cast<int64_t>(model.hop * kMs);
  parameters.stage_times = stages_of(model, layers);
  return 100 * run_valid(schedule, parameters).measures.bubble_makespan;
}

std::vector<int> joined(std::vector<int> first, const std::vector<int>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(PublishedBubbles, SmallModel) {
  // 29 layers cut as evenly as they go, longer stages first.
  std::vector<int> even = {4, 4, 4, 4, 4, 3, 3, 3};
  EXPECT_NEAR(bubble("gpipe", k1_7B, even), 36.1, 0.1);
  EXPECT_NEAR(bubble("1f1b", k1_7B, even), 35.2, 0.1);
  // Three chunks: the head, the longest layer, alone; elsewhere the short stages first.
  std::vector<int> chunks = joined(std::vector<int>(18, 1), {2, 2, 2, 2, 2, 1});
  EXPECT_NEAR(bubble("interleaved", k1_7B, chunks), 27.8, 0.1);
  EXPECT_NEAR(bubble("looped-bfs", k1_7B, chunks), 25.0, 0.1);
}

TEST(PublishedBubbles, LargeModel) {
  // Eight blocks a device, the head with the last; eight chunks of one block.
  std::vector<int> even = joined(std::vector<int>(7, 8), {9});
  EXPECT_NEAR(bubble("gpipe", k32B, even), 34.9, 0.1);
  EXPECT_NEAR(bubble("1f1b", k32B, even), 34.9, 0.1);
  std::vector<int> chunks = joined(std::vector<int>(63, 1), {2});
  EXPECT_NEAR(bubble("interleaved", k32B, chunks), 15.1, 0.1);
  EXPECT_NEAR(bubble("looped-bfs", k32B, chunks), 13.7, 0.1);
}

}  // namespace
}  // namespace stagecoach
