#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/decorated_backend.h"
#include "tests/bandwidth/bad_copies.h"
#include "tests/bandwidth/bandwidth_fixture.h"
#include "tools/bandwidth/overlap_measurement.h"
#include "tools/bandwidth/overlap_shares.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// 32 MiB/s up, 16 MiB/s down, a product of 33.6 MFLOP in 8.4 ms.
constexpr const char* kPaced = "cpu:1[memory=16M,h2d=32M,d2h=16M,flops=4G]";
constexpr double kUp = 32 * 1.048576e-3, kDown = kUp / 2, kCompute = 4e-3;
constexpr double kWithin = 0.1;

BandwidthOptions overlap_options(const std::string& filter, const std::string& suite = "overlap") {
  BandwidthOptions options = short_options(suite);
  options.working_set = kMiB;  // chunks of 64 KiB: 2 ms up
  options.max_host = 6 * kMiB;
  options.filter = filter;
  options.sampling.repetitions = 3;
  options.sampling.cv_limit = 1e9;
  options.sampling.warm_up_limit_ns = 0;
  return options;
}

/// What a pace decides, unless the host was too slow for it and says so.
void expect_pace(const MeasurementRecord& record, const std::string& quantity, double expected) {
  double found = median_of(record, quantity);
  EXPECT_GT(found, 0) << record.info.id << " " << quantity;
  EXPECT_LE(found, expected * (1 + kWithin)) << record.info.id << " " << quantity;
  if (record.has_flag(SampleFlag::kOverrun)) return;
  EXPECT_GE(found, expected * (1 - kWithin)) << record.info.id << " " << quantity;
}

// On a device with an engine for each direction and compute units of their own nothing loses.
TEST(PacedOverlap, CopiesAndProductsKeepTheirPaceBesideEachOther) {
  BandwidthOptions options = overlap_options("overlap/none/");
  options.sampling.batch_time_ns = 30'000'000;  // threads of a busy host see an end late
  BandwidthReport report = run_suite(open_devices(kPaced), options);
  EXPECT_EQ(report.records.size(), 7u);
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    OverlapPoint point = overlap_point_of(record);
    bool goes_up = point.copies == "up" || point.copies == "both";
    bool goes_down = point.copies == "down" || point.copies == "both";
    if (goes_up) expect_pace(record, "up", kUp);
    if (goes_down) expect_pace(record, "down", kDown);
    if (point.compute == "matmul") expect_pace(record, "compute", kCompute);
    if (point.copies == "none") continue;
    EXPECT_GT(record.check.bytes, 0) << record.info.id;
    EXPECT_EQ(record.check.wrong_bytes, 0) << record.info.id;
    EXPECT_NEAR(record.median(), median_of(record, "up") + median_of(record, "down"), 1e-3);
    EXPECT_EQ(record.info.directions, static_cast<int>(goes_up) + static_cast<int>(goes_down));
  }
}

// `quick` has one point and its parts, each beside what it keeps of its rate alone.
TEST(PacedOverlap, QuickMeasuresOnePointAndItsParts) {
  BandwidthReport report = run_suite(open_devices(kPaced), overlap_options("^overlap/", "quick"));
  std::vector<std::string> ids;
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.info.id << ": " << record.reason;
    ids.push_back(record.info.id);
  }
  EXPECT_THAT(ids, ElementsAre("overlap/none/none/matmul", "overlap/none/both/idle",
                               "overlap/update/none/idle", "overlap/update/both/matmul"));
  const MeasurementRecord& all = report.records.back();
  for (const char* part : {"host", "up", "down", "compute"}) {
    EXPECT_GT(median_of(all, part), 0) << part;
    EXPECT_GT(median_of(all, std::string(part) + "_kept"), 0) << part;
  }
  EXPECT_NEAR(all.samples[0][0], all.samples[1][0] + all.samples[2][0] + all.samples[3][0],
              1e-9 * all.samples[0][0]);
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(report.records[part].info.quantities.size(), part == 0 ? 1u : part == 1 ? 3u : 2u);
  }
}

TEST(PacedOverlap, ConversionsBesideCopiesAreCompared) {
  BandwidthReport report =
      run_suite(open_devices(kPaced), overlap_options("overlap/convert/up/idle"));
  ASSERT_EQ(report.records.size(), 1u);
  const MeasurementRecord& record = report.records.front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  // The bf16 that was made, 2 MiB arrays of fp32, and what went up: the whole ring or less.
  EXPECT_GT(record.check.bytes, kMiB);
  EXPECT_EQ(record.check.wrong_bytes, 0);
  expect_pace(record, "up", kUp);
  EXPECT_EQ(median_of(record, "host_kept"), 0) << "it was not measured alone";
}

