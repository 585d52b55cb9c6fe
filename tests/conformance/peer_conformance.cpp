#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

constexpr ByteCount kProbeBytes = 1 << 20;
constexpr int64_t kProbeTimeoutNs = 20'000 * kMillisecondNs;

class PeerConformance : public ConformanceTest {};

// M4, V3: bytes cross between two devices, on a stream of either.
TEST_P(PeerConformance, M4_CopiesCrossBothWays) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kPeer);
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.25f;
  for (size_t issuer : {0, 1}) {
    BufferHandle source = upload(values, 0);
    BufferHandle target = device_buffer(source->size(), 1);
    auto stream = new_stream("peer", issuer);
    ASSERT_TRUE(is_ok(stream->copy({target->view(), source->view(), "across"})));
    ASSERT_TRUE(is_ok(stream->synchronize()));
    EXPECT_EQ(download(target->view()), values);
  }
}

// V3: work on the target device behind a wait sees the bytes.
TEST_P(PeerConformance, V3_TargetsKernelsSeeTheBytes) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kPeer);
  auto sender = new_stream("sender", 0);
  auto receiver = new_stream("receiver", 1);
  BufferHandle source = device_buffer(4096, 0);
  BufferHandle target = device_buffer(4096, 1);
  BufferHandle host = pinned_buffer(4096, 1);
  ASSERT_TRUE(is_ok(sender->fill({source->view(), 0x2a2a2a2a, 4, "source"})));
  auto sent = sender->copy({target->view(), source->view(), "across"});
  ASSERT_TRUE(is_ok(sent));
  ASSERT_TRUE(is_ok(receiver->wait(sent.value())));
  ASSERT_TRUE(is_ok(receiver->copy({host->view(), target->view(), "down"})));
  ASSERT_TRUE(is_ok(receiver->synchronize()));
  EXPECT_EQ(std::to_integer<int>(host->host_data()[4095]), 0x2a);
}

// P2: bytes between devices count down at the source and up at the target.
TEST_P(PeerConformance, P2_CountersOfBothEnds) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kPeer);
  BufferHandle source = upload({1, 2, 3, 4}, 0);
  BufferHandle target = device_buffer(source->size(), 1);
  DeviceCounters source_before = device(0).counters(), target_before = device(1).counters();
  auto stream = new_stream("peer", 0);
  ASSERT_TRUE(is_ok(stream->copy({target->view(), source->view(), "across"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(device(0).counters().bytes_down - source_before.bytes_down, source->size());
  EXPECT_EQ(device(1).counters().bytes_up - target_before.bytes_up, source->size());
}

// E8, invalid argument: a device is no peer of itself.
TEST_P(PeerConformance, E8_NoPeerOfItself) {
  EXPECT_TRUE(has_code(device(0).enable_peer(device(0)), StatusCode::kInvalidArgument));
}

// V3: the probe finds a link that works, and says how fast it was.
TEST_P(PeerConformance, V3_ProbeFindsAWorkingLink) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kPeer);
  std::vector<Device*> pair = {devices_[0].get(), devices_[1].get()};
  auto topology = Topology::discover(pair);
  ASSERT_TRUE(is_ok(topology));
  ASSERT_EQ(topology->links.size(), 2u);
  for (PeerLink& link : topology->links) {
    EXPECT_EQ(link.state, PeerState::kUntested);
    ASSERT_TRUE(is_ok(probe_peer_link(pair, link, kProbeBytes, kProbeTimeoutNs)));
    EXPECT_EQ(link.state, PeerState::kWorks) << link.reason;
    EXPECT_GT(link.bytes_per_second, 0);
  }
}

// E8: a probe that cannot be.
TEST_P(PeerConformance, E8_ProbeNeedsAPair) {
  std::vector<Device*> pair = {devices_[0].get(), devices_[1].get()};
  PeerLink link;
  EXPECT_TRUE(has_code(probe_peer_link(pair, link, kProbeBytes, kProbeTimeoutNs),
                       StatusCode::kInvalidArgument));
  link.target = 2;
  EXPECT_TRUE(has_code(probe_peer_link(pair, link, kProbeBytes, kProbeTimeoutNs),
                       StatusCode::kInvalidArgument));
}

STAGECOACH_CONFORMANCE_SUITE(PeerConformance);

}  // namespace
}  // namespace stagecoach
