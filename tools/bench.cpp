#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/suggest.h"
#include "memory/host_limits.h"
#include "stagecoach_version.h"
#include "tools/bandwidth/bandwidth_context.h"
#include "tools/bandwidth/bandwidth_plan.h"
#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/compare.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/gates.h"
#include "tools/bandwidth/isolated_groups.h"
#include "tools/bandwidth/link_load.h"
#include "tools/bandwidth/profile_builder.h"
#include "tools/bandwidth/results_reader.h"
#include "tools/card_devices.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "train/interrupt.h"
#include "train/progress.h"

namespace stagecoach {

namespace {

/// The command line of `bench`, as text.
struct BenchOptions {
  std::string benchmark, suite = "quick", devices;
  std::string sizes, depth, kinds, working_set, max_host, max_pinned, filter, group;
  std::string min_time = "0.3s", timeout = "60s", verify = "end", format;
  std::string csv_file, out_file, profile_file;
  std::vector<std::string> fail_below, files;
  std::string baseline;
  double threshold_percent = 5;
  int64_t repetitions = 7, seed = 1;
  double cv_limit_percent = 5;
  bool no_interleave = false, is_strict = false, has_samples = false;
  bool is_list = false, is_dry_run = false, is_isolated = false;
};

Result<ByteCount> positive_size(const std::string& text, const char* option) {
  if (text.empty()) return ByteCount{0};
  Result<ByteCount> size = parse_bytes(text);
  if (size.is_ok() && *size > 0) return size;
  return invalid_argument(
      fmt::format("{} is '{}'; it must be a size above 0, such as 256M", option, text));
}

Result<int64_t> time_ns(const std::string& text, const char* option, int64_t least_ns) {
  Result<int64_t> time = parse_duration_ns(text);
  if (time.is_ok() && *time >= least_ns) return time;
  return invalid_argument(fmt::format("{} is '{}'; it must be a time of at least {} ms, such as 1s",
                                      option, text, least_ns / 1'000'000));
}

Status read_verify(const std::string& text, RepetitionOptions& sampling) {
  const std::map<std::string, VerifyMode> modes = {
      {"end", VerifyMode::kEnd}, {"each", VerifyMode::kEach}, {"off", VerifyMode::kOff}};
  auto mode = modes.find(text);
  if (mode == modes.end()) {
    return invalid_argument(fmt::format("--verify is '{}'; it must be end, each or off", text));
  }
  sampling.verify = mode->second;
  return Status::ok();
}

Status read_sampling(const BenchOptions& options, RepetitionOptions& sampling) {
  constexpr int64_t kMostRepetitions = 1000;
  if (options.repetitions < 1 || options.repetitions > kMostRepetitions) {
    return invalid_argument(fmt::format("--reps is {}; it must be from 1 to {}",
                                        options.repetitions, kMostRepetitions));
  }
  if (!(options.cv_limit_percent > 0)) {
    return invalid_argument(
        fmt::format("--cv-limit is {}; it must be above 0, in per cent", options.cv_limit_percent));
  }
  if (options.seed < 0) {
    return invalid_argument(fmt::format("--seed is {}; it must not be below 0", options.seed));
  }
  sampling.repetitions = static_cast<int>(options.repetitions);
  sampling.cv_limit = options.cv_limit_percent / 100;
  sampling.seed = static_cast<uint64_t>(options.seed);
  sampling.interleaves = !options.no_interleave;
  constexpr int64_t kLeastTimeoutNs = 100'000'000;
  STAGECOACH_ASSIGN_OR_RETURN(sampling.min_time_ns, time_ns(options.min_time, "--min-time", 0));
  STAGECOACH_ASSIGN_OR_RETURN(sampling.timeout_ns,
                              time_ns(options.timeout, "--timeout", kLeastTimeoutNs));
  sampling.is_cancelled = [] { return InterruptGuard::is_interrupted(); };
  return read_verify(options.verify, sampling);
}

Result<BandwidthOptions> read_options(const BenchOptions& options) {
  BandwidthOptions read;
  read.suite = options.suite;
  read.filter = options.filter;
  read.group = options.group;
  if (!options.sizes.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(read.sizes, parse_size_list(options.sizes, "--sizes"));
  }
  if (!options.depth.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(read.depths, parse_depth_list(options.depth, "--depth"));
  }
  if (!options.kinds.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(read.kinds, parse_memory_kinds(options.kinds, "--mem"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(read.working_set,
                              positive_size(options.working_set, "--working-set"));
  STAGECOACH_ASSIGN_OR_RETURN(read.max_host, positive_size(options.max_host, "--max-mem"));
  STAGECOACH_ASSIGN_OR_RETURN(read.max_pinned, positive_size(options.max_pinned, "--max-pinned"));
  STAGECOACH_RETURN_IF_ERROR(read_sampling(options, read.sampling));
  return read;
}

/// Checks what needs no device: names, gates, formats.
Result<const BandwidthSuite*> check_names(const BenchOptions& options, bool is_json) {
  if (options.benchmark != "bandwidth") {
    return invalid_argument(fmt::format(
        "'bench {}' does not exist; did you mean 'bench bandwidth'?", options.benchmark));
  }
  const std::vector<std::string> formats = {"", "table", "json", "csv"};
  if (std::find(formats.begin(), formats.end(), options.format) == formats.end()) {
    return invalid_argument(
        fmt::format("--format is '{}'; it must be table, json or csv", options.format));
  }
  if (is_json && options.format != "" && options.format != "json") {
    return invalid_argument(
        fmt::format("--json and --format {} are given; leave one out", options.format));
  }
  return find_bandwidth_suite(options.suite);
}

/// The command line of a child: what is measured and how, not what is written.
std::vector<std::string> child_arguments(const BenchOptions& options) {
  std::vector<std::string> arguments = {"bench", "bandwidth", options.suite};
  const std::pair<const char*, std::string> texts[] = {
      {"--devices", options.devices},
      {"--sizes", options.sizes},
      {"--depth", options.depth},
      {"--mem", options.kinds},
      {"--working-set", options.working_set},
      {"--max-mem", options.max_host},
      {"--max-pinned", options.max_pinned},
      {"--filter", options.filter},
      {"--min-time", options.min_time},
      {"--timeout", options.timeout},
      {"--verify", options.verify},
      {"--reps", std::to_string(options.repetitions)},
      {"--seed", std::to_string(options.seed)},
      {"--cv-limit", fmt::format("{}", options.cv_limit_percent)}};
  for (const auto& [name, value] : texts) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  }
  if (options.no_interleave) arguments.push_back("--no-interleave");
  return arguments;
}

Result<BandwidthReport> read_report(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  return read_bandwidth_json(*json, path);
}

Result<int> compare_files(const BenchOptions& options, bool is_json) {
  if (options.files.size() != 2) {
    return invalid_argument(
        fmt::format("'bench bandwidth compare' takes two files that --out wrote, and {} are given",
                    options.files.size()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport before, read_report(options.files[0]));
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport after, read_report(options.files[1]));
  ReportComparison comparison = compare_reports(before, after, options.threshold_percent / 100);
  if (is_json) {
    fmt::print("{}\n", comparison_json(comparison).dump());
  } else {
    fmt::print("{}", comparison_table(comparison));
  }
  return comparison.count(ComparisonVerdict::kWorse) > 0 ? kExitDoesNotFit : kExitOk;
}

/// A run of `bench bandwidth`.
class BandwidthBench {
 public:
  BandwidthBench(const CommandContext& context, const BenchOptions& options)
      : context_(context), options_(options) {}

  Result<int> run() {
    STAGECOACH_ASSIGN_OR_RETURN(const BandwidthSuite* suite, check_names(options_, context_.json));
    if (!(options_.threshold_percent > 0)) {
      return invalid_argument(fmt::format("--threshold is {}; it must be above 0, in per cent",
                                          options_.threshold_percent));
    }
    if (options_.suite == "compare") return compare_files(options_, context_.json);
    if (!options_.files.empty()) {
      return invalid_argument(fmt::format("'{}' is one argument too many; only compare takes files",
                                          options_.files[0]));
    }
    if (!options_.baseline.empty()) {
      STAGECOACH_ASSIGN_OR_RETURN(baseline_, read_report(options_.baseline));
    }
    STAGECOACH_ASSIGN_OR_RETURN(BandwidthOptions options, read_options(options_));
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<Gate> gates, parse_gates(options_.fail_below));
    bool is_plan_only = options_.is_list || options_.is_dry_run;
    if (options_.is_isolated && !options_.profile_file.empty()) {
      return invalid_argument("--save-profile does not go with --isolate; leave out one of them");
    }
    // A driver may hang in copies between devices; a process for one group is a child already.
    bool is_risky = options_.suite == "p2p" && options_.group.empty();
    if ((options_.is_isolated || is_risky) && !is_plan_only) {
      STAGECOACH_RETURN_IF_ERROR(check_profile_can_be_made(*suite));
      return measure_isolated(gates);
    }
    STAGECOACH_ASSIGN_OR_RETURN(cards_, open_cards(context_.backends, options_.devices));
    STAGECOACH_RETURN_IF_ERROR(explain_absence(*suite));
    STAGECOACH_RETURN_IF_ERROR(check_profile_can_be_made(*suite));
    STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
    std::vector<Device*> devices = cards_.pointers();
    paths_ = read_device_paths(devices);
    if (!is_plan_only) wake_links(devices);
    std::vector<MeasuredDevice> measured;
    for (Device* device : devices) measured.push_back({device, link_rate(device->id())});
    STAGECOACH_ASSIGN_OR_RETURN(BandwidthPlan plan,
                                plan_bandwidth(measured, options, limits.free_bytes, *pool_));
    report_.context = measurement_context(devices, paths_);
    report_.context["suite"] = options_.suite;
    if (is_plan_only) return print_plan(plan);
    for (const Device* device : devices) {
      if (device->info().is_real_hardware) continue;
      report_.notes.push_back(fmt::format(
          "{} is a mock: its figures say nothing about a card, only that they are measured right",
          device->id()));
    }
    // What cannot be written is found now rather than at the end.
    STAGECOACH_RETURN_IF_ERROR(write_files());
    if (!options_.profile_file.empty()) {
      std::string folder = std::filesystem::path(options_.profile_file).parent_path().string();
      STAGECOACH_RETURN_IF_ERROR(check_folder_writable(folder.empty() ? "." : folder));
    }
    return measure(std::move(plan), gates);
  }

 private:
  /// Without a card only the host is measured; a suite that needs one is refused.
  Status explain_absence(const BandwidthSuite& suite) {
    if (!cards_.devices.empty()) return Status::ok();
    std::string why = fmt::format("no card: {}", fmt::join(cards_.absent, "; "));
    if (suite.needs_device) {
      return unavailable(
          fmt::format("{}. 'bench bandwidth {}' needs a device; --devices cpu:2[h2d=1G,d2h=1G] "
                      "shows it on mocks",
                      why, suite.name));
    }
    report_.notes.push_back(why + ": the host alone is measured");
    return Status::ok();
  }

  /// A profile has no gaps: what it is made of must be measured.
  Status check_profile_can_be_made(const BandwidthSuite& suite) const {
    if (options_.profile_file.empty()) return Status::ok();
    for (const char* group : {"copy", "duplex", "optim"}) {
      if (std::find(suite.groups.begin(), suite.groups.end(), group) != suite.groups.end())
        continue;
      return invalid_argument(
          fmt::format("--save-profile needs '{}', which '{}' does not measure; use quick or full",
                      group, suite.name));
    }
    if (!cards_.devices.empty()) return Status::ok();
    return unavailable(
        fmt::format("--save-profile needs a device; no card: {}", fmt::join(cards_.absent, "; ")));
  }

  Status save_profile() {
    if (options_.profile_file.empty()) return Status::ok();
    ProfileSubject subject;
    for (const Device* device : cards_.pointers()) subject.devices.push_back(device->info());
    MachineMeasurement& measurement = subject.measurement;
    measurement.when = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    measurement.by = fmt::format("stagecoach {}", STAGECOACH_VERSION);
    measurement.depth = options_.suite;
    STAGECOACH_ASSIGN_OR_RETURN(measurement.machine, read_machine_identity(subject.devices));
    STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, build_machine_profile(report_, subject));
    return write_file_atomically(options_.profile_file, to_json(profile).dump(true) + "\n");
  }

  /// Idle links go slower than they can.
  void wake_links(const std::vector<Device*>& devices) {
    for (Device* device : devices) {
      auto path = paths_.find(device->id());
      if (path == paths_.end() || !device->info().is_real_hardware) continue;
      Status woken = read_links_under_load(*device, *pool_, path->second);
      if (woken.is_ok()) continue;
      report_.notes.push_back(
          fmt::format("{}: its links were not read under load: {}", device->id(), woken.message()));
    }
  }

  double link_rate(const std::string& id) const {
    auto path = paths_.find(id);
    return path == paths_.end() ? 0 : path->second.bytes_per_s();
  }

  Result<int> measure(BandwidthPlan plan, const std::vector<Gate>& gates) {
    InterruptGuard guard;
    {
      Progress progress;
      auto before = [&](const BandwidthGroup& group) {
        progress.phase(fmt::format("measuring {}: {} results, about {:.0f} s", group.name,
                                   group.ids.size(), std::ceil(group.expected_s)));
      };
      Status written;
      auto after = [&] {
        if (written.is_ok()) written = write_files();
      };
      run_bandwidth_plan(std::move(plan), report_, before, after);
      STAGECOACH_RETURN_IF_ERROR(written);
    }
    report_.is_interrupted = InterruptGuard::is_interrupted();
    return finish(gates);
  }

  /// Each group in a process of its own; none of them prints but by way of this one.
  Result<int> measure_isolated(const std::vector<Gate>& gates) {
    STAGECOACH_RETURN_IF_ERROR(write_files());
    InterruptGuard guard;
    {
      Progress progress;
      IsolatedRun run;
      STAGECOACH_ASSIGN_OR_RETURN(run.program, own_program());
      run.arguments = child_arguments(options_);
      STAGECOACH_ASSIGN_OR_RETURN(run.timeout_ns, parse_duration_ns(options_.timeout));
      run.is_cancelled = [] { return InterruptGuard::is_interrupted(); };
      run.before_group = [&](const std::string& group) {
        progress.phase(fmt::format("measuring {} in a process of its own", group));
      };
      run.after_group = [&](const BandwidthReport& report) {
        report_ = report;
        return write_files();
      };
      STAGECOACH_ASSIGN_OR_RETURN(report_, run_isolated(run));
    }
    report_.is_interrupted = report_.is_interrupted || InterruptGuard::is_interrupted();
    return finish(gates);
  }

  /// Draws conclusions, prints, and decides the exit code.
  Result<int> finish(const std::vector<Gate>& gates) {
    report_.findings = find_problems(report_);
    STAGECOACH_ASSIGN_OR_RETURN(bool has_passed, check_gates(gates, report_));
    if (baseline_.has_value()) {
      ReportComparison comparison =
          compare_reports(*baseline_, report_, options_.threshold_percent / 100);
      add_regressions(comparison, report_);
      has_passed = has_passed && comparison.count(ComparisonVerdict::kWorse) == 0;
    }
    STAGECOACH_RETURN_IF_ERROR(write_files());
    print_report();
    int code = bandwidth_exit_code(report_, options_.is_strict);
    if (report_.is_interrupted) return code;
    Status saved = save_profile();
    if (saved.code() == StatusCode::kFailedPrecondition) {
      // Something was not measured after all; what was has been printed.
      log_error(saved.message());
      return code == kExitOk ? kExitPartial : code;
    }
    STAGECOACH_RETURN_IF_ERROR(saved);
    return code == kExitOk && !has_passed ? kExitDoesNotFit : code;
  }

  Status write_files() {
    if (!options_.csv_file.empty()) {
      STAGECOACH_RETURN_IF_ERROR(write_file_atomically(options_.csv_file, bandwidth_csv(report_)));
    }
    if (options_.out_file.empty()) return Status::ok();
    std::string text = bandwidth_json(report_, options_.has_samples).dump(true) + "\n";
    return write_file_atomically(options_.out_file, text);
  }

  void print_report() {
    bool is_json = context_.json || options_.format == "json";
    if (is_json) {
      fmt::print("{}\n", bandwidth_json(report_, options_.has_samples).dump());
    } else if (options_.format == "csv") {
      fmt::print("{}", bandwidth_csv(report_));
    } else {
      fmt::print("{}", bandwidth_table(report_));
    }
  }

  Result<int> print_plan(const BandwidthPlan& plan) {
    Json json = Json::object();
    json["groups"] = Json::array();
    for (const BandwidthGroup& group : plan.groups) {
      Json one = Json::object();
      one["name"] = group.name;
      one["ids"] = Json::array();
      for (const std::string& id : group.ids) one["ids"].push_back(id);
      one["pinned_bytes"] = group.pinned_bytes;
      one["expected_s"] = group.expected_s;
      json["groups"].push_back(std::move(one));
      if (context_.json) continue;
      if (options_.is_dry_run) {
        fmt::print("{:<12} {:>4} measurements, about {:.0f} s, {} of pinned memory\n", group.name,
                   group.ids.size(), std::ceil(group.expected_s), format_bytes(group.pinned_bytes));
      }
      for (const std::string& id : group.ids) {
        if (options_.is_list) fmt::print("{}\n", id);
      }
    }
    report_.notes.insert(report_.notes.end(), plan.notes.begin(), plan.notes.end());
    json["notes"] = Json::array();
    for (const std::string& note : report_.notes) json["notes"].push_back(note);
    json["context"] = report_.context;
    if (context_.json) fmt::print("{}\n", json.dump());
    for (const std::string& note : report_.notes) fmt::print(stderr, "{}\n", note);
    return kExitOk;
  }

  const CommandContext& context_;
  const BenchOptions& options_;
  std::unique_ptr<TaskPool> pool_ = TaskPool::create(usable_thread_count());
  CardDevices cards_;
  std::map<std::string, PciPath> paths_;
  BandwidthReport report_;
  std::optional<BandwidthReport> baseline_;
};

std::string suite_notes() {
  std::string text = "SUITE is quick unless given:\n";
  for (const BandwidthSuite& suite : bandwidth_suites()) {
    if (suite.is_here) text += fmt::format("  {:<12}{}\n", suite.name, suite.summary);
  }
  text +=
      "Rates are in GB/s of 1e9 bytes, sizes in binary units. Exit codes: 2 no usable device, 3\n"
      "bytes arrived wrong, 4 below a gate, 5 something failed or ran out of time, 130\n"
      "interrupted: what was measured until then is printed. See docs/bandwidth.md.";
  return text;
}

std::vector<CommandOption> bench_options(BenchOptions& options) {
  return {
      {"BENCHMARK", "", "bandwidth", &options.benchmark, true},
      {"SUITE", "", "what to measure, see below", &options.suite},
      {"FILE", "", "of compare: two that --out wrote", &options.files},
      {"--devices", "SPEC", "devices to measure; default: every card there is", &options.devices},
      {"--sizes", "LIST", "chunks of copies: 64K,4M or 4K:256M:x4", &options.sizes},
      {"--depth", "LIST", "chunks issued ahead: 1,2,8; default: any number", &options.depth},
      {"--mem", "LIST", "host memory: pinned,registered,pageable", &options.kinds},
      {"--working-set", "SIZE", "memory that copies go round, a device and direction; default 1G",
       &options.working_set},
      {"--max-mem", "SIZE",
       "that host threads go through at most; default: a quarter of what is free",
       &options.max_host},
      {"--max-pinned", "SIZE", "pinned memory at most; default: a quarter of what is free",
       &options.max_pinned},
      {"--filter", "REGEX", "measure only ids that match", &options.filter},
      {"--group", "NAME", "measure only this group of the suite", &options.group},
      {"--isolate", "", "measure each group in a process of its own, which may hang or die",
       &options.is_isolated},
      {"--list", "", "print the ids of what would be measured", &options.is_list},
      {"--dry-run", "", "print groups, time and memory they take", &options.is_dry_run},
      {"--min-time", "TIME", "that a measurement lasts at least; default 0.3s", &options.min_time},
      {"--reps", "N", "repetitions at least; default 7", &options.repetitions},
      {"--no-interleave", "", "one measurement after the other, not in turns",
       &options.no_interleave},
      {"--seed", "N", "of data and order; default 1", &options.seed},
      {"--cv-limit", "PERCENT", "noisier results are repeated and flagged; default 5",
       &options.cv_limit_percent},
      {"--verify", "WHEN", "compare the bytes of the end, each repetition or off", &options.verify},
      {"--timeout", "TIME", "of one measurement; default 60s", &options.timeout},
      {"--fail-below", "ID=VALUE", "exit 4 where a result's median is below; may be repeated",
       &options.fail_below},
      {"--baseline", "FILE", "exit 4 where a result is worse than in this file of --out",
       &options.baseline},
      {"--threshold", "PERCENT", "by how much, for --baseline and compare; default 5",
       &options.threshold_percent},
      {"--strict", "", "what is skipped counts as failed", &options.is_strict},
      {"--raw", "", "every sample in the JSON", &options.has_samples},
      {"--format", "FORMAT", "table, json or csv on stdout", &options.format},
      {"--csv", "FILE", "also write CSV, after every group", &options.csv_file},
      {"--out", "FILE", "also write JSON, after every group", &options.out_file},
      {"--save-profile", "FILE", "write what planning and training need, see docs/bandwidth.md",
       &options.profile_file}};
}

}  // namespace

Command make_bench_command() {
  auto options = std::make_shared<BenchOptions>();
  Command command;
  command.name = "bench";
  command.summary = "measures what the machine's links and memory really give";
  command.examples = {"stagecoach bench bandwidth",
                      "stagecoach bench bandwidth copy --sizes 4K:256M:x4 --mem pinned,pageable",
                      "stagecoach bench bandwidth contention --devices cpu:2[h2d=1G,d2h=1G] --json",
                      "stagecoach bench bandwidth --fail-below copy/cuda:0/up/pinned/256M=50"};
  command.notes = suite_notes();
  command.options = bench_options(*options);
  command.answers_interrupted = true;
  command.run = [options](const CommandContext& context) {
    return BandwidthBench(context, *options).run();
  };
  return command;
}

}  // namespace stagecoach
