#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sys/wait.h>

#include "core/file.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TrainRun : public testing::Test {
 protected:
  std::string sha(const std::string& out = "out") const {
    Json summary = folder_.json(out + "/summary.json");
    const Json* sha = summary.find("weights_sha256");
    return sha == nullptr ? "none" : sha->as_string();
  }
  RunFolder folder_;
};

TEST_F(TrainRun, CountsRacesWhenAskedAndGivesTheSameWeights) {
  CommandResult plain = folder_.train();
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  EXPECT_EQ(folder_.json("out/summary.json").find("races"), nullptr);
  std::string expected = sha();
  CommandResult checked = folder_.train({"output.dir=checked"}, {"--check-races"});
  ASSERT_EQ(checked.exit_code, 0) << checked.errors;
  EXPECT_EQ(number(folder_.json("checked/summary.json"), "races"), 0) << checked.errors;
  EXPECT_THAT(checked.errors, testing::ContainsRegex("[1-9][0-9]+ accesses checked, 0 races"));
  EXPECT_EQ(sha("checked"), expected);
}

TEST_F(TrainRun, LeavesEverythingTheContractNames) {
  CommandResult result = folder_.train({"train.eval_every=10"}, {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(folder_.list("out"),
              ElementsAre("checkpoint", "checkpoint-10", "checkpoint-20", "layer_times.json",
                          "metrics.jsonl", "summary.json", "trace.json"));
  EXPECT_THAT(folder_.list("out/checkpoint"),
              ElementsAre("config.json", "model.safetensors", "optimizer.safetensors",
                          "trainer_state.json"));
  // stdout and metrics.jsonl are the same lines.
  EXPECT_EQ(result.output, folder_.read("out/metrics.jsonl"));
  std::vector<Json> lines = RunFolder::json_lines(result.output);
  ASSERT_EQ(lines.size(), 22u);
  int64_t iteration = 0;
  for (const Json& line : lines) {
    if (line.find("validation_loss") != nullptr) {
      EXPECT_EQ(line.find("iteration")->as_integer(), iteration);
      continue;
    }
    EXPECT_EQ(line.find("iteration")->as_integer(), ++iteration);
    for (const char* key : {"loss", "tokens_per_s", "grad_norm", "lr", "bubble"}) {
      EXPECT_TRUE(std::isfinite(number(line, key)));
    }
    EXPECT_EQ(number(line, "tokens"), static_cast<double>(iteration * 4 * 16));
  }
  EXPECT_LT(number(lines[20], "loss"), number(lines[0], "loss"));
}

TEST_F(TrainRun, SummaryHasTheKeysOfTheContract) {
  ASSERT_EQ(folder_.train().exit_code, 0);
  Json summary = folder_.json("out/summary.json");
  for (const char* key :
       {"tokens_per_s", "loss_first", "loss_last", "validation_loss", "bigram_entropy",
        "bubble_fraction", "bubble_simulated", "update_exposed_fraction", "controller_fraction",
        "overrun", "state_bytes", "landing_bytes", "host_state_bytes_per_parameter",
        "host_peak_bytes", "bytes_up", "bytes_down", "iterations", "parameters"}) {
    EXPECT_TRUE(std::isfinite(number(summary, key))) << key;
  }
  EXPECT_EQ(summary.find("schedule")->as_string(), "roundpipe");
  EXPECT_EQ(summary.find("update")->as_string(), "overlap");
  EXPECT_EQ(summary.find("devices")->items().size(), 2u);
  EXPECT_EQ(summary.find("device_peak_bytes")->items().size(), 2u);
  EXPECT_EQ(summary.find("weights_sha256")->as_string().size(), 64u);
  EXPECT_THAT(summary.find("plan")->as_string(), HasSubstr("FB"));
  EXPECT_GE(number(summary, "state_bytes"), 16 * number(summary, "parameters"));
  EXPECT_EQ(number(summary, "iterations"), 20);
  std::vector<Json> lines = RunFolder::json_lines(folder_.read("out/metrics.jsonl"));
  EXPECT_EQ(number(summary, "loss_first"), number(lines[0], "loss"));
  EXPECT_EQ(number(summary, "loss_last"), number(lines[19], "loss"));
}

// getrusage's peak of a program begins with that of the one that started it.
TEST_F(TrainRun, TheHostPeakIsThatOfTheProgramAlone) {
  ASSERT_EQ(folder_.train({"train.iterations=1", "output.dir=thin"}).exit_code, 0);
  double thin = number(folder_.json("thin/summary.json"), "host_peak_bytes");
  std::vector<char> fat(static_cast<size_t>(2 * thin), 1);
  ASSERT_EQ(folder_.train({"train.iterations=1", "output.dir=fat"}).exit_code, 0);
  EXPECT_EQ(fat.back(), 1);
  EXPECT_GT(thin, 1e6);
  EXPECT_LT(number(folder_.json("fat/summary.json"), "host_peak_bytes"), 1.5 * thin);
}

// One function gives the bytes; this holds `plan` and `train` to each other.
TEST_F(TrainRun, KeepsTheHostBytesThatPlanPrints) {
  for (const std::string dtype : {"fp32", "bf16"}) {
    for (const std::string rounds : {"1", "2"}) {
      SCOPED_TRACE(dtype + ", rounds " + rounds);
      std::string out = "out-" + dtype + rounds;
      ASSERT_EQ(folder_
                    .train({"model.dtype=" + dtype, "train.rounds=" + rounds, "train.iterations=1",
                            "output.dir=" + out})
                    .exit_code,
                0);
      Json summary = folder_.json(out + "/summary.json");
      CommandResult planned = run_command(
          {"plan", "--model", "model.json", "--devices", "cpu:2", "--batch", "4", "--microbatches",
           "2", "--rounds", rounds, "--sequence", "16", "--dtype", dtype, "--json"},
          folder_.path());
      ASSERT_EQ(planned.exit_code, 0) << planned.errors;
      Json plan = Json::parse(planned.output).value();
      const Json& memory = *plan.find("memory");
      EXPECT_EQ(number(summary, "state_bytes"), number(memory, "host_state_bytes"));
      EXPECT_EQ(number(summary, "landing_bytes"), number(memory, "host_landing_bytes"));
      EXPECT_EQ(number(summary, "host_state_bytes_per_parameter"),
                number(summary, "state_bytes") / number(summary, "parameters"));
    }
  }
}

// Field report 81: no carriage returns or colours in a file, progress in whole lines.
TEST_F(TrainRun, ProgressInAFileIsPlainLines) {
  CommandResult result = folder_.train();
  ASSERT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.errors, Not(HasSubstr("\r")));
  EXPECT_THAT(result.errors, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.errors, HasSubstr("iteration 1/20  loss "));
  EXPECT_THAT(result.errors, HasSubstr(" left\n"));
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b")));
}

// Field report 81: the loss is a mean over what counts, so padding does not change it. The last
// window of the text is padded to different lengths by the two window sizes of one batch shape.
TEST_F(TrainRun, LossDoesNotCountPadding) {
  ASSERT_EQ(folder_.train().exit_code, 0);
  folder_.write("exact.txt", folder_.read("validation.txt").substr(0, 33));
  folder_.write("padded.txt", folder_.read("validation.txt").substr(0, 34));
  auto evaluate = [&](const char* file) {
    CommandResult result = run_command(
        {"eval", "--model", "out/checkpoint", "--data", file, "--sequence", "16", "--json"},
        folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return *Json::parse(result.output);
  };
  Json exact = evaluate("exact.txt"), padded = evaluate("padded.txt");
  EXPECT_EQ(number(exact, "tokens"), 32);
  EXPECT_EQ(number(padded, "tokens"), 33);
  // One more target in a window of 15 paddings: the mean moves by that target's share only.
  double moved = std::abs(number(padded, "loss") - number(exact, "loss"));
  EXPECT_LT(moved, 12.0 / 33);
  EXPECT_NEAR(number(exact, "perplexity"), std::exp(number(exact, "loss")), 1e-9);
}

TEST_F(TrainRun, DevicesThreadsAndScheduleChangeNoBit) {
  std::string expected;
  auto check = [&](std::vector<std::string> settings, const std::string& threads) {
    std::string name = "out-" + std::to_string(expected.size()) + settings[0] + threads;
    settings.insert(settings.end(),
                    {"train.iterations=30", "output.save_every=0", "output.dir=" + name});
    RunningCommand command(folder_.train_arguments(settings), folder_.path(),
                           {{"STAGECOACH_THREADS", threads}});
    CommandResult result = command.wait();
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    if (expected.empty()) expected = sha(name);
    EXPECT_EQ(sha(name), expected) << name;
  };
  check({"devices.use=cpu:1"}, "2");
  for (const char* devices : {"cpu:2", "cpu:3", "cpu:4[memory=2M,flops=1G,speed=1,0.5,2,1]"}) {
    check({std::string("devices.use=") + devices}, "2");
  }
  check({"devices.use=cpu:1", "schedule.kind=single"}, "1");
  check({"devices.use=cpu:2", "schedule.max_stage_layers=1"}, "4");
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v"}) {
    check({std::string("schedule.kind=") + schedule}, "2");
  }
}

TEST_F(TrainRun, AMachineProfileIsUsedSaidAndChangesNoBit) {
  ASSERT_EQ(folder_.train().exit_code, 0);
  // Of another machine: it is read, named and not used.
  folder_.write("profile.json", R"({"name": "box", "cards": [
    {"device": "cpu:0", "flop_per_s": 1e9, "memory_bytes": 1e9, "up_bytes_per_s": 1e9,
     "down_bytes_per_s": 1e9, "bulk_up": {"method": "one in flight", "chunk_bytes": 4096}}],
    "host": {"work_bytes_per_s": 1e9, "work_threads": 1},
    "measurement": {"machine": {"processor": "another"}}})");
  CommandResult other = folder_.train({"output.dir=other", "devices.profile=profile.json"});
  ASSERT_EQ(other.exit_code, 0) << other.errors;
  EXPECT_THAT(other.errors, HasSubstr("processor was another and is"));
  EXPECT_THAT(other.errors, Not(HasSubstr("by devices.profile:")));
  EXPECT_EQ(sha("other"), sha());
  // Written by hand it holds for whichever machine.
  folder_.write("profile.json", R"({"name": "box", "cards": [
    {"device": "cpu:0", "flop_per_s": 1e9, "memory_bytes": 1e9, "up_bytes_per_s": 1e9,
     "down_bytes_per_s": 1e9, "bulk_up": {"method": "one in flight", "chunk_bytes": 4096}}],
    "host": {"work_bytes_per_s": 1e9, "work_threads": 1}})");
  CommandResult used =
      folder_.train({"output.dir=used", "devices.profile=profile.json"}, {"--check-races"});
  ASSERT_EQ(used.exit_code, 0) << used.errors;
  EXPECT_THAT(used.errors, HasSubstr("by devices.profile: cpu:0: 1 GB/s up"));
  EXPECT_THAT(used.errors, HasSubstr("one in flight, chunks of 4.00 KiB"));
  EXPECT_THAT(used.errors, HasSubstr("by devices.profile: threads for updates: 1"));
  EXPECT_THAT(used.errors, HasSubstr("assumed: cpu:1: "));
  EXPECT_EQ(sha("used"), sha());
  CommandResult missing = folder_.train({"output.dir=missing", "devices.profile=none.json"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.errors, HasSubstr("none.json"));
  EXPECT_FALSE(folder_.exists("missing"));
}

