#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "model/gpt2.h"
#include "scheduler/device_memory.h"
#include "scheduler/executable_plan.h"
#include "scheduler/partition.h"
#include "scheduler/planner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr MicroBatchShape kShape{2, 8};
constexpr const char* kBoundSchedules[] = {"gpipe",      "1f1b",  "interleaved",
                                           "looped-bfs", "zb-h1", "zb-v"};

Network tiny_network(DType dtype, int layers) {
  Gpt2Config config;
  config.vocab_size = 50;
  config.n_positions = 8;
  config.n_embd = 16;
  config.n_layer = layers - 2;
  config.n_head = 2;
  config.n_inner = 32;
  return make_gpt2(config, NetworkHead::kLoss, dtype).value();
}

PlanRequest request_with(int devices, int micro_batches, ByteCount free_bytes) {
  PlanRequest request;
  request.devices.resize(devices);
  for (int device = 0; device < devices; ++device) {
    request.devices[device].id = "cpu:" + std::to_string(device);
  }
  request.free_bytes.assign(devices, free_bytes);
  request.shape = kShape;
  request.micro_batches = micro_batches;
  return request;
}

Result<PlannedRun> plan_schedule(const Network& network, const char* schedule,
                                 const PlanRequest& request) {
  return plan_bound_run(network, request, **find_schedule(schedule));
}

/// Bytes of a device's arena that hold something from one action to another.
struct Piece {
  ByteCount begin = 0, end = 0;
  int first_step = 0, last_step = 0;
};

/// What one device's micro-batches keep, told from the plan and the places alone.
std::vector<Piece> kept_pieces(const Plan& plan, int device,
                               const std::vector<StageLayout>& layouts,
                               const DeviceMemory& memory) {
  std::vector<int> numbers = stage_numbers(plan);
  const std::vector<Action>& actions = plan.device_actions[device];
  std::map<std::pair<int, int>, int> last_step;
  for (size_t step = 0; step < actions.size(); ++step) {
    last_step[{numbers[actions[step].stage], actions[step].micro_batch}] = static_cast<int>(step);
  }
  std::vector<Piece> pieces;
  for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
    const Action& action = actions[step];
    const StageLayout& layout = layouts[action.stage];
    ActionKind kind = plan.stage_of(action).kind;
    int last = last_step[{numbers[action.stage], action.micro_batch}];
    auto add = [&](Region region, ByteCount size, int first) {
      ByteCount begin = memory.actions[step].of(region);
      if (size > 0) pieces.push_back({begin, begin + size, std::max(0, first), last});
    };
    if (runs_forward(kind)) add(Region::kIn, layout.in_bytes, step - 1);
    if (runs_forward(kind)) add(Region::kSaved, layout.saved_bytes, step);
    if (makes_input_gradient(kind)) add(Region::kGradient, layout.output_grad_bytes, step - 1);
    if (kind == ActionKind::kInputGradient) add(Region::kHalf, layout.half_bytes, step);
  }
  return pieces;
}

