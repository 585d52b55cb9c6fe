// Adapters through the command: trained, continued, evaluated, exported and merged.

#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "model/peft_adapter.h"
#include "model/weight_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

const std::vector<std::string> kLora = {
    "model.path=base", "model.init=weights",
    R"(model.lora={rank = 4, alpha = 8, targets = "all-linear"})", "optimizer.lr=0.01"};

std::vector<std::string> operator+(std::vector<std::string> one,
                                   const std::vector<std::string>& more) {
  one.insert(one.end(), more.begin(), more.end());
  return one;
}

/// A base in bf16, and a run of 12 iterations that trained adapters beside it.
class Lora : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new RunFolder();
    CommandResult result = folder_->train({"output.dir=full"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    result = run({"export", "--checkpoint", "full", "--out", "base", "--dtype", "bf16"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    result = folder_->train(kLora + std::vector<std::string>{"train.iterations=12"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static CommandResult run(const std::vector<std::string>& arguments) {
    return run_command(arguments, folder_->path());
  }
  static CommandResult train(const std::vector<std::string>& more,
                             const std::vector<std::string>& flags = {}) {
    return folder_->train(kLora + more, flags);
  }
  static std::string text_of(const std::string& folder, const char* key) {
    return folder_->json(folder + "/summary.json").find(key)->as_string();
  }
  static double loss_of(const std::string& model) {
    CommandResult result =
        run({"eval", "--model", model, "--data", "validation.txt", "--sequence", "16", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return number(Json::parse(result.output).value(), "loss");
  }
  static std::string refusal(const std::vector<std::string>& more, int exit_code = 1) {
    CommandResult result = train(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.errors;
    return result.errors;
  }

  static RunFolder* folder_;
};

RunFolder* Lora::folder_ = nullptr;

TEST_F(Lora, CheckpointsHoldTheAdaptersAndTheirMomentsAlone) {
  EXPECT_THAT(folder_->list("out/checkpoint"),
              ElementsAre("adapter_config.json", "adapter_model.safetensors", "config.json",
                          "optimizer.safetensors", "trainer_state.json"));
  auto adapters = fs::file_size(folder_->file("out/checkpoint/adapter_model.safetensors"));
  auto moments = fs::file_size(folder_->file("out/checkpoint/optimizer.safetensors"));
  EXPECT_LT(moments, 3 * adapters);
  Json summary = folder_->json("out/summary.json");
  EXPECT_LT(number(summary, "loss_last"), number(summary, "loss_first"));
  // The base is counted once, at the bytes of its compute copy: 4 in fp32.
  Json state = folder_->json("out/checkpoint/trainer_state.json");
  EXPECT_EQ(state.find("adapter")->find("r")->as_integer(), 4);
  EXPECT_EQ(state.find("base_sha256")->as_string().size(), 64u);
}

TEST_F(Lora, TrainsTheSameBitsFromAMappedBase) {
  // The base's files are bf16.
  for (const char* base : {"memory", "mapped"}) {
    CommandResult result = train({"model.dtype=bf16", std::string("model.base=") + base,
                                  std::string("output.dir=") + base, "train.iterations=5"},
                                 {"--check-races"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  EXPECT_EQ(text_of("memory", "weights_sha256"), text_of("mapped", "weights_sha256"));
  Json memory = folder_->json("memory/summary.json"), mapped = folder_->json("mapped/summary.json");
  EXPECT_EQ(number(memory, "loss_last"), number(mapped, "loss_last"));
  EXPECT_GT(number(mapped, "mapped_bytes"),
            0.9 * fs::file_size(folder_->file("base/model.safetensors")));
  EXPECT_GE(number(memory, "state_bytes") - number(mapped, "state_bytes"),
            number(mapped, "mapped_bytes"));
  EXPECT_EQ(number(memory, "races") + number(mapped, "races"), 0);
  EXPECT_THAT(refusal({"model.base=mapped", "output.dir=other"}),
              HasSubstr("is BF16, and model.dtype = \"fp32\""));
}

TEST_F(Lora, GoesOnBitForBitOnOtherDevices) {
  for (const char* update : {"overlap", "async", "barrier"}) {
    std::string mode = std::string("schedule.update=") + update;
    std::string straight = std::string("straight-") + update,
                halves = std::string("halves-") + update;
    CommandResult result =
        train({mode, "train.iterations=8", "output.dir=" + straight, "optimizer.decay=constant"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    result =
        train({mode, "train.iterations=4", "output.dir=" + halves, "optimizer.decay=constant"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    result = train({mode, "train.iterations=8", "output.dir=" + halves, "optimizer.decay=constant",
                    "devices.use=cpu:3"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("continuing from"));
    EXPECT_EQ(text_of(straight, "weights_sha256"), text_of(halves, "weights_sha256")) << update;
  }
}

TEST_F(Lora, DoesNotGoOnWithOtherAdaptersOrAnotherBase) {
  EXPECT_THAT(refusal({"model.lora.rank=8", "train.iterations=15"}),
              HasSubstr("cannot continue from out/checkpoint-12: model.lora.rank is 4 there and 8 "
                        "here"));
  EXPECT_THAT(refusal({"model.lora.targets=c_attn", "train.iterations=15"}),
              HasSubstr("model.lora.targets is [\"c_attn\",\"c_fc\",\"c_proj\"] there"));
  fs::copy(folder_->file("base"), folder_->file("moved"));
  CommandResult result = train(
      {"model.path=moved", "train.iterations=13", "output.resume=out", "output.dir=from-moved"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  // One number of one tensor is another base.
  std::string file = folder_->file("moved/model.safetensors");
  std::string bytes = read_file(file).value();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  size_t at = sizeof(header) + static_cast<size_t>(header);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  ASSERT_TRUE(write_file_atomically(file, bytes).is_ok());
  EXPECT_THAT(refusal({"model.path=moved", "train.iterations=13", "output.resume=out",
                       "output.dir=from-other"}),
              HasSubstr("the sha256 of the base"));
  EXPECT_FALSE(folder_->exists("from-other"));
}

// A checkpoint as MODEL says which base it had, and that must be there still.
TEST_F(Lora, ItsCheckpointsAreNotUsedBesideAnotherBase) {
  std::string file = folder_->file("base/model.safetensors");
  std::string bytes = read_file(file).value(), changed = bytes;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  size_t at = sizeof(header) + static_cast<size_t>(header);
  changed[at] = static_cast<char>(changed[at] ^ 1);
  ASSERT_TRUE(write_file_atomically(file, changed).is_ok());
  CommandResult evaluated = run({"eval", "--model", "out/checkpoint", "--data", "validation.txt"});
  CommandResult generated =
      run({"generate", "--model", "out/checkpoint", "--prompt", "the ", "--tokens", "2"});
  CommandResult exported = run({"export", "--checkpoint", "out", "--out", "m", "--merge-lora"});
  CommandResult trained =
      folder_->train({"model.path=out/checkpoint", "model.init=weights", "output.dir=on"});
  ASSERT_TRUE(write_file_atomically(file, bytes).is_ok());
  for (const CommandResult& result : {evaluated, generated, exported, trained}) {
    EXPECT_EQ(result.exit_code, 3) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("is not the base that the adapters of")) << result.errors;
  }
}

TEST_F(Lora, EvaluatesAndGeneratesFromCheckpointAdapterAndMergedModelAlike) {
  double base = loss_of("base"), trained = loss_of("out/checkpoint");
  EXPECT_LT(trained, base - 0.003);
  ASSERT_EQ(run({"export", "--checkpoint", "out", "--out", "adapter"}).exit_code, 0);
  EXPECT_THAT(folder_->list("adapter"),
              ElementsAre("adapter_config.json", "adapter_model.safetensors"));
  EXPECT_EQ(loss_of("adapter"), trained);
  CommandResult merged =
      run({"export", "--checkpoint", "out", "--out", "merged", "--merge-lora", "--dtype", "fp32"});
  ASSERT_EQ(merged.exit_code, 0) << merged.errors;
  EXPECT_THAT(folder_->list("merged"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_NEAR(loss_of("merged"), trained, 1e-5 * trained);
  // As the base has it: rounded once.
  ASSERT_EQ(run({"export", "--checkpoint", "out", "--out", "half", "--merge-lora"}).exit_code, 0);
  EXPECT_NEAR(loss_of("half"), trained, 1e-2 * trained);
  EXPECT_EQ(WeightFolder::open(folder_->file("half"))->tensors().size(),
            WeightFolder::open(folder_->file("base"))->tensors().size());
  std::string texts[3];
  const char* models[] = {"out/checkpoint", "adapter", "merged"};
  for (int i = 0; i < 3; ++i) {
    CommandResult result = run({"generate", "--model", models[i], "--prompt", "the ", "--tokens",
                                "12", "--temperature", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    texts[i] = result.output;
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST_F(Lora, AnAdapterIsTrainedOnFromItsOwnFolder) {
  CommandResult result = run({"export", "--checkpoint", "out", "--out", "start"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  result = folder_->train({"model.path=start", "model.init=weights", "output.dir=onward",
                           "train.iterations=2", "optimizer.lr=0.001"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_LT(loss_of("onward/checkpoint"), loss_of("base") - 0.003);
  EXPECT_TRUE(folder_->exists("onward/checkpoint/adapter_model.safetensors"));
}

TEST_F(Lora, RefusalsWriteNothing) {
  EXPECT_THAT(refusal({"model.lora.targets=c_attm", "output.dir=new"}),
              HasSubstr("did you mean 'c_attn'"));
  // Field report 17: the head is the embedding.
  EXPECT_THAT(refusal({"model.lora.targets=lm_head", "output.dir=new"}),
              HasSubstr("'lm_head' names no module of the layers"));
  EXPECT_THAT(refusal({"model.init=random", "output.dir=new"}), HasSubstr("were trained"));
  EXPECT_THAT(refusal({"model.path=gpt2", "output.dir=new"}),
              AllOf(HasSubstr("name a folder that has them"), Not(HasSubstr("random"))));
  CommandResult split =
      run({"export", "--checkpoint", "out", "--out", "new", "--max-shard-size", "1M"});
  EXPECT_EQ(split.exit_code, 1);
  EXPECT_THAT(split.errors, HasSubstr("adapters are one file"));
  EXPECT_FALSE(folder_->exists("new"));
  // Of a base that has gone, adapters are still exported, and nothing is merged.
  fs::rename(folder_->file("base"), folder_->file("gone"));
  CommandResult result = run({"export", "--checkpoint", "out", "--out", "left"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  result = run({"export", "--checkpoint", "out", "--out", "new", "--merge-lora"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("--merge-lora needs the base"),
                                   HasSubstr("is no folder here"), HasSubstr("put it back")));
  result = run({"eval", "--model", "out/checkpoint", "--data", "validation.txt"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("base_model_name_or_path is"));
  EXPECT_FALSE(folder_->exists("new"));
  fs::rename(folder_->file("gone"), folder_->file("base"));
}

// A checkpoint of adapters is planned as what it is, and mapped only where training maps.
TEST_F(Lora, InspectTakesAndRefusesWhatTrainingDoes) {
  CommandResult inspected = run({"inspect", "out/checkpoint", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.errors;
  Json json = Json::parse(inspected.output).value();
  Json summary = folder_->json("out/summary.json");
  EXPECT_EQ(number(json, "parameters"), number(summary, "parameters"));
  EXPECT_LT(number(json, "trained_parameters"), 0.5 * number(json, "parameters"));
  EXPECT_THAT(json.find("notes")->dump(), HasSubstr("adapters of rank 4"));
  inspected = run({"inspect", "out/checkpoint", "--lora-rank", "8"});
  EXPECT_EQ(inspected.exit_code, 1);
  EXPECT_THAT(inspected.errors,
              HasSubstr("is an adapter's folder of rank 4: leave the option out"));
  // The base is bf16, and GPT-2 is planned in fp32.
  for (const std::string model : {"base", "out/checkpoint"}) {
    std::vector<std::string> mapped = {"inspect", model, "--base", "mapped"};
    if (model == "base") mapped = mapped + std::vector<std::string>{"--lora-rank", "4"};
    inspected = run(mapped);
    EXPECT_EQ(inspected.exit_code, 1) << model;
    EXPECT_THAT(inspected.errors, HasSubstr("is BF16, and model.dtype = \"fp32\""));
    inspected = run(mapped + std::vector<std::string>{"--dtype", "bf16"});
    EXPECT_EQ(inspected.exit_code, 0) << inspected.errors;
  }
  // More rows than the matrices have: of no use, and PEFT's too.
  CommandResult wide = train({"model.lora.rank=64", "train.iterations=1", "output.dir=wide"});
  EXPECT_EQ(wide.exit_code, 0) << wide.errors;
  inspected = run({"inspect", "base", "--lora-rank", "64", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.errors;
  EXPECT_EQ(number(Json::parse(inspected.output).value(), "parameters"),
            number(folder_->json("wide/summary.json"), "parameters"));
}

TEST(LoraPlans, RefuseWhatTrainingRefuses) {
  RunFolder folder;
  folder.write("model.json", R"({
    "model_type": "llama", "vocab_size": 257, "hidden_size": 24, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 32})");
  ASSERT_EQ(folder.train({"train.iterations=1", "optimizer.warmup=0"}).exit_code, 0);
  for (const char* rank : {"2", "4"}) {
    CommandResult planned =
        run_command({"inspect", "out/checkpoint", "--lora-rank", rank, "--json"}, folder.path());
    CommandResult trained = folder.train(
        {"model.path=out/checkpoint", "model.init=weights", "output.dir=adapted",
         "train.iterations=1", "optimizer.warmup=0", std::string("model.lora.rank=") + rank});
    EXPECT_EQ(planned.exit_code, *rank == '2' ? 1 : 0) << planned.errors;
    EXPECT_EQ(trained.exit_code, planned.exit_code) << trained.errors;
    if (*rank == '4') continue;
    for (const std::string& message : {planned.errors, trained.errors}) {
      EXPECT_THAT(message, HasSubstr("24 columns is a multiple of 32; choose a rank that is a "
                                     "multiple of 4"));
    }
  }
  for (const char* rank : {"0", "65537"}) {
    CommandResult refused = run_command({"inspect", "gpt2", "--lora-rank", rank});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, HasSubstr(std::string("--lora-rank is ") + rank));
  }
}

// Beside experts training adapts attention alone.
TEST(LoraPlans, CountAdaptersOfExpertsWhereThatIsAskedForAlone) {
  auto inspected = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"inspect", "gpt-oss-20b",   "--json", "--lora-rank",
                                          "16",      "--host-memory", "200G"};
    CommandResult result = run_command(arguments + more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output).value();
  };
  Json trained = inspected({}), planned = inspected({"--lora-experts"});
  // 24 layers of 2880 columns, 64 heads and 8 of 64.
  int64_t attention = 24 * int64_t{16} * (3 * 2880 + 4096 + 2 * 512 + 4096 + 2880);
  EXPECT_EQ(trained.find("trained_parameters")->as_integer(), attention);
  EXPECT_GT(planned.find("trained_parameters")->as_integer(), 10 * attention);
  EXPECT_THAT(trained.find("notes")->dump(), HasSubstr("planned in bf16"));
  EXPECT_THAT(trained.find("notes")->dump(), Not(HasSubstr("planned only")));
  EXPECT_THAT(planned.find("notes")->dump(), HasSubstr("planned only: training has no adapters"));
  CommandResult dense = run_command({"inspect", "gpt2", "--lora-rank", "4", "--lora-experts"});
  EXPECT_EQ(dense.exit_code, 1);
  EXPECT_THAT(dense.errors, HasSubstr("a model with experts"));
}

TEST(LoraPlans, CountWhatTrainingHoldsAndWhatStaysInFiles) {
  auto inspected = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"inspect", "qwen3-1.7b",    "--lora-rank", "16",
                                          "--json",  "--host-memory", "64G"};
    CommandResult result = run_command(arguments + more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output).value();
  };
  Json memory = inspected({}), mapped = inspected({"--base", "mapped"});
  // 28 layers: q, k, v, o, gate, up and down of 2048 and 6144 columns, 16 heads and 8 of 128.
  int64_t adapters = 28 * int64_t{16} *
                     (3 * 2048 + 2048 + 2 * 1024 + 2048 + 2048 + 2 * (2048 + 6144) + 6144 + 2048);
  EXPECT_EQ(memory.find("trained_parameters")->as_integer(), adapters);
  double base = 2.0 * (memory.find("parameters")->as_integer() - adapters);
  double frozen = memory.find("bytes")->find("host")->find("frozen")->as_number();
  double kept = mapped.find("bytes")->find("host")->find("frozen")->as_number();
  EXPECT_NEAR(mapped.find("bytes")->find("mapped")->as_number(), base, 1e6);
  EXPECT_NEAR(frozen - kept, base, 1e6);
  // Tables of the rotary positions and factors of the adapters.
  EXPECT_LT(kept, 4e6);
  CommandResult refused = run_command({"inspect", "qwen3-1.7b", "--base", "mapped"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("--lora-rank"));
}

}  // namespace
}  // namespace stagecoach
