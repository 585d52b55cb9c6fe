#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "backends/sim/flow_network.h"

namespace stagecoach {
namespace {

constexpr double kGigabyte = 1e9;

class SimFlowNetwork : public testing::Test {
 protected:
  /// Starts a flow now; returns where its end will be written.
  int64_t* start(double bytes, std::vector<int> through) {
    ends_.push_back(std::make_unique<int64_t>(-1));
    int64_t* end = ends_.back().get();
    network_.start(bytes, std::move(through), EventOrder{EventOrder::Kind::kFlow},
                   [this, end] { *end = time_.now_ns(); });
    return end;
  }
  void run() {
    while (time_.advance()) {
    }
  }

  VirtualTime time_;
  FlowNetwork network_{time_};
  std::vector<std::unique_ptr<int64_t>> ends_;
};

TEST_F(SimFlowNetwork, OneFlowTakesBytesOverRate) {
  int link = network_.add_resource("link", 10 * kGigabyte);
  int64_t* end = start(5 * kGigabyte, {link});
  run();
  EXPECT_EQ(*end, 500'000'000);
  EXPECT_NEAR(network_.bytes_moved(link), 5 * kGigabyte, 16);
  EXPECT_NEAR(network_.busy_ns(link), 5e8, 2);
}

TEST_F(SimFlowNetwork, FlowsShareAndTakeOverWhatOthersLeave) {
  int link = network_.add_resource("link", 10 * kGigabyte);
  int64_t* small = start(1 * kGigabyte, {link});
  int64_t* large = start(3 * kGigabyte, {link});
  run();
  EXPECT_NEAR(*small, 200'000'000, 2);  // at half the rate
  EXPECT_NEAR(*large, 400'000'000, 2);  // the rest at the whole
}

// A slow card behind a shared uplink takes its own rate; the others share what it leaves.
TEST_F(SimFlowNetwork, WhatOneCannotUseOthersGet) {
  int uplink = network_.add_resource("uplink", 30 * kGigabyte);
  int slow = network_.add_resource("slow", 4 * kGigabyte);
  int fast = network_.add_resource("fast", 25 * kGigabyte);
  int other = network_.add_resource("other", 25 * kGigabyte);
  start(kGigabyte, {slow, uplink});
  start(kGigabyte, {fast, uplink});
  start(kGigabyte, {other, uplink});
  std::vector<double> rates = network_.rates();
  EXPECT_NEAR(rates[0], 4 * kGigabyte, 1);
  EXPECT_NEAR(rates[1], 13 * kGigabyte, 1);
  EXPECT_NEAR(rates[2], 13 * kGigabyte, 1);
}

// The definition of max-min fairness: every flow passes something that is full, and none of the
// other flows there is faster.
TEST_F(SimFlowNetwork, RandomNetworksAreMaxMinFair) {
  std::mt19937_64 engine(20261129);
  for (int sample = 0; sample < 300; ++sample) {
    VirtualTime time;
    FlowNetwork network(time);
    int resources = std::uniform_int_distribution(1, 8)(engine);
    std::vector<double> capacity;
    for (int i = 0; i < resources; ++i) {
      capacity.push_back(std::uniform_real_distribution(1e8, 1e11)(engine));
      network.add_resource("r", capacity.back());
    }
    std::vector<std::vector<int>> flows(std::uniform_int_distribution<size_t>(1, 10)(engine));
    for (std::vector<int>& through : flows) {
      for (int i = 0; i < resources; ++i) {
        if (engine() % 3 == 0) through.push_back(i);
      }
      if (through.empty()) through.push_back(static_cast<int>(engine() % resources));
      network.start(1e12, through, EventOrder{}, [] {});
    }
    std::vector<double> rates = network.rates();
    std::vector<double> used(capacity.size(), 0), fastest(capacity.size(), 0);
    for (size_t flow = 0; flow < flows.size(); ++flow) {
      for (int i : flows[flow]) {
        used[i] += rates[flow];
        fastest[i] = std::max(fastest[i], rates[flow]);
      }
    }
    for (int i = 0; i < resources; ++i) EXPECT_LE(used[i], capacity[i] * (1 + 1e-9));
    for (size_t flow = 0; flow < flows.size(); ++flow) {
      bool has_bottleneck = std::any_of(flows[flow].begin(), flows[flow].end(), [&](int i) {
        return used[i] >= capacity[i] * (1 - 1e-9) && rates[flow] >= fastest[i] * (1 - 1e-9);
      });
      EXPECT_TRUE(has_bottleneck) << "sample " << sample << ", flow " << flow;
    }
  }
}

TEST(VirtualTimeTest, EqualTimesGoByOrderThenByNumber) {
  VirtualTime time;
  std::string log;
  time.at(5, EventOrder{EventOrder::Kind::kResume}, [&] { log += "d"; });
  time.at(5, EventOrder{EventOrder::Kind::kKernel, 1}, [&] { log += "b"; });
  time.at(5, EventOrder{EventOrder::Kind::kKernel, 1}, [&] { log += "c"; });
  time.at(5, EventOrder{EventOrder::Kind::kFlow, 7}, [&] { log += "a"; });
  time.at(9, EventOrder{}, [&] { log += "f"; });
  EXPECT_TRUE(time.advance());
  EXPECT_EQ(log, "abcd");
  EXPECT_EQ(time.now_ns(), 5);
  time.at(1, EventOrder{}, [&] { log += "e"; });  // the past is now
  while (time.advance()) {
  }
  EXPECT_EQ(log, "abcdef");
}

}  // namespace
}  // namespace stagecoach
