#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "memory/host_limits.h"
#include "tools/bandwidth/bandwidth_charts.h"
#include "tools/bandwidth/bandwidth_context.h"
#include "tools/bandwidth/bandwidth_plan.h"
#include "tools/bandwidth/card_watch.h"
#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/compare.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/gates.h"
#include "tools/bandwidth/link_load.h"
#include "tools/bandwidth/memory_steps.h"
#include "tools/bandwidth/output_file.h"
#include "tools/bandwidth/profile_file.h"
#include "tools/bandwidth/profile_subject.h"
#include "tools/bandwidth/usable_memory.h"
#include "tools/bench_baseline.h"
#include "tools/bench_isolated.h"
#include "tools/bench_options.h"
#include "tools/bench_outputs.h"
#include "tools/bench_profile.h"
#include "tools/card_devices.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/plot/chart_drawing.h"
#include "tools/plot/chart_text.h"
#include "tools/plot/plot_file.h"
#include "train/interrupt.h"
#include "train/progress.h"

namespace stagecoach {

namespace {

Result<int> compare_files(const BenchOptions& options, bool is_json) {
  if (options.files.size() != 2) {
    return invalid_argument(
        fmt::format("'bench bandwidth compare' takes two files that --out wrote, and {} are given",
                    options.files.size()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport before, read_bandwidth_report(options.files[0]));
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport after, read_bandwidth_report(options.files[1]));
  ReportComparison comparison = compare_reports(before, after, options.threshold_percent / 100);
  if (comparison.is_empty()) {
    return invalid_argument(
        fmt::format("'{}' and '{}' have no result in common that was ok before; give two files of "
                    "the same suite and devices",
                    options.files[0], options.files[1]));
  }
  if (is_json) {
    fmt::print("{}\n", comparison_json(comparison).dump());
  } else {
    fmt::print("{}", comparison_table(comparison));
  }
  return comparison.count_worse() > 0 ? kExitDoesNotFit : kExitOk;
}

Status write_report_plot(const std::string& path, const BandwidthReport& report) {
  PlotPage page;
  page.title = bandwidth_plot_title(report);
  page.text = bandwidth_table(report);
  page.drawing = draw_charts(page.title, bandwidth_plot_caption(report), bandwidth_charts(report));
  return write_plot_file(path, page);
}

/// `bench bandwidth plot FILE`: on the terminal where no file is asked for.
Result<int> plot_results(const BenchOptions& options, bool is_json) {
  if (options.files.size() != 1) {
    return invalid_argument(
        fmt::format("'bench bandwidth plot' takes one file that --out wrote, and {} are given",
                    options.files.size()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport report, read_bandwidth_report(options.files[0]));
  if (!plots_on_terminal(options)) {
    STAGECOACH_RETURN_IF_ERROR(
        output_failure("--plot", options.plot, write_report_plot(options.plot, report)));
    Json json = Json::object();
    json["plot"] = options.plot;
    if (is_json) fmt::print("{}\n", json.dump());
    return kExitOk;
  }
  fmt::print("{}\n{}", bandwidth_plot_title(report),
             charts_text(bandwidth_charts(report), terminal_style()));
  return kExitOk;
}

/// A run of `bench bandwidth`.
class BandwidthBench {
 public:
  BandwidthBench(const CommandContext& context, const BenchOptions& options)
      : context_(context), options_(options) {}

  Result<int> run() {
    STAGECOACH_ASSIGN_OR_RETURN(const BandwidthSuite* suite,
                                check_bench_names(options_, context_.json));
    STAGECOACH_RETURN_IF_ERROR(check_plot_option(options_, context_.json));
    STAGECOACH_RETURN_IF_ERROR(check_outputs(options_));
    if (!(options_.threshold_percent > 0)) {
      return invalid_argument(fmt::format("--threshold is {}; it must be above 0, in per cent",
                                          options_.threshold_percent));
    }
    if (options_.suite == "memory_steps" || options_.suite == "pin_steps")
      return take_steps(*suite);
    if (options_.suite == "compare") return compare_files(options_, context_.json);
    if (options_.suite == "profile") return run_bench_profile(context_, options_);
    if (options_.suite == "plot") return plot_results(options_, context_.json);
    if (!options_.files.empty()) {
      return invalid_argument(
          fmt::format("'{}' is one argument too many; only compare, plot and profile take files",
                      options_.files[0]));
    }
    if (!options_.baseline.empty()) {
      STAGECOACH_ASSIGN_OR_RETURN(baseline_, read_baseline(options_, *suite));
    }
    STAGECOACH_ASSIGN_OR_RETURN(BandwidthOptions options, read_bandwidth_options(options_));
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<Gate> gates, parse_gates(options_.fail_below));
    bool is_plan_only = options_.is_list || options_.is_dry_run;
    if (!options_.numa.empty() && !options_.profile_file.empty()) {
      return invalid_argument(
          "--save-profile does not go with --numa, since training is not bound; leave out one of "
          "them");
    }
    STAGECOACH_RETURN_IF_ERROR(check_profile_can_be_made(*suite));
    // What cannot be written is found now rather than at the end.
    bool has_profile = !options_.profile_file.empty() && !is_plan_only;
    if (has_profile) STAGECOACH_RETURN_IF_ERROR(check_profile_target(options_.profile_file));
    // A driver may hang in copies between devices; a process for one group is a child already.
    bool is_risky = options_.suite == "p2p" && options_.group.empty();
    if ((options_.is_isolated || is_risky) && !is_plan_only) return measure_isolated(gates);
    STAGECOACH_ASSIGN_OR_RETURN(cards_, open_cards(context_.backends, options_.devices));
    STAGECOACH_RETURN_IF_ERROR(explain_absence(*suite));
    return measure_here(options, gates, is_plan_only);
  }

 private:
  /// In this process, unless only the plan is asked for.
  Result<int> measure_here(BandwidthOptions& options, const std::vector<Gate>& gates,
                           bool is_plan_only) {
    std::optional<InterruptGuard> guard;
    if (!is_plan_only) guard.emplace();
    std::vector<Device*> devices = cards_.pointers();
    paths_ = read_device_paths(devices);
    std::vector<DeviceInfo> infos;
    for (Device* device : devices) infos.push_back(device->info());
    STAGECOACH_ASSIGN_OR_RETURN(watch_, CardWatch::start(infos));
    if (!is_plan_only) wake_links(devices);
    STAGECOACH_ASSIGN_OR_RETURN(BandwidthPlan plan, make_plan(devices, options, is_plan_only));
    report_.context = measurement_context(devices, paths_);
    report_.context["suite"] = options_.suite;
    STAGECOACH_RETURN_IF_ERROR(check_device_for_profile(report_));
    watch_->describe(report_.context);
    if (is_plan_only) return print_plan(plan);
    STAGECOACH_RETURN_IF_ERROR(check_planned(report_, plan.ids()));
    for (const Device* device : devices) {
      if (device->info().is_real_hardware) continue;
      report_.notes.push_back(fmt::format(
          "{} is a mock: its figures say nothing about a card, only that they are measured right",
          device->id()));
    }
    STAGECOACH_RETURN_IF_ERROR(write_files());
    return measure(std::move(plan), gates);
  }

  /// For as much memory as there really is.
  Result<BandwidthPlan> make_plan(const std::vector<Device*>& devices, BandwidthOptions& options,
                                  bool is_plan_only) {
    STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
    std::vector<MeasuredDevice> measured;
    for (Device* device : devices) {
      measured.push_back({device, link_rate(device->id()), numa_node(device->id())});
    }
    options.run_steps = [this](const std::vector<std::string>& arguments) {
      return run_steps(arguments);
    };
    Result<BandwidthPlan> plan = plan_bandwidth(measured, options, limits.free_bytes, *pool_);
    if (!plan.is_ok() || is_plan_only) return plan;
    UsableMemory memory = find_usable_memory(*plan, options);
    if (memory.note.empty()) return plan;
    report_.notes.push_back(memory.note);
    options.most_host = memory.bytes;
    return plan_bandwidth(measured, options, limits.free_bytes, *pool_);
  }

  /// The suites that take memory step by step and say each; for a process of its own.
  Result<int> take_steps(const BandwidthSuite& suite) {
    if (context_.json || !options_.format.empty()) {
      return invalid_argument(fmt::format(
          "'bench bandwidth {}' prints lines; leave out --json and --format", options_.suite));
    }
    STAGECOACH_ASSIGN_OR_RETURN(BandwidthOptions options, read_bandwidth_options(options_));
    if (!suite.needs_device) {
      if (options.max_host <= 0) return invalid_argument("memory_steps needs --max-mem");
      STAGECOACH_RETURN_IF_ERROR(print_touched_steps(options.max_host));
      return kExitOk;
    }
    if (options.max_pinned <= 0) return invalid_argument("pin_steps needs --max-pinned");
    STAGECOACH_ASSIGN_OR_RETURN(cards_, open_cards(context_.backends, options_.devices));
    STAGECOACH_RETURN_IF_ERROR(explain_absence(suite));
    MemoryKind kind = options.kinds.empty() ? MemoryKind::kHostPinned : options.kinds.front();
    STAGECOACH_RETURN_IF_ERROR(
        print_pinned_steps(*cards_.pointers().front(), kind, options.max_pinned));
    return kExitOk;
  }

  /// Runs such a suite.
  Result<ChildOutcome> run_steps(const std::vector<std::string>& arguments) const {
    STAGECOACH_ASSIGN_OR_RETURN(std::string program, own_program());
    std::vector<std::string> all = {"bench", "bandwidth"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    if (!options_.devices.empty()) all.insert(all.end(), {"--devices", options_.devices});
    STAGECOACH_ASSIGN_OR_RETURN(int64_t timeout_ns, parse_duration_ns(options_.timeout));
    return run_child(program, all, timeout_ns, [] { return InterruptGuard::is_interrupted(); });
  }

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
    return Status::ok();
  }

  /// --filter and --group may leave out what a profile is made of.
  Status check_ids_for_profile(const std::vector<std::string>& ids) const {
    if (options_.profile_file.empty()) return Status::ok();
    for (const char* group : {"copy/", "duplex/", "optim/"}) {
      bool is_planned = std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
        return id.compare(0, std::string_view(group).size(), group) == 0;
      });
      if (is_planned) continue;
      return invalid_argument(
          fmt::format("--save-profile needs results of '{}', which --filter or --group leaves out; "
                      "run it without them",
                      group));
    }
    return Status::ok();
  }

  /// What can only be told once it is known what will be measured.
  Status check_planned(const BandwidthReport& plan, const std::vector<std::string>& ids) const {
    if (options_.suite == "p2p" && ids.empty()) {
      return unavailable(fmt::format("nothing to measure: {}", fmt::join(plan.notes, "; ")));
    }
    STAGECOACH_RETURN_IF_ERROR(check_ids_for_profile(ids));
    if (!baseline_.has_value()) return Status::ok();
    return check_baseline_meets(*baseline_, options_.baseline, ids);
  }

  Status check_device_for_profile(const BandwidthReport& report) const {
    if (options_.profile_file.empty()) return Status::ok();
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices,
                                devices_of_context(report.context));
    if (!devices.empty()) return Status::ok();
    return unavailable(
        fmt::format("--save-profile needs a device; {}", fmt::join(report.notes, "; ")));
  }

