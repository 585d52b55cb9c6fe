#include "tools/bandwidth/rank_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace stagecoach {

namespace {

constexpr size_t kMostCounted = 40;
constexpr double kChance = 0.05;

/// The samples of both sides in order.
struct Ranking {
  std::vector<int64_t> twice_ranks;  ///< twice, since ties share half ranks
  int64_t sum_of_one = 0;            ///< of those
  double ties = 0;                   ///< sum of t^3 - t
};

Ranking rank(std::span<const double> one, std::span<const double> other) {
  struct Sample {
    double value;
    bool is_of_one;
  };
  std::vector<Sample> all;
  for (double value : one) all.push_back({value, true});
  for (double value : other) all.push_back({value, false});
  std::sort(all.begin(), all.end(),
            [](const Sample& a, const Sample& b) { return a.value < b.value; });
  Ranking ranking;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    while (end < all.size() && all[end].value == all[begin].value) ++end;
    auto equal = static_cast<double>(end - begin);
    ranking.ties += equal * equal * equal - equal;
    auto twice_rank = static_cast<int64_t>(begin + end + 1);
    for (; begin < end; ++begin) {
      ranking.twice_ranks.push_back(twice_rank);
      if (all[begin].is_of_one) ranking.sum_of_one += twice_rank;
    }
  }
  return ranking;
}

/// Ways to choose `chosen` of `count`.
double choices(size_t count, size_t chosen) {
  double ways = 1;
  for (size_t i = 1; i <= chosen; ++i) {
    ways *= static_cast<double>(count - chosen + i) / static_cast<double>(i);
  }
  return ways;
}

/// Over all ways to choose as many ranks as `size`, the share whose sum is as far from the mean.
double counted(const Ranking& ranking, size_t size) {
  const std::vector<int64_t>& ranks = ranking.twice_ranks;
  int64_t most = 0;
  for (int64_t one : ranks) most += one;
  auto sums = static_cast<size_t>(most) + 1;
  // ways[k][s]: to choose k ranks with the sum s.
  std::vector<std::vector<double>> ways(size + 1, std::vector<double>(sums, 0));
  ways[0][0] = 1;
  for (int64_t one : ranks) {
    auto step = static_cast<size_t>(one);
    for (size_t k = size; k > 0; --k) {
      for (size_t s = sums - 1; s >= step; --s) ways[k][s] += ways[k - 1][s - step];
    }
  }
  // Twice the mean of twice the sum is a whole number: size * (count + 1) * 2.
  auto twice_mean = static_cast<int64_t>(2 * size * (ranks.size() + 1));
  int64_t distance = std::abs(2 * ranking.sum_of_one - twice_mean);
  double far = 0;
  for (size_t s = 0; s < sums; ++s) {
    if (std::abs(2 * static_cast<int64_t>(s) - twice_mean) >= distance) far += ways[size][s];
  }
  return far / choices(ranks.size(), size);
}

double approximated(const Ranking& ranking, double of_one, double of_other) {
  double count = of_one + of_other;
  double statistic = static_cast<double>(ranking.sum_of_one) / 2 - of_one * (of_one + 1) / 2;
  double mean = of_one * of_other / 2;
  double variance = of_one * of_other / 12 * (count + 1 - ranking.ties / (count * (count - 1)));
  if (variance <= 0) return 1;
  double distance = std::max(0.0, std::abs(statistic - mean) - 0.5) / std::sqrt(variance);
  return std::erfc(distance / std::sqrt(2.0));
}

}  // namespace

std::optional<double> rank_test(std::span<const double> one, std::span<const double> other) {
  size_t count = one.size() + other.size();
  if (one.empty() || other.empty() || 2 / choices(count, one.size()) >= kChance) {
    return std::nullopt;
  }
  Ranking ranking = rank(one, other);
  if (count <= kMostCounted) return std::min(1.0, counted(ranking, one.size()));
  return approximated(ranking, static_cast<double>(one.size()), static_cast<double>(other.size()));
}

}  // namespace stagecoach
