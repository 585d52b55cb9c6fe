#include "tools/bandwidth/peer_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tools/bandwidth/findings.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

BandwidthReport measure_fake(FakePeerCopies behaviour, int64_t timeout_ns = 60'000'000'000,
                             int card_count = 2, const std::string& filter = "") {
  FakeGpuOptions options;
  options.peer_copies = behaviour;
  options.card_count = card_count;
  FakeGpuMachine machine(options);
  auto devices = machine.open("all");
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions wanted = short_options("p2p");
  wanted.sizes = {64 * kKiB};
  wanted.filter = filter;
  wanted.sampling.timeout_ns = timeout_ns;
  wanted.sampling.warm_up_limit_ns = 10'000'000;
  return run_suite(*devices, wanted);
}

bool is_direct(const MeasurementRecord& record) {
  return record.info.id.find("staged") == std::string::npos;
}

void expect_routes(const BandwidthReport& report, MeasurementStatus direct) {
  int plain = 0;
  for (const MeasurementRecord& record : report.records) {
    EXPECT_EQ(record.status, is_direct(record) ? direct : MeasurementStatus::kOk)
        << record.info.id << ": " << record.reason;
    if (record.is_ok()) {
      EXPECT_GT(record.check.bytes, 0) << record.info.id;
    }
    if (record.info.params.find("route") != nullptr) ++plain;
  }
  EXPECT_EQ(plain, 4);
}

TEST(PeerCopies, ThatWorkAreMeasuredBesideStagedOnes) {
  BandwidthReport report = measure_fake(FakePeerCopies::kWork);
  expect_routes(report, MeasurementStatus::kOk);
  std::map<std::string, int> patterns;
  for (const MeasurementRecord& record : report.records) {
    const Json* pattern = record.info.params.find("pattern");
    ++patterns[pattern == nullptr ? "one way" : pattern->as_string()];
  }
  const std::map<std::string, int> expected = {
      {"one way", 4}, {"check", 2}, {"latency", 4}, {"load", 2}, {"both", 2}};
  EXPECT_EQ(patterns, expected);
  const MeasurementRecord* proof = report.find("p2p/fake_gpu:0/fake_gpu:1/check");
  ASSERT_NE(proof, nullptr);
  EXPECT_GE(proof->median(), 200);
  const MeasurementRecord* both = report.find("p2p/fake_gpu:0/fake_gpu:1/both/direct/64K");
  ASSERT_NE(both, nullptr);
  ASSERT_EQ(both->info.quantities.size(), 3u);
  EXPECT_EQ(both->info.quantities[1].name, "fake_gpu:0 to fake_gpu:1");
  EXPECT_EQ(both->info.quantities[2].name, "fake_gpu:1 to fake_gpu:0");
  EXPECT_EQ(both->info.directions, 2);
  ASSERT_FALSE(both->samples[0].empty());
  for (size_t i = 0; i < both->samples[0].size(); ++i) {
    EXPECT_NEAR(both->samples[0][i], both->samples[1][i] + both->samples[2][i], 1e-6);
  }
  const MeasurementRecord* load = report.find("p2p/fake_gpu:0/fake_gpu:1/load/64K");
  ASSERT_NE(load, nullptr);
  EXPECT_EQ(load->info.quantities[1].name, "load");
  EXPECT_GT(load->median(1), 0);
  const MeasurementRecord* latency = report.find("p2p/fake_gpu:1/fake_gpu:0/latency/direct");
  ASSERT_NE(latency, nullptr);
  EXPECT_GE(latency->statistics[0].p99, latency->median());
}