TEST_F(TrainRun, ABoundScheduleEvaluatesReportsAndResumes) {
  std::vector<std::string> settings = {"train.eval_every=10", "optimizer.decay=constant"};
  auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    CommandResult result = folder_.train(more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  };
  train({"output.dir=streamed"});
  // Another schedule may go on where the first ended.
  train({"schedule.kind=1f1b", "train.iterations=10"});
  train({"schedule.kind=zb-v"});
  EXPECT_EQ(sha(), sha("streamed"));
  Json summary = folder_.json("out/summary.json"), streamed = folder_.json("streamed/summary.json");
  EXPECT_EQ(number(summary, "validation_loss"), number(streamed, "validation_loss"));
  EXPECT_EQ(summary.find("schedule")->as_string(), "zb-v");
  EXPECT_EQ(summary.find("dispatch")->as_string(), "bound");
  EXPECT_EQ(summary.find("activations")->as_string(), "keep");
  EXPECT_EQ(streamed.find("activations")->as_string(), "recompute");
  CommandResult report = run_command({"report", "out"}, folder_.path());
  EXPECT_EQ(report.exit_code, 0) << report.errors;
  EXPECT_TRUE(folder_.exists("out/report.html"));
}

TEST_F(TrainRun, DryRunAndPrintConfigWriteNothing) {
  CommandResult plan = folder_.train({}, {"--dry-run", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.errors;
  Result<Json> json = Json::parse(plan.output);
  ASSERT_TRUE(json.is_ok()) << plan.output;
  EXPECT_TRUE(json->find("fits")->as_bool());
  EXPECT_THAT(json->find("plan")->as_string(), HasSubstr("FB"));
  EXPECT_THAT(folder_.train({}, {"--dry-run"}).output, HasSubstr("plan, one line a device"));
  CommandResult printed = folder_.train({"train.batch=8"}, {"--print-config"});
  ASSERT_EQ(printed.exit_code, 0);
  EXPECT_THAT(printed.output, HasSubstr("batch = 8\n"));
  EXPECT_FALSE(folder_.exists("out"));
  // What is printed is a configuration.
  folder_.write("printed.toml", printed.output);
  CommandResult again =
      run_command({"train", "--config", "printed.toml", "--print-config"}, folder_.path());
  EXPECT_EQ(again.output, printed.output);
}

TEST_F(TrainRun, TrainsWithoutAConfigFile) {
  CommandResult result = run_command(
      {"train", "--model", "model.json", "--data", "train.txt", "--devices", "cpu:1", "--set",
       "model.init=random", "data.sequence=16", "train.iterations=3", "output.dir=out"},
      folder_.path());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(folder_.json("out/summary.json").find("validation_loss")->is_null());
}

TEST_F(TrainRun, ResumesToTheSameBitsAndSaysWhenFinished) {
  ASSERT_EQ(folder_.train({"output.dir=whole"}).exit_code, 0);
  // A constant rate: with a decay, a run that is planned shorter learns at other rates.
  std::vector<std::string> constant = {"optimizer.decay=constant", "output.dir=constant"};
  ASSERT_EQ(folder_.train(constant).exit_code, 0);
  std::vector<std::string> half = {"optimizer.decay=constant", "train.iterations=10"};
  ASSERT_EQ(folder_.train(half).exit_code, 0);
  half.back() = "train.iterations=20";
  CommandResult rest = folder_.train(half);
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_THAT(rest.errors, HasSubstr("continuing from"));
  EXPECT_EQ(sha(), sha("constant"));
  EXPECT_NE(sha(), sha("whole"));
  EXPECT_EQ(RunFolder::json_lines(folder_.read("out/metrics.jsonl")).size(), 22u);

  std::string before = folder_.read("out/metrics.jsonl");
  CommandResult finished = folder_.train(half);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.errors, HasSubstr("has finished all 20 iterations"));
  EXPECT_EQ(folder_.read("out/metrics.jsonl"), before);
}

TEST_F(TrainRun, ResumesOnOtherDevicesAndFromAnotherFolder) {
  ASSERT_EQ(folder_.train({"optimizer.decay=constant", "output.dir=whole"}).exit_code, 0);
  ASSERT_EQ(folder_.train({"optimizer.decay=constant", "train.iterations=10", "output.dir=first"})
                .exit_code,
            0);
  for (const char* from : {"first", "first/checkpoint", "first/checkpoint-10"}) {
    std::string out = std::string("second-") + std::to_string(std::string(from).size());
    CommandResult result =
        folder_.train({"optimizer.decay=constant", "devices.use=cpu:3", "output.dir=" + out,
                       std::string("output.resume=") + from});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(sha(out), sha("whole")) << from;
  }
  CommandResult mixed = folder_.train({"output.dir=whole", "output.resume=first"});
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_THAT(mixed.errors, HasSubstr("checkpoints of another run"));
}

TEST_F(TrainRun, ResumeNamesTheFirstDifference) {
  ASSERT_EQ(folder_.train({"train.iterations=10"}).exit_code, 0);
  auto difference = [&](const std::string& setting) {
    CommandResult result = folder_.train({setting});
    EXPECT_EQ(result.exit_code, 1) << setting << "\n" << result.errors;
    return result.errors;
  };
  EXPECT_THAT(difference("optimizer.lr=0.5"), HasSubstr("optimizer.lr is 0.01 there and 0.5 here"));
  EXPECT_THAT(difference("train.batch=8"), HasSubstr("train.batch is 4 there and 8 here"));
  EXPECT_THAT(difference("data.sequence=8"), HasSubstr("data.sequence is 16 there and 8 here"));
  EXPECT_THAT(difference("data.train=validation.txt"), HasSubstr("sha256 of the training tokens"));
  EXPECT_THAT(difference("model.dtype=bf16"), HasSubstr("model.dtype"));
  std::string model = folder_.read("model.json");
  model.replace(model.find("\"n_layer\": 2"), 12, "\"n_layer\": 3");
  folder_.write("other.json", model);
  EXPECT_THAT(difference("model.path=other.json"),
              HasSubstr("the model's n_layer is 2 there and 3 here"));
  // Nothing of that touched the run.
  EXPECT_EQ(folder_.train({"train.iterations=10"}).exit_code, 0);
}

TEST_F(TrainRun, HalfWrittenCheckpointsAreSkippedWithANote) {
  ASSERT_EQ(folder_.train({"optimizer.decay=constant"}).exit_code, 0);
  std::string whole = sha();
  // As after a copy that was cut off, and after a kill in the middle of a save.
  folder_.write("out/checkpoint-20/optimizer.safetensors", "short");
  folder_.write("out/.checkpoint-30.tmp/model.safetensors", "rest");
  CommandResult result = folder_.train({"optimizer.decay=constant"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("checkpoint-20 is not a whole checkpoint and is skipped"));
  EXPECT_THAT(result.errors, HasSubstr("continuing from out/checkpoint-10"));
  EXPECT_EQ(sha(), whole);
  EXPECT_FALSE(folder_.exists("out/.checkpoint-30.tmp"));
}

TEST_F(TrainRun, DamagedWeightsAreADataMismatch) {
  ASSERT_EQ(folder_.train({"train.iterations=10"}).exit_code, 0);
  std::string weights = folder_.read("out/checkpoint-10/model.safetensors");
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 1);
  folder_.write("out/checkpoint-10/model.safetensors", weights);
  CommandResult result = folder_.train();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.errors, HasSubstr("sha256"));
}

