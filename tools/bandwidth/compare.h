#pragma once

#include <optional>
#include <span>
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

/// Two reports side by side.
struct ReportComparison {
  std::vector<ResultComparison> results;  ///< those that are ok in both, in the order of the later
  std::vector<std::string> only_before, only_after;

  int count(ComparisonVerdict verdict) const;
};

/// Two-sided probability of the Mann-Whitney rank test, by its normal approximation with ties; 1
/// where either side has fewer than 3 samples. Pure.
double rank_test(std::span<const double> one, std::span<const double> other);

/// A result is worse or better when its median differs by more than `threshold` (0.05: 5 %), the
/// interval of the ratio leaves out 1, and, where both reports have samples (--raw), the rank test
/// says that chance does so in less than 5 % of cases. Rates should be high, times low. Pure.
ReportComparison compare_reports(const BandwidthReport& before, const BandwidthReport& after,
                                 double threshold);

/// For scripts and for people.
Json comparison_json(const ReportComparison& comparison);
std::string comparison_table(const ReportComparison& comparison);

/// A finding in `report`, the later one, for each result that is worse.
void add_regressions(const ReportComparison& comparison, BandwidthReport& report);

}  // namespace stagecoach
