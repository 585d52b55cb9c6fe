#include "tools/bandwidth/copy_paths.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/sim/sim_backend.h"
#include "tests/bandwidth/bandwidth_fixture.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// Copies that take `latency_us` and their bytes at `gb_per_s`, of four sizes.
void add_path(const char* direction, const char* kind, const char* engine, double latency_us,
              double gb_per_s, BandwidthReport& report) {
  for (ByteCount size : {4 * kKiB, 64 * kKiB, kMiB, 64 * kMiB}) {
    MeasurementRecord record;
    record.info.group = "copy";
    record.info.id = fmt::format("copy/{}/{}/{}/{}", direction, kind, engine, size);
    record.info.params["device"] = "cuda:0";
    record.info.params["dir"] = direction;
    record.info.params["kind"] = kind;
    record.info.params["engine"] = engine;
    record.info.params["size"] = size;
    record.info.params["depth"] = Json();
    record.status = MeasurementStatus::kOk;
    auto bytes = static_cast<double>(size);
    record.samples = {{bytes / (latency_us + bytes / gb_per_s / 1e3) / 1e3}};
    record.statistics = {summarize(record.samples[0])};
    report.records.push_back(std::move(record));
  }
}

TEST(CopyPaths, LatencyAndRateAreRecovered) {
  BandwidthReport report;
  add_path("up", "pinned", "copy", 8, 50, report);
  add_path("up", "pinned", "kernel", 3, 30, report);
  add_path("down", "pageable", "copy", 0, 9, report);
  // Of copies that wait for each other the time is another.
  MeasurementRecord waiting = report.records.front();
  waiting.info.params["depth"] = 1;
  waiting.statistics[0].median = 1e-3;
  report.records.push_back(waiting);
  std::vector<CopyPath> paths = fit_copy_paths(report);
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_NEAR(paths[0].latency_us, 8, 1e-6);
  EXPECT_NEAR(paths[0].gb_per_s, 50, 1e-6);
  EXPECT_EQ(paths[0].sizes, 4);
  EXPECT_EQ(paths[1].engine, "kernel");
  EXPECT_NEAR(paths[1].time_us(4096), 3 + 4096 / 30e3, 1e-6);
  EXPECT_NEAR(paths[2].latency_us, 0, 1e-6);
  std::vector<std::string> texts;
  for (const Finding& finding : find_copy_paths(report)) texts.push_back(finding.text);
  EXPECT_EQ(texts.size(), 2u) << "down has one way, and nothing to choose from";
  EXPECT_THAT(texts,
              Contains(HasSubstr("4 KiB cuda:0 up take least by a kernel from pinned memory: "
                                 "3.14 us, 8.08 by the copy engine from pinned memory")));
  EXPECT_THAT(texts, Contains(HasSubstr("kernels copy 30 GB/s, the copy engine 50: no fault")));
}

TEST(CopyPaths, AdviceNeedsAClearDifferenceOfFiguresThatCanBeTrusted) {
  BandwidthReport report;
  add_path("up", "pinned", "copy", 8, 50, report);
  add_path("up", "pageable", "copy", 8.4, 50, report);
  EXPECT_TRUE(find_copy_paths(report).empty()) << "5 % are no reason";
  report.records.resize(4);
  add_path("up", "pageable", "copy", 20, 50, report);
  EXPECT_EQ(find_copy_paths(report).size(), 1u);
  report.records[5].flags = {SampleFlag::kOverrun};
  EXPECT_TRUE(find_copy_paths(report).empty());
  report.records[5].flags = {};
  report.records[4].info.params["size"] = kMiB / 4;
  EXPECT_TRUE(find_copy_paths(report).empty()) << "4 KiB were not measured";
}

TEST(CopyPaths, FewSizesTellNone) {
  BandwidthReport report;
  add_path("up", "pinned", "copy", 8, 50, report);
  report.records.resize(2);
  EXPECT_TRUE(fit_copy_paths(report).empty());
  EXPECT_TRUE(find_copy_paths(report).empty());
}

// Each byte is read and written once: both figures are there, by the memory's own rate.
TEST(LocalCopies, OfSimulatedCardsHaveTheirMemorysRate) {
  SimMachineProfile profile;
  SimCard card = find_sim_card("rtx4090").value();
  card.memory_bytes_per_s = 1000e9;
  profile.cards.assign(1, card);
  auto devices = open_sim_devices(std::make_shared<SimMachine>(profile));
  BandwidthOptions options = short_options("local");
  options.sizes = {256 * kMiB};  // long beside what it takes to begin
  BandwidthReport report = run_suite(devices, options);
  ASSERT_EQ(report.records.size(), 1u);
  const MeasurementRecord& record = report.records.front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  EXPECT_NEAR(record.median(0), 500, 500 * 0.05);
  EXPECT_NEAR(record.median(1), 2 * record.median(0), 1e-6);
  EXPECT_EQ(record.info.quantities[0].name, "payload");
  EXPECT_EQ(record.info.quantities[1].name, "dram");
}

TEST(LocalCopies, AreCompared) {
  BandwidthReport report = run_suite(open_devices("cpu:2[memory=16M]"), short_options("local"));
  ASSERT_EQ(report.records.size(), 2u);
  for (const MeasurementRecord& record : report.records) {
    ASSERT_TRUE(record.is_ok()) << record.reason;
    EXPECT_GT(record.check.bytes, 0);
    EXPECT_EQ(record.check.wrong_bytes, 0);
    EXPECT_EQ(record.info.params.find("engine")->as_string(), "copy");
  }
}

}  // namespace
}  // namespace stagecoach
