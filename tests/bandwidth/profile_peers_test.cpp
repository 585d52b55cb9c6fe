#include "tools/bandwidth/profile_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

/// What a profile of two cards of a fake driver says of copies between them.
MachineProfile measure_peers(FakePeerCopies behaviour, int64_t timeout_ns = 60'000'000'000) {
  FakeGpuOptions driver;
  driver.peer_copies = behaviour;
  FakeGpuMachine machine(driver);
  auto devices = machine.open("all");
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions options = short_options("p2p");
  options.sizes = {64 * kKiB};
  options.sampling.timeout_ns = timeout_ns;
  BandwidthReport report = run_suite(*devices, options);
  MachineProfile profile;
  for (const auto& device : *devices) profile.cards.emplace_back().device = device->id();
  add_profile_peers(report, profile);
  return profile;
}

void expect_broken(const MachineProfile& profile, const char* reason) {
  ASSERT_EQ(profile.peers.size(), 2u);
  for (const MachinePeer& peer : profile.peers) {
    EXPECT_FALSE(peer.works);
    EXPECT_EQ(peer.direct_bytes_per_s, 0);
    EXPECT_THAT(peer.reason, HasSubstr(reason));
    EXPECT_FALSE(peer.is_faster_direct());
  }
}

TEST(ProfilePeers, BothWaysOfCopiesThatWork) {
  MachineProfile profile = measure_peers(FakePeerCopies::kWork);
  ASSERT_EQ(profile.peers.size(), 2u);
  for (const MachinePeer& peer : profile.peers) {
    EXPECT_TRUE(peer.works) << peer.reason;
    EXPECT_GT(peer.direct_bytes_per_s, 0);
    EXPECT_GT(peer.through_host_bytes_per_s, 0);
  }
  EXPECT_EQ(profile.peers[0].target, 1);
  EXPECT_EQ(profile.peers[1].target, 0);
}

// The driver says yes, and wrong bytes arrive.
TEST(ProfilePeers, CopiesThatCorruptDoNotWork) {
  MachineProfile profile = measure_peers(FakePeerCopies::kCorrupt);
  expect_broken(profile, "wrong bytes arrived");
  EXPECT_GT(profile.peers[0].through_host_bytes_per_s, 0);
}

TEST(ProfilePeers, CopiesThatAreImpossibleDoNotWork) {
  expect_broken(measure_peers(FakePeerCopies::kImpossible), "no peer access");
}

// Slow: devices whose work never ends are waited for when they are closed.
TEST(SlowProfilePeers, CopiesThatHangDoNotWork) {
  expect_broken(measure_peers(FakePeerCopies::kHang, 1'000'000'000), "copies did not end");
}

MeasurementRecord lost(const std::string& id, MeasurementStatus status) {
  MeasurementRecord record;
  record.info.id = id;
  record.info.group = "p2p";
  record.info.quantities = {{"rate", "GB/s"}};
  record.status = status;
  record.reason = "the process that measured did not end in time and was killed";
  return record;
}

// A driver that no thread gets out of takes its process with it.
TEST(ProfilePeers, CopiesOfAKilledProcessDoNotWork) {
  MachineProfile profile;
  for (const char* device : {"cuda:0", "cuda:1", "cuda:2"}) {
    profile.cards.emplace_back().device = device;
  }
  BandwidthReport report;
  report.records = {lost("p2p/cuda:0/cuda:1/direct/64M", MeasurementStatus::kTimeout),
                    lost("p2p/cuda:0/cuda:1/staged/64M", MeasurementStatus::kTimeout),
                    lost("p2p/cuda:1/cuda:0/direct/64M", MeasurementStatus::kNotRun)};
  add_profile_peers(report, profile);
  ASSERT_EQ(profile.peers.size(), 1u);  // what nobody tried is not known
  EXPECT_THAT(profile.peers[0].reason, HasSubstr("was killed"));
  EXPECT_EQ(profile.peers[0].through_host_bytes_per_s, 0);
}

}  // namespace
}  // namespace stagecoach