TEST(BoundMemory, NothingThatIsKeptSharesBytesAndThePeakIsNear) {
  Network network = tiny_network(DType::kF32, 16);
  for (const char* schedule : kBoundSchedules) {
    for (int devices : {1, 2, 4, 8}) {
      for (int micro_batches : {8, 16, 24, -16}) {
        bool recomputes = micro_batches < 0;
        PlanRequest request = request_with(devices, std::abs(micro_batches), kGiB);
        Plan plan = plan_schedule(network, schedule, request)->training_plans.front();
        ASSERT_TRUE(check_executable(plan).is_ok());
        std::vector<StageLayout> layouts = layout_stages(network, plan, kShape, recomputes);
        for (int device = 0; device < devices; ++device) {
          DeviceMemory memory = carve_device_memory(plan, layouts, device, false);
          std::vector<Piece> pieces = kept_pieces(plan, device, layouts, memory);
          ByteCount most = 0;
          for (int step = 0; step < static_cast<int>(memory.actions.size()); ++step) {
            std::vector<Piece> live;
            ByteCount bytes = 0;
            for (const Piece& piece : pieces) {
              if (piece.first_step > step || piece.last_step < step) continue;
              live.push_back(piece);
              bytes += piece.end - piece.begin;
            }
            most = std::max(most, bytes);
            std::sort(live.begin(), live.end(),
                      [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
            for (size_t i = 1; i < live.size(); ++i) {
              ASSERT_LE(live[i - 1].end, live[i].begin) << schedule << " " << step;
            }
            ByteCount end = live.empty() ? 0 : live.back().end;
            ASSERT_LE(end, memory.need.total());
          }
          // Chunks of unequal size on one device leave gaps.
          EXPECT_LE(memory.need.kept_bytes, most * (devices == 1 || recomputes ? 6 : 5) / 4)
              << schedule << " N " << devices << " M " << micro_batches << " device " << device;
        }
      }
    }
  }
}

ByteCount kept_on_first(const Network& network, const char* schedule, int micro_batches) {
  Plan plan = plan_schedule(network, schedule, request_with(4, micro_batches, kGiB))
                  ->training_plans.front();
  return carve_device_memory(plan, layout_stages(network, plan, kShape, false), 0, false)
      .need.kept_bytes;
}

TEST(BoundMemory, FollowsTheMicroBatchesInFlight) {
  Network network = tiny_network(DType::kF32, 8);
  // gpipe keeps all micro-batches, 1f1b no more than there are devices.
  EXPECT_GT(kept_on_first(network, "gpipe", 32), 3 * kept_on_first(network, "gpipe", 8));
  EXPECT_EQ(kept_on_first(network, "1f1b", 32), kept_on_first(network, "1f1b", 8));
  EXPECT_LT(kept_on_first(network, "1f1b", 8), kept_on_first(network, "gpipe", 8));
  EXPECT_LT(kept_on_first(network, "interleaved", 32), kept_on_first(network, "looped-bfs", 32));
}

TEST(BoundMemory, ADeviceHoldsABlockOnceAndASumForEverySite) {
  Network network = tiny_network(DType::kBF16, 8);
  // The folded placement gives the first and the last stage, which share wte, to device 0.
  Plan plan = plan_schedule(network, "zb-v", request_with(4, 8, kGiB))->training_plans.front();
  std::vector<StageLayout> layouts = layout_stages(network, plan, kShape, false);
  std::map<int, std::set<ByteCount>> offsets, sums;
  for (const Action& action : plan.device_actions[0]) {
    for (const auto& place : layouts[action.stage].blocks) {
      offsets[place.block].insert(place.offset);
    }
    for (const auto& place : layouts[action.stage].gradients) {
      sums[place.block].insert(place.offset);
    }
  }
  int tied = 0;
  for (const auto& [block, places] : offsets) {
    EXPECT_EQ(places.size(), 1u) << network.blocks[block].name;
    EXPECT_EQ(static_cast<int>(sums[block].size()), network.blocks[block].site_count);
    if (network.blocks[block].site_count == 2) ++tied;
  }
  EXPECT_EQ(tied, 1);
}

TEST(BoundPlanner, RefusalNamesDeviceLayerBytesAndRemedy) {
  Network network = tiny_network(DType::kF32, 8);
  for (const char* schedule : kBoundSchedules) {
    Status status = plan_schedule(network, schedule, request_with(4, 8, 10 * kKiB)).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    for (const char* part : {"cpu:0", "10240 bytes", "the largest layer, '",
                             "memory=", "train.microbatches", "roundpipe", schedule}) {
      EXPECT_THAT(status.message(), HasSubstr(part));
    }
    // What the message asks for is enough for the device it names.
    std::string text = status.message();
    size_t at = text.find("at least ");
    ASSERT_NE(at, std::string::npos);
    PlanRequest enough = request_with(4, 8, kGiB);
    enough.free_bytes[0] = std::stoll(text.substr(at + 9));
    EXPECT_TRUE(plan_schedule(network, schedule, enough).is_ok());
    enough.free_bytes[0] -= 1;
    EXPECT_FALSE(plan_schedule(network, schedule, enough).is_ok());
  }
}

TEST(BoundPlanner, SizesOutsideTheScheduleAreRefusedByName) {
  Network network = tiny_network(DType::kF32, 8);
  Status few = plan_schedule(network, "interleaved", request_with(4, 2, kGiB)).status();
  EXPECT_EQ(few.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(few.message(), HasSubstr("schedule.kind = \"interleaved\""));
  EXPECT_THAT(few.message(), HasSubstr("train.microbatches = 4 would do"));
  Status group = plan_schedule(network, "interleaved", request_with(3, 8, kGiB)).status();
  EXPECT_THAT(group.message(), HasSubstr("train.microbatches = 6 or 9 would do"));
  Status layers = plan_schedule(network, "zb-v", request_with(5, 8, kGiB)).status();
  EXPECT_EQ(layers.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(layers.message(), HasSubstr("10 stages"));
  EXPECT_THAT(layers.message(), HasSubstr("8 layers; name 4 devices or fewer"));
  for (const char* any : {"gpipe", "1f1b", "zb-h1"}) {
    EXPECT_TRUE(plan_schedule(network, any, request_with(4, 1, kGiB)).is_ok()) << any;
  }
}

TEST(ExecutablePlan, RefusesSumsOutOfOrderAndWhatIsNotOneIteration) {
  auto check = [](const char* name, auto change) {
    ScheduleParameters parameters;
    parameters.stages = 4;
    parameters.micro_batches = 8;
    change(parameters);
    return check_executable(*make_plan(**find_schedule(name), parameters));
  };
  auto nothing = [](ScheduleParameters&) {};
  EXPECT_TRUE(check("gpipe", nothing).is_ok());
  Status reversed = check("gpipe", [](ScheduleParameters& p) { p.reverse_backward = 1; });
  EXPECT_THAT(reversed.message(), HasSubstr("in the order of micro-batches"));
  EXPECT_TRUE(check("roundpipe", nothing).is_ok());
  EXPECT_TRUE(check("mobius", nothing).is_ok());
  Plan streamed = *make_plan(**find_schedule("1f1b"), {.stages = 2, .micro_batches = 4});
  streamed.residence = Residence::kStreamed;
  EXPECT_THAT(check_executable(streamed).message(), HasSubstr("streams stage 3 again for round 0"));
  EXPECT_EQ(check("paci", nothing).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(check("dualpipe", nothing).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(check("1f1b", [](ScheduleParameters& p) { p.iterations = 2; }).code(),
            StatusCode::kUnimplemented);
}

TEST(PartitionEvenly, ShortestLongestStageThenEven) {
  StageLayers cut = partition_evenly({1, 1, 1, 1, 4}, 3);
  EXPECT_EQ(cut, (StageLayers{{0, 1}, {2, 3}, {4, 4}}));
  EXPECT_EQ(partition_evenly({5, 0, 0}, 3), (StageLayers{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(partition_evenly({2, 2, 2}, 1), (StageLayers{{0, 2}}));
}

}  // namespace
}  // namespace stagecoach
