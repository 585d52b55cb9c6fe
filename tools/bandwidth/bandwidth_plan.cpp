#include "tools/bandwidth/bandwidth_plan.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <utility>

#include "tools/bandwidth/device_groups.h"
#include "tools/bandwidth/host_groups.h"
#include "tools/bandwidth/id_filter.h"
#include "tools/bandwidth/layer_groups.h"
#include "tools/bandwidth/local_groups.h"
#include "tools/bandwidth/overlap_groups.h"
#include "tools/bandwidth/peer_groups.h"
#include "tools/bandwidth/transfer_groups.h"

namespace stagecoach {

namespace {

/// Who builds a group.
struct GroupKind {
  const char* name;
  void (*add)(GroupBuilder& builder);
  bool needs_device = true;
};

constexpr GroupKind kGroupKinds[] = {
    {"copy", add_copies},           {"duplex", add_duplex},   {"together", add_together},
    {"contention", add_contention}, {"urgent", add_urgent},   {"compute", add_compute},
    {"layers", add_layers},         {"pin", add_pin},         {"p2p", add_peers},
    {"local", add_local},           {"overlap", add_overlap}, {"optim", add_updates, false},
    {"host", add_host, false}};

void add_group(const std::string& name, GroupBuilder& builder) {
  for (const GroupKind& kind : kGroupKinds) {
    if (name == kind.name && !(kind.needs_device && builder.devices().empty())) kind.add(builder);
  }
}

/// A group's name and which of those of that name is meant, from 1; 0: all.
struct GroupSelection {
  std::string name;
  int number = 0;
};

GroupSelection parse_selection(const std::string& text) {
  GroupSelection selection{text, 0};
  size_t mark = text.find(kGroupNumberMark);
  if (mark == std::string::npos) return selection;
  const char* end = text.data() + text.size();
  bool is_number = std::from_chars(text.data() + mark + 1, end, selection.number).ptr == end;
  if (is_number && selection.number > 0) selection.name = text.substr(0, mark);
  return selection;
}

/// Of the groups that are left, all of one name, keeps the one that is meant.
Status keep_selected(const std::string& text, int number, BandwidthPlan& plan) {
  if (number == 0) return Status::ok();
  if (number > std::ssize(plan.groups)) {
    return invalid_argument(
        fmt::format("--group is '{}'; there are {} of that name", text, plan.groups.size()));
  }
  BandwidthGroup kept = std::move(plan.groups[static_cast<size_t>(number - 1)]);
  plan.groups.clear();
  plan.groups.push_back(std::move(kept));
  return Status::ok();
}

}  // namespace

std::vector<std::string> BandwidthPlan::ids() const {
  std::vector<std::string> all;
  for (const BandwidthGroup& group : groups) {
    all.insert(all.end(), group.ids.begin(), group.ids.end());
  }
  return all;
}

Status filter_plan(const std::string& filter, BandwidthPlan& plan) {
  if (filter.empty()) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(IdFilter wanted, IdFilter::parse(filter));
  auto is_left_out = [&](const std::string& id) { return !wanted.matches(id); };
  for (BandwidthGroup& group : plan.groups) {
    std::erase_if(group.ids, is_left_out);
    for (MeasurementGroup* all : {&group.measurements, &group.fallback}) {
      std::erase_if(*all, [&](const std::unique_ptr<Measurement>& one) {
        return is_left_out(one->info().id);
      });
    }
  }
  std::erase_if(plan.groups, [](const BandwidthGroup& group) { return group.ids.empty(); });
  if (!plan.groups.empty()) return Status::ok();
  return invalid_argument(
      fmt::format("--filter is '{}'; no measurement has such an id: see them with --list", filter));
}

namespace {

void run_measurements(BandwidthGroup& group, BandwidthReport& report) {
  std::vector<MeasurementRecord> records = run_group(group.measurements, group.sampling);
  if (group.complete) group.complete(records);
  bool is_nothing_there = std::all_of(records.begin(), records.end(), [](const auto& record) {
    return record.status == MeasurementStatus::kSkipped;
  });
  std::move(records.begin(), records.end(), std::back_inserter(report.records));
  if (!is_nothing_there) return;
  records = run_group(group.fallback, group.sampling);
  std::move(records.begin(), records.end(), std::back_inserter(report.records));
}

void note_nodes(GroupBuilder& builder) {
  const NumaChoice* numa = builder.options().numa.get();
  if (numa == nullptr) return;
  builder.note(numa->note_about("", -1));
  for (const MeasuredDevice& one : builder.devices()) {
    builder.note(numa->note_about(one.device->id(), one.numa_node));
  }
}

}  // namespace

Result<BandwidthPlan> plan_bandwidth(std::span<const MeasuredDevice> devices,
                                     const BandwidthOptions& options, ByteCount free_bytes,
                                     TaskPool& pool) {
  STAGECOACH_ASSIGN_OR_RETURN(const BandwidthSuite* suite, find_bandwidth_suite(options.suite));
  GroupBuilder builder(devices, options, free_bytes, pool);
  const std::vector<std::string>& groups = suite->groups;
  GroupSelection selection = parse_selection(options.group);
  if (!options.group.empty() &&
      std::find(groups.begin(), groups.end(), selection.name) == groups.end()) {
    return invalid_argument(fmt::format("--group is '{}'; '{}' has {}", options.group,
                                        options.suite, fmt::join(groups, ", ")));
  }
  note_nodes(builder);
  for (const std::string& group : groups) {
    if (options.group.empty() || group == selection.name) add_group(group, builder);
  }
  STAGECOACH_RETURN_IF_ERROR(builder.check_limits());
  BandwidthPlan plan = builder.take();
  STAGECOACH_RETURN_IF_ERROR(filter_plan(options.filter, plan));
  STAGECOACH_RETURN_IF_ERROR(keep_selected(options.group, selection.number, plan));
  return plan;
}

void run_bandwidth_plan(BandwidthPlan plan, BandwidthReport& report,
                        const std::function<void(const BandwidthGroup&)>& before_group,
                        const std::function<void()>& after_group) {
  for (const std::string& note : plan.notes) report.notes.push_back(note);
  for (BandwidthGroup& planned : plan.groups) {
    BandwidthGroup group = std::move(planned);
    if (before_group) before_group(group);
    if (group.run) {
      group.run(group.sampling, report);
    } else {
      run_measurements(group, report);
    }
    if (after_group) after_group();
  }
}

}  // namespace stagecoach
