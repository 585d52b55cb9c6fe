// What does the runtime add to each stage and micro-batch, and what to each wait? README.md says
// how to read the rows.
#include <benchmark/benchmark.h>
#include <functional>
#include <string>

#include "backends/register_backends.h"
#include "core/clock.h"
#include "core/task_pool.h"
#include "hal/host_worker.h"
#include "hal/timeline.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/virtual_run.h"

namespace stagecoach {
namespace {

constexpr int64_t kTimeoutNs = 60'000'000'000;
constexpr int kBatch = 200;  // round trips that one run of the loop makes
constexpr int kLayers = 4;

/// Enqueues nothing: what is left is the runtime.
class EmptyLayer final : public Layer {
 public:
  EmptyLayer(int index, bool is_last) : uses_{{index, 0}}, is_last_(is_last) {}

  const std::string& name() const override { return name_; }
  std::span<const BlockUse> uses() const override { return uses_; }
  BoundaryInfo input() const override { return {DType::kF32, kColumns}; }
  BoundaryInfo output() const override { return {DType::kF32, is_last_ ? 1 : kColumns}; }
  bool needs(RowInput) const override { return false; }
  LayerMemory memory(const MicroBatchShape&) const override { return {256, 256, 256, 256}; }
  LayerFlop flop(const MicroBatchShape&) const override { return {}; }
  Status forward(const LayerRun&) const override { return Status::ok(); }
  Status forward_saving(const LayerRun&) const override { return Status::ok(); }
  Status backward(const LayerRun&, BackwardPart) const override { return Status::ok(); }

  static constexpr int64_t kColumns = 64;

 private:
  std::string name_ = "empty";
  std::vector<BlockUse> uses_;
  bool is_last_;
};

Network empty_network() {
  Network network;
  network.name = "empty";
  for (int index = 0; index < kLayers; ++index) {
    ParameterBlock block;
    block.name = "block." + std::to_string(index);
    block.add("weight", {EmptyLayer::kColumns}, true, {});
    block.site_count = 1;
    network.blocks.push_back(std::move(block));
    network.layers.push_back(std::make_unique<EmptyLayer>(index, index + 1 == kLayers));
  }
  STAGECOACH_CHECK(network.validate().is_ok());
  return network;
}

struct EmptyWork final : Submitter::Work {
  Status execute() override { return Status::ok(); }
};

Task<Status> submit_batch(Submitter& submitter) {
  EmptyWork work;
  for (int trip = 0; trip < kBatch; ++trip) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await submitter.run(work));
  }
  co_return Status::ok();
}

double seconds_of(const std::function<void()>& work) {
  int64_t start_ns = RealClock::instance().now_ns();
  work();
  return static_cast<double>(RealClock::instance().now_ns() - start_ns) * 1e-9;
}

/// Passes of `slots` stages and `micro_batches` on `spec`: the time of one, and for each
/// micro-batch of a stage `us_per_action`, which is `of_submit` round trips to a submit thread,
/// measured in turns.
void run_passes(benchmark::State& state, const std::string& spec) {
  auto opened = built_in_backends().open_devices(spec);
  STAGECOACH_CHECK(opened.is_ok());
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  HostWorker worker("host", *pool);
  Network network = empty_network();
  // Each layer forward and, but for the last, backward on its own.
  Plan plan =
      make_roundpipe_plan(equal_slots(kLayers - 1, kLayers), static_cast<int>(opened->size()),
                          static_cast<int>(state.range(0)), 1, 0, Dispatch::kRotation);
  VirtualRun run;
  run.network = &network;
  run.shape = {1, 1};
  run.plan = &plan;
  run.recomputes = true;
  run.host_work = &worker;
  for (const auto& device : *opened) run.devices.push_back(device.get());
  auto passes = DatalessPasses::create(run);
  STAGECOACH_CHECK(passes.is_ok());
  for (int warm_up = 0; warm_up < 3; ++warm_up) STAGECOACH_CHECK((*passes)->run_pass().is_ok());
  Executor executor;
  Submitter submitter(executor, "bench");
  double pass_s = 0, trips_s = 0;
  for (auto _ : state) {
    double taken_s = seconds_of([&] { STAGECOACH_CHECK((*passes)->run_pass().is_ok()); });
    trips_s += seconds_of([&] { STAGECOACH_CHECK(executor.run(submit_batch(submitter)).is_ok()); });
    pass_s += taken_s;
    state.SetIterationTime(taken_s);
  }
  double actions = static_cast<double>(plan.stages.size()) * static_cast<double>(state.range(0)) *
                   static_cast<double>(state.iterations());
  double trips = kBatch * static_cast<double>(state.iterations());
  state.counters["slots"] = static_cast<double>(plan.stages.size());
  state.counters["us_per_action"] = 1e6 * pass_s / actions;
  state.counters["of_submit"] = pass_s / actions / (trips_s / trips);
}

