#include "tools/bandwidth/compare.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MeasurementRecord record_of(const std::string& id, const std::string& unit,
                            const std::vector<double>& samples) {
  MeasurementRecord record;
  record.info.id = id;
  record.info.group = "copy";
  record.info.quantities = {{"rate", unit}};
  record.status = MeasurementStatus::kOk;
  record.samples = {samples};
  record.statistics = {summarize(samples)};
  return record;
}

std::vector<double> around(double middle) {
  return {middle * 0.995, middle,         middle * 1.005, middle * 0.998,
          middle * 1.002, middle * 0.999, middle * 1.001};
}

TEST(RankTest, IsMannWhitneys) {
  // Seven against seven with no overlap: U = 0, mean 24.5, variance 7 * 7 * 15 / 12 = 61.25.
  EXPECT_NEAR(rank_test(around(1), around(2)), std::erfc(24 / std::sqrt(61.25) / std::sqrt(2.0)),
              1e-12);
  EXPECT_GT(rank_test(around(1), around(1)), 0.9);
  EXPECT_EQ(rank_test(std::vector<double>(7, 1), std::vector<double>(7, 1)), 1);
  EXPECT_EQ(rank_test(std::vector<double>{1, 2}, around(5)), 1);
}

TEST(ReportComparisons, TellWorseFromBetterAndFromChance) {
  BandwidthReport before, after;
  before.records = {record_of("slower", "GB/s", around(55)),
                    record_of("faster", "GB/s", around(25)),
                    record_of("longer", "ms", around(0.3)),
                    record_of("little", "GB/s", around(55)),
                    record_of("noise", "GB/s", {30, 60, 55, 20, 50, 58, 25}),
                    record_of("gone", "GB/s", around(1))};
  after.records = {record_of("slower", "GB/s", around(44)),
                   record_of("faster", "GB/s", around(50)),
                   record_of("longer", "ms", around(3)),
                   record_of("little", "GB/s", around(54)),
                   record_of("noise", "GB/s", {60, 25, 30, 58, 22, 28, 24}),
                   record_of("new", "GB/s", around(1))};
  ReportComparison comparison = compare_reports(before, after, 0.05);
  auto verdict = [&](size_t i) { return comparison.results[i].verdict; };
  ASSERT_EQ(comparison.results.size(), 5u);
  EXPECT_EQ(verdict(0), ComparisonVerdict::kWorse);
  EXPECT_NEAR(comparison.results[0].ratio, 0.8, 1e-9);
  EXPECT_LT(comparison.results[0].ratio_high, 1);
  EXPECT_EQ(verdict(1), ComparisonVerdict::kBetter);
  EXPECT_EQ(verdict(2), ComparisonVerdict::kWorse);
  EXPECT_EQ(verdict(3), ComparisonVerdict::kSame);
  EXPECT_EQ(verdict(4), ComparisonVerdict::kSame);
  EXPECT_THAT(comparison.only_before, ElementsAre("gone"));
  EXPECT_THAT(comparison.only_after, ElementsAre("new"));
  EXPECT_EQ(comparison.count(ComparisonVerdict::kWorse), 2);
  add_regressions(comparison, after);
  ASSERT_EQ(after.findings.size(), 2u);
  EXPECT_THAT(after.findings[1].text, HasSubstr("slower is 44 GB/s, in the baseline 55"));
  // Without samples the intervals decide.
  for (BandwidthReport* report : {&before, &after}) {
    for (MeasurementRecord& record : report->records) record.samples = {{}};
  }
  comparison = compare_reports(before, after, 0.05);
  EXPECT_FALSE(comparison.results[0].p.has_value());
  EXPECT_EQ(comparison.results[0].verdict, ComparisonVerdict::kWorse);
  EXPECT_EQ(comparison.results[4].verdict, ComparisonVerdict::kSame);
}

}  // namespace
}  // namespace stagecoach
