#include <gtest/gtest.h>
#include <string>

#include "scheduler/stage_packing.h"
#include "scheduler/stage_planner.h"
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
constexpr PublishedModel k8B = {32, 18.50, 41.21, 37.23, 74.50, 3.2};
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

TEST(PublishedBubbles, MiddleModel) {
  // As the large model: four blocks a device, the head with the last; four chunks of one block.
  std::vector<int> even = joined(std::vector<int>(7, 4), {5});
  EXPECT_NEAR(bubble("gpipe", k8B, even), 42.1, 0.1);
  EXPECT_NEAR(bubble("1f1b", k8B, even), 42.1, 0.1);
  std::vector<int> chunks = joined(std::vector<int>(31, 1), {2});
  EXPECT_NEAR(bubble("interleaved", k8B, chunks), 30.6, 0.1);
  EXPECT_NEAR(bubble("looped-bfs", k8B, chunks), 29.2, 0.1);
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

/// RoundPipe's synchronous step: one round of 16 micro-batches, all updates after it, hand-overs
/// charged, transfers otherwise hidden.
StepSetup roundpipe_sync(const PublishedModel& model) {
  StepSetup setup;
  for (int index = 0; index <= model.blocks; ++index) {
    bool head = index == model.blocks;
    LayerProfile& layer = setup.layers.emplace_back();
    layer.name = head ? "head" : "block";
    layer.forward_ns = layer.recompute_ns = kMs * (head ? model.head_forward : model.block_forward);
    layer.backward_ns = kMs * (head ? model.head_backward : model.block_backward);
  }
  setup.devices.resize(8);
  setup.micro_batches = 16;
  setup.hop_ns = kMs * model.hop;
  return setup;
}

/// First layers of stages of `each` blocks, a short one last.
std::vector<int> stages_of_blocks(int blocks, int each) {
  std::vector<int> firsts;
  for (int first = 0; first < blocks; first += each) firsts.push_back(first);
  return firsts;
}

/// Per cent idle with the head alone in the fused stage.
double sync_bubble(const PublishedModel& model, int forward_blocks, int backward_blocks) {
  StepSetup setup = roundpipe_sync(model);
  SlotPlan plan;
  plan.stages =
      stagecoach::stages_of({stages_of_blocks(model.blocks, forward_blocks),
                             stages_of_blocks(model.blocks, backward_blocks), model.blocks},
                            model.blocks + 1);
  return 100 * predict_step(setup, CostTable(setup.layers), plan).bubble;
}

std::string shape_of(const PlannedStages& planned) {
  StageCuts cuts = cuts_of(planned.slots.stages);
  return std::to_string(cuts.forward.size()) + " forward, " +
         std::to_string(cuts.backward.size() + 1) + " backward";
}

/// Both planners' plans; what they are is part of the answer.
void expect_both(const PublishedModel& model, const std::string& rule_shape, double rule_bubble,
                 const std::string& our_shape, double our_bubble) {
  StepSetup setup = roundpipe_sync(model);
  Result<PlannedStages> rule = plan_by_roundpipe_rule(setup), ours = plan_stages(setup);
  ASSERT_TRUE(rule.is_ok() && ours.is_ok());
  EXPECT_EQ(shape_of(*rule), rule_shape);
  EXPECT_NEAR(100 * rule->prediction.bubble, rule_bubble, 0.1);
  EXPECT_EQ(shape_of(*ours), our_shape);
  EXPECT_NEAR(100 * ours->prediction.bubble, our_bubble, 0.1);
  EXPECT_LE(ours->prediction.step_ns, rule->prediction.step_ns);
}

TEST(PublishedBubbles, RoundPipeSyncSmallModel) {
  // The released rule packs forward into stages of 1, 9, 9 and 9 blocks, which idles too much for
  // the published 19.1 %; with forward stages of four and backward stages of two blocks it fits.
  expect_both(k1_7B, "4 forward, 11 backward", 27.5, "4 forward, 11 backward", 21.0);
  EXPECT_NEAR(sync_bubble(k1_7B, 4, 2), 19.1, 2);
}

TEST(PublishedBubbles, RoundPipeSyncMiddleModel) {
  // Published: 14.3 %.
  expect_both(k8B, "6 forward, 17 backward", 16.3, "6 forward, 32 backward", 14.2);
}

TEST(PublishedBubbles, RoundPipeSyncLargeModel) {
  // Published: 6.7 %, of a simulation whose plan was written by hand: 22 forward stages of three
  // blocks, 65 backward stages. The released rule gives 16 of four.
  expect_both(k32B, "16 forward, 65 backward", 9.3, "19 forward, 65 backward", 4.4);
  EXPECT_NEAR(sync_bubble(k32B, 3, 1), 6.7, 2);
}

}  // namespace
}  // namespace stagecoach
