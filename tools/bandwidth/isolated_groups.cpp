#include "tools/bandwidth/isolated_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/card_watch.h"
#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/results_reader.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

constexpr int64_t kPlanNs = 120'000'000'000;  ///< a driver on many cards may take a minute
constexpr double kLateFactor = 4;             ///< by what a busy machine takes longer

/// A group as the child that plans tells it.
struct PlannedGroup {
  std::string name;
  std::string selection;  ///< that chooses it alone, of those of its name
  std::vector<std::string> ids;
  double expected_s = 0;
};

Status refusal_of(const ChildOutcome& outcome, const Result<Json>& answer) {
  std::string message = "the process that plans did not answer";
  if (answer.is_ok() && answer->find("error") != nullptr && answer->find("error")->is_string()) {
    message = answer->find("error")->as_string();
  }
  if (outcome.exit_code == kExitNoDevice) return unavailable(message);
  if (outcome.exit_code == kExitInterrupted) return cancelled(message);
  return outcome.exit_code == kExitUsage ? invalid_argument(message) : internal_error(message);
}

/// Pairs of devices whose copies are proved: a hang costs a time limit each.
int64_t proofs_of(const PlannedGroup& group) {
  return std::count_if(group.ids.begin(), group.ids.end(),
                       [](const std::string& id) { return id.ends_with("/check"); });
}

/// What may be measured in one process. Proofs of pairs serve all groups of p2p.
bool shares_process(const std::string& name) {
  return name == "p2p";
}

/// "copy", or "copy#2" where several have that name.
void select_groups(const std::string& chosen, std::vector<PlannedGroup>& plan) {
  bool is_selection = chosen.find(kGroupNumberMark) != std::string::npos;
  std::map<std::string, int> totals, numbers;
  for (const PlannedGroup& group : plan) ++totals[group.name];
  for (PlannedGroup& group : plan) {
    group.selection = group.name;
    if (totals[group.name] > 1)
      group.selection += fmt::format("{}{}", kGroupNumberMark, ++numbers[group.name]);
    if (is_selection) group.selection = chosen;
  }
}

/// The groups; what else the child tells goes into `report`.
Result<std::vector<PlannedGroup>> ask_plan(const IsolatedRun& run, BandwidthReport& report) {
  std::vector<std::string> arguments = run.arguments;
  arguments.insert(arguments.end(), {"--list", "--json"});
  if (!run.group.empty()) arguments.insert(arguments.end(), {"--group", run.group});
  STAGECOACH_ASSIGN_OR_RETURN(ChildOutcome outcome,
                              run_child(run.program, arguments, kPlanNs, run.is_cancelled));
  Result<Json> answer = Json::parse(outcome.output);
  const Json* groups = answer.is_ok() ? answer->find("groups") : nullptr;
  if (groups == nullptr && run.is_cancelled && run.is_cancelled()) return cancelled("interrupted");
  if (outcome.exit_code != kExitOk || groups == nullptr) return refusal_of(outcome, answer);
  report.context = *answer->find("context");
  for (const Json& note : answer->find("notes")->items()) report.notes.push_back(note.as_string());
  std::vector<PlannedGroup> plan;
  for (const Json& one : groups->items()) {
    const std::string& name = one.find("name")->as_string();
    auto known = std::find_if(plan.begin(), plan.end(), [&](const PlannedGroup& group) {
      return group.name == name && shares_process(name);
    });
    if (known == plan.end()) known = plan.insert(plan.end(), PlannedGroup{name, {}, {}, 0});
    for (const Json& id : one.find("ids")->items()) known->ids.push_back(id.as_string());
    known->expected_s += one.find("expected_s")->as_number();
  }
  select_groups(run.group, plan);
  return plan;
}

std::string end_of(const ChildOutcome& outcome) {
  if (outcome.has_timed_out) return "the process that measured did not end in time and was killed";
  if (outcome.signal != 0) {
    return fmt::format("the process that measured was ended by signal {}", outcome.signal);
  }
  return fmt::format("the process that measured ended with exit code {} and no results",
                     outcome.exit_code);
}

