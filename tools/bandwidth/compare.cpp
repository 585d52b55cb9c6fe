#include "tools/bandwidth/compare.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/printable.h"
#include "tools/bandwidth/rank_test.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr double kChance = 0.05;
constexpr const char* kMissing = "missing";

ComparisonVerdict judge(const ResultComparison& one, double threshold) {
  bool is_chance = one.p.has_value() && *one.p >= kChance;
  bool is_apart = one.ratio_high < 1 || one.ratio_low > 1;
  if (is_chance || !is_apart || std::abs(one.ratio - 1) <= threshold) {
    return ComparisonVerdict::kSame;
  }
  bool is_higher = one.ratio > 1;
  return is_higher != is_better_low(one.unit) ? ComparisonVerdict::kBetter
                                              : ComparisonVerdict::kWorse;
}

ResultComparison compare_result(const MeasurementRecord& before, const MeasurementRecord& after,
                                double threshold) {
  ResultComparison one;
  one.id = after.info.id;
  one.unit = after.info.quantities.front().unit;
  const SampleStatistics& earlier = before.statistics.front();
  const SampleStatistics& later = after.statistics.front();
  one.before = earlier.median;
  one.after = later.median;
  auto by = [](double value, double other) { return other > 0 ? value / other : 0; };
  one.ratio = by(later.median, earlier.median);
  one.ratio_low = by(later.median_low, earlier.median_high);
  one.ratio_high = by(later.median_high, earlier.median_low);
  const std::vector<double>& old_samples = before.samples.front();
  const std::vector<double>& new_samples = after.samples.front();
  one.p = rank_test(old_samples, new_samples);
  one.verdict = judge(one, threshold);
  return one;
}

std::string ending_of(const MeasurementRecord& record) {
  std::string text(measurement_status_name(record.status));
  return record.reason.empty() ? text : text + ": " + record.reason;
}

Json names_json(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

}  // namespace

const char* comparison_verdict_name(ComparisonVerdict verdict) {
  switch (verdict) {
    case ComparisonVerdict::kSame:
      return "same";
    case ComparisonVerdict::kBetter:
      return "better";
    case ComparisonVerdict::kWorse:
      return "worse";
  }
  return "unknown";
}

int ReportComparison::count(ComparisonVerdict verdict) const {
  return static_cast<int>(std::count_if(results.begin(), results.end(),
                                        [&](const auto& one) { return one.verdict == verdict; }));
}

int ReportComparison::count_worse() const {
  return count(ComparisonVerdict::kWorse) + static_cast<int>(lost.size());
}

bool ReportComparison::is_empty() const {
  return results.empty() && std::all_of(lost.begin(), lost.end(),
                                        [](const LostResult& one) { return one.what == kMissing; });
}

ReportComparison compare_reports(const BandwidthReport& before, const BandwidthReport& after,
                                 double threshold) {
  ReportComparison comparison;
  for (const MeasurementRecord& record : after.records) {
    const MeasurementRecord* earlier = before.find(record.info.id);
    if (earlier == nullptr) {
      comparison.only_after.push_back(record.info.id);
    } else if (earlier->is_ok() && record.is_ok()) {
      comparison.results.push_back(compare_result(*earlier, record, threshold));
    }
  }
  for (const MeasurementRecord& record : before.records) {
    const MeasurementRecord* later = after.find(record.info.id);
    if (later == nullptr) comparison.only_before.push_back(record.info.id);
    if (!record.is_ok() || (later != nullptr && later->is_ok())) continue;
    comparison.lost.push_back({record.info.id, later == nullptr ? kMissing : ending_of(*later)});
  }
  return comparison;
}

Json comparison_json(const ReportComparison& comparison) {
  Json json = Json::object();
  json["schema_version"] = kBandwidthSchemaVersion;
  json["comparisons"] = Json::array();
  for (const ResultComparison& one : comparison.results) {
    Json item = Json::object();
    item["id"] = one.id;
    item["unit"] = one.unit;
    item["before"] = one.before;
    item["after"] = one.after;
    item["ratio"] = one.ratio;
    item["ratio_low"] = one.ratio_low;
    item["ratio_high"] = one.ratio_high;
    item["p"] = one.p.has_value() ? Json(*one.p) : Json();
    item["verdict"] = comparison_verdict_name(one.verdict);
    json["comparisons"].push_back(std::move(item));
  }
  json["lost"] = Json::array();
  for (const LostResult& one : comparison.lost) {
    Json item = Json::object();
    item["id"] = one.id;
    item["what"] = one.what;
    json["lost"].push_back(std::move(item));
  }
  json["only_before"] = names_json(comparison.only_before);
  json["only_after"] = names_json(comparison.only_after);
  json["worse"] = comparison.count_worse();
  json["better"] = comparison.count(ComparisonVerdict::kBetter);
  return json;
}

std::string comparison_table(const ReportComparison& comparison) {
  std::string text = fmt::format("{:<46} {:>9} {:>9} {:>7}  {:<15} {:<6} {}\n", "", "before",
                                 "after", "ratio", "95 %", "unit", "verdict");
  for (const ResultComparison& one : comparison.results) {
    std::string interval = fmt::format("{:.3f} to {:.3f}", one.ratio_low, one.ratio_high);
    text += printable(fmt::format("{:<46} {:>9.4g} {:>9.4g} {:>7.3f}  {:<15} {:<6} {}", one.id,
                                  one.before, one.after, one.ratio, interval, one.unit,
                                  comparison_verdict_name(one.verdict))) +
            "\n";
  }
  for (const LostResult& one : comparison.lost) {
    text += printable(fmt::format("{:<46} was ok before, now {}: worse", one.id, one.what)) + "\n";
  }
  for (const std::string& id : comparison.only_after) text += printable(id) + "  only after\n";
  return text;
}

void add_regressions(const ReportComparison& comparison, BandwidthReport& report) {
  for (const LostResult& one : comparison.lost) {
    report.findings.insert(report.findings.begin(),
                           {Severity::kError,
                            fmt::format("{} is {}, and was ok in the baseline", one.id, one.what),
                            "find out why, or leave it out with --filter",
                            {one.id}});
  }
  for (const ResultComparison& one : comparison.results) {
    if (one.verdict != ComparisonVerdict::kWorse) continue;
    report.findings.insert(report.findings.begin(),
                           {Severity::kError,
                            fmt::format("{} is {:.4g} {}, in the baseline {:.4g}", one.id,
                                        one.after, one.unit, one.before),
                            "compare driver, kernel, slot and load with the baseline's context",
                            {one.id}});
  }
}

}  // namespace stagecoach