TEST_F(TrainRun, InterruptFinishesTheIterationSavesAndResumesToTheSameBits) {
  std::vector<std::string> settings = {"train.iterations=200", "output.save_every=0"};
  std::vector<std::string> elsewhere = settings;
  elsewhere.push_back("output.dir=whole");
  ASSERT_EQ(folder_.train(elsewhere).exit_code, 0);
  for (int signal : {SIGINT, SIGTERM}) {
    RunningCommand command(folder_.train_arguments(settings, {"--json"}), folder_.path());
    std::string wanted = signal == SIGINT ? "\"iteration\":5," : "\"iteration\":50,";
    ASSERT_TRUE(command.wait_for_output(wanted)) << command.output_so_far();
    command.send(signal);
    CommandResult result = command.wait();
    EXPECT_EQ(result.exit_code, 130) << result.errors;
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.errors, HasSubstr("interrupted; run the same command again"));
    EXPECT_EQ(number(RunFolder::json_lines(result.output).back(), "exit_code"), 130);
    EXPECT_TRUE(folder_.exists("out/checkpoint/trainer_state.json"));
    EXPECT_FALSE(folder_.exists("out/summary.json"));
  }
  CommandResult rest = folder_.train(settings);
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_THAT(rest.errors, HasSubstr("continuing from"));
  EXPECT_EQ(sha(), sha("whole"));
}