TEST(FaultyOverlap, WrongBytesAreFoundAndCopiesThatNeverEndRunOutOfTime) {
  struct Case {
    Verdict::Kind fault;
    MeasurementStatus expected;
  };
  for (const Case& one : {Case{Verdict::Kind::kCorrupt, MeasurementStatus::kMismatch},
                          {Verdict::Kind::kNeverCompletes, MeasurementStatus::kTimeout}}) {
    auto devices = decorate_devices(open_devices(kPaced),
                                    std::make_shared<BadCopies>(0, "bandwidth up", one.fault));
    BandwidthOptions options = overlap_options("overlap/update/(up|none)/idle");
    options.sampling.timeout_ns = 2'000'000'000;
    BandwidthReport report = run_suite(devices, options);
    ASSERT_EQ(report.records.size(), 2u);
    EXPECT_TRUE(report.find("overlap/update/none/idle")->is_ok());
    EXPECT_EQ(report.find("overlap/update/up/idle")->status, one.expected);
  }
}

/// A point of the grid with its quantities' samples.
MeasurementRecord point_of(const OverlapPoint& point,
                           std::vector<std::pair<std::string, std::vector<double>>> quantities) {
  MeasurementRecord record;
  record.info.id = point.id();
  record.info.group = "overlap";
  record.info.params["host"] = point.host;
  record.info.params["dir"] = point.copies;
  record.info.params["compute"] = point.compute;
  record.status = MeasurementStatus::kOk;
  for (auto& [name, samples] : quantities) {
    record.info.quantities.push_back({name, "GB/s"});
    record.statistics.push_back(summarize(samples));
    record.samples.push_back(std::move(samples));
  }
  return record;
}

/// Threads that convert or update 60 GB/s alone, a link of 25.
BandwidthReport known_report(double host_beside_copies) {
  BandwidthReport report;
  for (const char* host : {"convert", "update"}) {
    report.records.push_back(
        point_of({host, "none", "idle"}, {{"memory", {60, 60}}, {"host", {60, 60}}}));
    double memory = host_beside_copies + 20;
    report.records.push_back(point_of(
        {host, "up", "idle"},
        {{"memory", {memory, memory}}, {"host", {host_beside_copies, 60}}, {"up", {20, 20}}}));
  }
  report.records.push_back(
      point_of({"none", "up", "idle"}, {{"memory", {25, 20}}, {"up", {25, 20}}}));
  add_kept_shares(report.records);
  return report;
}

TEST(OverlapShares, AreOfWhatThePartHasAlone) {
  BandwidthReport report = known_report(30);
  const MeasurementRecord* both = report.find("overlap/update/up/idle");
  ASSERT_EQ(both->info.quantities.size(), 5u);
  EXPECT_EQ(both->info.quantities[3].name, "host_kept");
  EXPECT_THAT(both->samples[3], ElementsAre(0.5, 1));
  EXPECT_THAT(both->samples[4], ElementsAre(20 / 22.5, 20 / 22.5));
  EXPECT_EQ(report.find("overlap/none/up/idle")->info.quantities.size(), 2u) << "it is alone";
}

// Noisy points have more samples than calm ones, and all of them count.
TEST(OverlapShares, HaveAllSamplesAndTheRatioOfTheMedians) {
  std::vector<MeasurementRecord> records = {
      point_of({"update", "none", "idle"}, {{"memory", {60, 10, 60}}, {"host", {60, 10, 60}}}),
      point_of({"update", "up", "idle"},
               {{"memory", {80, 40, 45, 50, 44, 46}}, {"host", {60, 20, 25, 30, 24, 26}}})};
  add_kept_shares(records);
  const MeasurementRecord& both = records[1];
  ASSERT_EQ(both.info.quantities.back().name, "host_kept");
  EXPECT_EQ(both.statistics.back().n, both.statistics[1].n);
  EXPECT_DOUBLE_EQ(both.median(2), both.median(1) / records[0].median(1));
}

TEST(OverlapShares, SayWhatIsTheLimitAndWhetherConvertingKeepsUp) {
  auto texts = [](const BandwidthReport& report) {
    std::vector<std::string> all;
    for (const Finding& finding : find_overlap(report)) all.push_back(finding.text);
    return all;
  };
  BandwidthReport hindered = known_report(30);
  const MeasurementRecord* joint = joint_traffic(hindered);
  ASSERT_NE(joint, nullptr);
  EXPECT_EQ(joint->info.id, "overlap/update/up/idle");
  EXPECT_TRUE(is_joint_limit(hindered, *joint));
  EXPECT_THAT(texts(hindered), Contains(HasSubstr("move 50 GB/s of the host's memory together")));
  // 45 GB/s of memory are 15 of bf16: less than the link.
  EXPECT_THAT(texts(hindered), Contains(HasSubstr("convert 15 GB/s to bf16 beside uploads, links "
                                                  "carry 22.5: converting on the fly would hold")));
  BandwidthReport free = known_report(70);
  EXPECT_FALSE(is_joint_limit(free, *joint_traffic(free)));
  EXPECT_THAT(texts(free), Contains(HasSubstr("it may carry more")));
  EXPECT_THAT(texts({}), testing::IsEmpty());
}

}  // namespace
}  // namespace stagecoach
