// Runs that are interrupted and go on give the bits of runs that are not.
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;
using testing::Not;

using Settings = std::vector<std::string>;

Settings operator+(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

class TrainResume : public testing::Test {
 protected:
  /// Trains in `out`, or goes on there, and returns the digest of the weights.
  std::string train(const std::string& out, const Settings& settings) {
    CommandResult result = folder_.train(settings + Settings{"output.dir=" + out});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    errors_ = result.errors;
    return folder_.json(out + "/summary.json").find("weights_sha256")->as_string();
  }
  /// That the iterations of the run in `out` computed with.
  std::vector<double> scales(const std::string& out) const {
    std::vector<double> scales;
    for (const Json& line : RunFolder::json_lines(folder_.read(out + "/metrics.jsonl"))) {
      const Json* scale = line.find("loss_scale");
      if (scale != nullptr) scales.push_back(scale->as_number());
    }
    EXPECT_EQ(scales.size(), 20u);
    return scales;
  }
  /// As `object` without the member `key`.
  static Json without(const Json& object, const std::string& key) {
    EXPECT_NE(object.find(key), nullptr) << key;
    Json rest = Json::object();
    for (const auto& [name, value] : object.members()) {
      if (name != key) rest[name] = value;
    }
    return rest;
  }

  RunFolder folder_;
  std::string errors_;
};

struct Mode : TrainResume, testing::WithParamInterface<const char*> {
  /// With a constant rate: with a decay, a run that is planned shorter learns at other rates.
  Settings mode() const {
    return {std::string("schedule.update=") + GetParam(), "optimizer.decay=constant",
            "output.save_every=0", "output.trace=false"};
  }
};

TEST_P(Mode, TenIterationsAndTenMoreAreTwentyBitForBit) {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* rounds : {"1", "2"}) {
      for (const char* clip : {"0", "0.5"}) {
        Settings settings = mode() + Settings{std::string("model.dtype=") + dtype,
                                              std::string("train.rounds=") + rounds,
                                              std::string("optimizer.clip_norm=") + clip};
        std::string out = std::string(dtype) + rounds + clip;
        SCOPED_TRACE(out);
        std::string whole = train(out + "-whole", settings);
        std::string half = train(out, settings + Settings{"train.iterations=10"});
        EXPECT_NE(half, whole);
        EXPECT_EQ(train(out, settings + Settings{"devices.use=cpu:3"}), whole);
        EXPECT_THAT(errors_, HasSubstr("continuing from"));
        EXPECT_THAT(errors_, Not(HasSubstr("newest")));
      }
    }
  }
}

// Skipped steps among them: the scale of a step, and of the one before it, go into the next.
TEST_P(Mode, TheLossScaleOfFp16IsResumedBitForBit) {
  for (const char* rounds : {"1", "2"}) {
    SCOPED_TRACE(rounds);
    Settings settings = mode() + Settings{"model.dtype=fp16", "train.loss_scale=1e9",
                                          std::string("train.rounds=") + rounds};
    std::string whole = train(std::string("whole") + rounds, settings);
    double skipped = folder_.json(std::string("whole") + rounds + "/summary.json")
                         .find("skipped_steps")
                         ->as_number();
    EXPECT_GE(skipped, 3);
    EXPECT_LT(skipped, 18);
    std::string out = std::string("parts") + rounds;
    for (const char* part : {"1", "2", "3", "15"}) {
      train(out, settings + Settings{std::string("train.iterations=") + part});
    }
    EXPECT_EQ(train(out, settings + Settings{"devices.use=cpu:3"}), whole);
    EXPECT_EQ(scales(out), scales(std::string("whole") + rounds));
  }
}