TEST(PeerCopies, FromOneToAllAndFromAllToOne) {
  BandwidthReport report = measure_fake(FakePeerCopies::kWork, 60'000'000'000, 3, "/all/");
  for (const char* id : {"p2p/fake_gpu:0/all/direct/64K", "p2p/all/fake_gpu:2/direct/64K"}) {
    const MeasurementRecord* record = report.find(id);
    ASSERT_NE(record, nullptr) << id;
    EXPECT_TRUE(record->is_ok()) << record->reason;
    EXPECT_EQ(record->info.quantities.size(), 3u);
    EXPECT_GT(record->check.bytes, 0);
    // Also where an engine serves one stream after the other.
    for (double rate : record->samples[1]) EXPECT_GT(rate, 0);
  }
}

// The driver says yes, and wrong bytes arrive: nothing that goes that way is timed.
TEST(PeerCopies, ThatCorruptAreFound) {
  BandwidthReport report = measure_fake(FakePeerCopies::kCorrupt);
  expect_routes(report, MeasurementStatus::kMismatch);
  EXPECT_EQ(bandwidth_exit_code(report, false), 3);
  int findings = 0;
  for (const Finding& finding : find_problems(report)) {
    if (finding.text.find("unsafe: copy 1 from") != std::string::npos) ++findings;
  }
  EXPECT_EQ(findings, 2);
  for (const MeasurementRecord& record : report.records) {
    if (!is_direct(record)) continue;
    EXPECT_THAT(record.reason, HasSubstr("unsafe: copy 1 from"));
    EXPECT_TRUE(record.samples.front().empty()) << record.info.id;
  }
}

// One copy in 70 loses a bit: a single probe says that all is well.
TEST(PeerCopies, ThatCorruptRarelyAreFoundBeforeAnythingIsTimed) {
  FakeGpuOptions options;
  options.peer_copies = FakePeerCopies::kCorrupt;
  options.peer_corruption_interval = 70;
  FakeGpuMachine machine(options);
  auto devices = machine.open("all");
  ASSERT_TRUE(devices.is_ok());
  BandwidthOptions wanted = short_options("p2p");
  wanted.filter = "p2p/fake_gpu:0/fake_gpu:1/(check|direct)";
  wanted.sizes = {64 * kKiB};
  BandwidthReport report = run_suite(*devices, wanted);
  ASSERT_EQ(report.records.size(), 2u);
  for (const MeasurementRecord& record : report.records) {
    EXPECT_EQ(record.status, MeasurementStatus::kMismatch) << record.info.id;
    EXPECT_THAT(record.reason, HasSubstr("unsafe: copy 70 from fake_gpu:0 to fake_gpu:1"));
    EXPECT_TRUE(record.samples.front().empty());
  }
}

TEST(PeerCopies, ThatAreImpossibleAreSkippedWithTheReason) {
  BandwidthReport report = measure_fake(FakePeerCopies::kImpossible);
  expect_routes(report, MeasurementStatus::kSkipped);
  EXPECT_THAT(report.records[0].reason, HasSubstr("no peer access"));
  EXPECT_EQ(bandwidth_exit_code(report, false), 0);
  EXPECT_EQ(bandwidth_exit_code(report, true), 5);
}

// Slow: devices whose work never ends are waited for when they are closed. What hung once is not
// tried again.
TEST(SlowPeerCopies, ThatHangRunOutOfTime) {
  BandwidthReport report = measure_fake(FakePeerCopies::kHang, 1'000'000'000);
  for (const MeasurementRecord& record : report.records) {
    if (record.info.params.find("route") == nullptr || !is_direct(record)) continue;
    EXPECT_EQ(record.status, MeasurementStatus::kTimeout) << record.info.id << record.reason;
  }
  EXPECT_EQ(bandwidth_exit_code(report, false), 5);
}

TEST(PeerCopies, HaveThePaceOfTheSlowerLink) {
  BandwidthOptions options = short_options("p2p");
  options.sizes = {256 * kKiB};
  options.filter = "(direct|staged)/256K$";
  auto devices = open_devices("cpu:2[memory=16M,h2d=64M,d2h=32M]");
  BandwidthReport report = run_suite(devices, options);
  expect_routes(report, MeasurementStatus::kOk);
  double expected = 32 * 1.048576e-3;
  for (const MeasurementRecord& record : report.records) {
    // Both directions have a link each.
    double most = record.info.directions == 2 ? 2 * expected : expected;
    EXPECT_LE(record.median(), most * 1.05) << record.info.id;
    EXPECT_GE(record.median(), most * 0.2) << record.info.id;
  }
}

}  // namespace
}  // namespace stagecoach
