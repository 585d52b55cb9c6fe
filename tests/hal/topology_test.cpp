#include "hal/topology.h"

#include <gtest/gtest.h>
#include <set>

#include "backends/register_backends.h"

namespace stagecoach {
namespace {

TEST(Topology, ListsNodesAndAllOrderedPairs) {
  auto devices = built_in_backends().open_devices("cpu:3[memory=1M]");
  ASSERT_TRUE(devices.is_ok());
  std::vector<Device*> pointers;
  for (auto& device : devices.value()) pointers.push_back(device.get());
  auto topology = Topology::discover(pointers);
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  ASSERT_FALSE(topology->nodes.empty());
  EXPECT_GT(topology->nodes[0].memory_bytes, 0);
  std::set<std::pair<int, int>> pairs;
  for (const PeerLink& link : topology->links) {
    EXPECT_NE(link.source, link.target);
    EXPECT_EQ(link.state, PeerState::kUntested);
    pairs.insert({link.source, link.target});
  }
  EXPECT_EQ(pairs.size(), 6u);
}

TEST(Topology, ALateCopyBreaksTheLink) {
  // 1 MiB at 4 MiB/s takes 250 ms, and the probe waits for 20.
  auto devices = built_in_backends().open_devices("cpu:2[memory=4M,d2h=4M,h2d=1G]");
  ASSERT_TRUE(devices.is_ok());
  std::vector<Device*> pair = {devices.value()[0].get(), devices.value()[1].get()};
  PeerLink link{0, 1};
  ASSERT_TRUE(probe_peer_link(pair, link, kMiB, 20'000'000).is_ok());
  EXPECT_EQ(link.state, PeerState::kBroken);
  EXPECT_NE(link.reason.find("longer than 20 ms"), std::string::npos) << link.reason;
}

TEST(Topology, NoRoomForTheProbeIsAFailureOfTheCall) {
  auto devices = built_in_backends().open_devices("cpu:2[memory=1K]");
  ASSERT_TRUE(devices.is_ok());
  std::vector<Device*> pair = {devices.value()[0].get(), devices.value()[1].get()};
  PeerLink link{0, 1};
  EXPECT_EQ(probe_peer_link(pair, link, kMiB, 1'000'000'000).code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace stagecoach
