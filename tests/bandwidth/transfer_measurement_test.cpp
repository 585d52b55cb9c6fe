#include "tools/bandwidth/transfer_measurement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/sim/sim_backend.h"
#include "testing/decorated_backend.h"
#include "tests/bandwidth/bad_copies.h"
#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr double kWithin = 0.05;

/// Rates of a pace that any host keeps: 64 MiB/s up and 32 MiB/s down.
constexpr const char* kPaced = "cpu:2[memory=16M,h2d=64M,d2h=32M]";
constexpr double kUp = 64 * 1.048576e-3, kDown = 32 * 1.048576e-3;

void expect_rate(const BandwidthReport& report, const std::string& id, double expected) {
  const MeasurementRecord* record = report.find(id);
  ASSERT_NE(record, nullptr) << id;
  ASSERT_TRUE(record->is_ok()) << id << ": " << record->reason;
  // A host that is too slow for its pace says so, and its figures are worth nothing.
  if (record->has_flag(SampleFlag::kOverrun)) {
    EXPECT_LE(record->median(), expected * (1 + kWithin)) << id;
    return;
  }
  EXPECT_NEAR(record->median(), expected, kWithin * expected) << id;
  EXPECT_FALSE(record->has_flag(SampleFlag::kImplausible)) << id;
}

TEST(PacedBandwidth, CopiesOfEachSizeAndDirectionHaveTheirPace) {
  BandwidthOptions options = short_options("copy");
  options.sizes = {64 * kKiB, 256 * kKiB};
  BandwidthReport report = run_suite(open_devices(kPaced), options);
  EXPECT_EQ(report.records.size(), 24u);  // 2 devices, directions and sizes; 3 kinds of memory
  for (const char* device : {"cpu:0", "cpu:1"}) {
    for (const char* kind : {"pinned", "registered", "pageable"}) {
      for (const char* size : {"64K", "256K"}) {
        expect_rate(report, fmt::format("copy/{}/up/{}/{}", device, kind, size), kUp);
        expect_rate(report, fmt::format("copy/{}/down/{}/{}", device, kind, size), kDown);
      }
    }
  }
  for (const MeasurementRecord& record : report.records) {
    EXPECT_GT(record.check.bytes, 0) << record.info.id;
    EXPECT_EQ(record.check.wrong_bytes, 0) << record.info.id;
    EXPECT_EQ(record.info.directions, 1);
    EXPECT_EQ(record.info.payload_bytes, record.info.params.find("size")->as_integer());
  }
}

// Duplex says both directions and their sum, of the same window.
TEST(PacedBandwidth, DuplexIsTheSumOfBothDirections) {
  BandwidthReport report = run_suite(open_devices(kPaced), short_options("duplex"));
  ASSERT_EQ(report.records.size(), 2u);
  for (const MeasurementRecord& record : report.records) {
    expect_rate(report, record.info.id, kUp + kDown);
    ASSERT_EQ(record.info.quantities.size(), 4u);
    EXPECT_EQ(record.info.quantities[1].name,
              record.info.params.find("device")->as_string() + " up");
    EXPECT_NEAR(record.median(1) + record.median(2), record.median(), 1e-3 * record.median());
    EXPECT_EQ(record.info.directions, 2);
    EXPECT_GT(record.check.bytes, 0);
    if (!record.has_flag(SampleFlag::kOverrun)) {
      EXPECT_FALSE(record.has_flag(SampleFlag::kShortWindow));
    }
  }
}

