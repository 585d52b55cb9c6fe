#include "tools/bandwidth/capacity_fit.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr double kWithin = 0.05;

std::string describe(const CapacityModel& model) {
  std::string text = "links";
  for (double link : model.links) text += fmt::format(" {:.2f}", link);
  for (const CapacityPool& pool : model.pools) {
    text += fmt::format("; {:08b}: {:.2f}", pool.members, pool.capacity);
  }
  return text;
}

/// What a pool's members reach where nothing above it limits them.
double reach_below(const CapacityModel& tree, DeviceSet members, double own) {
  CapacityModel below;
  below.links = tree.links;
  for (const CapacityPool& pool : tree.pools) {
    bool is_below = (pool.members & members) == pool.members && pool.members != members;
    if (is_below) below.pools.push_back(pool);
  }
  double total = 0;
  for (double rate : below.rates(members)) total += rate;
  return std::min(total, own);
}

/// A tree of up to 8 links behind uplinks behind the host, devices in any order. Every pool holds
/// less than what is below it could use: others cannot be seen.
CapacityModel random_tree(uint64_t seed) {
  std::mt19937_64 generator(seed);
  auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  CapacityModel tree;
  int count = 2 + static_cast<int>(generator() % 7);
  double usual = draw(5, 60);
  for (int device = 0; device < count; ++device) {
    tree.links.push_back(generator() % 4 == 0 ? usual * draw(0.4, 1) : usual);
  }
  std::vector<int> order(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) order[static_cast<size_t>(device)] = device;
  std::shuffle(order.begin(), order.end(), generator);
  for (size_t begin = 0; begin < order.size();) {
    size_t size = std::min(order.size() - begin, 1 + generator() % 4);
    DeviceSet members = 0;
    double links = 0;
    for (size_t place = begin; place < begin + size; ++place) {
      members |= DeviceSet{1} << order[place];
      links += tree.links[static_cast<size_t>(order[place])];
    }
    begin += size;
    if (size > 1 && size < order.size()) tree.pools.push_back({members, links * draw(0.35, 0.85)});
  }
  DeviceSet all = (DeviceSet{1} << count) - 1;
  if (generator() % 4 != 0) {
    double host = reach_below(tree, all, 1e18) * draw(0.4, 0.85);
    std::erase_if(tree.pools, [&](const CapacityPool& pool) { return pool.capacity > 0.9 * host; });
    tree.pools.push_back({all, host});
  }
  return tree;
}

MeasureSet measure_tree(const CapacityModel& tree, double noise, uint64_t seed) {
  auto generator = std::make_shared<std::mt19937_64>(seed);
  return [&tree, noise, generator](DeviceSet active) -> Result<std::vector<double>> {
    std::vector<double> rates = tree.rates(active);
    for (double& rate : rates) {
      rate *= 1 + std::uniform_real_distribution<double>(-noise, noise)(*generator);
    }
    return rates;
  };
}

/// Whether every set of devices gets what it gets in `tree`.
double worst_prediction(const CapacityModel& fit, const CapacityModel& tree) {
  double worst = 0;
  for (DeviceSet set = 1; set < (DeviceSet{1} << tree.links.size()); ++set) {
    double expected = 0, found = 0;
    for (double rate : tree.rates(set)) expected += rate;
    for (double rate : fit.rates(set)) found += rate;
    worst = std::max(worst, std::abs(found - expected) / expected);
  }
  return worst;
}

TEST(CapacityModelRates, AreMaxMinFair) {
  CapacityModel model;
  model.links = {10, 20, 20};
  model.pools = {{0b110, 24}, {0b111, 30}};
  EXPECT_EQ(model.rates(0b010), (std::vector<double>{0, 20, 0}));
  EXPECT_EQ(model.rates(0b110), (std::vector<double>{0, 12, 12}));
  EXPECT_EQ(model.rates(0b111), (std::vector<double>{10, 10, 10}));
  model.pools[1].capacity = 33;
  EXPECT_EQ(model.rates(0b111), (std::vector<double>{10, 11.5, 11.5}));
}

