#include "tools/bandwidth/sampler.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A measurement whose batches the test writes; a repeat takes `repeat_ns`.
class ScriptedMeasurement final : public Measurement {
 public:
  using Value = std::function<double(int batch)>;

  ScriptedMeasurement(const std::string& id, Value value, int64_t repeat_ns = 1'000'000)
      : Measurement(info_of(id)), value_(std::move(value)), repeat_ns_(repeat_ns) {}

  Status prepare() override { return prepared; }
  Result<Batch> run(int64_t repeats, int64_t) override {
    if (batches == fails_at) return failure;
    if (order != nullptr) order->push_back(info().id);
    last_repeats = repeats;
    Batch batch;
    batch.duration_ns = repeats * repeat_ns_;
    batch.samples = {{value_(batches++)}};
    return batch;
  }
  Status poison() override {
    ++poisoned;
    return Status::ok();
  }
  Result<DataCheck> check(int64_t) override {
    DataCheck check;
    check.bytes = 100;
    if (poisoned == corrupt_at) {
      check.wrong_bytes = 3;
      check.first_wrong = 17;
      check.flipped_bits = 0x40;
    }
    return check;
  }

  Status prepared, failure = internal_error("broken");
  int batches = 0, fails_at = -1, poisoned = 0, corrupt_at = -1;
  int64_t last_repeats = 0;
  std::vector<std::string>* order = nullptr;

 private:
  static MeasurementInfo info_of(const std::string& id) {
    MeasurementInfo info;
    info.id = id;
    info.quantities = {{"rate", "GB/s"}};
    info.limit = 60;
    return info;
  }
  Value value_;
  int64_t repeat_ns_;
};

double steady(int) {
  return 50;
}

/// The record of one measurement.
MeasurementRecord sample(std::unique_ptr<ScriptedMeasurement> measurement,
                         const RepetitionOptions& options = {}) {
  MeasurementGroup group;
  group.push_back(std::move(measurement));
  return run_group(group, options).front();
}

TEST(Sampler, RepeatsUntilBatchesAndTimeAreLongEnough) {
  auto measurement = std::make_unique<ScriptedMeasurement>("a", steady);
  ScriptedMeasurement& scripted = *measurement;
  MeasurementGroup group;
  group.push_back(std::move(measurement));
  MeasurementRecord record = run_group(group, {}).front();
  EXPECT_TRUE(record.is_ok());
  // 25 repeats of 1 ms make a batch of 25 ms, 12 of which make 300 ms.
  EXPECT_EQ(record.repeats, 25);
  EXPECT_EQ(record.statistics.front().n, 12);
  EXPECT_EQ(record.median(), 50);
  EXPECT_EQ(record.check.bytes, 100);
  EXPECT_EQ(scripted.poisoned, 1);
  EXPECT_TRUE(record.flags.empty());
}

