#include "tools/bandwidth/contention.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "backends/sim/sim_backend.h"
#include "core/clock.h"
#include "tests/bandwidth/bandwidth_fixture.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

constexpr double kGb = 1e9;
constexpr int64_t kSecondsNs = 60'000'000'000;

/// Cards behind uplinks behind the host's memory, as the simulator's flow network shares them.
struct SimulatedTree {
  SimMachineProfile profile;
  std::vector<CapacityPool> pools;  ///< that can be seen, up
};

SimulatedTree random_machine(uint64_t seed) {
  std::mt19937_64 generator(seed);
  auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  SimulatedTree tree;
  int count = 2 + static_cast<int>(generator() % 7);
  SimCard card = find_sim_card("rtx4090").value();
  double usual = draw(5, 60);
  for (int index = 0; index < count; ++index) {
    card.link_bytes_per_s = (generator() % 4 == 0 ? usual * draw(0.5, 1) : usual) * kGb;
    card.duplex_bytes_per_s = 2 * card.link_bytes_per_s;
    tree.profile.cards.push_back(card);
  }
  double below = 0;
  tree.profile.uplink_of_card.assign(static_cast<size_t>(count), -1);
  for (int begin = 0; begin < count;) {
    int size = std::min(count - begin, 1 + static_cast<int>(generator() % 4));
    double links = 0;
    DeviceSet members = 0;
    for (int index = begin; index < begin + size; ++index) {
      links += tree.profile.cards[static_cast<size_t>(index)].link_bytes_per_s / kGb;
      members |= DeviceSet{1} << index;
    }
    double capacity = links * draw(0.4, 0.85);
    if (size > 1 && size < count) {
      for (int index = begin; index < begin + size; ++index) {
        tree.profile.uplink_of_card[static_cast<size_t>(index)] =
            static_cast<int>(tree.profile.uplinks.size());
      }
      tree.profile.uplinks.push_back({capacity * kGb, capacity * kGb});
      tree.pools.push_back({members, capacity});
      links = capacity;
    }
    below += links;
    begin += size;
  }
  if (generator() % 3 != 0) {
    double host = below * draw(0.5, 0.85);
    tree.profile.host_memory_bytes_per_s = host * kGb;
    // Uplinks that hardly limit what the host lets through cannot be told from none.
    for (SimUplink& uplink : tree.profile.uplinks) {
      if (uplink.up_bytes_per_s > 0.9 * host * kGb) uplink = {0, 0};
    }
    std::erase_if(tree.pools, [&](const CapacityPool& pool) { return pool.capacity > 0.9 * host; });
    tree.pools.push_back({(DeviceSet{1} << count) - 1, host});
  }
  tree.profile.copy_latency_ns = 0;
  tree.profile.costs.issue_ns = 0;
  return tree;
}

std::vector<std::shared_ptr<TransferMemory>> memories_of(
    const std::vector<std::unique_ptr<Device>>& devices, TaskPool& pool) {
  std::vector<std::shared_ptr<TransferMemory>> memories;
  for (const auto& device : devices) {
    memories.push_back(
        std::make_shared<TransferMemory>(*device, 16 * kMiB, MemoryKind::kHostPinned, 1, pool));
  }
  return memories;
}