TEST(CapacityFit, RecoversTwoHundredRandomTrees) {
  size_t pools = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CapacityModel tree = random_tree(seed);
    Result<CapacityModel> fit =
        fit_capacities(static_cast<int>(tree.links.size()), measure_tree(tree, 0, seed));
    ASSERT_TRUE(fit.is_ok());
    std::string both =
        fmt::format("seed {}\ntree {}\nfit  {}", seed, describe(tree), describe(*fit));
    EXPECT_LE(worst_prediction(*fit, tree), kWithin) << both;
    ASSERT_EQ(fit->pools.size(), tree.pools.size()) << both;
    for (const CapacityPool& pool : tree.pools) {
      auto found = std::find_if(fit->pools.begin(), fit->pools.end(), [&](const CapacityPool& one) {
        return one.members == pool.members;
      });
      ASSERT_NE(found, fit->pools.end()) << both;
      EXPECT_NEAR(found->capacity, pool.capacity, kWithin * pool.capacity) << both;
      ++pools;
    }
  }
  EXPECT_GT(pools, 300u);
}

TEST(CapacityFit, PredictsEverySetOfNoisyTrees) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    CapacityModel tree = random_tree(seed);
    Result<CapacityModel> fit =
        fit_capacities(static_cast<int>(tree.links.size()), measure_tree(tree, 0.01, seed));
    ASSERT_TRUE(fit.is_ok());
    EXPECT_LE(worst_prediction(*fit, tree), 0.08) << "seed " << seed << "\n"
                                                  << describe(tree) << "\n"
                                                  << describe(*fit);
    EXPECT_LE(fit->residual, 0.08);
  }
}

TEST(CapacityFit, DevicesOfTheirOwnTakeFewMeasurementsAndShareNothing) {
  CapacityModel tree;
  tree.links.assign(8, 25);
  Result<CapacityModel> fit = fit_capacities(8, measure_tree(tree, 0, 1));
  ASSERT_TRUE(fit.is_ok());
  EXPECT_TRUE(fit->pools.empty());
  EXPECT_TRUE(fit->is_complete);
  EXPECT_EQ(fit->measured.size(), 9u);
  // With nothing shared no set can be hidden; with pools the search may end early, and says so.
  tree.pools = {{0b1111, 60}, {0b11110000, 70}};
  CapacityFitOptions few;
  few.most_sets = 24;
  Result<CapacityModel> cut = fit_capacities(8, measure_tree(tree, 0, 1), few);
  ASSERT_TRUE(cut.is_ok());
  EXPECT_FALSE(cut->is_complete);
  EXPECT_LE(cut->measured.size(), 40u);
  Result<CapacityModel> whole = fit_capacities(8, measure_tree(tree, 0, 1));
  ASSERT_TRUE(whole.is_ok());
  EXPECT_TRUE(whole->is_complete);
  EXPECT_EQ(whole->pools.size(), 2u);
}

// What was not measured well is no evidence, whatever its figures were.
TEST(CapacityFit, UnclearSetsShowNoPoolAndLeaveItIncomplete) {
  CapacityModel tree;
  tree.links = {25, 25, 25};
  tree.pools = {{0b011, 30}};
  MeasureSet clear = measure_tree(tree, 0, 1);
  std::map<DeviceSet, int> turns;
  auto measure = [&](DeviceSet active) -> Result<std::vector<double>> {
    ++turns[active];
    if (active == 0b111) return std::vector<double>{};
    return clear(active);
  };
  Result<CapacityModel> fit = fit_capacities(3, measure);
  ASSERT_TRUE(fit.is_ok());
  EXPECT_FALSE(fit->is_complete);
  EXPECT_FALSE(fit->measured.contains(0b111));
  EXPECT_EQ(turns[0b111], 1);
  ASSERT_EQ(fit->pools.size(), 1u);
  EXPECT_EQ(fit->pools[0].members, 0b011u);
}

TEST(CapacityFit, PoolsCarryAtLeastWhatAMemberHasAlone) {
  auto measure = [](DeviceSet active) -> Result<std::vector<double>> {
    if (active == 0b11) return std::vector<double>{2, 1};
    return std::vector<double>{active == 0b01 ? 25.0 : 0.0, active == 0b10 ? 20.0 : 0.0};
  };
  Result<CapacityModel> fit = fit_capacities(2, measure);
  ASSERT_TRUE(fit.is_ok());
  ASSERT_EQ(fit->pools.size(), 1u);
  EXPECT_EQ(fit->pools[0].capacity, 25);
}

TEST(CapacityFit, PassesOnWhatFails) {
  auto fails = [](DeviceSet) -> Result<std::vector<double>> { return cancelled("stop"); };
  EXPECT_EQ(fit_capacities(2, fails).status().code(), StatusCode::kCancelled);
  EXPECT_THAT(fit_capacities(0, fails).status().message(), HasSubstr("1 to 16"));
}

}  // namespace
}  // namespace stagecoach