void add_lost_group(const PlannedGroup& group, MeasurementStatus status, const std::string& reason,
                    BandwidthReport& report) {
  for (const std::string& id : group.ids) {
    MeasurementRecord record;
    record.info.id = id;
    record.info.group = group.name;
    record.info.quantities = {{"rate", "GB/s"}};
    record.samples.resize(1);
    record.status = status;
    record.reason = reason;
    report.records.push_back(std::move(record));
  }
}

void add_measured_group(BandwidthReport group, BandwidthReport& report) {
  join_card_context(report.context, group.context);
  report.context = std::move(group.context);
  std::move(group.records.begin(), group.records.end(), std::back_inserter(report.records));
  std::move(group.fits.begin(), group.fits.end(), std::back_inserter(report.fits));
  for (std::string& note : group.notes) {
    bool is_known = std::find(report.notes.begin(), report.notes.end(), note) != report.notes.end();
    if (!is_known) report.notes.push_back(std::move(note));
  }
  report.is_interrupted = report.is_interrupted || group.is_interrupted;
}

/// `start_ns`: what it takes until there are devices.
int64_t budget_ns(const IsolatedRun& run, const PlannedGroup& group, int64_t start_ns) {
  double expected_ns = group.expected_s * 1e9 + static_cast<double>(start_ns);
  int64_t hangs = std::max<int64_t>(1, proofs_of(group));
  return hangs * run.timeout_ns + static_cast<int64_t>(kLateFactor * expected_ns);
}

Status measure_group(const IsolatedRun& run, const PlannedGroup& group, int64_t start_ns,
                     BandwidthReport& report) {
  std::vector<std::string> arguments = run.arguments;
  arguments.insert(arguments.end(), {"--group", group.selection, "--json", "--raw"});
  int64_t limit_ns = budget_ns(run, group, start_ns);
  STAGECOACH_ASSIGN_OR_RETURN(ChildOutcome outcome,
                              run_child(run.program, arguments, limit_ns, run.is_cancelled));
  Result<Json> answer = Json::parse(outcome.output);
  Result<BandwidthReport> measured = answer.is_ok() ? read_bandwidth_json(*answer, group.name)
                                                    : Result<BandwidthReport>(answer.status());
  if (measured.is_ok()) {
    add_measured_group(std::move(*measured), report);
  } else if (run.is_cancelled && run.is_cancelled()) {
    add_lost_group(group, MeasurementStatus::kNotRun, "interrupted", report);
  } else {
    MeasurementStatus status =
        outcome.has_timed_out ? MeasurementStatus::kTimeout : MeasurementStatus::kFailed;
    add_lost_group(group, status, end_of(outcome), report);
  }
  return Status::ok();
}

}  // namespace

Result<BandwidthReport> run_isolated(const IsolatedRun& run) {
  BandwidthReport report;
  int64_t begin_ns = RealClock::instance().now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<PlannedGroup> plan, ask_plan(run, report));
  int64_t start_ns = RealClock::instance().now_ns() - begin_ns;
  std::vector<std::string> ids;
  for (const PlannedGroup& group : plan) ids.insert(ids.end(), group.ids.begin(), group.ids.end());
  if (run.after_plan) STAGECOACH_RETURN_IF_ERROR(run.after_plan(report, ids));
  for (const PlannedGroup& group : plan) {
    if (run.is_cancelled && run.is_cancelled()) {
      add_lost_group(group, MeasurementStatus::kNotRun, "interrupted", report);
      continue;
    }
    if (run.before_group) run.before_group(group.selection);
    STAGECOACH_RETURN_IF_ERROR(measure_group(run, group, start_ns, report));
    if (run.after_group) STAGECOACH_RETURN_IF_ERROR(run.after_group(report));
  }
  return report;
}

}  // namespace stagecoach