// Devices that are not equally fast are active together for most of the time all the same.
TEST(PacedBandwidth, AllDevicesTogetherHaveAWindowWhateverTheirRates) {
  auto devices =
      open_devices("cpu:1[memory=16M,h2d=64M,d2h=64M],cpu:1[memory=16M,h2d=16M,d2h=16M]");
  BandwidthOptions options = short_options("contention");
  options.filter = "together/up";
  BandwidthReport report = run_suite(devices, options);
  ASSERT_EQ(report.records.size(), 1u);
  const MeasurementRecord& record = report.records.front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  if (!record.has_flag(SampleFlag::kOverrun)) {
    EXPECT_FALSE(record.has_flag(SampleFlag::kShortWindow));
    EXPECT_NEAR(record.median(), 80 * 1.048576e-3, kWithin * 80e-3);
    EXPECT_NEAR(record.median(1), 64 * 1.048576e-3, kWithin * 64e-3);
    EXPECT_NEAR(record.median(2), 16 * 1.048576e-3, kWithin * 16e-3);
  }
}

// One that is over before the other's first chunk is there leaves no common window.
TEST(PacedBandwidth, WithoutACommonWindowTotalsAreOfTheWholeTime) {
  BandwidthOptions options = short_options("contention");
  options.filter = "together/up";
  options.working_set = 256 * kKiB;
  options.sampling.repetitions = 3;
  options.sampling.most_reruns = 0;
  options.sampling.warm_up_limit_ns = 0;
  BandwidthReport report =
      run_suite(open_devices("cpu:1[memory=16M],cpu:1[memory=16M,h2d=1M,d2h=1M]"), options);
  ASSERT_EQ(report.records.size(), 1u);
  const MeasurementRecord& record = report.records.front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  for (const std::vector<double>& samples : record.samples) {
    for (double sample : samples) EXPECT_GT(sample, 0);
  }
  EXPECT_TRUE(record.has_flag(SampleFlag::kShortWindow));
}

TEST(PacedBandwidth, LatencyShowsWhereOneChunkIsIssuedAtATime) {
  BandwidthOptions options = short_options("copy");
  options.sizes = {64 * kKiB};
  options.depths = {1, 2};
  options.kinds = {MemoryKind::kHostPinned};
  auto devices = open_devices("cpu:1[memory=16M,h2d=64M,d2h=64M,latency=1ms]");
  BandwidthReport report = run_suite(devices, options);
  // A chunk takes 1 ms and 1 ms of latency, however deep: latency is part of a mock's copy.
  expect_rate(report, "copy/cpu:0/up/pinned/64K/depth2", 65536 / 2e-3 / 1e9);
  const MeasurementRecord* one = report.find("copy/cpu:0/up/pinned/64K/depth1");
  ASSERT_NE(one, nullptr);
  ASSERT_TRUE(one->is_ok()) << one->reason;
  // The host issues the next one only when it has seen the last one's end.
  EXPECT_LT(one->median(), 65536 / 2e-3 / 1e9 * 1.01);
}

TEST(SimulatedBandwidth, AnswersInVirtualTime) {
  SimMachineProfile profile;
  SimCard card = find_sim_card("rtx4090").value();
  card.link_bytes_per_s = 25e9;
  card.duplex_bytes_per_s = 40e9;
  profile.cards.assign(2, card);
  profile.copy_latency_ns = 0;
  auto devices = open_sim_devices(std::make_shared<SimMachine>(profile));
  BandwidthOptions options = short_options("quick");
  options.filter = "^(copy|duplex)";
  BandwidthReport report = run_suite(devices, options);
  ASSERT_FALSE(report.records.empty());
  int duplex = 0;
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    EXPECT_EQ(record.check.bytes, 0) << "nothing is moved, so nothing can be compared";
    if (record.info.group != "duplex") continue;
    ++duplex;
    EXPECT_NEAR(record.median(), 40, kWithin * 40) << record.info.id;
  }
  EXPECT_EQ(duplex, 2);
}

