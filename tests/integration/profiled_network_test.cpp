// Networks that take times instead of computing, in the executor.
#include "scheduler/profiled_network.h"

#include <gmock/gmock.h>

#include "backends/sim/sim_backend.h"
#include "model/architecture_network.h"
#include "scheduler/network_profile.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/stage_planner.h"
#include "scheduler/virtual_run.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kFlopPerS = 1e12;
constexpr int kDevices = 3;
constexpr int kMicroBatches = 6;

/// Cards whose links matter, on a host that costs nothing.
struct Machine {
  std::shared_ptr<SimMachine> machine;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<HostQueue> host_work;
  std::vector<Device*> pointers;

  Machine() {
    SimMachineProfile profile;
    SimCard card{"test", "test card", 64 * kGiB, kFlopPerS, 1e18, 2e9, 4e9, "made up"};
    profile.cards.assign(kDevices, card);
    profile.host_work_bytes_per_s = 1e18;
    profile.copy_latency_ns = profile.kernel_latency_ns = 0;
    profile.costs = HostCosts{0, 0, 0};
    machine = std::make_shared<SimMachine>(std::move(profile));
    devices = open_sim_devices(machine);
    host_work = make_sim_host_queue(*machine, "host");
    for (const auto& device : devices) pointers.push_back(device.get());
  }

  Result<IterationReport> run(const Network& network, const MicroBatchShape& shape,
                              const std::vector<Stage>& stages, int rounds = 1) {
    Plan plan =
        make_roundpipe_plan(stages, kDevices, kMicroBatches, rounds, 0, Dispatch::kRotation);
    VirtualRun request;
    request.network = &network;
    request.shape = shape;
    request.plan = &plan;
    request.devices = pointers;
    request.host_work = host_work.get();
    Result<std::vector<IterationReport>> reports = run_virtually(request);
    if (!reports.is_ok()) return reports.status();
    return reports->front();
  }
};

Network medium_gpt2(DType dtype) {
  Gpt2Config model;
  model.n_layer = 5;
  model.n_head = 4;
  model.n_embd = 256;
  model.n_inner = 1024;
  model.vocab_size = 4096;
  model.n_positions = 256;
  auto network = make_gpt2(model, NetworkHead::kLoss, dtype);
  EXPECT_TRUE(network.is_ok());
  return std::move(network).value();
}

std::vector<Stage> plan_for(const std::vector<LayerProfile>& layers) {
  StepSetup setup;
  setup.layers = layers;
  setup.devices.resize(kDevices);
  setup.micro_batches = kMicroBatches;
  Result<PlannedStages> planned = plan_stages(setup);
  EXPECT_TRUE(planned.is_ok()) << planned.status().to_string();
  return planned->slots.stages;
}

// The real network's operations and the profile's times are the same run: same bytes, same time.
TEST(ProfiledNetwork, RunsLikeTheNetworkItIsAProfileOf) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Network real = medium_gpt2(dtype);
    MicroBatchShape shape{2, 128};
    std::vector<LayerProfile> profiles = profile_network(real, shape, {kFlopPerS, 1e18});
    std::vector<Stage> stages = plan_for(profiles);
    for (int rounds : {1, 2}) {
      Machine machine, twin;
      auto profiled = make_profiled_network("twin", profiles, dtype, twin.pointers);
      ASSERT_TRUE(profiled.is_ok()) << profiled.status().to_string();
      EXPECT_EQ(profiled->blocks.size(), real.blocks.size());
      auto expected = machine.run(real, shape, stages, rounds);
      auto found = twin.run(*profiled, kProfiledShape, stages, rounds);
      ASSERT_TRUE(expected.is_ok() && found.is_ok()) << found.status().to_string();
      double span = static_cast<double>(expected->span_ns);
      EXPECT_NEAR(static_cast<double>(found->span_ns), span, 0.002 * span);
      double up = static_cast<double>(expected->bytes_up);
      EXPECT_NEAR(static_cast<double>(found->bytes_up), up, 0.001 * up);
      double down = static_cast<double>(expected->bytes_down);
      EXPECT_NEAR(static_cast<double>(found->bytes_down), down, 0.001 * down);
    }
  }
}

