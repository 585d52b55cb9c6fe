#include "tools/bandwidth/overlap_shares.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <initializer_list>
#include <utility>

namespace stagecoach {

namespace {

constexpr const char* kParts[] = {"host", "up", "down", "compute"};

std::string overlap_param(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

/// Of a quantity; the number of quantities where there is none of that name.
size_t index_of(const MeasurementRecord& record, const std::string& name) {
  const std::vector<Quantity>& all = record.info.quantities;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const Quantity& quantity) { return quantity.name == name; });
  return static_cast<size_t>(found - all.begin());
}

bool has_part(const MeasurementRecord& record, const std::string& name) {
  return index_of(record, name) < record.info.quantities.size();
}

/// Every repetition beside the others by what the part has alone. Not pair by pair: what is noisy
/// is repeated more often than what is not. Both medians are of the same time, since a group's
/// measurements take turns.
void add_share(const MeasurementRecord& alone, const std::string& part, MeasurementRecord& record) {
  double rate_alone = alone.median(index_of(alone, part));
  if (rate_alone <= 0) return;
  std::vector<double> shares;
  for (double rate : record.samples[index_of(record, part)]) shares.push_back(rate / rate_alone);
  record.info.quantities.push_back({part + "_kept", "1"});
  record.statistics.push_back(summarize(shares));
  record.samples.push_back(std::move(shares));
}

Finding overlap_finding(std::string text, std::string remedy,
                        std::initializer_list<const MeasurementRecord*> records) {
  Finding made{Severity::kNote, std::move(text), std::move(remedy), {}};
  for (const MeasurementRecord* record : records) made.results.push_back(record->info.id);
  return made;
}

/// Whether findings may be drawn from it.
bool is_evidence(const MeasurementRecord* record) {
  return record != nullptr && !record->has_flag(SampleFlag::kShortWindow);
}

const MeasurementRecord* measured_point(const BandwidthReport& report, const OverlapPoint& point) {
  const MeasurementRecord* record = report.find(point.id());
  return record != nullptr && record->is_ok() ? record : nullptr;
}

void find_joint_limit(const BandwidthReport& report, std::vector<Finding>& findings) {
  const MeasurementRecord* joint = joint_traffic(report);
  if (!is_evidence(joint)) return;
  bool is_limit = is_joint_limit(report, *joint);
  findings.push_back(overlap_finding(
      fmt::format("updates and copies move {:.3g} GB/s of the host's memory together, {:.3g} of it "
                  "updates{}",
                  median_of(*joint, "memory"), median_of(*joint, "host"),
                  is_limit ? "" : ", and hinder each other little: it may carry more"),
      is_limit ? "plan with what they have together: neither has its rate alone"
               : "plan with each part's own rate",
      {joint}));
}

void find_losses(const BandwidthReport& report, std::vector<Finding>& findings) {
  const MeasurementRecord* all = measured_point(report, {"update", "both", "matmul"});
  if (!is_evidence(all)) return;
  std::vector<std::string> parts;
  for (const char* part : kParts) {
    double kept = median_of(*all, std::string(part) + "_kept");
    if (kept > 0) parts.push_back(fmt::format("{} {:.0f} %", part, 100 * kept));
  }
  if (parts.empty()) return;
  findings.push_back(overlap_finding(
      fmt::format("updates, copies both ways and products at once keep, of what each has "
                  "alone: {}",
                  fmt::join(parts, ", ")),
      "plan with these where they run at the same time", {all}));
}

/// Whether bf16 made while it is uploaded keeps up with the link.
void find_converting(const BandwidthReport& report, std::vector<Finding>& findings) {
  const MeasurementRecord* both = measured_point(report, {"convert", "up", "idle"});
  const MeasurementRecord* copies = measured_point(report, {"none", "up", "idle"});
  if (!is_evidence(both) || !is_evidence(copies)) return;
  constexpr double kMovedByMade = 3;  // host_pass_bytes: reads 4 bytes and writes 2 for each 2
  double made = median_of(*both, "host") / kMovedByMade, link = median_of(*copies, "up");
  bool keeps_up = made >= link;
  findings.push_back(overlap_finding(
      fmt::format("threads convert {:.3g} GB/s to bf16 beside uploads, links carry {:.3g}{}", made,
                  link, keeps_up ? "" : ": converting on the fly would hold them up"),
      keeps_up ? "weights may be kept in fp32 alone where no other work needs the threads"
               : "keep what is uploaded in 16 bits",
      {both, copies}));
}

}  // namespace

std::string OverlapPoint::id() const {
  return fmt::format("overlap/{}/{}/{}", host, copies, compute);
}

bool OverlapPoint::is_of_quick() const {
  bool has_host = host == "update", has_copies = copies == "both",
       has_compute = compute == "matmul";
  bool is_other = (!has_host && host != "none") || (!has_copies && copies != "none");
  int parts =
      static_cast<int>(has_host) + static_cast<int>(has_copies) + static_cast<int>(has_compute);
  return !is_other && (parts == 1 || parts == 3);
}

OverlapPoint OverlapPoint::alone(const std::string& part) const {
  if (part == "host") return {host, "none", "idle"};
  if (part == "compute") return {"none", "none", compute};
  return {"none", copies, "idle"};
}

OverlapPoint overlap_point_of(const MeasurementRecord& record) {
  return {overlap_param(record, "host"), overlap_param(record, "dir"),
          overlap_param(record, "compute")};
}

double median_of(const MeasurementRecord& record, const std::string& name) {
  return record.median(index_of(record, name));
}

void add_kept_shares(std::vector<MeasurementRecord>& records) {
  for (MeasurementRecord& record : records) {
    OverlapPoint point = overlap_point_of(record);
    for (const char* part : kParts) {
      if (!record.is_ok() || !has_part(record, part)) continue;
      std::string wanted = point.alone(part).id();
      auto alone = std::find_if(records.begin(), records.end(), [&](const MeasurementRecord& one) {
        return one.info.id == wanted && one.is_ok();
      });
      bool is_itself = wanted == record.info.id;
      if (alone != records.end() && !is_itself) add_share(*alone, part, record);
    }
  }
}

const MeasurementRecord* joint_traffic(const BandwidthReport& report) {
  const MeasurementRecord* largest = measured_point(report, {"update", "both", "matmul"});
  if (largest != nullptr) return largest;
  for (const MeasurementRecord& record : report.records) {
    if (!record.is_ok() || record.info.group != "overlap") continue;
    OverlapPoint point = overlap_point_of(record);
    if (point.host != "update" || point.copies == "none") continue;
    bool is_more =
        largest == nullptr || median_of(record, "memory") > median_of(*largest, "memory");
    if (is_more) largest = &record;
  }
  return largest;
}

bool is_joint_limit(const BandwidthReport& report, const MeasurementRecord& joint) {
  constexpr double kUnhindered = 0.97;
  OverlapPoint point = overlap_point_of(joint);
  double alone = 0;
  for (const char* part : {"host", "up"}) {
    const MeasurementRecord* one = measured_point(report, point.alone(part));
    if (one == nullptr) return false;
    alone += median_of(*one, "memory");
  }
  return median_of(joint, "memory") < kUnhindered * alone;
}

std::vector<Finding> find_overlap(const BandwidthReport& report) {
  std::vector<Finding> findings;
  find_joint_limit(report, findings);
  find_losses(report, findings);
  find_converting(report, findings);
  return findings;
}

}  // namespace stagecoach
