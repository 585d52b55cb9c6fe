#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bytes.h"
#include "memory/budget.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int exit_code = -1;
  Json json;
  std::string errors;

  bool fits() const { return json.find("fits")->as_bool(); }
  int64_t host(const char* key) const {
    return json.find("bytes")->find("host")->find(key)->as_integer();
  }
  int64_t state() const { return host("weights") + host("moments") + host("gradients"); }
  int64_t bytes(const char* key) const { return json.find("bytes")->find(key)->as_integer(); }
  std::string problem() const { return json.find("problem")->as_string(); }
};

Answer inspect(const std::string& model, std::vector<std::string> more = {},
               const std::string& folder = ".") {
  std::vector<std::string> arguments = {"inspect", model, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  CommandResult result = run_command(arguments, folder);
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output << result.errors;
  return {result.exit_code, json.is_ok() ? *json : Json::object(), result.errors};
}

TEST(InspectCommand, SaysShapeParametersAndBytesOfEachTier) {
  Answer answer = inspect("gpt2", {"--host-memory", "64G", "--devices", "cpu:2[memory=2G]"});
  EXPECT_EQ(answer.exit_code, 0) << answer.errors;
  EXPECT_TRUE(answer.fits());
  EXPECT_EQ(answer.json.find("parameters")->as_integer(), 124'439'808);
  EXPECT_EQ(answer.json.find("architecture")->find("layers")->as_integer(), 12);
  EXPECT_EQ(answer.host("moments"), 8 * int64_t{124'439'808});
  EXPECT_EQ(answer.state(), 16 * int64_t{124'439'808});
  // The tied embedding's gradient lands twice.
  EXPECT_EQ(answer.host("landing"), int64_t{50257} * 768 * 4);
  const std::vector<Json>& devices = answer.json.find("bytes")->find("devices")->items();
  ASSERT_EQ(devices.size(), 2u);
  int64_t planned = 0;
  for (const Json& device : devices) {
    EXPECT_EQ(device.find("free")->as_integer(), 2 * kGiB);
    EXPECT_GE(device.find("planned")->as_integer(), answer.bytes("least_device"));
    planned += device.find("planned")->as_integer();
  }
  // Mocks live in host memory, which is not pinned for them.
  EXPECT_EQ(answer.host("mock_devices"), planned);
  EXPECT_EQ(answer.host("total") - planned, answer.bytes("pinned"));
  CommandResult people = run_command({"inspect", "gpt2", "--host-memory", "64G"});
  EXPECT_EQ(people.exit_code, 0);
  EXPECT_THAT(people.output, HasSubstr("124439808 parameters"));
  EXPECT_THAT(people.output, HasSubstr("moments"));
}

// The table of docs/architecture.md, "Memory".
TEST(InspectCommand, AsyncKeepsASecondVersion) {
  struct Row {
    const char* dtype;
    double exact, async, async_in_rounds;
  };
  constexpr double kParameters = 124'439'808;
  for (const Row& row :
       {Row{"bf16", 14, 16, 18}, Row{"fp16", 16, 18, 20}, Row{"fp32", 16, 20, 20}}) {
    SCOPED_TRACE(row.dtype);
    auto bytes = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"--dtype", row.dtype, "--host-memory", "64G"});
      return static_cast<double>(inspect("gpt2", more).state()) / kParameters;
    };
    EXPECT_NEAR(bytes({"--update", "barrier"}), row.exact, 1e-3);
    EXPECT_NEAR(bytes({"--update", "overlap"}), row.exact, 1e-3);
    EXPECT_NEAR(bytes({"--update", "async"}), row.async, 1e-3);
    EXPECT_NEAR(bytes({"--update", "async", "--rounds", "2"}), row.async_in_rounds, 1e-3);
  }
}

TEST(InspectCommand, UpdatesOnDevicesAreCounted) {
  RunFolder folder;
  std::vector<std::string> asked = {"--devices",      "cpu:2", "--batch",    "4",
                                    "--microbatches", "2",     "--sequence", "16",
                                    "--host-memory",  "1G"};
  Answer host = inspect("model.json", asked, folder.path());
  asked.insert(asked.end(), {"--device-share", "0.5"});
  Answer shared = inspect("model.json", asked, folder.path());
  ASSERT_TRUE(shared.fits()) << shared.errors;
  ASSERT_EQ(folder.train({"optimizer.device_share=0.5", "train.iterations=1"}).exit_code, 0);
  Json summary = folder.json("out/summary.json");
  for (size_t device = 0; device < 2; ++device) {
    auto of = [&](const Answer& answer, const char* key) {
      return answer.json.find("bytes")->find("devices")->items()[device].find(key)->as_integer();
    };
    EXPECT_EQ(of(shared, "planned"),
              summary.find("device_planned_bytes")->items()[device].as_integer());
    EXPECT_GT(of(shared, "planned"), of(host, "planned"));
    EXPECT_EQ(of(shared, "free"), of(host, "free"));
  }
  EXPECT_GT(shared.host("total"), host.host("total"));
  CommandResult refused = run_command({"inspect", "gpt2", "--device-share", "2"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("--device-share is '2'"));
}

// The table of docs/training.md, "Optimizers".
TEST(InspectCommand, MomentsAreThoseOfTheOptimizer) {
  auto moments = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--dtype", "bf16", "--host-memory", "64G"});
    return static_cast<double>(inspect("gpt2", more).host("moments")) / 124'439'808;
  };
  EXPECT_NEAR(moments({}), 8, 1e-3);
  EXPECT_NEAR(moments({"--optimizer", "lion"}), 4, 1e-3);
  EXPECT_NEAR(moments({"--optimizer", "sgd", "--moments", "bf16"}), 2, 1e-3);
  EXPECT_NEAR(moments({"--moments", "8bit"}), 2.03, 1e-2);
}

