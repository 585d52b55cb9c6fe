#include "tests/integration/fault_sweep_fixture.h"

#include <map>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "core/clock.h"
#include "testing/faulty_backend.h"

namespace stagecoach::testing {

namespace {

constexpr int kCountingRuns = 4;

/// Trains as `run` says on `devices` and answers the digest of the weights.
Result<std::string> train_on(const std::vector<std::unique_ptr<Device>>& devices,
                             const TinyRun& run, const FaultInjector& injector,
                             CallCounts& counts) {
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  STAGECOACH_ASSIGN_OR_RETURN(Network network, make_gpt2(run.model, Gpt2Head::kLoss, run.dtype));
  STAGECOACH_ASSIGN_OR_RETURN(auto trainer,
                              Trainer::create(std::move(network), pointers, run.options));
  trainer->initialize_parameters();
  TinyBatches batches(run);
  for (int iteration = 0; iteration < run.iterations; ++iteration) {
    batches.next();
    STAGECOACH_RETURN_IF_FAILED(trainer->forward_backward(batches.inputs(), batches.labels()));
    STAGECOACH_RETURN_IF_ERROR(trainer->step(3e-3));
  }
  STAGECOACH_RETURN_IF_ERROR(trainer->synchronize());
  counts = injector.counts();
  return trainer->weights_sha256();
}

}  // namespace

TinyRun sweep_run(const std::string& schedule) {
  TinyRun run;
  run.options.schedule = schedule;
  run.devices = "cpu:2";
  run.iterations = 2;
  run.model.n_layer = 2;
  return run;
}

FaultedRun train_with_faults(const TinyRun& run, const FaultPlan& plan) {
  FaultedRun outcome;
  auto injector = std::make_shared<FaultInjector>(plan);
  int64_t start_ns = RealClock::instance().now_ns();
  {
    BackendRegistry registry;
    registry.add(make_faulty_backend(make_cpu_backend(), injector));
    auto devices = registry.open_devices(run.devices);
    outcome.status = devices.status();
    if (devices.is_ok()) {
      Result<std::string> digest = train_on(*devices, run, *injector, outcome.counts);
      outcome.status = digest.status();
      if (digest.is_ok()) outcome.weights_sha256 = *digest;
    }
    outcome.fired = injector->all_fired();
  }
  outcome.seconds = static_cast<double>(RealClock::instance().now_ns() - start_ns) * 1e-9;
  return outcome;
}

const FaultedRun& fault_free_run() {
  static const FaultedRun run = train_with_faults(sweep_run(), FaultPlan{});
  return run;
}

namespace {

CallCounts count_certain(const std::string& schedule) {
  std::vector<CallCounts> runs;
  if (schedule == sweep_run().options.schedule) runs.push_back(fault_free_run().counts);
  while (runs.size() < kCountingRuns) {
    runs.push_back(train_with_faults(sweep_run(schedule), FaultPlan{}).counts);
  }
  CallCounts least = least_counts(runs);
  for (auto& [key, count] : least) {
    bool varies = false;
    for (const CallCounts& run : runs) varies = varies || run.at(key) != count;
    if (varies) count = (count + 1) / 2;
  }
  return least;
}

}  // namespace

const CallCounts& certain_counts(const std::string& schedule) {
  static std::map<std::string, CallCounts> known;
  auto found = known.find(schedule);
  if (found == known.end()) found = known.emplace(schedule, count_certain(schedule)).first;
  return found->second;
}

}  // namespace stagecoach::testing
