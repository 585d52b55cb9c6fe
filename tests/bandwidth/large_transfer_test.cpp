#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>

#include "backends/sim/sim_backend.h"
#include "memory/pageable_memory.h"
#include "testing/decorated_backend.h"
#include "testing/interceptor.h"
#include "tests/bandwidth/bandwidth_fixture.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/pinned_memory.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

/// Remembers the copies that streams were given.
class CopyWitness final : public Interceptor {
 public:
  Verdict before(const VerbCall& call) override {
    std::lock_guard lock(mutex_);
    if (call.verb != verbs::kCopy || call.label.view() != "bandwidth up") return {};
    for (const MemoryUse& use : call.uses) ++offsets[use.view.offset];
    largest = std::max(largest, call.size_bytes);
    return {};
  }
  void after(const VerbCall&, const Status&) override {}

  std::map<ByteCount, int64_t> offsets;
  ByteCount largest = 0;

 private:
  std::mutex mutex_;
};

// Nothing is allocated: the device is simulated.
TEST(LargeTransfers, BeyondEightGibibytesAreIssuedAsTheyAre) {
  SimMachineProfile profile;
  SimCard card = find_sim_card("rtx4090").value();
  card.memory_bytes = 256 * kGiB;
  card.link_bytes_per_s = 25e9;
  card.duplex_bytes_per_s = 50e9;
  profile.cards = {card};
  profile.copy_latency_ns = 0;
  auto witness = std::make_shared<CopyWitness>();
  auto devices = decorate_devices(open_sim_devices(std::make_shared<SimMachine>(profile)), witness);
  BandwidthOptions options = short_options("copy");
  options.working_set = 36 * kGiB;
  options.sizes = {12 * kGiB};
  BandwidthReport report = run_suite(devices, options);
  ASSERT_EQ(report.records.size(), 6u);
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    EXPECT_THAT(record.info.id, HasSubstr("/12G"));
    EXPECT_EQ(record.info.payload_bytes, 12 * kGiB);
    EXPECT_NEAR(record.median(), 25, 0.5);
  }
  EXPECT_EQ(witness->largest, 12 * kGiB);
  std::vector<ByteCount> seen;
  for (const auto& [offset, count] : witness->offsets) seen.push_back(offset);
  EXPECT_THAT(seen, testing::IsSubsetOf({ByteCount{0}, 12 * kGiB, 24 * kGiB}));
  EXPECT_GE(seen.size(), 2u) << "copies go round the ring";
  Json json = bandwidth_json(report, false);
  EXPECT_EQ(json.find("results")->items()[0].find("params")->find("size")->as_integer(), 12 * kGiB);
}

TEST(LargeTransfers, RefusedMemorySaysWhatWasAskedForAndWhatThereIs) {
  auto devices = open_devices("cpu:1[memory=16M,pinned=1M]");
  Device& device = *devices.front();
  Status pinned =
      require_pinned(device.allocate_pinned(9 * kGiB, "large"), device, 9 * kGiB).status();
  EXPECT_THAT(pinned.message(), HasSubstr("cpu:0 refuses 9.00 GiB (9663676416 bytes) of pinned"));
  EXPECT_THAT(pinned.message(), HasSubstr("bytes of host memory are free by "));
  Status own =
      require_buffer(device.allocate(9 * kGiB, "large"), device, 9 * kGiB, "large").status();
  EXPECT_THAT(own.message(), HasSubstr("9663676416 bytes asked"));
  EXPECT_THAT(own.message(), HasSubstr("16777216 device bytes free"));
  // No address space is so large.
  Status pages = PageableMemory::create(ByteCount{1} << 60).status();
  EXPECT_THAT(pages.message(), HasSubstr("(1152921504606846976 bytes) cannot be had"));
  EXPECT_THAT(pages.message(), HasSubstr("bytes are free by "));
}

// Half of what was asked for, or half of that, rather than nothing.
TEST(LargeTransfers, WhatCannotBeHadIsHalvedAndTheRecordSaysSo) {
  BandwidthOptions options = short_options("copy");
  options.working_set = 2 * kMiB;
  options.sizes = {256 * kKiB, kMiB};
  options.kinds = {MemoryKind::kHostPinned};
  BandwidthReport report = run_suite(open_devices("cpu:1[memory=16M,pinned=1M]"), options);
  const MeasurementRecord* small = report.find("copy/cpu:0/down/pinned/256K");
  ASSERT_NE(small, nullptr);
  ASSERT_TRUE(small->is_ok()) << small->reason;
  EXPECT_EQ(small->info.params.find("working_set")->as_integer(), 512 * kKiB);
  EXPECT_EQ(small->info.params.find("working_set_wanted")->as_integer(), 2 * kMiB);
  EXPECT_THAT(small->info.params.find("shortage")->as_string(), HasSubstr("refuses 2.00 MiB"));
  EXPECT_GT(small->check.bytes, 0);
  const MeasurementRecord* large = report.find("copy/cpu:0/up/pinned/1M");
  EXPECT_EQ(large->status, MeasurementStatus::kSkipped);
  EXPECT_THAT(large->reason, HasSubstr("2.00 MiB were wanted"));
  std::string text;
  for (const Finding& one : find_problems(report)) text += one.text;
  EXPECT_THAT(text, HasSubstr("copies went round 512.00 KiB instead of 2.00 MiB"));
}

// Pinned memory is refused altogether: other kinds take its place, and a finding says so.
TEST(LargeTransfers, WithoutPinnedMemoryOtherKindsTakeItsPlace) {
  BandwidthOptions options = short_options("quick");
  options.filter = "^copy/";
  BandwidthReport report = run_suite(open_devices("cpu:1[memory=16M,pinned=4K]"), options);
  int skipped = 0, measured = 0;
  for (const MeasurementRecord& record : report.records) {
    // A mock's limit is one of registered memory too.
    bool is_locked = record.info.params.find("kind")->as_string() != "pageable";
    EXPECT_EQ(record.status, is_locked ? MeasurementStatus::kSkipped : MeasurementStatus::kOk)
        << record.info.id << record.reason;
    ++(is_locked ? skipped : measured);
  }
  EXPECT_EQ(skipped, 6 + 2);
  EXPECT_EQ(measured, 2);
  std::string text;
  for (const Finding& one : find_problems(report)) text += one.text + one.remedy;
  EXPECT_THAT(text, HasSubstr("cpu:0 has no pinned memory for copies"));
  EXPECT_THAT(text, HasSubstr("with `stagecoach bench bandwidth pin`"));
  // Where there is some, nothing else is measured.
  report = run_suite(open_devices("cpu:1[memory=16M]"), options);
  EXPECT_EQ(report.records.size(), 6u);
}

}  // namespace
}  // namespace stagecoach
