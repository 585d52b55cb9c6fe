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
  STAGECOACH_ASSIGN_OR_RETURN(Network network, run.make_network(run.model, run.dtype));
  STAGECOACH_ASSIGN_OR_RETURN(auto trainer,
                              Trainer::create(std::move(network), pointers, run.options));
  trainer->initialize_parameters();
  TinyBatches batches(run);
  for (int iteration = 0; iteration < run.iterations; ++iteration) {
    batches.next();
    STAGECOACH_RETURN_IF_FAILED(trainer->forward_backward(batches.inputs(), batches.labels()));
    STAGECOACH_RETURN_IF_ERROR(trainer->step(run.learning_rate(iteration)));
  }
  STAGECOACH_RETURN_IF_ERROR(trainer->synchronize());
  counts = injector.counts();
  return trainer->weights_sha256();
}

}  // namespace

TinyRun sweep_run(const std::string& schedule, const std::string& update) {
  TinyRun run;
  run.options.schedule = schedule;
  run.options.update = update;
  run.options.times_layers = false;
  run.devices = "cpu:2";
  run.iterations = 3;
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

const FaultedRun& fault_free_run(const std::string& update) {
  static std::map<std::string, FaultedRun> known;
  auto found = known.find(update);
  if (found == known.end()) {
    TinyRun run = sweep_run("roundpipe", update);
    found = known.emplace(update, train_with_faults(run, FaultPlan{})).first;
  }
  return found->second;
}

namespace {

CallCounts count_certain(const TinyRun& run) {
  std::vector<CallCounts> runs;
  while (runs.size() < kCountingRuns) runs.push_back(train_with_faults(run, FaultPlan{}).counts);
  CallCounts least = least_counts(runs);
  for (auto& [key, count] : least) {
    bool varies = false;
    for (const CallCounts& counts : runs) varies = varies || counts.at(key) != count;
    if (varies) count = (count + 1) / 2;
  }
  return least;
}

}  // namespace

const CallCounts& certain_counts(const std::string& schedule, const std::string& update) {
  static std::map<std::pair<std::string, std::string>, CallCounts> known;
  auto found = known.find({schedule, update});
  if (found == known.end()) {
    CallCounts counts = count_certain(sweep_run(schedule, update));
    found = known.emplace(std::pair{schedule, update}, std::move(counts)).first;
  }
  return found->second;
}

}  // namespace stagecoach::testing
