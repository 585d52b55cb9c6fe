#include "tools/bandwidth/peer_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

BandwidthReport measure_fake(FakePeerCopies behaviour, int64_t timeout_ns = 60'000'000'000) {
  FakeGpuOptions options;
  options.peer_copies = behaviour;
  FakeGpuMachine machine(options);
  auto devices = machine.open("all");
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions wanted = short_options("p2p");
  wanted.sizes = {64 * kKiB};
  wanted.sampling.timeout_ns = timeout_ns;
  return run_suite(*devices, wanted);
}

void expect_routes(const BandwidthReport& report, MeasurementStatus direct) {
  ASSERT_EQ(report.records.size(), 4u);
  for (const MeasurementRecord& record : report.records) {
    bool is_direct = record.info.params.find("route")->as_string() == "direct";
    EXPECT_EQ(record.status, is_direct ? direct : MeasurementStatus::kOk)
        << record.info.id << ": " << record.reason;
    if (record.is_ok()) {
      EXPECT_GT(record.check.bytes, 0);
    }
  }
}

TEST(PeerCopies, ThatWorkAreMeasuredBesideStagedOnes) {
  expect_routes(measure_fake(FakePeerCopies::kWork), MeasurementStatus::kOk);
}

// The driver says yes, and wrong bytes arrive.
TEST(PeerCopies, ThatCorruptAreFound) {
  BandwidthReport report = measure_fake(FakePeerCopies::kCorrupt);
  expect_routes(report, MeasurementStatus::kMismatch);
  EXPECT_EQ(bandwidth_exit_code(report, false), 3);
}

TEST(PeerCopies, ThatAreImpossibleAreSkippedWithTheReason) {
  BandwidthReport report = measure_fake(FakePeerCopies::kImpossible);
  expect_routes(report, MeasurementStatus::kSkipped);
  EXPECT_THAT(report.records[0].reason, HasSubstr("no peer access"));
  EXPECT_EQ(bandwidth_exit_code(report, false), 0);
  EXPECT_EQ(bandwidth_exit_code(report, true), 5);
}

// Slow: devices whose work never ends are waited for when they are closed.
TEST(SlowPeerCopies, ThatHangRunOutOfTime) {
  BandwidthReport report = measure_fake(FakePeerCopies::kHang, 1'000'000'000);
  for (const MeasurementRecord& record : report.records) {
    if (record.info.params.find("route")->as_string() != "direct") continue;
    EXPECT_EQ(record.status, MeasurementStatus::kTimeout) << record.info.id << record.reason;
  }
  EXPECT_EQ(bandwidth_exit_code(report, false), 5);
}

TEST(PeerCopies, HaveThePaceOfTheSlowerLink) {
  BandwidthOptions options = short_options("p2p");
  options.sizes = {256 * kKiB};
  auto devices = open_devices("cpu:2[memory=16M,h2d=64M,d2h=32M]");
  BandwidthReport report = run_suite(devices, options);
  expect_routes(report, MeasurementStatus::kOk);
  double expected = 32 * 1.048576e-3;
  for (const MeasurementRecord& record : report.records) {
    EXPECT_LE(record.median(), expected * 1.05) << record.info.id;
    EXPECT_GE(record.median(), expected * 0.2) << record.info.id;
  }
}

}  // namespace
}  // namespace stagecoach
