#include "tools/bench_isolated.h"

#include <fmt/format.h>
#include <iterator>
#include <set>
#include <utility>

#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/profile_subject.h"
#include "train/interrupt.h"

namespace stagecoach {

namespace {

/// Whether copies between devices are to be measured for a profile.
bool wants_peers(const BenchOptions& options, const BandwidthReport& report) {
  bool is_whole = options.suite == "full" && options.group.empty();
  if (options.profile_file.empty() || !is_whole || InterruptGuard::is_interrupted()) return false;
  Result<std::vector<DeviceInfo>> devices = devices_of_context(report.context);
  if (!devices.is_ok()) return false;
  std::set<std::string> backends;
  for (const DeviceInfo& device : *devices) {
    if (!backends.insert(device.backend).second) return true;
  }
  return false;
}

Result<BandwidthReport> run_peers(BenchOptions options, Progress& progress) {
  options.suite = "p2p";
  STAGECOACH_ASSIGN_OR_RETURN(IsolatedRun run, isolated_run(options, progress));
  return run_isolated(run);
}

}  // namespace

Result<IsolatedRun> isolated_run(const BenchOptions& options, Progress& progress) {
  IsolatedRun run;
  STAGECOACH_ASSIGN_OR_RETURN(run.program, own_program());
  run.arguments = bench_child_arguments(options);
  run.group = options.group;
  STAGECOACH_ASSIGN_OR_RETURN(run.timeout_ns, parse_duration_ns(options.timeout));
  run.is_cancelled = [] { return InterruptGuard::is_interrupted(); };
  run.before_group = [&progress](const std::string& group) {
    progress.phase(fmt::format("measuring {} in a process of its own", group));
  };
  return run;
}

void add_peers_for_profile(const BenchOptions& options, Progress& progress,
                           BandwidthReport& report) {
  if (!wants_peers(options, report)) return;
  Result<BandwidthReport> peers = run_peers(options, progress);
  if (!peers.is_ok()) {
    report.notes.push_back(
        fmt::format("copies between devices were not measured: {}", peers.status().message()));
    return;
  }
  std::move(peers->records.begin(), peers->records.end(), std::back_inserter(report.records));
}

}  // namespace stagecoach