// What inspect admits, training takes, to the byte; what it refuses, training refuses.
TEST(InspectCommand, CountsWhatSavesCopyTo) {
  RunFolder folder;
  std::vector<std::string> asked = {"--devices",      "cpu:2", "--batch",    "4",
                                    "--microbatches", "2",     "--sequence", "16",
                                    "--host-memory",  "1G"};
  Answer without = inspect("model.json", asked, folder.path());
  asked.insert(asked.end(), {"--save-copy", "16M"});
  Answer with = inspect("model.json", asked, folder.path());
  ASSERT_TRUE(with.fits()) << with.errors;
  EXPECT_EQ(with.host("save_copies"), 16 * kMiB);
  EXPECT_EQ(with.host("total"), without.host("total") + 16 * kMiB);
  std::string sha[2];
  for (const std::string size : {"0", "16M"}) {
    std::string out = "out-" + size;
    // Ends before layers have been timed: a plan made anew may keep more.
    CommandResult trained = folder.train({"output.save_copy=" + size, "train.iterations=3",
                                          "output.save_every=1", "output.dir=" + out},
                                         {"--check-races"});
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    Json summary = folder.json(out + "/summary.json");
    EXPECT_EQ(number(summary, "host_planned_bytes"), (size == "0" ? without : with).host("total"));
    EXPECT_EQ(number(summary, "races"), 0);
    if (size == "0") {
      EXPECT_EQ(number(summary, "save_copied_bytes"), 0);
    } else {
      EXPECT_THAT(trained.errors, HasSubstr("were copied"));
    }
    sha[size == "0" ? 0 : 1] = summary.find("weights_sha256")->as_string();
  }
  EXPECT_EQ(sha[0], sha[1]);
  CommandResult refused = folder.train({"output.save_copy=-1", "output.dir=new"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("output.save_copy = -1 is not allowed"));
  EXPECT_EQ(run_command({"inspect", "gpt2", "--save-copy", "much"}).exit_code, 1);
}

TEST(InspectCommand, AgreesWithTraining) {
  RunFolder folder;
  for (const std::string schedule : {"roundpipe", "1f1b"}) {
    for (const std::string dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(schedule + " " + dtype);
      auto asked = [&](const std::string& devices, const std::string& host_memory) {
        return inspect(
            "model.json",
            {"--devices", devices, "--schedule", schedule, "--dtype", dtype, "--batch", "4",
             "--microbatches", "2", "--sequence", "16", "--host-memory", host_memory},
            folder.path());
      };
      auto train = [&](const std::string& devices) {
        return folder.train({"schedule.kind=" + schedule, "model.dtype=" + dtype,
                             "devices.use=" + devices, "train.iterations=1",
                             "output.dir=out-" + schedule + dtype});
      };
      Answer free = asked("cpu:2", "1G");
      ASSERT_TRUE(free.fits()) << free.errors;
      EXPECT_TRUE(asked("cpu:2", std::to_string(free.host("total") + kHostReserve)).fits());
      // What mocks keep of parameters between slots goes first.
      ByteCount least_host = free.host("total");
      if (schedule == "roundpipe") {
        Answer lean = asked("cpu:2", std::to_string(least_host + kHostReserve - 1));
        ASSERT_TRUE(lean.fits()) << lean.errors;
        EXPECT_LT(lean.host("total"), least_host);
        least_host = lean.host("total");
      }
      Answer short_of_one = asked("cpu:2", std::to_string(least_host + kHostReserve - 1));
      EXPECT_EQ(short_of_one.exit_code, 4);
      EXPECT_THAT(short_of_one.problem(), HasSubstr("--host-memory"));
      EXPECT_THAT(short_of_one.errors, HasSubstr(short_of_one.problem()));

      // The least memory with which a plan exists, by bisection of what inspect says.
      int64_t too_small = 1, enough = 64 * kMiB;
      while (enough - too_small > 1) {
        int64_t middle = (enough + too_small) / 2;
        bool fits = asked("cpu:2[memory=" + std::to_string(middle) + "]", "1G").fits();
        (fits ? enough : too_small) = middle;
      }
      std::string least = "cpu:2[memory=" + std::to_string(enough) + "]";
      CommandResult refused = train("cpu:2[memory=" + std::to_string(too_small) + "]");
      EXPECT_EQ(refused.exit_code, 4) << refused.errors;
      CommandResult trained = train(least);
      ASSERT_EQ(trained.exit_code, 0) << trained.errors;
      Json summary = folder.json("out-" + schedule + dtype + "/summary.json");
      Answer answer = asked(least, "1G");
      EXPECT_EQ(summary.find("state_bytes")->as_integer(), answer.state());
      EXPECT_EQ(summary.find("landing_bytes")->as_integer(), answer.host("landing"));
      const std::vector<Json>& devices = answer.json.find("bytes")->find("devices")->items();
      for (size_t device = 0; device < devices.size(); ++device) {
        EXPECT_EQ(summary.find("device_peak_bytes")->items()[device].as_integer(),
                  devices[device].find("planned")->as_integer());
      }
    }
  }
}

TEST(InspectCommand, SaysWhatDoesNotFitAndWhatToChange) {
  Answer device = inspect("gpt2", {"--devices", "cpu:2[memory=64M]", "--host-memory", "64G"});
  EXPECT_EQ(device.exit_code, 4);
  EXPECT_FALSE(device.fits());
  EXPECT_THAT(device.problem(), HasSubstr("device cpu:0 has 64.00 MiB"));
  EXPECT_THAT(device.problem(), HasSubstr(std::to_string(device.bytes("least_device"))));
  Answer host = inspect("qwen3-235b-a22b", {"--devices", "sim:8xrtx4090", "--host-memory", "64G"});
  EXPECT_EQ(host.exit_code, 4);
  EXPECT_THAT(host.problem(), HasSubstr("of host memory"));
  EXPECT_THAT(host.problem(), HasSubstr("--lora-rank"));
  EXPECT_EQ(host.host("free"), 64 * kGiB);
}

// Field report 62: sizes that no number holds are refused, not shown as others.
TEST(InspectCommand, SizesStayNumbers) {
  for (const char* command : {"inspect", "plan"}) {
    std::vector<std::string> arguments = {command};
    if (command == std::string("plan")) arguments.emplace_back("--model");
    arguments.insert(arguments.end(), {"qwen3-32b", "--devices", "sim:4xh200", "--batch", "1000000",
                                       "--microbatches", "1", "--sequence", "67108864"});
    CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, HasSubstr("is more than 68719476736 tokens"));
  }
  // The most that is taken: every size is one, and none fits.
  Answer most = inspect("qwen3-235b-a22b",
                        {"--devices", "sim:2xh200", "--batch", "1024", "--microbatches", "1",
                         "--sequence", "67108864", "--dtype", "fp32", "--host-memory", "64G"});
  EXPECT_EQ(most.exit_code, 4);
  EXPECT_GT(most.bytes("least_device"), kGiB);
  EXPECT_GT(most.host("boundaries"), int64_t{1024} * 67108864 * 4096 * 4 * 90);
  EXPECT_GT(most.host("total"), most.host("boundaries"));
  EXPECT_THAT(most.problem(), HasSubstr("for stage memory, but the smallest stages need"));
  EXPECT_THAT(most.problem(), ::testing::Not(::testing::ContainsRegex("-[0-9]")));
}