// The whole way from copies to capacities, in virtual time: streams, common windows, search.
TEST(SimulatedContention, HundredRandomMachinesAreRecovered) {
  std::unique_ptr<TaskPool> threads = TaskPool::create(1);
  size_t found_pools = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SimulatedTree tree = random_machine(seed);
    auto devices = open_sim_devices(std::make_shared<SimMachine>(tree.profile));
    auto memories = memories_of(devices, *threads);
    auto measure = [&](DeviceSet active) -> Result<std::vector<double>> {
      auto set = make_contention_measurement(memories, active, LinkDirection::kUp, {kMiB, 0});
      STAGECOACH_RETURN_IF_ERROR(set->prepare());
      Result<Batch> batch = Batch{};
      // The second batch knows how fast each stream is.
      for (int turn = 0; turn < 2; ++turn) {
        batch = set->run(16, RealClock::instance().now_ns() + kSecondsNs);
        STAGECOACH_RETURN_IF_ERROR(batch.status());
      }
      std::vector<double> rates(devices.size(), 0);
      size_t quantity = set->info().quantities.size() == 1 ? 0 : 1;
      for (size_t device = 0; device < devices.size(); ++device) {
        if ((active >> device & 1) != 0) rates[device] = batch->samples[quantity++].front();
      }
      return rates;
    };
    Result<CapacityModel> fit = fit_capacities(static_cast<int>(devices.size()), measure);
    ASSERT_TRUE(fit.is_ok()) << fit.status().to_string();
    std::string both = fmt::format("seed {}\n", seed);
    for (const CapacityPool& pool : tree.pools) {
      both += fmt::format("tree {:08b} {:.2f}\n", pool.members, pool.capacity);
    }
    for (const CapacityPool& pool : fit->pools) {
      both += fmt::format("fit {:08b} {:.2f}\n", pool.members, pool.capacity);
    }
    both += fmt::format("links {:.2f}", fmt::join(fit->links, " "));
    ASSERT_EQ(fit->pools.size(), tree.pools.size()) << both;
    for (const CapacityPool& pool : tree.pools) {
      auto found = std::find_if(fit->pools.begin(), fit->pools.end(), [&](const CapacityPool& one) {
        return one.members == pool.members;
      });
      ASSERT_NE(found, fit->pools.end()) << both;
      EXPECT_NEAR(found->capacity, pool.capacity, 0.05 * pool.capacity) << both;
      ++found_pools;
    }
    EXPECT_LE(fit->residual, 0.05) << both;
  }
  EXPECT_GT(found_pools, 100u);
}

// Four cards, two and two behind an uplink, of a host that carries less than both.
TEST(SimulatedContention, IsReportedWithCurvesAndFindings) {
  SimMachineProfile profile;
  SimCard card = find_sim_card("rtx4090").value();
  card.link_bytes_per_s = 25e9;
  card.duplex_bytes_per_s = 50e9;
  profile.cards.assign(4, card);
  profile.uplinks = {{30e9, 32e9}, {30e9, 32e9}};
  profile.uplink_of_card = {0, 1, 0, 1};
  profile.host_memory_bytes_per_s = 50e9;
  profile.copy_latency_ns = 0;
  auto devices = open_sim_devices(std::make_shared<SimMachine>(profile));
  BandwidthReport report = run_suite(devices, short_options("contention"));
  ASSERT_EQ(report.fits.size(), 2u);
  const ContentionFit& up = report.fits[0];
  EXPECT_EQ(up.direction, "up");
  EXPECT_EQ(report.fits[1].direction, "down");
  ASSERT_EQ(up.model.pools.size(), 3u);
  EXPECT_EQ(up.model.pools[0].members, 0b0101u);
  EXPECT_EQ(up.model.pools[1].members, 0b1010u);
  EXPECT_EQ(up.model.pools[2].members, 0b1111u);
  EXPECT_NEAR(up.model.pools[0].capacity, 30, 0.05 * 30);
  EXPECT_NEAR(up.model.pools[2].capacity, 50, 0.05 * 50);
  EXPECT_NEAR(report.fits[1].model.pools[0].capacity, 32, 0.05 * 32);
  EXPECT_THAT(packed_order(up.model), ElementsAre(0, 2, 1, 3));
  ASSERT_EQ(up.packed.size(), 4u);
  EXPECT_EQ(up.packed[1].devices, 0b0101u);
  EXPECT_NEAR(up.packed[1].total, 30, 0.05 * 30);
  EXPECT_NEAR(up.packed[3].total, 50, 0.05 * 50);
  // One of each uplink first.
  ASSERT_EQ(up.spread.size(), 4u);
  EXPECT_NEAR(up.spread[1].total, 50, 0.05 * 50);
  const MeasurementRecord* all = report.find("together/up/pinned/2M");
  ASSERT_NE(all, nullptr);
  EXPECT_NEAR(all->median(), 50, 0.05 * 50);
}

TEST(ContentionOrders, OfDevicesThatShareNothingAreTheirOwn) {
  CapacityModel model;
  model.links = {1, 1, 1};
  EXPECT_THAT(packed_order(model), ElementsAre(0, 1, 2));
  EXPECT_THAT(spread_order(model), ElementsAre(0, 1, 2));
  model.pools = {{0b011, 1.5}};
  EXPECT_THAT(spread_order(model), ElementsAre(2, 0, 1));
}

}  // namespace
}  // namespace stagecoach