// Iterations that ended before something failed are not lost with it.
TEST_F(TrainRun, WhatIsBeingSavedWhenTrainingFailsIsSaved) {
  for (const char* update : {"barrier", "overlap"}) {
    std::string out = std::string("failed-") + update;
    CommandResult failed =
        folder_.train({"optimizer.lr=1000", "optimizer.kind=sgd", "optimizer.clip_norm=0",
                       "optimizer.warmup=0", "train.iterations=400", "output.save_every=1",
                       "output.dir=" + out, std::string("schedule.update=") + update});
    ASSERT_EQ(failed.exit_code, 3) << failed.errors;
    size_t at = failed.errors.rfind("iteration ");
    ASSERT_NE(at, std::string::npos) << failed.errors;
    int64_t last = std::atoll(failed.errors.c_str() + at + 10) - 1;
    ASSERT_GT(last, 0) << failed.errors;
    EXPECT_TRUE(folder_.exists(out + "/checkpoint-" + std::to_string(last))) << failed.errors;
    CommandResult loaded = run_command(
        {"eval", "--model", out + "/checkpoint", "--data", "validation.txt", "--sequence", "16"},
        folder_.path());
    EXPECT_NE(loaded.exit_code, 1) << loaded.errors;
  }
}

// A lock keeps others out of a folder, not out of its name.
TEST_F(TrainRun, AFolderThatIsTakenAwayIsNotMadeAnew) {
  RunningCommand command(
      folder_.train_arguments({"train.iterations=1000000", "output.save_every=5"}, {"--json"}),
      folder_.path());
  ASSERT_TRUE(command.wait_for_output("\"iteration\":5,"));
  std::filesystem::rename(folder_.path() + "/out", folder_.path() + "/moved");
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("output.dir 'out' is not the folder any more"));
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(TrainRun, MetricsThatAreTakenAwayEndTheRunWhichCanGoOn) {
  std::vector<std::string> settings = {"train.iterations=1000000", "output.save_every=5"};
  RunningCommand command(folder_.train_arguments(settings, {"--json"}), folder_.path());
  ASSERT_TRUE(command.wait_for_output("\"iteration\":12,"));
  std::filesystem::remove(folder_.path() + "/out/metrics.jsonl");
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("'out/metrics.jsonl' was moved or removed"));
  EXPECT_THAT(result.errors, HasSubstr("run the same command again"));
  RunningCommand again(folder_.train_arguments(settings, {"--json"}), folder_.path());
  ASSERT_TRUE(again.wait_for_output("\"iteration\":"));
  again.send(SIGINT);
  CommandResult resumed = again.wait();
  EXPECT_EQ(resumed.exit_code, 130);
  EXPECT_THAT(resumed.errors, HasSubstr("continuing from out/checkpoint-"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Field report 56: the peak of a run that saves forty times is that of one that saves once.
TEST_F(TrainRun, SavesTakeNoMemoryThatGrows) {
  std::vector<std::string> settings = {"train.iterations=40", "output.trace=false"};
  auto run = [&](const char* save_every) {
    std::vector<std::string> all = settings;
    all.push_back(std::string("output.save_every=") + save_every);
    all.push_back(std::string("output.dir=every") + save_every);
    CommandResult result = folder_.train(all);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  };
  CommandResult once = run("0"), always = run("1");
  constexpr int64_t kFewBytes = 16 * 1024 * 1024;
  EXPECT_LT(always.peak_bytes, once.peak_bytes + kFewBytes);
  EXPECT_THAT(always.errors, HasSubstr("iteration 20: saved a checkpoint of"));
  EXPECT_THAT(always.errors, HasSubstr("updates waited"));
  EXPECT_GT(number(folder_.json("every1/summary.json"), "save_wait_s"), 0);
}

// Field report 57: what takes the host's memory meanwhile ends the run with a message and a
// checkpoint, not with a signal. (Sanitizers take more address space than any limit leaves.)
TEST_F(TrainRun, StopsBeforeTheHostHasNoMemoryLeft) {
  // A new plan would start threads, which need address space at once.
  std::vector<std::string> settings = {"train.iterations=1000000", "output.save_every=0",
                                       "schedule.dispatch=static"};
  RunningCommand command(folder_.train_arguments(settings, {"--json"}), folder_.path());
  ASSERT_TRUE(command.wait_for_output("\"iteration\":5,"));
  command.limit_address_space(32 * kMiB);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 4) << result.errors;
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.errors, HasSubstr("of host memory are left by ulimit -v"));
  EXPECT_THAT(result.errors, HasSubstr("continue from 'out'"));
  ASSERT_TRUE(folder_.exists("out/checkpoint/trainer_state.json"));
  int64_t done = folder_.json("out/checkpoint/trainer_state.json").find("iteration")->as_integer();
  EXPECT_GE(done, 5);
  CommandResult rest = folder_.train({"train.iterations=" + std::to_string(done + 2)});
  EXPECT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_THAT(rest.errors, HasSubstr("at iteration " + std::to_string(done)));
}
#endif