TEST(FakeGpuBandwidth, CopiesAreMeasuredAndCompared) {
  FakeGpuOptions machine_options;
  machine_options.copy_bytes_per_s = 200e6;
  FakeGpuMachine machine(machine_options);
  auto devices = machine.open("all");
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions options = short_options("copy");
  options.working_set = 2 * kMiB;
  options.sizes = {512 * kKiB};
  BandwidthReport report = run_suite(*devices, options);
  EXPECT_EQ(report.records.size(), 16u);  // 2 cards and directions; 3 kinds of memory and kernels
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    EXPECT_GT(record.check.bytes, 0);
    EXPECT_NE(record.info.params.find("engine"), nullptr);
    if (record.info.params.find("engine")->as_string() == "kernel") continue;  // not paced
    EXPECT_EQ(record.check.wrong_bytes, 0);
    // How late a busy host sees an end moves the window.
    EXPECT_LT(record.median(), 0.2 * 2) << record.info.id;
  }
}

// A kernel brings the same bytes, also those that are no numbers, and rows name their engine.
TEST(FakeGpuBandwidth, KernelsCopyThroughPinnedMemory) {
  FakeGpuMachine machine;
  auto devices = machine.open("all");
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions options = short_options("copy");
  options.working_set = kMiB;
  options.sizes = {4 * kKiB, 64 * kKiB};
  options.filter = "^copy/fake_gpu:0/.*/kernel$";
  options.sampling.verify = VerifyMode::kEach;
  BandwidthReport report = run_suite(*devices, options);
  ASSERT_EQ(report.records.size(), 4u);
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    EXPECT_EQ(record.info.params.find("engine")->as_string(), "kernel");
    EXPECT_GT(record.check.bytes, 0);
  }
}

// Mocks' kernels refuse host memory: what cannot be measured is left out with the reason.
TEST(PacedBandwidth, KernelsOfMocksDoNotCopy) {
  auto devices = open_devices("cpu:1[memory=16M]");
  MeasuredDevice measured{devices[0].get(), 0};
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  auto plan = plan_bandwidth({&measured, 1}, short_options("copy"), kGiB, *pool);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_THAT(plan->notes,
              testing::Contains(HasSubstr("kernels of cpu:0 do not reach host memory")));
  for (const std::string& id : plan->groups[0].ids) EXPECT_THAT(id, Not(HasSubstr("kernel")));
  auto memory =
      std::make_shared<TransferMemory>(*devices[0], kMiB, MemoryKind::kHostPinned, 1, *pool);
  MeasurementGroup group;
  group.push_back(std::make_unique<TransferMeasurement>(
      MeasurementInfo{}, std::vector<TransferFlow>{{memory, LinkDirection::kUp, 0}},
      TransferShape{64 * kKiB, 0, TransferEngine::kKernel}));
  MeasurementRecord record = run_group(group, short_options("copy").sampling).front();
  EXPECT_EQ(record.status, MeasurementStatus::kSkipped);
  EXPECT_THAT(record.reason, HasSubstr("kernels of cpu:0 do not reach pinned host memory"));
}

// Many cards between which nothing can be copied: no test of the host's links needs that.
TEST(FakeGpuBandwidth, EightCardsWithoutPeersAreMeasured) {
  FakeGpuOptions machine_options;
  machine_options.card_count = 8;
  machine_options.memory_bytes = 8 * kMiB;
  machine_options.peer_copies = FakePeerCopies::kImpossible;
  FakeGpuMachine machine(machine_options);
  auto devices = machine.open("all");
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  BandwidthOptions options = short_options("quick");
  options.working_set = 256 * kKiB;
  options.filter = "^(copy|duplex|together)/";
  options.sizes = {64 * kKiB};
  BandwidthReport report = run_suite(*devices, options);
  EXPECT_EQ(report.records.size(), 16u + 8u + 3u);
  for (const MeasurementRecord& record : report.records) {
    EXPECT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
  }
  EXPECT_EQ(report.find("together/both/pinned/64K")->info.quantities.size(), 18u);
}

class FaultyBandwidth : public testing::TestWithParam<const char*> {};