  Status save_profile() {
    if (options_.profile_file.empty()) return Status::ok();
    STAGECOACH_ASSIGN_OR_RETURN(ProfileSubject subject, read_profile_subject(report_));
    STAGECOACH_ASSIGN_OR_RETURN(MachineProfile profile, build_machine_profile(report_, subject));
    return write_machine_profile(options_.profile_file, profile);
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

  int numa_node(const std::string& id) const {
    auto path = paths_.find(id);
    return path == paths_.end() ? -1 : path->second.numa_node;
  }

  Result<int> measure(BandwidthPlan plan, const std::vector<Gate>& gates) {
    {
      Progress progress;
      auto before = [&](const BandwidthGroup& group) {
        progress.phase(fmt::format("measuring {}: {} results, about {:.0f} s", group.name,
                                   group.ids.size(), std::ceil(group.expected_s)));
      };
      auto after = [this] {
        watch_->look();
        watch_->describe(report_.context);
        keep_files();
      };
      run_bandwidth_plan(std::move(plan), report_, before, after);
      // The devices stay open meanwhile: closing one waits for whatever hangs in it.
      add_peers_for_profile(options_, progress, report_);
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
      STAGECOACH_ASSIGN_OR_RETURN(IsolatedRun run, isolated_run(options_, progress));
      run.after_plan = [&](const BandwidthReport& plan, const std::vector<std::string>& ids) {
        STAGECOACH_RETURN_IF_ERROR(check_device_for_profile(plan));
        return check_planned(plan, ids);
      };
      run.after_group = [&](const BandwidthReport& report) {
        report_ = report;
        keep_files();
        return Status::ok();
      };
      STAGECOACH_ASSIGN_OR_RETURN(report_, run_isolated(run));
      add_peers_for_profile(options_, progress, report_);
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
      // What an interrupted run has not come to is not lost.
      if (report_.is_interrupted) comparison.lost.clear();
      add_regressions(comparison, report_);
      has_passed = has_passed && comparison.count_worse() == 0;
    }
    keep_files();
    int code = bandwidth_exit_code(report_, options_.is_strict);
    if (!write_failure_.is_ok()) {
      log_error(write_failure_.message());
      report_.notes.push_back(write_failure_.message());
      if (code == kExitOk) code = kExitPartial;
    }
    print_report();
    if (report_.is_interrupted) return code;
    Status saved = save_profile();
    if (!saved.is_ok()) {
      // Something was not measured after all, or the disk is full by now; what was has been
      // printed.
      log_error(saved.message());
      return code == kExitOk ? kExitPartial : code;
    }
    return code == kExitOk && !has_passed ? kExitDoesNotFit : code;
  }

  /// Writes what there is; a disk that is full by now costs the files and not what was measured.
  void keep_files() {
    Status written = write_files();
    if (write_failure_.is_ok()) write_failure_ = written;
  }

  Status write_files() {
    if (!options_.csv_file.empty()) {
      STAGECOACH_RETURN_IF_ERROR(
          output_failure("--csv", options_.csv_file,
                         write_file_atomically(options_.csv_file, bandwidth_csv(report_))));
    }
    if (!options_.plot.empty() && !plots_on_terminal(options_)) {
      STAGECOACH_RETURN_IF_ERROR(
          output_failure("--plot", options_.plot, write_report_plot(options_.plot, report_)));
    }
    if (options_.out_file.empty()) return Status::ok();
    std::string text = bandwidth_json(report_, options_.has_samples).dump(true) + "\n";
    return output_failure("--out", options_.out_file,
                          write_file_atomically(options_.out_file, text));
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
    if (plots_on_terminal(options_)) {
      fmt::print("{}", charts_text(bandwidth_charts(report_), terminal_style()));
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
  std::optional<CardWatch> watch_;
  BandwidthReport report_;
  Status write_failure_;
  std::optional<BandwidthReport> baseline_;
};

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
  command.notes = bench_command_notes();
  command.options = bench_command_options(*options);
  command.answers_interrupted = true;
  command.run = [options](const CommandContext& context) {
    return BandwidthBench(context, *options).run();
  };
  return command;
}

}  // namespace stagecoach
