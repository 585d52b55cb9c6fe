#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "tools/bandwidth/bandwidth_options.h"
#include "tools/command.h"

namespace stagecoach {

/// The command line of `bench`, as text.
struct BenchOptions {
  std::string benchmark, suite = "quick", devices;
  std::string sizes, depth, kinds, numa, working_set, max_host, max_pinned, filter, group;
  std::string min_time = "0.3s", timeout = "60s", verify = "end", format;
  std::string csv_file, out_file, profile_file, plot;
  std::vector<std::string> fail_below, files;
  std::string baseline;
  double threshold_percent = 5;
  int64_t repetitions = 7, seed = 1;
  double cv_limit_percent = 5;
  bool no_interleave = false, is_strict = false, has_samples = false;
  bool is_list = false, is_dry_run = false, is_isolated = false;
};

/// What there is to give on the command line. `options` must outlive it.
std::vector<CommandOption> bench_command_options(BenchOptions& options);

/// The suites, units and exit codes, for people.
std::string bench_command_notes();

/// Checks what needs no device: names and formats. The suite that was asked for.
Result<const BandwidthSuite*> check_bench_names(const BenchOptions& options, bool is_json);

/// Whether charts are printed: `--plot -`, and `plot` where no file is named.
bool plots_on_terminal(const BenchOptions& options);

/// Checks --plot: a name that can be written, and a stdout that charts may stand on.
Status check_plot_option(const BenchOptions& options, bool is_json);

/// What is measured and how.
Result<BandwidthOptions> read_bandwidth_options(const BenchOptions& options);

/// The command line of a child process: what is measured and how, not what is written.
std::vector<std::string> bench_child_arguments(const BenchOptions& options);

}  // namespace stagecoach
