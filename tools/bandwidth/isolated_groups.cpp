#include "tools/bandwidth/isolated_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "tools/bandwidth/card_watch.h"
#include "tools/bandwidth/child_process.h"
#include "tools/bandwidth/results_reader.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

constexpr int64_t kStartNs = 120'000'000'000;  ///< a driver on many cards may take a minute
constexpr double kLateFactor = 4;              ///< by what a busy machine takes longer

/// A group as the child that plans tells it; groups of one name are one.
struct PlannedGroup {
  std::string name;
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

/// The groups; what else the child tells goes into `report`.
Result<std::vector<PlannedGroup>> ask_plan(const IsolatedRun& run, BandwidthReport& report) {
  std::vector<std::string> arguments = run.arguments;
  arguments.insert(arguments.end(), {"--list", "--json"});
  if (!run.group.empty()) arguments.insert(arguments.end(), {"--group", run.group});
  STAGECOACH_ASSIGN_OR_RETURN(ChildOutcome outcome,
                              run_child(run.program, arguments, kStartNs, run.is_cancelled));
  Result<Json> answer = Json::parse(outcome.output);
  const Json* groups = answer.is_ok() ? answer->find("groups") : nullptr;
  if (outcome.exit_code != kExitOk || groups == nullptr) return refusal_of(outcome, answer);
  report.context = *answer->find("context");
  for (const Json& note : answer->find("notes")->items()) report.notes.push_back(note.as_string());
  std::vector<PlannedGroup> plan;
  for (const Json& one : groups->items()) {
    const std::string& name = one.find("name")->as_string();
    auto known = std::find_if(plan.begin(), plan.end(),
                              [&](const PlannedGroup& group) { return group.name == name; });
    if (known == plan.end()) known = plan.insert(plan.end(), PlannedGroup{name, {}, 0});
    for (const Json& id : one.find("ids")->items()) known->ids.push_back(id.as_string());
    known->expected_s += one.find("expected_s")->as_number();
  }
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

void add_lost_group(const PlannedGroup& group, const ChildOutcome& outcome,
                    BandwidthReport& report) {
  for (const std::string& id : group.ids) {
    MeasurementRecord record;
    record.info.id = id;
    record.info.group = group.name;
    record.info.quantities = {{"rate", "GB/s"}};
    record.samples.resize(1);
    record.status =
        outcome.has_timed_out ? MeasurementStatus::kTimeout : MeasurementStatus::kFailed;
    record.reason = end_of(outcome);
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

Status measure_group(const IsolatedRun& run, const PlannedGroup& group, BandwidthReport& report) {
  std::vector<std::string> arguments = run.arguments;
  arguments.insert(arguments.end(), {"--group", group.name, "--json", "--raw"});
  auto limit_ns =
      kStartNs + run.timeout_ns + static_cast<int64_t>(kLateFactor * group.expected_s * 1e9);
  STAGECOACH_ASSIGN_OR_RETURN(ChildOutcome outcome,
                              run_child(run.program, arguments, limit_ns, run.is_cancelled));
  Result<Json> answer = Json::parse(outcome.output);
  Result<BandwidthReport> measured = answer.is_ok() ? read_bandwidth_json(*answer, group.name)
                                                    : Result<BandwidthReport>(answer.status());
  if (measured.is_ok()) {
    add_measured_group(std::move(*measured), report);
  } else {
    add_lost_group(group, outcome, report);
  }
  return Status::ok();
}

}  // namespace

Result<BandwidthReport> run_isolated(const IsolatedRun& run) {
  BandwidthReport report;
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<PlannedGroup> plan, ask_plan(run, report));
  std::vector<std::string> ids;
  for (const PlannedGroup& group : plan) ids.insert(ids.end(), group.ids.begin(), group.ids.end());
  if (run.after_plan) STAGECOACH_RETURN_IF_ERROR(run.after_plan(report, ids));
  for (const PlannedGroup& group : plan) {
    if (run.is_cancelled && run.is_cancelled()) break;
    if (run.before_group) run.before_group(group.name);
    STAGECOACH_RETURN_IF_ERROR(measure_group(run, group, report));
    if (run.after_group) STAGECOACH_RETURN_IF_ERROR(run.after_group(report));
  }
  return report;
}

}  // namespace stagecoach
