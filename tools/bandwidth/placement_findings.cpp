#include "tools/bandwidth/placement_findings.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>
#include <string>

namespace stagecoach {

namespace {

constexpr double kAsymmetric = 0.05;  ///< less is within what repetitions differ
constexpr double kIdentical = 0.01;

std::string text_of(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

int64_t integer_of(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_integer() ? value->as_integer() : -1;
}

bool is_local(const MeasurementRecord& record) {
  const Json* value = record.info.params.find("is_local");
  return value != nullptr && value->is_bool() && value->as_bool();
}

/// What two results on different nodes have in common: the id up to the node, and the threads'
/// node.
std::string place_in(const MeasurementRecord& record) {
  const std::string& id = record.info.id;
  std::string common = id.substr(0, id.rfind("/node"));
  int64_t threads = integer_of(record, "thread_node");
  return threads < 0 ? common : common + fmt::format(" of threads on node {}", threads);
}

void compare_nodes(const std::string& place, const MeasurementRecord& own,
                   const MeasurementRecord& other, std::vector<Finding>& findings) {
  double ratio = other.median() / own.median();
  int64_t own_node = integer_of(own, "node"), other_node = integer_of(other, "node");
  std::vector<std::string> ids = {own.info.id, other.info.id};
  if (std::abs(ratio - 1) >= kAsymmetric) {
    findings.push_back(
        {Severity::kNote,
         fmt::format("{}: {:.3g} {} with memory on node {}, {:.3g} on its own node {} ({:+.0f} %)",
                     place, other.median(), own.info.quantities.front().unit, other_node,
                     own.median(), own_node, 100 * (ratio - 1)),
         ratio < 1 ? fmt::format("keep what it works on in memory of node {}", own_node)
                   : fmt::format("look at how memory of node {} is populated", own_node),
         ids});
  }
  bool is_doubtful =
      own.has_flag(SampleFlag::kUnverified) || other.has_flag(SampleFlag::kUnverified);
  if (is_doubtful && std::abs(ratio - 1) <= kIdentical) {
    findings.push_back(
        {Severity::kWarning,
         fmt::format("{}: nodes {} and {} give the same within 1 %, and nothing shows that memory "
                     "was on them",
                     place, own_node, other_node),
         "binding may not have worked: do not take this for two equal nodes; allow mbind and "
         "move_pages (containers: --cap-add SYS_NICE or another seccomp profile)",
         ids});
  }
}

/// One finding a reason.
void find_unverified(const BandwidthReport& report, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<std::string>> results;
  for (const MeasurementRecord& record : report.records) {
    if (record.is_ok() && record.has_flag(SampleFlag::kUnverified)) {
      results[text_of(record, "placement")].push_back(record.info.id);
    }
  }
  for (const auto& [reason, ids] : results) {
    findings.push_back({Severity::kNote,
                        fmt::format("{} results are of a NUMA node that they may not have been on: "
                                    "{}",
                                    ids.size(), reason),
                        "read them as of any node", ids});
  }
}

void find_shortages(const BandwidthReport& report, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<std::string>> results;
  for (const MeasurementRecord& record : report.records) {
    if (!record.is_ok() || text_of(record, "shortage").empty()) continue;
    results[fmt::format("copies went round {} instead of {}, since that was not to be had: {}",
                        format_bytes(integer_of(record, "working_set")),
                        format_bytes(integer_of(record, "working_set_wanted")),
                        text_of(record, "shortage"))]
        .push_back(record.info.id);
  }
  for (const auto& [text, ids] : results) {
    findings.push_back({Severity::kNote, text,
                        "free memory, or ask for less with --working-set: few pages hide what "
                        "looking up their addresses costs",
                        ids});
  }
}

void find_pin_limits(const BandwidthReport& report, std::vector<Finding>& findings) {
  for (const MeasurementRecord& record : report.records) {
    if (!record.info.id.starts_with("pin/limit/")) continue;
    std::string stopped = text_of(record, "stopped"), kind = text_of(record, "kind");
    if (stopped.empty()) continue;
    findings.push_back(
        {Severity::kWarning,
         fmt::format("{} of {} memory is all that can be had of {}: {}",
                     format_bytes(record.info.payload_bytes), kind,
                     format_bytes(integer_of(record, "size")), stopped),
         "raise ulimit -l, the memory limit of the container, or of WSL; what is beyond it can be "
         "copied from registered or pageable memory (measure them with --mem registered,pageable)",
         {record.info.id}});
    const Json* is_poisoned = record.info.params.find("is_poisoned");
    if (is_poisoned == nullptr || !is_poisoned->is_bool() || !is_poisoned->as_bool()) continue;
    findings.push_back({Severity::kWarning,
                        fmt::format("once {} memory was refused, nothing could be had any more, "
                                    "though all was given back",
                                    kind),
                        "pin less than the limit, with --max-pinned",
                        {record.info.id}});
  }
}

/// Devices whose copies could not be measured with the best kind of memory.
void find_unpinnable(const BandwidthReport& report, std::vector<Finding>& findings) {
  std::map<std::string, const MeasurementRecord*> skipped;
  std::set<std::string> measured, others_skipped;
  for (const MeasurementRecord& record : report.records) {
    if (record.info.group != "copy") continue;
    std::string device = text_of(record, "device");
    if (text_of(record, "kind") != "pinned") {
      if (record.status == MeasurementStatus::kSkipped) others_skipped.insert(device);
      continue;
    }
    if (record.is_ok()) measured.insert(device);
    if (record.status == MeasurementStatus::kSkipped) skipped[device] = &record;
  }
  for (const auto& [device, record] : skipped) {
    if (measured.contains(device)) continue;
    findings.push_back(
        {Severity::kWarning,
         fmt::format("{} has no pinned memory for copies: {}", device, record->reason),
         fmt::format("{}find how much can be pinned with `stagecoach bench bandwidth pin`",
                     others_skipped.contains(device)
                         ? ""
                         : "plan with registered or pageable memory (--mem registered,pageable); "),
         {record->info.id}});
  }
}

}  // namespace

std::vector<Finding> find_placement_problems(const BandwidthReport& report) {
  std::vector<Finding> findings;
  std::map<std::string, std::vector<const MeasurementRecord*>> places;
  for (const MeasurementRecord& record : report.records) {
    bool is_placed = record.is_ok() && record.info.params.find("is_local") != nullptr;
    if (is_placed && record.median() > 0) places[place_in(record)].push_back(&record);
  }
  for (const auto& [place, records] : places) {
    auto own = std::find_if(records.begin(), records.end(),
                            [](const MeasurementRecord* one) { return is_local(*one); });
    if (own == records.end()) continue;
    for (const MeasurementRecord* other : records) {
      if (other != *own) compare_nodes(place, **own, *other, findings);
    }
  }
  find_unverified(report, findings);
  find_shortages(report, findings);
  find_pin_limits(report, findings);
  find_unpinnable(report, findings);
  return findings;
}

}  // namespace stagecoach