// Field report 59: a quarter of the host memory can be pinned.
TEST_F(TrainRun, CompletesWithAQuarterPinnedAndSaysSo) {
  CommandResult whole = folder_.train({"output.dir=whole"});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;
  EXPECT_THAT(whole.errors, Not(HasSubstr("pinned host memory")));
  Json all = folder_.json("whole/summary.json");
  auto asked = static_cast<int64_t>(number(all, "host_pinned_bytes"));
  EXPECT_EQ(number(all, "host_unpinned_bytes"), 0);
  CommandResult quarter =
      folder_.train({"devices.use=cpu:2[pinned=" + std::to_string(asked / 4) + "]"});
  ASSERT_EQ(quarter.exit_code, 0) << quarter.errors;
  EXPECT_THAT(quarter.errors, HasSubstr("pinned host memory: "));
  EXPECT_THAT(quarter.errors, HasSubstr("of what travels is pageable, which copies more slowly"));
  Json summary = folder_.json("out/summary.json");
  EXPECT_LE(number(summary, "host_pinned_bytes"), static_cast<double>(asked) / 4);
  EXPECT_GE(number(summary, "host_pinned_bytes"), static_cast<double>(asked) / 5);
  EXPECT_EQ(summary.find("weights_sha256")->as_string(), all.find("weights_sha256")->as_string());
}

