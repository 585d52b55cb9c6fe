#include "tools/bandwidth/compare.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bandwidth/rank_test.h"

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
  // Seven against seven with no overlap: 2 of the 3432 ways to divide them are as far apart.
  EXPECT_NEAR(*rank_test(around(1), around(2)), 2 / 3432.0, 1e-12);
  EXPECT_GT(*rank_test(around(1), around(1)), 0.9);
  EXPECT_EQ(*rank_test(std::vector<double>(7, 1), std::vector<double>(7, 1)), 1);
  // 4 against 4, all but the middle two apart: U = 1, and 2 * 2 of 70 are as far.
  EXPECT_NEAR(*rank_test(std::vector<double>{1, 2, 3, 5}, std::vector<double>{4, 6, 7, 8}),
              4 / 70.0, 1e-12);
  // Ties share ranks: 1 1 1 2 | 2 3 3 3, where U is 0.5, which the 4 ways with one 2 each and the
  // other way round are.
  EXPECT_NEAR(*rank_test(std::vector<double>{1, 1, 1, 2}, std::vector<double>{2, 3, 3, 3}),
              4 / 70.0, 1e-12);
  std::vector<double> low, high;
  for (int i = 0; i < 30; ++i) {
    low.push_back(i);
    high.push_back(i + 0.5);
  }
  // Where all divisions are not counted the approximation says the same.
  EXPECT_GT(*rank_test(low, high), 0.5);
}

TEST(RankTest, SaysNothingWhereItCannotDecide) {
  EXPECT_FALSE(rank_test(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6}).has_value());
  EXPECT_FALSE(rank_test(std::vector<double>{1, 2}, around(5)).has_value());
  EXPECT_FALSE(rank_test(std::vector<double>{}, around(5)).has_value());
  EXPECT_NEAR(*rank_test(std::vector<double>{1, 2, 3, 4}, std::vector<double>{5, 6, 7, 8}),
              2 / 70.0, 1e-12);
}

// Ten times as slow in three samples each is worse, although ranks alone could not tell.
TEST(ReportComparisons, ThreeSamplesAreJudgedByTheirInterval) {
  BandwidthReport before, after;
  before.records = {record_of("slower", "GB/s", {50, 51, 52}),
                    record_of("products", "TFLOP/s", {50, 51, 52})};
  after.records = {record_of("slower", "GB/s", {5, 5.1, 5.2}),
                   record_of("products", "TFLOP/s", {90, 91, 92})};
  ReportComparison comparison = compare_reports(before, after, 0.05);
  EXPECT_FALSE(comparison.results[0].p.has_value());
  EXPECT_EQ(comparison.results[0].verdict, ComparisonVerdict::kWorse);
  EXPECT_EQ(comparison.results[1].verdict, ComparisonVerdict::kBetter);
}

TEST(ReportComparisons, WhatIsLostIsWorse) {
  BandwidthReport before, after;
  before.records = {record_of("kept", "GB/s", around(1)), record_of("failed", "GB/s", around(1)),
                    record_of("skipped", "GB/s", around(1)), record_of("gone", "GB/s", around(1))};
  after.records = before.records;
  after.records.pop_back();
  after.records[1].status = MeasurementStatus::kFailed;
  after.records[1].reason = "the driver\x1b[31m says so";
  after.records[2].status = MeasurementStatus::kSkipped;
  ReportComparison comparison = compare_reports(before, after, 0.05);
  EXPECT_EQ(comparison.count_worse(), 3);
  std::string table = comparison_table(comparison);
  EXPECT_THAT(table, HasSubstr("was ok before, now failed: the driver\\x1b[31m says so: worse"));
  EXPECT_THAT(table, HasSubstr("was ok before, now skipped: worse"));
  EXPECT_THAT(table, HasSubstr("was ok before, now missing: worse"));
  EXPECT_EQ(comparison_json(comparison).find("worse")->as_integer(), 3);
  EXPECT_EQ(comparison_json(comparison).find("lost")->items().size(), 3u);
  add_regressions(comparison, after);
  EXPECT_EQ(after.findings.size(), 3u);
  EXPECT_FALSE(comparison.is_empty());
  after.records = {record_of("other", "GB/s", around(1))};
  EXPECT_TRUE(compare_reports(before, after, 0.05).is_empty());
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
  EXPECT_EQ(comparison.count_worse(), 3);
  add_regressions(comparison, after);
  ASSERT_EQ(after.findings.size(), 3u);
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
