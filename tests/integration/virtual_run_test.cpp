// The executor on simulated devices: the same code in virtual time.
#include "scheduler/virtual_run.h"

#include <algorithm>
#include <fstream>

#include "backends/sim/sim_backend.h"
#include "testing/decorated_backend.h"
#include "testing/recording_backend.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr int kDevices = 3;

/// A machine whose links cost next to nothing, so that only the order counts.
SimMachineProfile free_links(int count, double flop_per_s) {
  SimMachineProfile profile;
  SimCard card{"test", "test card", kGiB, flop_per_s, 1e18, 1e18, 2e18, "made up"};
  profile.cards.assign(static_cast<size_t>(count), card);
  profile.host_work_bytes_per_s = 1e18;
  profile.copy_latency_ns = 0;
  profile.kernel_latency_ns = 0;
  profile.costs = HostCosts{0, 0, 0};
  return profile;
}

struct VirtualFixture {
  std::shared_ptr<SimMachine> machine;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<HostQueue> host_work;

  explicit VirtualFixture(SimMachineProfile profile)
      : machine(std::make_shared<SimMachine>(std::move(profile))),
        devices(open_sim_devices(machine)),
        host_work(make_sim_host_queue(*machine, "host")) {}

  Result<std::vector<IterationReport>> run(const Network& network, const MicroBatchShape& shape,
                                           const Plan& plan, int passes = 1,
                                           bool recomputes = true) {
    VirtualRun request;
    request.network = &network;
    request.shape = shape;
    request.plan = &plan;
    for (const auto& device : devices) request.devices.push_back(device.get());
    request.host_work = host_work.get();
    request.passes = passes;
    request.recomputes = recomputes;
    return run_virtually(request);
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Design, section 4: the streams of simulated devices are given the same work in the same order.
TEST(VirtualRun, SubmitsWhatRealDevicesAreGiven) {
  TinyRun tiny;
  tiny.options.residency = "off";  // simulated devices have the memory that the plan needs, no more
  auto real = std::make_shared<OperationLog>(), simulated = std::make_shared<OperationLog>();
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  ASSERT_TRUE(network.is_ok());
  Plan plan;
  {
    auto opened = built_in_backends().open_devices("cpu:3[flops=2G]");
    ASSERT_TRUE(opened.is_ok());
    auto devices = decorate_devices(std::move(opened).value(), std::make_shared<Recorder>(real));
    std::vector<Device*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    auto copy = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
    auto trainer = Trainer::create(std::move(copy).value(), pointers, tiny.options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().to_string();
    (*trainer)->initialize_parameters();
    std::vector<int32_t> tokens(static_cast<size_t>(tiny.options.batch * tiny.options.sequence), 3);
    Shape shape{tiny.options.batch, tiny.options.sequence};
    auto loss =
        (*trainer)->forward_backward(HostTensor::of(tokens, shape), HostTensor::of(tokens, shape));
    ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
    ASSERT_TRUE((*trainer)->synchronize().is_ok());
    plan = (*trainer)->plan();
  }
  VirtualFixture fixture(free_links(kDevices, 2e9));
  fixture.devices =
      decorate_devices(std::move(fixture.devices), std::make_shared<Recorder>(simulated));
  MicroBatchShape shape{tiny.options.batch / tiny.options.micro_batches, tiny.options.sequence};
  auto reports = fixture.run(*network, shape, plan);
  ASSERT_TRUE(reports.is_ok()) << reports.status().to_string();
  EXPECT_EQ(simulated->lanes().size(), real->lanes().size());
  for (const std::string& lane : real->lanes()) {
    std::string expected = real->format_lane(lane);
    if (expected.find("allocate") != std::string::npos || lane.find('/') == std::string::npos) {
      continue;  // devices are given memory by different owners
    }
    EXPECT_EQ(simulated->format_lane(replaced(lane, "cpu:", "sim:")), expected) << lane;
  }
}

// Where nothing but kernels takes time, the executor is the plan's own event simulation.
TEST(VirtualRun, EqualsThePlanSimulationWhereLinksAreFree) {
  TinyRun tiny;
  tiny.model.n_layer = 7;
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  ASSERT_TRUE(network.is_ok());
  MicroBatchShape shape{2, 16};
  for (int devices : {1, 2, 4}) {
    PlanRequest request;
    request.devices.resize(static_cast<size_t>(devices));
    request.free_bytes.assign(static_cast<size_t>(devices), kGiB);
    request.shape = shape;
    request.micro_batches = 6;
    auto planned = plan_run(*network, request);
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    const Plan& plan = planned->training_plans.front();
    VirtualFixture fixture(free_links(devices, 1e9));
    auto reports = fixture.run(*network, shape, plan, 2);
    ASSERT_TRUE(reports.is_ok()) << reports.status().to_string();
    for (const IterationReport& report : *reports) {
      EXPECT_NEAR(report.bubble, report.bubble_simulated, 1e-6) << devices;
    }
    EXPECT_EQ(reports->front().span_ns, reports->back().span_ns);
  }
}

// The same for plans that bind stages to devices, with I and W apart among them.
TEST(VirtualRun, EqualsThePlanSimulationOfBoundPlans) {
  TinyRun tiny;
  tiny.model.n_layer = 10;
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  ASSERT_TRUE(network.is_ok());
  MicroBatchShape shape{1, 16};
  for (const char* name : {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v"}) {
    SCOPED_TRACE(name);
    PlanRequest request;
    request.devices.resize(3);
    request.free_bytes.assign(3, kGiB);
    request.shape = shape;
    request.micro_batches = 6;
    auto planned = plan_bound_run(*network, request, **find_schedule(name));
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    VirtualFixture fixture(free_links(3, 1e9));
    auto reports =
        fixture.run(*network, shape, planned->training_plans.front(), 1, planned->recomputes);
    ASSERT_TRUE(reports.is_ok()) << reports.status().to_string();
    EXPECT_NEAR(reports->front().bubble, reports->front().bubble_simulated, 1e-4);
  }
}

TEST(VirtualRun, GivesTheSameTimesEveryTime) {
  TinyRun tiny;
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  MicroBatchShape shape{2, 16};
  auto run_once = [&] {
    SimMachineProfile profile;
    profile.cards.assign(3, *find_sim_card("rtx4090"));
    profile.host_memory_bytes_per_s = 60e9;
    VirtualFixture fixture(std::move(profile));
    PlanRequest request;
    request.devices.resize(3);
    request.free_bytes.assign(3, kGiB);
    request.shape = shape;
    request.micro_batches = 4;
    Plan plan = plan_run(*network, request)->training_plans.front();
    auto reports = fixture.run(*network, shape, plan, 3);
    EXPECT_TRUE(reports.is_ok()) << reports.status().to_string();
    std::vector<int64_t> spans;
    for (const IterationReport& report : *reports) spans.push_back(report.span_ns);
    spans.push_back(fixture.machine->time().now_ns());
    return spans;
  };
  std::vector<int64_t> first = run_once();
  EXPECT_GT(first.front(), 0);
  EXPECT_EQ(first, run_once());
}

// No tensor data: a model of 19 billion parameters takes neither its memory nor its time.
TEST(VirtualRun, LargeModelsTakeLittle) {
  Gpt2Config model;
  model.vocab_size = 50257;
  model.n_positions = 2048;
  model.n_embd = 4096;
  model.n_layer = 94;
  model.n_head = 32;
  model.n_inner = 16384;
  auto network = make_gpt2(model, NetworkHead::kLoss, DType::kBF16);
  ASSERT_TRUE(network.is_ok());
  EXPECT_GT(network->parameter_count(), int64_t{18'000'000'000});
  SimMachineProfile profile;
  profile.cards.assign(8, *find_sim_card("rtx4090"));
  VirtualFixture fixture(std::move(profile));
  MicroBatchShape shape{1, 2048};
  PlanRequest request;
  for (const auto& device : fixture.devices) request.devices.push_back(device->info());
  request.free_bytes.assign(8, 20 * kGiB);
  request.shape = shape;
  request.micro_batches = 16;
  auto planned = plan_run(*network, request);
  ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
  const Plan& plan = planned->training_plans.front();
  auto reports = fixture.run(*network, shape, plan);
  ASSERT_TRUE(reports.is_ok()) << reports.status().to_string();
  double step_s = static_cast<double>(reports->front().span_ns) * 1e-9;
  double flop = 0;
  for (const auto& layer : network->layers) {
    LayerFlop one = layer->flop(shape);
    flop += one.forward + one.recompute + one.backward_input + one.backward_weight;
  }
  double least_s = 16 * flop / (8 * fixture.machine->profile().cards[0].matmul_flop_per_s);
  EXPECT_GT(step_s, 0.8 * least_s);
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t peak_kb = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> peak_kb;
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak_kb, 1'000'000);
#endif
  RecordProperty("step_s", std::to_string(step_s));
}

// An order that cannot run ends with what is known, instead of never.
TEST(VirtualRun, ADeadlockIsReported) {
  TinyRun tiny;
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  MicroBatchShape shape{2, 16};
  PlanRequest request;
  request.devices.resize(2);
  request.free_bytes.assign(2, kGiB);
  request.shape = shape;
  request.micro_batches = 4;
  request.max_stage_layers = 1;
  Plan plan = plan_run(*network, request)->training_plans.front();
  // The second device would begin with its last stages, which wait for its first.
  std::stable_sort(plan.device_actions[1].begin(), plan.device_actions[1].end(),
                   [](const Action& a, const Action& b) { return a.stage > b.stage; });
  VirtualFixture fixture(free_links(2, 1e9));
  auto reports = fixture.run(*network, shape, plan);
  EXPECT_EQ(reports.status().code(), StatusCode::kInternal);
  EXPECT_NE(reports.status().message().find("deadlock at"), std::string::npos)
      << reports.status().to_string();
}

TEST(VirtualRun, RefusesRealDevicesAndMixtures) {
  TinyRun tiny;
  auto network = make_gpt2(tiny.model, NetworkHead::kLoss, tiny.dtype);
  auto real = built_in_backends().open_devices("cpu:1");
  Plan plan;
  VirtualRun run;
  run.network = &*network;
  run.plan = &plan;
  run.devices = {real->front().get()};
  EXPECT_EQ(run_virtually(run).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach::testing