TEST_P(Mode, KilledAtAnyMomentItGoesOnFromAWholeCheckpoint) {
  Settings settings = mode() + Settings{"model.dtype=bf16", "train.iterations=40"};
  settings[2] = "output.save_every=1";
  std::string whole = train("whole", settings);
  settings.emplace_back("output.save_copy=1M");  // which changes no bit
  int killed = 0;
  for (int delay_ms = 20; delay_ms < 400; delay_ms += 37) {
    RunningCommand command(folder_.train_arguments(settings), folder_.path());
    usleep(static_cast<unsigned>(delay_ms) * 1000);
    command.send(SIGKILL);
    CommandResult result = command.wait();
    killed += result.signal == SIGKILL ? 1 : 0;
    ASSERT_TRUE(result.signal == SIGKILL || result.exit_code == 0) << result.errors;
  }
  EXPECT_GT(killed, 0);
  EXPECT_EQ(train("out", settings), whole);
  for (const std::string& name : folder_.list("out")) EXPECT_THAT(name, Not(HasSubstr(".tmp")));
}

INSTANTIATE_TEST_SUITE_P(TrainResume, Mode, testing::Values("barrier", "overlap", "async"),
                         [](const auto& mode) { return std::string(mode.param); });

// From async to the others: the next step computes with the newest weights, in both alike. The
// other way: as in the first step of a new async run, whichever of the others came before.
TEST_F(TrainResume, AnotherUpdateModeGoesOnFromTheNewestWeights) {
  Settings settings = {"model.dtype=bf16", "optimizer.decay=constant", "output.trace=false"};
  auto with = [&](const char* update, const char* iterations) {
    return settings + Settings{std::string("schedule.update=") + update,
                               std::string("train.iterations=") + iterations};
  };
  auto go_on = [&](const std::string& from, const char* update) {
    return train(from + "-" + update, with(update, "20") + Settings{"output.resume=" + from});
  };
  for (const char* update : {"barrier", "overlap", "async"}) train(update, with(update, "10"));
  std::string straight = train("straight", with("async", "20"));
  EXPECT_EQ(go_on("async", "async"), straight);
  std::string exact = go_on("async", "overlap");
  EXPECT_THAT(errors_, HasSubstr("schedule.update was \"async\" and is \"overlap\" now"));
  EXPECT_EQ(go_on("async", "barrier"), exact);
  EXPECT_NE(exact, straight);

  std::string late = go_on("overlap", "async");
  EXPECT_THAT(errors_, HasSubstr("holds no weights before the newest"));
  EXPECT_EQ(go_on("barrier", "async"), late);
  EXPECT_EQ(go_on("barrier", "overlap"), train("exact", with("barrier", "20")));
  EXPECT_NE(late, straight);
}

TEST_F(TrainResume, AsyncCheckpointsWithoutThePreviousWeightsStillLoad) {
  Settings settings = {"schedule.update=async", "optimizer.decay=constant"};
  std::string whole = train("whole", settings);
  train("out", settings + Settings{"train.iterations=10"});
  const std::string folder = "out/checkpoint-10/";
  ASSERT_TRUE(folder_.exists(folder + "previous.safetensors"));
  Json state = without(folder_.json(folder + "trainer_state.json"), "previous_sha256");
  state["files"] = without(*state.find("files"), "previous.safetensors");
  folder_.write(folder + "trainer_state.json", state.dump(true));
  ASSERT_EQ(::unlink(folder_.file(folder + "previous.safetensors").c_str()), 0);
  EXPECT_NE(train("out", settings), whole);
  EXPECT_THAT(errors_, HasSubstr("holds no weights before the newest"));
}

TEST_F(TrainResume, PreviousWeightsThatWereChangedEndTheRun) {
  Settings settings = {"schedule.update=async", "train.iterations=10"};
  train("out", settings);
  const std::string file = "out/checkpoint-10/previous.safetensors";
  std::string weights = folder_.read(file);
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 1);
  folder_.write(file, weights);
  CommandResult result = folder_.train({"schedule.update=async"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.errors, HasSubstr("previous.safetensors"));
  EXPECT_THAT(result.errors, HasSubstr("sha256"));
}

}  // namespace
}  // namespace stagecoach
