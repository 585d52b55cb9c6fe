#include "tools/bandwidth/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace stagecoach {

namespace {

constexpr size_t kMostBootstrapped = 200;
constexpr int kBootstrapDraws = 1000;
constexpr uint64_t kBootstrapSeed = 20251;
constexpr double kNormalSigmaByMad = 1.4826;  ///< of a normal distribution
constexpr double kNormalQuantile95 = 1.96;    ///< two-sided

std::vector<double> sorted_copy(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double median_of(std::span<const double> samples) {
  return quantile(sorted_copy(samples), 0.5);
}

void bootstrap_median(std::span<const double> samples, SampleStatistics& statistics) {
  std::mt19937_64 generator(kBootstrapSeed);
  std::vector<double> medians, draw(samples.size());
  for (int turn = 0; turn < kBootstrapDraws; ++turn) {
    for (double& value : draw) value = samples[generator() % samples.size()];
    medians.push_back(median_of(draw));
  }
  std::sort(medians.begin(), medians.end());
  statistics.median_low = quantile(medians, 0.025);
  statistics.median_high = quantile(medians, 0.975);
}

void rank_interval(std::span<const double> sorted, SampleStatistics& statistics) {
  auto count = static_cast<double>(sorted.size());
  double half = kNormalQuantile95 * std::sqrt(count) / 2 / (count - 1);
  statistics.median_low = quantile(sorted, 0.5 - half);
  statistics.median_high = quantile(sorted, 0.5 + half);
}

/// Ranks from 0; equal values share their mean rank.
std::vector<double> ranks_of(std::span<const double> samples) {
  std::vector<size_t> order(samples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return samples[a] < samples[b]; });
  std::vector<double> ranks(samples.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && samples[order[end]] == samples[order[begin]]) ++end;
    double rank = static_cast<double>(begin + end - 1) / 2;
    for (; begin < end; ++begin) ranks[order[begin]] = rank;
  }
  return ranks;
}

double correlation(std::span<const double> a, std::span<const double> b) {
  double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / static_cast<double>(a.size());
  double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / static_cast<double>(b.size());
  double both = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  double scale = std::sqrt(square_a * square_b);
  return scale > 0 ? both / scale : 0;
}

}  // namespace

double quantile(std::span<const double> sorted, double share) {
  double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  auto below = static_cast<size_t>(place);
  size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

SampleStatistics summarize(std::span<const double> samples) {
  SampleStatistics statistics;
  if (samples.empty()) return statistics;
  std::vector<double> sorted = sorted_copy(samples);
  auto count = static_cast<double>(sorted.size());
  statistics.n = static_cast<int64_t>(sorted.size());
  statistics.median = quantile(sorted, 0.5);
  statistics.p5 = quantile(sorted, 0.05);
  statistics.p95 = quantile(sorted, 0.95);
  statistics.p99 = quantile(sorted, 0.99);
  statistics.min = sorted.front();
  statistics.max = sorted.back();
  std::vector<double> distances;
  double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count, squares = 0;
  for (double value : sorted) {
    distances.push_back(std::abs(value - statistics.median));
    squares += (value - mean) * (value - mean);
  }
  statistics.sigma = kNormalSigmaByMad * median_of(distances);
  if (sorted.size() > 1 && mean != 0) {
    statistics.cv = std::sqrt(squares / (count - 1)) / std::abs(mean);
  }
  if (sorted.size() > kMostBootstrapped) {
    rank_interval(sorted, statistics);
  } else {
    bootstrap_median(sorted, statistics);
  }
  return statistics;
}

std::string_view sample_flag_name(SampleFlag flag) {
  switch (flag) {
    case SampleFlag::kNoisy:
      return "noisy";
    case SampleFlag::kBimodal:
      return "bimodal";
    case SampleFlag::kDrift:
      return "drift";
    case SampleFlag::kImplausible:
      return "implausible";
    case SampleFlag::kNotSettled:
      return "not_settled";
    case SampleFlag::kOverrun:
      return "overrun";
    case SampleFlag::kShortWindow:
      return "short_window";
    case SampleFlag::kUnverified:
      return "unverified";
    case SampleFlag::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

bool is_bimodal(std::span<const double> samples) {
  constexpr size_t kFewest = 6, kFewestInGroup = 2;
  constexpr double kLeastGap = 0.03;
  if (samples.size() < kFewest) return false;
  std::vector<double> sorted = sorted_copy(samples);
  size_t least = std::max(kFewestInGroup, sorted.size() / 5);
  for (size_t lower = least; lower + least <= sorted.size(); ++lower) {
    double gap = sorted[lower] - sorted[lower - 1];
    double widest = std::max(sorted[lower - 1] - sorted.front(), sorted.back() - sorted[lower]);
    if (gap > widest && gap > kLeastGap * std::abs(quantile(sorted, 0.5))) return true;
  }
  return false;
}

bool is_drifting(std::span<const double> samples) {
  constexpr size_t kFewest = 6;
  constexpr double kLeastChange = 0.02;
  if (samples.size() < kFewest) return false;
  std::vector<double> times(samples.size());
  std::iota(times.begin(), times.end(), 0.0);
  double chance = kNormalQuantile95 / std::sqrt(static_cast<double>(samples.size() - 1));
  if (std::abs(correlation(ranks_of(samples), times)) <= chance) return false;
  size_t third = samples.size() / 3;
  double first = median_of(samples.first(third)), last = median_of(samples.last(third));
  return std::abs(last - first) > kLeastChange * std::abs(median_of(samples));
}

std::vector<SampleFlag> shape_flags(std::span<const double> samples, double cv_limit) {
  std::vector<SampleFlag> flags;
  if (summarize(samples).cv > cv_limit) flags.push_back(SampleFlag::kNoisy);
  if (is_bimodal(samples)) flags.push_back(SampleFlag::kBimodal);
  if (is_drifting(samples)) flags.push_back(SampleFlag::kDrift);
  return flags;
}

}  // namespace stagecoach