/// To a submit thread and back: what every piece of work costs that is given to a device.
void submit_round_trip(benchmark::State& state) {
  Executor executor;
  Submitter submitter(executor, "bench");
  while (state.KeepRunningBatch(kBatch)) {
    STAGECOACH_CHECK(executor.run(submit_batch(submitter)).is_ok());
  }
}

struct YieldAwaiter {
  Executor& executor;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) { executor.post(handle); }
  void await_resume() const noexcept {}
};

Task<Status> yield_batch(Executor& executor) {
  for (int trip = 0; trip < kBatch; ++trip) co_await YieldAwaiter{executor};
  co_return Status::ok();
}

/// Once round the controller's loop.
void controller_turn(benchmark::State& state) {
  Executor executor;
  while (state.KeepRunningBatch(kBatch)) {
    STAGECOACH_CHECK(executor.run(yield_batch(executor)).is_ok());
  }
}

Task<Status> await_once(Pump& pump, Timepoint timepoint) {
  co_return co_await pump.reached(timepoint);
}

Task<Status> await_batch(Pump& pump, Timepoint timepoint) {
  for (int trip = 0; trip < kBatch; ++trip) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump.reached(timepoint));
  }
  co_return Status::ok();
}

/// A wait for what is there already.
void await_reached(benchmark::State& state) {
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  HostWorker worker("host", *pool);
  Executor executor;
  Pump pump(executor, kTimeoutNs);
  Timepoint timepoint = worker.submit("job", {}, [](TaskPool&) { return Status::ok(); }).value();
  STAGECOACH_CHECK(wait_until_reached(timepoint).is_ok());
  while (state.KeepRunningBatch(kBatch)) {
    STAGECOACH_CHECK(executor.run(await_batch(pump, timepoint)).is_ok());
  }
}

/// From the end of a short job to whoever waits for it: by the pump, and, as `of_blocking` says, in
/// turns with a thread that does nothing but wait. The pump looks every 200 us.
void await_landing(benchmark::State& state) {
  constexpr int64_t kJobNs = 300'000;
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  HostWorker worker("host", *pool);
  Executor executor;
  Pump pump(executor, kTimeoutNs);
  double blocking_ns = 0, pump_ns = 0;
  int64_t ended_ns = 0;
  auto job = [&](TaskPool&) {
    sleep_until_ns(RealClock::instance().now_ns() + kJobNs);
    ended_ns = RealClock::instance().now_ns();
    return Status::ok();
  };
  for (auto _ : state) {
    STAGECOACH_CHECK(wait_until_reached(worker.submit("job", {}, job).value()).is_ok());
    blocking_ns += static_cast<double>(RealClock::instance().now_ns() - ended_ns);
    Timepoint timepoint = worker.submit("job", {}, job).value();
    STAGECOACH_CHECK(executor.run(await_once(pump, timepoint)).is_ok());
    auto late_ns = static_cast<double>(RealClock::instance().now_ns() - ended_ns);
    pump_ns += late_ns;
    state.SetIterationTime(late_ns * 1e-9);
  }
  state.counters["of_blocking"] = pump_ns / blocking_ns;
}

BENCHMARK(controller_turn);
BENCHMARK(submit_round_trip);
BENCHMARK(await_reached);
BENCHMARK(await_landing)->UseManualTime()->Iterations(500)->Unit(benchmark::kMicrosecond);

// Passes keep their gradients until a step, which does not come: their number is limited.
void add_passes(const std::string& spec) {
  benchmark::RegisterBenchmark(("pass/" + spec).c_str(),
                               [spec](benchmark::State& state) { run_passes(state, spec); })
      ->ArgName("micro_batches")
      ->Arg(1)
      ->Arg(4)
      ->Arg(32)
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc > 1) {
    stagecoach::add_passes(argv[1]);
  } else {
    for (const char* spec : {"cpu:1", "cpu:2", "cpu:4"}) stagecoach::add_passes(spec);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