TEST_P(FaultyBandwidth, WrongBytesAreFoundAndTheOthersGoOn) {
  std::string label = std::string("bandwidth ") + GetParam();
  auto devices = decorate_devices(open_devices("cpu:2[memory=16M]"),
                                  std::make_shared<BadCopies>(1, label, Verdict::Kind::kCorrupt));
  BandwidthOptions options = short_options("copy");
  options.sizes = {256 * kKiB};
  options.kinds = {MemoryKind::kHostPinned};
  BandwidthReport report = run_suite(devices, options);
  ASSERT_EQ(report.records.size(), 4u);
  std::string bad = fmt::format("copy/cpu:1/{}/pinned/256K", GetParam());
  for (const MeasurementRecord& record : report.records) {
    if (record.info.id != bad) {
      EXPECT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
      continue;
    }
    EXPECT_EQ(record.status, MeasurementStatus::kMismatch);
    // 64 bytes in the middle of each chunk.
    EXPECT_EQ(record.check.first_wrong, 128 * kKiB - 32);
    EXPECT_GT(record.check.wrong_bytes, 0);
    EXPECT_LE(record.check.wrong_bytes, record.check.bytes / (256 * kKiB) * 64);
    EXPECT_THAT(record.reason, HasSubstr("bytes arrived wrong"));
  }
  EXPECT_EQ(bandwidth_exit_code(report, false), 3);
}

TEST_P(FaultyBandwidth, CopiesThatNeverEndRunOutOfTimeAndTheOthersGoOn) {
  std::string label = std::string("bandwidth ") + GetParam();
  auto devices =
      decorate_devices(open_devices("cpu:2[memory=16M]"),
                       std::make_shared<BadCopies>(1, label, Verdict::Kind::kNeverCompletes));
  BandwidthOptions options = short_options("copy");
  options.sizes = {256 * kKiB};
  options.kinds = {MemoryKind::kHostPinned};
  options.sampling.timeout_ns = 3'000'000'000;
  BandwidthReport report = run_suite(devices, options);
  ASSERT_EQ(report.records.size(), 4u);
  std::string bad = fmt::format("copy/cpu:1/{}/pinned/256K", GetParam());
  for (const MeasurementRecord& record : report.records) {
    bool is_bad = record.info.id == bad;
    EXPECT_EQ(record.status, is_bad ? MeasurementStatus::kTimeout : MeasurementStatus::kOk)
        << record.info.id << ": " << record.reason;
    if (!is_bad) continue;
    EXPECT_THAT(record.reason, HasSubstr("cpu:1 did not end its copies"));
  }
  EXPECT_EQ(bandwidth_exit_code(report, false), 5);
}

INSTANTIATE_TEST_SUITE_P(Directions, FaultyBandwidth, testing::Values("up", "down"),
                         [](const auto& test) { return std::string(test.param); });

TEST(BandwidthMemory, WhatDoesNotFitIsSkippedWithTheReason) {
  BandwidthOptions options = short_options("copy");
  options.sizes = {64 * kKiB, 8 * kMiB};
  options.kinds = {MemoryKind::kHostPinned};
  BandwidthReport report = run_suite(open_devices("cpu:1[memory=4M]"), options);
  const MeasurementRecord* large = report.find("copy/cpu:0/up/pinned/8M");
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->status, MeasurementStatus::kSkipped);
  EXPECT_THAT(large->reason, HasSubstr("--working-set"));
  EXPECT_TRUE(report.find("copy/cpu:0/up/pinned/64K")->is_ok());
  EXPECT_EQ(bandwidth_exit_code(report, false), 0);
  EXPECT_EQ(bandwidth_exit_code(report, true), 5);
  // Nothing can be pinned: skipped too, and what is not pinned goes on.
  options.sizes = {64 * kKiB};
  options.kinds = {MemoryKind::kHostPinned, MemoryKind::kHostPageable};
  report = run_suite(open_devices("cpu:1[memory=4M,pinned=4K]"), options);
  EXPECT_EQ(report.find("copy/cpu:0/up/pinned/64K")->status, MeasurementStatus::kSkipped);
  EXPECT_TRUE(report.find("copy/cpu:0/up/pageable/64K")->is_ok());
}

}  // namespace
}  // namespace stagecoach
