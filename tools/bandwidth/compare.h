#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What became of a result.
enum class ComparisonVerdict : uint8_t { kSame, kBetter, kWorse };

/// "same", "better", "worse".
const char* comparison_verdict_name(ComparisonVerdict verdict);

/// One result in two reports: the median of its first quantity.
struct ResultComparison {
  std::string id, unit;
  double before = 0, after = 0;
  double ratio = 0;                      ///< after by before
  double ratio_low = 0, ratio_high = 0;  ///< by the intervals of both medians
  std::optional<double> p;  ///< that chance makes them as different; nothing without samples
  ComparisonVerdict verdict = ComparisonVerdict::kSame;
};

/// A result that was ok and is not any more.
struct LostResult {
  std::string id;
  std::string what;  ///< "missing", or its status and reason: "skipped: no memory"
};

/// Two reports side by side.
struct ReportComparison {
  std::vector<ResultComparison> results;  ///< those that are ok in both, in the order of the later
  std::vector<LostResult> lost;           ///< each counts as worse
  std::vector<std::string> only_before, only_after;

  /// Of `results`.
  int count(ComparisonVerdict verdict) const;
  int count_worse() const;
  /// Nothing that was ok before was, or was to be, measured again.
  bool is_empty() const;
};

/// A result is worse or better when its median differs by more than `threshold` (0.05: 5 %), the
/// interval of the ratio leaves out 1, and, where both reports have enough samples (--raw) for it,
/// the rank test says that chance does so in less than 5 % of cases. Rates should be high, times
/// low. Pure.
ReportComparison compare_reports(const BandwidthReport& before, const BandwidthReport& after,
                                 double threshold);

/// For scripts and for people.
Json comparison_json(const ReportComparison& comparison);
std::string comparison_table(const ReportComparison& comparison);

/// A finding in `report`, the later one, for each result that is worse or lost.
void add_regressions(const ReportComparison& comparison, BandwidthReport& report);

}  // namespace stagecoach