TEST(Sampler, SlowWorkGetsItsRepetitionsAllTheSame) {
  MeasurementRecord record =
      sample(std::make_unique<ScriptedMeasurement>("a", steady, 1'000'000'000));
  EXPECT_EQ(record.repeats, 1);
  EXPECT_EQ(record.statistics.front().n, 7);
}

TEST(Sampler, MeasurementsTakeTurnsInAnOrderThatASeedDecides) {
  auto order_of = [](uint64_t seed, bool interleaves) {
    std::vector<std::string> order;
    MeasurementGroup group;
    for (const char* id : {"a", "b", "c"}) {
      group.push_back(std::make_unique<ScriptedMeasurement>(id, steady, 100'000'000));
      static_cast<ScriptedMeasurement&>(*group.back()).order = &order;
    }
    RepetitionOptions options;
    options.seed = seed;
    options.interleaves = interleaves;
    run_group(group, options);
    // What comes before the repetitions finds repeats and warms up, one after the other.
    return std::vector<std::string>(order.end() - 21, order.end());
  };
  EXPECT_EQ(order_of(1, true), order_of(1, true));
  EXPECT_NE(order_of(1, true), order_of(2, true));
  std::vector<std::string> turns = order_of(3, true);
  for (auto round = turns.begin(); round != turns.end(); round += 3) {
    EXPECT_THAT(std::vector<std::string>(round, round + 3),
                testing::UnorderedElementsAre("a", "b", "c"));
  }
  std::vector<std::string> one_by_one = order_of(1, false);
  EXPECT_TRUE(std::is_sorted(one_by_one.begin(), one_by_one.end()));
}

TEST(Sampler, NoisyOnesAreRepeatedAndKeepAllSamples) {
  auto noisy = [](int batch) { return batch % 2 == 0 ? 40.0 : 60.0; };
  RepetitionOptions options;
  options.warm_up_limit_ns = 0;
  MeasurementRecord record =
      sample(std::make_unique<ScriptedMeasurement>("a", noisy, 100'000'000), options);
  EXPECT_EQ(record.statistics.front().n, 28);
  EXPECT_TRUE(record.has_flag(SampleFlag::kNoisy));
  EXPECT_TRUE(record.has_flag(SampleFlag::kBimodal));
  EXPECT_TRUE(record.has_flag(SampleFlag::kNotSettled));
}

TEST(Sampler, ImplausibleRatesAreFlagged) {
  auto fast = [](int) { return 61.5; };
  EXPECT_TRUE(
      sample(std::make_unique<ScriptedMeasurement>("a", fast)).has_flag(SampleFlag::kImplausible));
  auto possible = [](int) { return 61.0; };
  EXPECT_FALSE(sample(std::make_unique<ScriptedMeasurement>("a", possible))
                   .has_flag(SampleFlag::kImplausible));
}

TEST(Sampler, OneThatFailsLeavesTheOthersAlone) {
  MeasurementGroup group;
  for (const char* id : {"good", "broken", "absent", "late", "wrong", "later"}) {
    group.push_back(std::make_unique<ScriptedMeasurement>(id, steady));
  }
  auto at = [&](size_t i) -> ScriptedMeasurement& {
    return static_cast<ScriptedMeasurement&>(*group[i]);
  };
  at(1).fails_at = 8;
  at(2).prepared = resource_exhausted("no room for 1 GiB");
  at(3).fails_at = 0;
  at(3).failure = deadline_exceeded("no end");
  at(4).corrupt_at = 1;
  std::vector<MeasurementRecord> records = run_group(group, {});
  EXPECT_TRUE(records[0].is_ok());
  EXPECT_EQ(records[1].status, MeasurementStatus::kFailed);
  EXPECT_EQ(records[2].status, MeasurementStatus::kSkipped);
  EXPECT_EQ(records[2].reason, "no room for 1 GiB");
  EXPECT_EQ(records[3].status, MeasurementStatus::kTimeout);
  EXPECT_EQ(records[4].status, MeasurementStatus::kMismatch);
  EXPECT_THAT(records[4].reason, HasSubstr("3 of 100 bytes arrived wrong, the first at offset 17"));
  EXPECT_THAT(records[4].reason, HasSubstr("0x40"));
  EXPECT_TRUE(records[5].is_ok());
}

TEST(Sampler, VerifyingEachRepetitionFindsWhatTheLastOneHides) {
  auto corrupt_once = [] {
    auto measurement = std::make_unique<ScriptedMeasurement>("a", steady);
    measurement->corrupt_at = 2;
    return measurement;
  };
  RepetitionOptions options;
  EXPECT_TRUE(sample(corrupt_once(), options).is_ok());
  options.verify = VerifyMode::kEach;
  EXPECT_EQ(sample(corrupt_once(), options).status, MeasurementStatus::kMismatch);
  options.verify = VerifyMode::kOff;
  EXPECT_EQ(sample(corrupt_once(), options).check.bytes, 0);
}

TEST(Sampler, InterruptionKeepsWhatIsDone) {
  MeasurementGroup group;
  int batches = 0;
  auto count = [&batches](int) {
    ++batches;
    return 50.0;
  };
  group.push_back(std::make_unique<ScriptedMeasurement>("a", count, 100'000'000));
  group.push_back(std::make_unique<ScriptedMeasurement>("b", count, 100'000'000));
  RepetitionOptions options;
  options.interleaves = false;
  // Both have warmed up, and the first has its seven.
  options.is_cancelled = [&batches] { return batches >= 15; };
  std::vector<MeasurementRecord> records = run_group(group, options);
  EXPECT_TRUE(records[0].is_ok());
  EXPECT_EQ(records[1].status, MeasurementStatus::kNotRun);
  EXPECT_EQ(records[1].reason, "interrupted");
}

// Samples that were taken are not thrown away.
TEST(Sampler, InterruptionInTheMiddleKeepsTheSamplesTaken) {
  MeasurementGroup group;
  int batches = 0;
  auto count = [&batches](int) {
    ++batches;
    return 50.0;
  };
  group.push_back(std::make_unique<ScriptedMeasurement>("a", count, 100'000'000));
  RepetitionOptions options;
  // One batch finds the repeats, three warm up, three count.
  options.is_cancelled = [&batches] { return batches >= 7; };
  MeasurementRecord record = run_group(group, options).front();
  EXPECT_TRUE(record.is_ok());
  EXPECT_TRUE(record.has_flag(SampleFlag::kInterrupted));
  EXPECT_EQ(record.statistics.front().n, 3);
  EXPECT_EQ(record.median(), 50);
}

}  // namespace
}  // namespace stagecoach
