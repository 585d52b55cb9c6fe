#include "scheduler/stage_memory.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/gpt2.h"
#include "scheduler/cost_table.h"
#include "scheduler/network_profile.h"
#include "scheduler/planner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr MicroBatchShape kShape{2, 8};

Network tiny_network(DType dtype, bool has_documents = false) {
  Gpt2Config config;
  config.vocab_size = 50;
  config.n_positions = 8;
  config.n_embd = 16;
  config.n_layer = 3;
  config.n_head = 2;
  config.n_inner = 32;
  return make_gpt2(config, NetworkHead::kLoss, dtype, {}, has_documents).value();
}

std::vector<Stage> three_stages() {
  return {{ActionKind::kForward, 0, 2},
          {ActionKind::kForwardBackward, 3, 4},
          {ActionKind::kBackward, 1, 2},
          {ActionKind::kBackward, 0, 0}};
}

StageLayout layout_of(const Network& network, const std::vector<Stage>& stages, int stage) {
  std::vector<bool> starts = stage_starts(stages, static_cast<int>(network.layers.size()));
  return layout_stage(network, stages[stage], starts, kShape);
}

TEST(StageMemory, ForwardSendsHomeWhereABackwardStageStarts) {
  Network network = tiny_network(DType::kF32);
  StageLayout layout = layout_of(network, three_stages(), 0);
  ASSERT_EQ(layout.downloads.size(), 2u);
  EXPECT_EQ(layout.downloads[0].boundary, 1);
  EXPECT_EQ(layout.downloads[1].boundary, 3);
  EXPECT_TRUE(layout.gradients.empty());
  EXPECT_EQ(layout.input_grad.region, Region::kNone);
}

TEST(StageMemory, TiedBlockIsUploadedOnceAndHasAGradientPerSite) {
  Network network = tiny_network(DType::kF32);
  std::vector<Stage> stages = {{ActionKind::kForwardBackward, 0, 4}};
  StageLayout layout = layout_of(network, stages, 0);
  auto uploads = std::count_if(layout.blocks.begin(), layout.blocks.end(), [&](const auto& place) {
    return network.blocks[place.block].name == "wte";
  });
  auto sites =
      std::count_if(layout.gradients.begin(), layout.gradients.end(),
                    [&](const auto& place) { return network.blocks[place.block].name == "wte"; });
  EXPECT_EQ(uploads, 1);
  EXPECT_EQ(sites, 2);
}

TEST(StageMemory, BehindTheLossThereIsNoGradientToTake) {
  Network network = tiny_network(DType::kF32);
  std::vector<Stage> stages = {{ActionKind::kForward, 0, 4}, {ActionKind::kBackward, 0, 4}};
  StageLayout layout = layout_of(network, stages, 1);
  EXPECT_FALSE(layout.takes_gradient);
  EXPECT_EQ(layout.layers.back().output_grad.region, Region::kNone);
  EXPECT_EQ(layout.rows[RowInput::kLabels].region, Region::kIn);
}

// Labels, document starts and positions go up where a layer reads them, once a stage; planning
// counts the same bytes.
TEST(StageMemory, StagesTakeTheRowInputsThatTheirLayersRead) {
  Network network = tiny_network(DType::kBF16, true);
  CostTable costs(profile_network(network, kShape, {1e12, 80e9}));
  std::vector<Stage> stages = three_stages();
  stages.push_back({ActionKind::kForwardBackward, 0, 4});
  for (size_t i = 0; i < stages.size(); ++i) {
    SCOPED_TRACE(i);
    const Stage& stage = stages[i];
    StageLayout layout = layout_of(network, stages, static_cast<int>(i));
    auto takes = [&](RowInput input) { return layout.rows[input].region == Region::kIn; };
    EXPECT_EQ(takes(RowInput::kLabels), stage.last_layer == 4);
    EXPECT_EQ(takes(RowInput::kDocumentStarts), stage.last_layer > 0);
    EXPECT_EQ(takes(RowInput::kPositions), stage.first_layer == 0);
    EXPECT_EQ(costs.bytes(stage).in, layout.in_bytes);
  }
}

/// Places of one region that are alive at the same time must not share bytes.
void expect_disjoint(std::vector<Place> places) {
  std::erase_if(
      places, [](const Place& place) { return place.region == Region::kNone || place.size == 0; });
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < places.size(); ++i) {
    EXPECT_LE(places[i - 1].offset + places[i - 1].size, places[i].offset);
  }
}

