// Field report 64 and the issue of mixed cards: devices of unequal speed and memory, measured.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

TinyRun unequal_run(const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.model.n_layer = 12;
  run.options.batch = 18;
  run.options.micro_batches = 18;
  run.iterations = 6;
  return run;
}

/// A measurement that is worth something.
TinyResult measured(const TinyRun& run) {
  Result<TinyResult> result = train_paced(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  if (!result.is_ok()) return {};
  EXPECT_LE(result->report.overrun, kMaxOverrun) << run.devices << ": invalid measurement";
  EXPECT_GT(result->report.step_ns, 0);
  return std::move(result).value();
}

/// Device memory that holds stages of some layers, so that one device streams as well, and a pace
/// far below what the host computes.
constexpr const char* kPace = "memory=800K,flops=200M";

std::string devices_of(const std::vector<double>& speeds) {
  std::string text;
  for (double speed : speeds) {
    if (!text.empty()) text += ",";
    text += fmt::format("cpu:1[{},speed={}]", kPace, speed);
  }
  return text;
}

TEST(SlowUnequalDevices, ReachNineTenthsOfTheSumOfTheirSpeeds) {
  TinyResult one = measured(unequal_run(devices_of({1})));
  for (const std::vector<double>& speeds :
       {std::vector<double>{1, 0.5}, {0.5, 1}, {1, 0.25}, {0.25, 1}, {1, 1, 0.5}, {0.5, 1, 1}}) {
    std::string devices = devices_of(speeds);
    TinyResult several = measured(unequal_run(devices));
    double sum = 0;
    for (double speed : speeds) sum += speed;
    double ratio = one.report.step_ns / several.report.step_ns;
    EXPECT_GE(ratio, 0.9 * sum) << devices;
    EXPECT_GE(ratio, 1) << devices;
    EXPECT_EQ(several.weights_sha256, one.weights_sha256) << devices;
    RecordProperty(devices, std::to_string(ratio / sum));
  }
}

TEST(SlowUnequalDevices, TheirOrderDoesNotMatter) {
  TinyResult forth = measured(unequal_run(devices_of({1, 0.5, 0.25})));
  TinyResult back = measured(unequal_run(devices_of({0.25, 1, 0.5})));
  EXPECT_NEAR(forth.report.step_ns / back.report.step_ns, 1, 0.03);
  for (auto [left, right] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{2, 0}}) {
    EXPECT_NEAR(forth.report.shares[left].work, back.report.shares[right].work, 0.02);
  }
}

// Memories as 24 : 8. The small device takes the small stages.
TEST(SlowUnequalDevices, ThoseOfUnequalMemoryShareTheWork) {
  TinyResult one = measured(unequal_run("cpu:1[memory=600K,flops=200M]"));
  for (const char* devices : {"cpu:1[memory=600K,flops=200M],cpu:1[memory=200K,flops=200M]",
                              "cpu:1[memory=200K,flops=200M],cpu:1[memory=600K,flops=200M]"}) {
    TinyResult both = measured(unequal_run(devices));
    EXPECT_GE(one.report.step_ns / both.report.step_ns, 0.9 * 2) << devices;
    EXPECT_EQ(both.weights_sha256, one.weights_sha256) << devices;
    for (size_t device = 0; device < 2; ++device) {
      EXPECT_GT(both.report.shares[device].work, 0.3) << devices;
    }
    RecordProperty(devices, std::to_string(one.report.step_ns / both.report.step_ns / 2));
  }
}

TEST(UnequalDevices, AHopelessOneIsLeftOutWithAReason) {
  TinyRun run = unequal_run("cpu:1[memory=800K,flops=200M],cpu:1[memory=4K,flops=200M]");
  run.iterations = 2;
  Result<TinyResult> result = train_tiny(run);
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  EXPECT_FALSE(result->report.shares[1].used);
  EXPECT_THAT(result->report.shares[1].reason, HasSubstr("4.00 KiB"));
  EXPECT_EQ(result->plan.device_count(), 1);
  // The device that remains is measured as if it were alone.
  EXPECT_LT(result->bubbles.back(), 0.4);
}

// Speeds that nobody has told are found in the first iterations.
TEST(SlowUnequalDevices, SpeedsAreMeasured) {
  // A pace per device hides what the speed is relative to: no hint says 0.4.
  TinyResult result =
      measured(unequal_run("cpu:1[memory=800K,flops=200M],cpu:1[memory=800K,flops=80M]"));
  EXPECT_NEAR(result.report.shares[0].work, 1 / 1.4, 0.05);
  EXPECT_NEAR(result.report.shares[1].work, 0.4 / 1.4, 0.05);
}

// Field report 63: what was planned and what came of it.
TEST(SlowPlanAndLife, MemoryAndStepsAreAsPlanned) {
  struct Config {
    const char* devices;
    int64_t sequence, rounds;
    DType dtype;
  };
  for (const Config& config : {Config{"cpu:1[flops=80M]", 8, 1, DType::kF32},
                               Config{"cpu:2[flops=80M]", 16, 1, DType::kF32},
                               Config{"cpu:2[memory=320K,flops=80M]", 16, 2, DType::kF32},
                               Config{"cpu:1[memory=320K,flops=80M]", 16, 4, DType::kF32},
                               Config{"cpu:2[memory=320K,flops=80M]", 16, 1, DType::kBF16},
                               Config{"cpu:2[flops=80M,h2d=16M,d2h=16M]", 8, 1, DType::kF32}}) {
    TinyRun run = unequal_run(config.devices);
    run.model.n_layer = 6;
    run.options.sequence = config.sequence;
    run.options.rounds = config.rounds;
    run.options.micro_batches = 8;
    run.options.batch = 8;
    run.dtype = config.dtype;
    TinyResult result = measured(run);
    const TrainerReport& report = result.report;
    ASSERT_GT(report.step_predicted_ns, 0) << config.devices;
    double ratio = report.step_predicted_ns / report.step_ns;
    EXPECT_NEAR(ratio, 1, 0.1) << config.devices << " " << config.sequence;
    RecordProperty(fmt::format("{} rounds {}", config.devices, config.rounds),
                   std::to_string(ratio));
    for (size_t device = 0; device < report.device_peak_bytes.size(); ++device) {
      auto planned = static_cast<double>(report.device_planned_bytes[device]);
      auto peak = static_cast<double>(report.device_peak_bytes[device]);
      EXPECT_GE(planned, 0.97 * peak) << config.devices;
      EXPECT_LE(planned, 1.1 * peak) << config.devices;
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
