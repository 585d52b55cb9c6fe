#include "tools/bench_options.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "tools/plot/plot_file.h"
#include "train/interrupt.h"

namespace stagecoach {

namespace {

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

}  // namespace

Result<BandwidthOptions> read_bandwidth_options(const BenchOptions& options) {
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
  if (!options.numa.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(HostNodes nodes, read_host_nodes());
    STAGECOACH_ASSIGN_OR_RETURN(NumaChoice choice,
                                choose_numa(options.numa, std::move(nodes), system_node_binder()));
    read.numa = std::make_shared<const NumaChoice>(std::move(choice));
  }
  STAGECOACH_RETURN_IF_ERROR(read_sampling(options, read.sampling));
  return read;
}

Result<const BandwidthSuite*> check_bench_names(const BenchOptions& options, bool is_json) {
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

bool plots_on_terminal(const BenchOptions& options) {
  return options.plot == "-" || (options.plot.empty() && options.suite == "plot");
}

Status check_plot_option(const BenchOptions& options, bool is_json) {
  if (options.plot.empty() && !plots_on_terminal(options)) return Status::ok();
  const std::pair<const char*, bool> others[] = {{"compare", options.suite == "compare"},
                                                 {"--list", options.is_list},
                                                 {"--dry-run", options.is_dry_run}};
  for (const auto& [name, is_given] : others) {
    if (is_given) {
      return invalid_argument(fmt::format(
          "--plot draws what was measured, and {} measures nothing; leave out --plot", name));
    }
  }
  if (!plots_on_terminal(options)) {
    if (check_plot_path(options.plot).is_ok()) return Status::ok();
    return invalid_argument(fmt::format(
        "--plot is '{}'; it must end in .svg or .html, or be - for the terminal", options.plot));
  }
  if (!is_json && options.format != "json" && options.format != "csv") return Status::ok();
  return invalid_argument(
      fmt::format("--plot - draws where {} prints; give a file that ends in .svg or .html",
                  is_json ? "--json" : "--format " + options.format));
}

std::vector<std::string> bench_child_arguments(const BenchOptions& options) {
  std::vector<std::string> arguments = {"bench", "bandwidth", options.suite};
  const std::pair<const char*, std::string> texts[] = {
      {"--devices", options.devices},
      {"--sizes", options.sizes},
      {"--depth", options.depth},
      {"--mem", options.kinds},
      {"--numa", options.numa},
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

std::string bench_command_notes() {
  std::string text = "SUITE is quick unless given:\n";
  for (const BandwidthSuite& suite : bandwidth_suites()) {
    text += fmt::format("  {:<14}{}\n", suite.name, suite.summary);
  }
  text +=
      "Rates are in GB/s of 1e9 bytes, sizes in binary units. Exit codes: 2 no usable device, 3\n"
      "bytes arrived wrong, 4 below a gate, 5 something failed or ran out of time, 130\n"
      "interrupted: what was measured until then is printed. See docs/bandwidth.md.";
  return text;
}

std::vector<CommandOption> bench_command_options(BenchOptions& options) {
  return {
      {"BENCHMARK", "", "bandwidth", &options.benchmark, true},
      {"SUITE", "", "what to measure, see below", &options.suite},
      {"FILE", "",
       "that --out wrote: two of compare, one of plot; of profile what to do, and its files",
       &options.files},
      {"--devices", "SPEC", "devices to measure; default: every card there is", &options.devices},
      {"--sizes", "LIST", "chunks of copies: 64K,4M or 4K:256M:x4", &options.sizes},
      {"--depth", "LIST", "chunks issued ahead: 1,2,8; default: any number", &options.depth},
      {"--mem", "LIST", "host memory: pinned,registered,pageable", &options.kinds},
      {"--numa", "NODES",
       "of host memory and threads: local, remote, all or a number; default: any", &options.numa},
      {"--working-set", "SIZE", "memory that copies go round, a device and direction; default 1G",
       &options.working_set},
      {"--max-mem", "SIZE",
       "that host threads go through at most; default: a quarter of what is free",
       &options.max_host},
      {"--max-pinned", "SIZE", "pinned memory at most; default: a quarter of what is free",
       &options.max_pinned},
      {"--filter", "REGEX", "measure only ids that match", &options.filter},
      {"--group", "NAME", "measure only this group of the suite; copy#2: the second of that name",
       &options.group},
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
      {"--plot", "FILE", "also draw it: .svg or .html, or - for the terminal", &options.plot},
      {"--save-profile", "FILE", "write what planning and training need, see docs/bandwidth.md",
       &options.profile_file}};
}

}  // namespace stagecoach
