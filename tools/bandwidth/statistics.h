#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stagecoach {

/// What repeated measurements of one quantity say, in its unit.
struct SampleStatistics {
  int64_t n = 0;
  double median = 0;
  double sigma = 0;  ///< robust: 1.4826 times the median distance from the median
  double cv = 0;     ///< standard deviation by mean
  double p5 = 0, p95 = 0, p99 = 0;
  double min = 0, max = 0;
  double median_low = 0, median_high = 0;  ///< 95 % interval of the median
};

/// All zero without samples. The interval of the median is a bootstrap's (1000 draws of a fixed
/// seed); of more than 200 samples that of their ranks, which comes to the same. Pure.
SampleStatistics summarize(std::span<const double> samples);

/// The value that a share (0 to 1) of the samples does not exceed, linear between neighbours.
/// `sorted` is not empty.
double quantile(std::span<const double> sorted, double share);

/// Why a figure deserves doubt.
enum class SampleFlag : uint8_t {
  kNoisy,        ///< cv above the limit, also after repetitions
  kBimodal,      ///< samples fall into two groups with a gap between
  kDrift,        ///< samples rise or fall with time
  kImplausible,  ///< more than the link can carry
  kNotSettled,   ///< warm-up ended by its time limit
  kOverrun,      ///< a paced CPU device was slower than it pretends to be
  kShortWindow,  ///< all streams were active together for less than 80 % of the time
  kUnverified,   ///< memory or threads were not seen to be on the NUMA node they were asked for on
  kInterrupted   ///< fewer repetitions than asked for
};

/// "noisy", "bimodal", "drift", "implausible", "not_settled", "overrun", "short_window",
/// "unverified", "interrupted".
std::string_view sample_flag_name(SampleFlag flag);

/// Whether the samples fall into two groups: neighbours, sorted, are apart by more than 3 % of the
/// median and more than either group is wide, and each group has two samples and a fifth of them.
bool is_bimodal(std::span<const double> samples);

/// Whether samples, in the order of time, rise or fall: Spearman's rank correlation with time
/// beyond what chance gives in 5 % of cases, and the last third's median is 2 % from the first
/// third's.
bool is_drifting(std::span<const double> samples);

/// kNoisy, kBimodal and kDrift as they apply. Pure.
std::vector<SampleFlag> shape_flags(std::span<const double> samples, double cv_limit);

}  // namespace stagecoach