// What training does not take this does not either.
TEST(InspectCommand, TakesOfUpdatesWhatTrainingTakes) {
  auto code = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"inspect", "gpt2"});
    return run_command(options).exit_code;
  };
  EXPECT_EQ(code({"--device-share", "auto"}), 0);
  EXPECT_EQ(code({"--device-share", "0.5"}), 0);
  EXPECT_EQ(code({"--device-share", "0.5", "--optimizer", "sgd"}), 1);
  EXPECT_EQ(code({"--device-share", "0.5", "--moments", "8bit"}), 1);
  EXPECT_EQ(code({"--device-share", "1.5"}), 1);
  EXPECT_EQ(code({"--device-share", "nan"}), 1);
  EXPECT_EQ(code({"--clip-norm", "1e10"}), 1);
}

TEST(InspectCommand, RefusesWhatItDoesNotKnow) {
  auto expect_refusal = [](std::vector<std::string> arguments, int code, const char* message) {
    arguments.insert(arguments.begin(), "inspect");
    CommandResult result = run_command(arguments, ".", no_cards());
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(message));
    EXPECT_EQ(result.output, "");
  };
  expect_refusal({}, 1, "MODEL");
  expect_refusal({"nowhere"}, 1, "nowhere");
  expect_refusal({"gpt2", "--devices", "cpu:0"}, 1, "cpu:0");
  expect_refusal({"gpt2", "--devices", "cuda:0"}, 2, "cuda");
  expect_refusal({"gpt2", "--schedule", "mobius"}, 1, "this version trains by");
  expect_refusal({"gpt2", "--microbatches", "3"}, 1, "must divide --batch");
  expect_refusal({"gpt2", "--update", "never"}, 1, "never");
  expect_refusal({"gpt2", "--host-memory", "0"}, 1, "--host-memory is 0");
}

}  // namespace
}  // namespace stagecoach