TEST_F(TrainRun, AnInterruptLosesNoValidation) {
  std::vector<std::string> settings = {"train.iterations=60", "train.eval_every=1",
                                       "output.save_every=0"};
  for (int iteration : {10, 25, 40}) {
    RunningCommand command(folder_.train_arguments(settings, {"--json"}), folder_.path());
    ASSERT_TRUE(command.wait_for_output("\"iteration\":" + std::to_string(iteration) + ","));
    command.send(SIGINT);
    EXPECT_EQ(command.wait().exit_code, 130);
  }
  ASSERT_EQ(folder_.train(settings).exit_code, 0);
  std::vector<int64_t> validated;
  for (const Json& line : RunFolder::json_lines(folder_.read("out/metrics.jsonl"))) {
    if (line.find("validation_loss") == nullptr) continue;
    validated.push_back(line.find("iteration")->as_integer());
  }
  std::vector<int64_t> all(60);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(validated, all);
}

TEST_F(TrainRun, ASecondSignalEndsItAtOnce) {
  // Paced so slowly that an iteration takes minutes.
  RunningCommand command(
      folder_.train_arguments({"devices.use=cpu:2[flops=20K]", "devices.timeout=600s"}),
      folder_.path());
  for (int tries = 0; tries < 2000 && !folder_.exists("out/metrics.jsonl"); ++tries) usleep(5000);
  ASSERT_TRUE(folder_.exists("out/metrics.jsonl"));
  command.send(SIGINT);
  usleep(200'000);
  command.send(SIGINT);
  CommandResult result = command.wait(std::chrono::seconds(5));
  EXPECT_EQ(result.exit_code, 130);
}

TEST_F(TrainRun, ClosedStreamsDoNotMixIntoTheMetrics) {
  std::string command = "cd '" + folder_.path() + "' && '" STAGECOACH_COMMAND "'";
  for (const std::string& argument : folder_.train_arguments({}, {"--json"})) {
    command += " '" + argument + "'";
  }
  ASSERT_EQ(std::system((command + " >&- 2>&-").c_str()), 0);
  // 20 iterations and the validation at the end, each written once.
  std::string metrics = *read_file(folder_.file("out/metrics.jsonl"));
  EXPECT_EQ(RunFolder::json_lines(metrics).size(), 21u);
}

TEST_F(TrainRun, AFileSizeLimitIsAFailureNotASignal) {
  std::string command = "ulimit -f 8; cd '" + folder_.path() + "' && '" STAGECOACH_COMMAND "'";
  for (const std::string& argument : folder_.train_arguments({})) command += " '" + argument + "'";
  int status = std::system(("(" + command + ") >/dev/null 2>&1").c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(TrainRun, OnlyTheNewestCheckpointsAreKept) {
  ASSERT_EQ(folder_.train({"output.save_every=3", "output.keep_last=3"}).exit_code, 0);
  EXPECT_THAT(folder_.list("out"),
              ElementsAre("checkpoint", "checkpoint-15", "checkpoint-18", "checkpoint-20",
                          "layer_times.json", "metrics.jsonl", "summary.json", "trace.json"));
}

// Field report 45.
TEST_F(TrainRun, WarmUpLongerThanTheRunIsWarnedOf) {
  CommandResult result = folder_.train({"optimizer.warmup=21"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("optimizer.warmup = 21 is longer than the run's 20"));
  EXPECT_THAT(folder_.train({"optimizer.warmup=20", "output.dir=other"}).errors,
              testing::Not(HasSubstr("optimizer.warmup")));
}

TEST_F(TrainRun, NonFiniteTrainingExitsWithThreeAndKeepsTheCheckpoint) {
  CommandResult result =
      folder_.train({"optimizer.lr=1000", "optimizer.clip_norm=0", "optimizer.warmup=0",
                     "optimizer.weight_decay=1000", "output.save_every=1", "train.iterations=200"});
  EXPECT_EQ(result.exit_code, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("iteration"));
  EXPECT_FALSE(folder_.exists("out/summary.json"));
}

/// Somebody else fills the disk of `folder` while a run goes on.
void fill_disk(const std::string& file, long bytes) {
  std::string filler(static_cast<size_t>(bytes), 'x');
  FILE* opened = std::fopen(file.c_str(), "w");
  ASSERT_NE(opened, nullptr);
  std::fwrite(filler.data(), 1, filler.size(), opened);
  std::fclose(opened);
}

constexpr long kDiskBytes = 4 << 20;

TEST_F(TrainRun, FullDiskAtASaveKeepsThePreviousCheckpoint) {
  MountedFolder mounted(folder_.file("mounted"), kDiskBytes);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  std::vector<std::string> settings = {"output.dir=mounted", "output.save_every=10",
                                       "output.trace=false", "train.iterations=100000"};
  std::vector<std::string> silent = settings;
  // Else a line of metrics.jsonl may be what first finds no room.
  silent.emplace_back("train.log_every=100000");
  RunningCommand command(folder_.train_arguments(silent), folder_.path());
  for (int tries = 0; tries < 2000 && !folder_.exists("mounted/checkpoint"); ++tries) usleep(5000);
  ASSERT_TRUE(folder_.exists("mounted/checkpoint"));
  fill_disk(folder_.file("mounted/filler"), kDiskBytes);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.errors, HasSubstr("cannot save a checkpoint: "));
  EXPECT_THAT(result.errors, HasSubstr("mounted"));
  EXPECT_THAT(result.errors, HasSubstr("bytes"));
  for (const std::string& name : folder_.list("mounted")) {
    EXPECT_THAT(name, Not(HasSubstr(".tmp"))) << "a temporary rest";
  }
  // The previous checkpoint is whole: with room again the run goes on from it.
  ASSERT_EQ(::unlink(folder_.file("mounted/filler").c_str()), 0);
  RunningCommand again(folder_.train_arguments(settings, {"--json"}), folder_.path());
  ASSERT_TRUE(again.wait_for_output("\"iteration\":"));
  again.send(SIGINT);
  CommandResult resumed = again.wait();
  EXPECT_EQ(resumed.exit_code, 130);
  EXPECT_THAT(resumed.errors, HasSubstr("continuing from mounted/checkpoint-"));
}

TEST_F(TrainRun, FullDiskAtALineOfMetricsEndsTheRunAndNamesTheFile) {
  MountedFolder mounted(folder_.file("mounted"), kDiskBytes);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  RunningCommand command(folder_.train_arguments({"output.dir=mounted", "output.save_every=0",
                                                  "output.trace=false", "train.iterations=100000"},
                                                 {"--json"}),
                         folder_.path());
  ASSERT_TRUE(command.wait_for_output("\"iteration\":12,"));
  fill_disk(folder_.file("mounted/filler"), kDiskBytes);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.errors, HasSubstr("mounted/metrics.jsonl"));
  EXPECT_THAT(result.errors, HasSubstr("No space left"));
  EXPECT_THAT(result.errors, HasSubstr("make room there, and run the same command again"));
  std::string lines = folder_.read("mounted/metrics.jsonl");
  EXPECT_TRUE(lines.empty() || lines.back() == '\n') << "half a line is left";
}

// Field report 66: one device that stands still ends the run with one message that names it.
TEST_F(TrainRun, ADeviceWithoutProgressEndsTheRunWithOneMessage) {
  CommandResult result =
      folder_.train({"devices.use=cpu:2[flops=1K,speed=1,1]", "devices.timeout=1s"});
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_EQ(result.signal, 0);
  EXPECT_LT(result.seconds, 20.0);
  EXPECT_THAT(result.errors, HasSubstr("cpu:"));
  std::string last = result.errors.substr(result.errors.rfind('\n', result.errors.size() - 2) + 1);
  EXPECT_THAT(last, HasSubstr("stagecoach train: ")) << "the cause is not the last line";
  EXPECT_THAT(last, HasSubstr("iteration 1"));
  size_t causes = 0;
  for (size_t at = 0; (at = result.errors.find("stagecoach train: ", at)) != std::string::npos;
       ++at) {
    ++causes;
  }
  EXPECT_EQ(causes, 1u) << result.errors;
}

TEST_F(TrainRun, TooFewMicroBatchesForTheDevicesWarn) {
  CommandResult result = folder_.train({"devices.use=cpu:4", "train.iterations=2"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("2 micro-batches a round are fewer than 4 devices"));
}

}  // namespace
}  // namespace stagecoach