// As with a frozen base: everything goes up, only the adapters' gradients come home.
TEST(ProfiledNetwork, FrozenCopiesGoUpButBringNoGradientHome) {
  constexpr ByteCount kBase = 8 * kMiB, kAdapter = kMiB, kBoundary = 64 * kKiB;
  std::vector<LayerProfile> profiles;
  for (int index = 0; index < 5; ++index) {
    LayerProfile layer;
    layer.name = "layer " + std::to_string(index);
    layer.forward_ns = layer.recompute_ns = 2e6;
    layer.backward_ns = 4e6;
    layer.parameter_bytes = kBase + kAdapter;
    layer.gradient_bytes = kAdapter;
    layer.gradient_sum_bytes = 2 * kAdapter;
    layer.copy_shares = {8.0 / 9, 1.0 / 9};
    layer.frozen_copies = 1;
    layer.boundary_bytes = layer.input_bytes = kBoundary;
    layer.saved_bytes = layer.backward_workspace_bytes = kMiB;
    profiles.push_back(layer);
  }
  // The first and the last layer are not trained at all, as an embedding and a head.
  for (LayerProfile* layer : {&profiles.front(), &profiles.back()}) {
    layer->parameter_bytes = kBase;
    layer->gradient_bytes = layer->gradient_sum_bytes = 0;
    layer->copy_shares = {};
  }
  profiles.back().row_bytes[RowInput::kLabels] = 512;
  std::vector<Stage> stages = {{ActionKind::kForward, 0, 1},         {ActionKind::kForward, 2, 3},
                               {ActionKind::kForwardBackward, 4, 4}, {ActionKind::kBackward, 2, 3},
                               {ActionKind::kBackward, 1, 1},        {ActionKind::kBackward, 0, 0}};
  Machine machine;
  auto network = make_profiled_network("lora", profiles, DType::kBF16, machine.pointers);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  auto report = machine.run(*network, kProfiledShape, stages);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  // Per micro-batch: outputs at layers 1, 2 and 4, the loss, and gradients of those three outputs.
  ByteCount boundaries = kMicroBatches * (3 + 1 + 3) * kBoundary;
  EXPECT_EQ(report->bytes_down, boundaries + 3 * kAdapter);
  ByteCount parameters = 2 * (5 * kBase + 3 * kAdapter) - kBase;
  EXPECT_GE(report->bytes_up, parameters);
  EXPECT_LT(report->bytes_up, parameters + kMicroBatches * 16 * kBoundary);
}

TEST(ProfiledNetwork, DevicesThatComputeRefuseItByName) {
  auto devices = built_in_backends().open_devices("cpu:1");
  ASSERT_TRUE(devices.is_ok());
  Device* device = devices->front().get();
  std::vector<LayerProfile> profiles =
      profile_network(medium_gpt2(DType::kF32), {1, 64}, {kFlopPerS, 1e18});
  Status refused =
      make_profiled_network("qwen", profiles, DType::kF32, std::span(&device, 1)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("device cpu:0 computes, but network 'qwen' has times"));
}

// A shape is planned; only its profile runs.
TEST(ProfiledNetwork, ShapesThemselvesRefuseToRun) {
  Machine machine;
  auto shape = make_shape_network(*architecture_preset("qwen3-1.7b"), {});
  ASSERT_TRUE(shape.is_ok());
  std::vector<Stage> stages = plan_for(profile_network(*shape, {1, 64}, {kFlopPerS, 1e18}));
  Status refused = machine.run(*shape, {1, 64}, stages).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("is planned and simulated in this version"));
}

TEST(ProfiledNetwork, ProfilesThatItCannotStandForAreRefusedByLayer) {
  Machine machine;
  std::vector<LayerProfile> good =
      profile_network(medium_gpt2(DType::kF32), {1, 64}, {kFlopPerS, 1e18});
  auto refusal = [&](auto change) {
    std::vector<LayerProfile> profiles = good;
    change(profiles);
    return make_profiled_network("bad", profiles, DType::kF32, machine.pointers)
        .status()
        .to_string();
  };
  EXPECT_THAT(refusal([](auto& layers) { layers[2].recompute_ns = 0; }),
              HasSubstr("layer 'h.1' recomputes in 0 ns"));
  EXPECT_THAT(refusal([](auto& layers) { layers[2].boundary_bytes = 0; }),
              HasSubstr("layer 'h.1' takes"));
  EXPECT_THAT(refusal([](auto& layers) { layers[2].gradient_bytes /= 2; }),
              HasSubstr("layer 'h.1' sends"));
  EXPECT_THAT(refusal([](auto& layers) {
                layers.back().shared_layers = {3, 3};
              }),
              HasSubstr("layer 'head' shares"));
}

}  // namespace
}  // namespace stagecoach::testing
