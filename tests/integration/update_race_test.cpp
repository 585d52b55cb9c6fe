// Passes and updates at the same time, under the happens-before checker: no race, and delays change
// no bit (docs/consistency.md).
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "core/clock.h"
#include "tests/integration/race_check_fixture.h"

namespace stagecoach::testing {
namespace {

TinyRun overlapping_run(const std::string& schedule, const std::string& update, int rounds,
                        int devices) {
  TinyRun run;
  run.devices = fmt::format("cpu:{}", devices);
  run.iterations = 4;
  run.options.times_layers = false;
  run.options.schedule = schedule;
  run.options.update = update;
  run.options.rounds = rounds;
  return run;
}

std::string describe(const TinyRun& run) {
  return fmt::format("{} {} rounds {} on {}", run.options.schedule, run.options.update,
                     run.options.rounds, run.devices);
}

/// Every schedule that trains, update mode, one and two rounds, one to three devices: what exists.
std::vector<TinyRun> all_runs() {
  std::vector<TinyRun> runs;
  for (std::string_view schedule : trained_schedules()) {
    for (const char* update : {"overlap", "async", "barrier"}) {
      for (int rounds : {1, 2}) {
        for (int devices : {1, 2, 3}) {
          if (schedule == "single" && devices > 1) continue;
          // It takes as many micro-batches as devices, or a multiple.
          if (schedule == "interleaved" && devices == 3) continue;
          runs.push_back(overlapping_run(std::string(schedule), update, rounds, devices));
        }
      }
    }
  }
  return runs;
}

/// The weights of a plain run: schedule and devices do not enter into them, nor does overlap.
const std::string& expected_weights(const TinyRun& run) {
  static std::map<std::pair<bool, int64_t>, std::string> known;
  bool is_async = run.options.update == "async";
  std::string& weights = known[{is_async, run.options.rounds}];
  if (weights.empty()) {
    TinyRun plain = overlapping_run("single", is_async ? "async" : "barrier",
                                    static_cast<int>(run.options.rounds), 1);
    weights = train_checked(plain).weights_sha256;
  }
  return weights;
}

TEST(SlowUpdateRace, EveryScheduleAndModeIsFreeOfRaces) {
  for (const TinyRun& run : all_runs()) {
    CheckedRun checked = train_checked(run);
    expect_clean(checked, describe(run));
    EXPECT_EQ(checked.weights_sha256, expected_weights(run)) << describe(run);
  }
}

TEST(UpdateRace, DelaysChangeNoBitAndMakeNoRace) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    for (const char* update : {"overlap", "async"}) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        TinyRun run = overlapping_run(schedule, update, 1 + static_cast<int>(seed / 3), 2);
        const std::string expected = expected_weights(run);
        CheckedRun checked = train_checked(run, draw_delays(seed, run));
        expect_clean(checked, describe(run));
        EXPECT_EQ(checked.weights_sha256, expected) << describe(run) << ", seed " << seed;
      }
    }
  }
}

// tests/proof/delayed_runs.sh asks for thousands.
TEST(SlowUpdateRace, ManyDelayedRuns) {
  int64_t asked = count_from_environment("STAGECOACH_DELAYED_RUNS", 40);
  int64_t seconds = count_from_environment("STAGECOACH_DELAYED_SECONDS", 10);
  auto first = static_cast<uint64_t>(count_from_environment("STAGECOACH_DELAYED_SEED", 1));
  std::vector<TinyRun> runs = all_runs();
  int64_t end_ns = RealClock::instance().now_ns() + seconds * 1'000'000'000;
  int64_t made = 0, reports = 0, different = 0;
  for (; made < asked && RealClock::instance().now_ns() < end_ns; ++made) {
    uint64_t seed = first + static_cast<uint64_t>(made);
    // Consecutive seeds go round the kinds of delays, and by a step without a common divisor round
    // all runs.
    TinyRun run = runs[seed * 7 % runs.size()];
    const std::string expected = expected_weights(run);
    CheckedRun checked = train_checked(run, draw_delays(seed + seed / 4, run));
    expect_clean(checked, fmt::format("{}, seed {}", describe(run), seed));
    EXPECT_EQ(checked.weights_sha256, expected) << describe(run) << ", seed " << seed;
    reports += checked.races;
    if (checked.weights_sha256 != expected) ++different;
  }
  std::printf("%lld delayed runs over %zu configurations: %lld races, %lld with other weights\n",
              static_cast<long long>(made), runs.size(), static_cast<long long>(reports),
              static_cast<long long>(different));
  EXPECT_GT(made, 0);
}

}  // namespace
}  // namespace stagecoach::testing