TEST(StageMemory, BackwardStageKeepsEverythingApart) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Network network = tiny_network(dtype);
    for (int stage : {1, 2, 3}) {
      StageLayout layout = layout_of(network, three_stages(), stage);
      std::vector<Place> work = {layout.layers[0].workspace},
                         in = {layout.input, layout.rows[RowInput::kLabels]};
      std::vector<Place> out = {layout.input_grad, layout.loss};
      for (size_t layer = 0; layer < layout.layers.size(); ++layer) {
        work.push_back(layout.layers[layer].saved);
        if (layout.layers[layer].output.region == Region::kWork)
          work.push_back(layout.layers[layer].output);
      }
      // Neighbouring layers' gradients are alive together.
      for (size_t layer = 0; layer + 1 < layout.layers.size(); ++layer) {
        std::vector<Place> with_gradients = work;
        for (size_t near : {layer, layer + 1}) {
          if (layout.layers[near].output_grad.region == Region::kWork) {
            with_gradients.push_back(layout.layers[near].output_grad);
          }
        }
        expect_disjoint(with_gradients);
      }
      if (layout.layers.back().output_grad.region == Region::kIn) {
        in.push_back(layout.layers.back().output_grad);
      }
      expect_disjoint(work);
      expect_disjoint(in);
      expect_disjoint(out);
    }
  }
}

TEST(StageMemory, NeedIsTheLargestOfEachRegion) {
  Network network = tiny_network(DType::kBF16);
  std::vector<Stage> stages = three_stages();
  DeviceMemoryNeed all = device_memory_need(network, stages, kShape);
  EXPECT_TRUE(all.rounds_gradients);
  for (int stage = 0; stage < 4; ++stage) {
    DeviceMemoryNeed one = stage_memory_need(network, layout_of(network, stages, stage));
    EXPECT_LE(one.parameter_bytes, all.parameter_bytes);
    EXPECT_LE(one.work_bytes, all.work_bytes);
    EXPECT_LE(one.total(), all.total());
  }
}

PlanRequest request_with(ByteCount free_bytes) {
  PlanRequest request;
  request.devices.resize(2);
  request.devices[0].id = "cpu:0";
  request.devices[1].id = "cpu:1";
  request.free_bytes = {free_bytes, free_bytes};
  request.shape = kShape;
  request.micro_batches = 4;
  return request;
}

TEST(Planner, ArenasNeverExceedTheirDevice) {
  Network network = tiny_network(DType::kF32);
  for (ByteCount more : {ByteCount{0}, 20 * kKiB, kMiB}) {
    int fitted = 0;
    for (ByteCount free_bytes = 40 * kKiB; free_bytes < 400 * kKiB; free_bytes += 10 * kKiB) {
      PlanRequest request = request_with(free_bytes);
      request.free_bytes[1] += more;
      Result<PlannedRun> run = plan_run(network, request);
      if (!run.is_ok()) continue;
      ++fitted;
      for (size_t index = 0; index < run->devices.size(); ++index) {
        EXPECT_LE(run->arena_bytes[index], request.free_bytes[run->devices[index]]);
      }
    }
    EXPECT_GT(fitted, 10);
  }
}

// Field report 64: an equal split would fail on the small device.
TEST(Planner, ASmallDeviceTakesWhatFitsItOrIsLeftOut) {
  Network network = tiny_network(DType::kF32);
  PlanRequest request = request_with(kMiB);
  request.free_bytes[0] = 10 * kKiB;
  Result<PlannedRun> run = plan_run(network, request);
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run->devices, std::vector<int>{1});
  EXPECT_FALSE(run->shares[0].used);
  EXPECT_THAT(run->shares[0].reason, HasSubstr("its 10.00 KiB"));
  EXPECT_TRUE(run->shares[1].used);
  for (const Plan& plan : run->training_plans) EXPECT_EQ(plan.device_count(), 1);
}

TEST(Planner, RefusalNamesLayerDeviceBytesAndRemedy) {
  Network network = tiny_network(DType::kF32);
  Status status = plan_run(network, request_with(10 * kKiB)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("cpu:0"));
  EXPECT_THAT(status.message(), HasSubstr("10240 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("'h."));
  EXPECT_THAT(status.message(), HasSubstr("memory="));
  // What the message asks for is enough.
  std::string text = status.message();
  size_t at = text.find("at least ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_TRUE(plan_run(network, request_with(std::stoll(text.substr(at + 9)))).is_ok());
}

}  // namespace
}  // namespace stagecoach
