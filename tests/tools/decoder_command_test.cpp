// Llama, Qwen3, Qwen3-MoE and GPT-OSS through the command: train, resume, train on from a folder,
// eval, generate.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "core/file.h"
#include "model/safetensors.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;
using testing::Not;

using Settings = std::vector<std::string>;

constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257,
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-05,
  "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
  "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
  "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16",
  "_name_or_path": "somewhere", "my_note": "kept"})";

constexpr const char* kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 257,
  "hidden_size": 32, "head_dim": 16, "intermediate_size": 48, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
  "tie_word_embeddings": true, "dtype": "bfloat16",
  "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}})";

constexpr const char* kQwen3Moe = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 257,
  "hidden_size": 32, "head_dim": 16, "moe_intermediate_size": 24, "num_hidden_layers": 3,
  "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
  "tie_word_embeddings": false, "dtype": "bfloat16",
  "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}})";

constexpr const char* kGptOss = R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 257,
  "hidden_size": 32, "head_dim": 16, "intermediate_size": 24, "num_hidden_layers": 3,
  "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 7.0,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
  "tie_word_embeddings": false, "attention_bias": true, "dtype": "bfloat16",
  "output_router_logits": true, "router_aux_loss_coef": 0.02,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
                      "truncate": false, "original_max_position_embeddings": 16}})";

class DecoderCommand : public testing::TestWithParam<const char*> {
 protected:
  DecoderCommand() { folder_.write("model.json", GetParam()); }

  /// Trains in `out`, or goes on there, and returns the digest of the weights.
  std::string train(const std::string& out, const Settings& settings) {
    Settings all = {"model.init=random", "optimizer.decay=constant", "output.save_every=0",
                    "output.trace=false", "output.dir=" + out};
    all.insert(all.end(), settings.begin(), settings.end());
    CommandResult result = folder_.train(all);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    errors_ = result.errors;
    return folder_.json(out + "/summary.json").find("weights_sha256")->as_string();
  }
  CommandResult run(const Settings& arguments) { return run_command(arguments, folder_.path()); }
  double eval(const std::string& model) {
    CommandResult result =
        run({"eval", "--model", model, "--data", "validation.txt", "--sequence", "16", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return number(Json::parse(result.output).value(), "loss");
  }

  RunFolder folder_;
  std::string errors_;
};

TEST_P(DecoderCommand, TenIterationsAndTenMoreAreTwentyBitForBit) {
  for (const char* dtype : {"fp32", "bf16"}) {
    SCOPED_TRACE(dtype);
    Settings settings = {std::string("model.dtype=") + dtype};
    std::string out = dtype, whole = train(out + "-whole", settings);
    Settings half = settings;
    half.emplace_back("train.iterations=10");
    EXPECT_NE(train(out, half), whole);
    settings.emplace_back("devices.use=cpu:3");
    EXPECT_EQ(train(out, settings), whole);
    EXPECT_THAT(errors_, HasSubstr("continuing from"));
    EXPECT_THAT(errors_, HasSubstr("rotary positions of theta"));
  }
}

TEST_P(DecoderCommand, OneDeviceAndBoundSchedulesGiveTheSameWeights) {
  std::string one = train("one", {"devices.use=cpu:1", "schedule.kind=single"});
  EXPECT_EQ(train("four", {"devices.use=cpu:4"}), one);
  EXPECT_EQ(train("bound", {"schedule.kind=1f1b", "devices.use=cpu:3"}), one);
  EXPECT_EQ(train("split", {"schedule.kind=zb-h1"}), one);
}

TEST_P(DecoderCommand, ACheckpointIsAFolderToGoOnFrom) {
  train("out", {"train.eval_every=20"});
  Json summary = folder_.json("out/summary.json");
  EXPECT_LT(number(summary, "loss_last"), number(summary, "loss_first") - 0.5);
  double loss = eval("out/checkpoint");
  EXPECT_NEAR(loss, number(summary, "validation_loss"), 1e-6 * loss);

  // Every field of the model's config.json is in the checkpoint's; the weights there are fp32.
  Json written = folder_.json("out/checkpoint/config.json");
  Json given = Json::parse(GetParam()).value();
  for (const auto& [name, value] : given.members()) {
    ASSERT_NE(written.find(name), nullptr) << name;
    if (name != "dtype" && name != "torch_dtype") {
      EXPECT_EQ(written.find(name)->dump(), value.dump());
    }
  }
  EXPECT_EQ(written.find("dtype")->as_string(), "float32");
  EXPECT_EQ(written.find("torch_dtype")->as_string(), "float32");
  Result<SafetensorsFile> file =
      SafetensorsFile::open(folder_.file("out/checkpoint/model.safetensors"));
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(file->find("lm_head.weight") == nullptr, given.find("tie_word_embeddings")->as_bool());
  EXPECT_NE(file->find("model.layers.2.self_attn.k_proj.weight"), nullptr);

  CommandResult exported = run({"export", "--checkpoint", "out/checkpoint", "--out", "exported"});
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  EXPECT_EQ(eval("exported"), loss);

  CommandResult more = folder_.train(
      {"model.path=out/checkpoint", "model.init=weights", "output.dir=more", "train.iterations=1"});
  ASSERT_EQ(more.exit_code, 0) << more.errors;
  EXPECT_LT(number(folder_.json("more/summary.json"), "loss_first"),
            number(summary, "loss_first") - 0.5);
  EXPECT_EQ(folder_.read("more/checkpoint/config.json"),
            folder_.read("out/checkpoint/config.json"));
}

// The constant that positions come from is in what inspect adds up, to the byte.
TEST_P(DecoderCommand, InspectSaysTheLeastDeviceMemoryThatTrains) {
  auto fits = [&](int64_t memory) {
    CommandResult result =
        run({"inspect", "model.json", "--devices", "cpu:2[memory=" + std::to_string(memory) + "]",
             "--dtype", "bf16", "--batch", "4", "--microbatches", "2", "--sequence", "16",
             "--host-memory", "1G"});
    return result.exit_code == 0;
  };
  int64_t too_small = 1, enough = int64_t{64} << 20;
  while (enough - too_small > 1) {
    int64_t middle = (enough + too_small) / 2;
    (fits(middle) ? enough : too_small) = middle;
  }
  auto exit_code = [&](int64_t memory) {
    return folder_
        .train({"model.init=random", "model.dtype=bf16", "data.sequence=16", "train.batch=4",
                "train.microbatches=2", "train.iterations=1", "output.dir=out",
                "devices.use=cpu:2[memory=" + std::to_string(memory) + "]"})
        .exit_code;
  };
  EXPECT_EQ(exit_code(too_small), 4);
  EXPECT_EQ(exit_code(enough), 0);
}

TEST_P(DecoderCommand, GeneratesBeyondItsPositions) {
  train("out", {});
  Settings command = {"generate", "--model", "out/checkpoint", "--prompt", "line ",
                      "--tokens", "60",      "--temperature",  "0",        "--json"};
  CommandResult first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_EQ(run(command).output, first.output);
  EXPECT_EQ(number(Json::parse(first.output).value(), "tokens"), 60);
}

TEST_P(DecoderCommand, ResumesWithTheSameModelWhateverItsFileSaysBesides) {
  train("out", {"train.iterations=2"});
  std::string text = GetParam();
  folder_.write("model.json", text.replace(text.find('{'), 1, "{\"transformers_version\": \"9\","));
  train("out", {"train.iterations=3"});
  EXPECT_THAT(errors_, HasSubstr("continuing from"));
  text.replace(text.find("\"rope_theta\": 1"), 15, "\"rope_theta\": 2");
  folder_.write("model.json", text);
  CommandResult other = folder_.train({"model.init=random", "output.dir=out"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("cannot continue from"));
  EXPECT_THAT(other.errors, HasSubstr("the model's rope_"));
}

TEST_P(DecoderCommand, RotaryPositionsGoOnWithAWarning) {
  train("out", {"data.sequence=48", "train.iterations=2"});
  EXPECT_THAT(errors_, HasSubstr("data.sequence = 48 is longer than the 32 positions"));
}

TEST_P(DecoderCommand, InspectSaysWhatItTook) {
  CommandResult result = run({"inspect", "model.json", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Json json = Json::parse(result.output).value();
  EXPECT_EQ(number(json, "parameters"), number(json, "trained_parameters"));
  std::string notes = json.find("notes")->dump();
  EXPECT_THAT(notes, HasSubstr("rotary positions of theta 1"));
  EXPECT_THAT(notes, Not(HasSubstr("planned only")));
  std::string text = GetParam();
  folder_.write("model.json", text.replace(text.find("\"vocab_size\""), 0, "\"clip_qkv\": 8, "));
  EXPECT_THAT(run({"inspect", "model.json", "--json"}).output,
              HasSubstr("planned only: model.json: clip_qkv is 8"));
}

TEST_P(DecoderCommand, RefusesByName) {
  auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = GetParam();
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    folder_.write("model.json", text.replace(at, from.size(), to));
    CommandResult result = folder_.train({"model.init=random"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_FALSE(folder_.exists("out"));
    return result.errors;
  };
  EXPECT_THAT(refusal("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
              HasSubstr("model.json: num_attention_heads is 4, expected a multiple"));
}

constexpr const char* kFamilies[] = {"llama", "qwen3", "qwen3_moe", "gpt_oss"};

INSTANTIATE_TEST_SUITE_P(Families, DecoderCommand,
                         testing::Values(kLlama, kQwen3, kQwen3Moe, kGptOss),
                         [](const auto& param) { return std::string(kFamilies[param.index]); });

/// Experts in folders of both kinds.
class ExpertsCommand : public testing::Test {
 protected:
  void train(const std::string& out, const Settings& settings) {
    Settings all = {"output.dir=" + out, "train.iterations=1", "output.trace=false"};
    all.insert(all.end(), settings.begin(), settings.end());
    CommandResult result = folder_.train(all);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  void export_run(const std::string& run, const std::string& out) {
    CommandResult result =
        run_command({"export", "--checkpoint", run, "--out", out}, folder_.path());
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  std::map<std::string, std::vector<std::byte>> tensors(const std::string& model) {
    std::map<std::string, std::vector<std::byte>> found;
    SafetensorsFile file =
        SafetensorsFile::open(folder_.file(model + "/model.safetensors")).value();
    for (const SafetensorInfo& tensor : file.header().tensors) {
      std::vector<std::byte>& bytes = found[tensor.name];
      bytes.resize(static_cast<size_t>(tensor.size));
      EXPECT_TRUE(file.read(tensor, 0, bytes).is_ok());
    }
    return found;
  }

  /// A folder "packed" as GPT-OSS is published, and "ids.bin" of its vocabulary; where it is from.
  std::filesystem::path write_packed() {
    std::filesystem::path source =
        std::filesystem::path(STAGECOACH_SOURCE_DIR) / "tests/reference/decoders/gpt-oss-mxfp4";
    std::filesystem::create_directory(folder_.file("packed"));
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(source / name, folder_.file(std::string("packed/") + name));
    }
    std::string ids;
    for (int i = 0; i < 400; ++i) ids += {static_cast<char>(i * i % 40), '\0'};
    folder_.write("ids.bin", ids);
    return source;
  }

  RunFolder folder_;
};

TEST_F(ExpertsCommand, ComeBackBitForBitStackedOrOneByOne) {
  folder_.write("model.json", kQwen3Moe);
  train("out", {"model.init=random"});
  // Nothing says how: one by one, which all tools read.
  export_run("out", "single");
  auto single = tensors("single");
  constexpr const char* kStack = "model.layers.1.mlp.experts.gate_up_proj";
  constexpr const char* kOne = "model.layers.1.mlp.experts.5.up_proj.weight";
  EXPECT_TRUE(single.contains(kOne));
  EXPECT_FALSE(single.contains(kStack));
  // As it was trained: stacked.
  std::filesystem::create_directory(folder_.file("stacked"));
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(folder_.file(std::string("out/checkpoint/") + name),
                               folder_.file(std::string("stacked/") + name));
  }
  EXPECT_TRUE(tensors("stacked").contains(kStack));
  for (const std::string model : {"single", "stacked"}) {
    train(model + "-run", {"model.path=" + model, "model.init=weights", "optimizer.lr=1e-300"});
    export_run(model + "-run", model + "-back");
    EXPECT_EQ(tensors(model + "-back"), tensors(model)) << model;
  }
  // The halves of a stack are the gates, then the ups.
  std::vector<std::byte> stack = tensors("stacked").at(kStack);
  const std::vector<std::byte>& last = single.at(kOne);
  EXPECT_TRUE(
      std::equal(last.begin(), last.end(), stack.end() - static_cast<int64_t>(last.size())));
}

/// What balances experts: as the model's file says, or as the run does.
TEST_F(ExpertsCommand, ARouterLossIsWhatTheFileOrTheRunSays) {
  auto begin = [&](const std::string& out, const Settings& settings) {
    Settings all = {"model.init=random", "output.dir=" + out, "output.trace=false",
                    "train.iterations=4"};
    all.insert(all.end(), settings.begin(), settings.end());
    return folder_.train(all);
  };
  auto weights = [&](const std::string& out) {
    return folder_.json(out + "/summary.json").find("weights_sha256")->as_string();
  };
  folder_.write("model.json", kQwen3Moe);
  CommandResult off = begin("off", {});
  ASSERT_EQ(off.exit_code, 0) << off.errors;
  EXPECT_THAT(off.errors, Not(HasSubstr("load-balancing")));
  CommandResult on = begin("on", {"train.router_loss=0.02"});
  ASSERT_EQ(on.exit_code, 0) << on.errors;
  EXPECT_THAT(on.errors,
              HasSubstr("loss + 0.02 x load-balancing loss of its experts, as train.router_loss"));
  EXPECT_NE(weights("on"), weights("off"));
  for (const Json& line : RunFolder::json_lines(folder_.read("off/metrics.jsonl"))) {
    EXPECT_EQ(line.find("router_loss"), nullptr);
  }
  size_t told = 0;
  for (const Json& line : RunFolder::json_lines(folder_.read("on/metrics.jsonl"))) {
    if (line.find("loss") == nullptr) continue;
    EXPECT_GT(number(line, "router_loss"), 1.8);  // two experts a token
    EXPECT_LT(number(line, "router_loss"), 6.1);
    ++told;
  }
  EXPECT_EQ(told, 4u);

  CommandResult other = begin("on", {"train.router_loss=0.5", "train.iterations=5"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("train.router_loss is 0.02 there and 0.5 here"));

  std::string text = kQwen3Moe;
  folder_.write("model.json", text.replace(text.find("\"dtype\""), 0,
                                           "\"output_router_logits\": true, "
                                           "\"router_aux_loss_coef\": 0.02, "));
  CommandResult file = begin("file", {});
  ASSERT_EQ(file.exit_code, 0) << file.errors;
  EXPECT_THAT(file.errors, HasSubstr("as router_aux_loss_coef in config.json says"));
  EXPECT_EQ(weights("file"), weights("on"));
  EXPECT_THAT(run_command({"inspect", "model.json"}, folder_.path()).output,
              HasSubstr("training adds 0.02 x load-balancing loss"));
  ASSERT_EQ(begin("zero", {"train.router_loss=0"}).exit_code, 0);
  EXPECT_EQ(weights("zero"), weights("off"));

  folder_.write("model.json", kLlama);
  CommandResult dense = begin("dense", {"train.router_loss=0.02"});
  EXPECT_EQ(dense.exit_code, 1);
  EXPECT_THAT(dense.errors, HasSubstr("train.router_loss = 0.02, but model 'model.json' has no "
                                      "experts to balance; expected \"auto\" or 0"));
  EXPECT_FALSE(folder_.exists("dense"));
}

/// GPT-OSS as it is published, with packed experts: what is exported is plain, says so, and is what
/// transformers unpacks.
TEST_F(ExpertsCommand, PackedOnesAreExportedPlain) {
  std::filesystem::path source = write_packed();
  train("run", {"model.path=packed", "model.init=weights", "optimizer.lr=1e-300",
                "data.train=ids.bin", "data.validation=ids.bin"});
  CommandResult exported = run_command(
      {"export", "--checkpoint", "run", "--out", "plain", "--dtype", "fp32"}, folder_.path());
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  EXPECT_THAT(exported.output + exported.errors,
              HasSubstr("written as plain float32, so config.json has no quantization_config"));
  for (const char* model : {"run/checkpoint", "plain"}) {
    Json config = folder_.json(std::string(model) + "/config.json");
    EXPECT_EQ(config.find("quantization_config"), nullptr) << model;
  }
  SafetensorsFile plain = SafetensorsFile::open(folder_.file("plain/model.safetensors")).value();
  SafetensorsFile expected =
      SafetensorsFile::open((source / "expected.safetensors").string()).value();
  for (const char* kind : {"gate_up_proj", "down_proj"}) {
    std::string name = std::string("model.layers.0.mlp.experts.") + kind;
    const SafetensorInfo* tensor = expected.find("unpacked." + name);
    ASSERT_NE(tensor, nullptr);
    const SafetensorInfo* found = plain.find(name);
    ASSERT_NE(found, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(tensor->size) / sizeof(float));
    std::vector<float> written(values.size());
    ASSERT_TRUE(expected.read_f32(*tensor, 0, values).is_ok());
    ASSERT_TRUE(plain.read_f32(*found, 0, written).is_ok());
    EXPECT_EQ(written, values) << name;  // but for the sign of zeros, which an update may turn
    EXPECT_EQ(plain.find(name + "_blocks"), nullptr);
  }
}

/// Mapped weights travel as they lie in the file, which packed ones cannot.
TEST_F(ExpertsCommand, PackedOnesAreABaseForAdaptersInMemory) {
  write_packed();
  auto train_adapters = [&](const std::string& base) {
    return folder_.train({"model.path=packed", "model.init=weights", "model.dtype=bf16",
                          "model.base=" + base,
                          R"(model.lora={rank = 2, alpha = 4, targets = "all-linear"})",
                          "data.train=ids.bin", "data.validation=ids.bin", "output.dir=adapted",
                          "optimizer.lr=0.01", "train.iterations=5"});
  };
  CommandResult mapped = train_adapters("mapped");
  EXPECT_EQ(mapped.exit_code, 1);
  EXPECT_THAT(mapped.errors, HasSubstr("gate_up_proj_blocks' is packed as MXFP4"));
  EXPECT_THAT(mapped.errors, HasSubstr("set model.base = \"memory\" (--base memory)"));
  CommandResult planned =
      run_command({"inspect", "packed", "--lora-rank", "2", "--base", "mapped"}, folder_.path());
  EXPECT_EQ(planned.exit_code, 1);
  EXPECT_THAT(planned.errors, HasSubstr("is packed as MXFP4"));
  planned = run_command({"inspect", "packed", "--lora-rank", "2"}, folder_.path());
  EXPECT_EQ(planned.exit_code, 0) << planned.errors;
  CommandResult result = train_adapters("memory");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Json summary = folder_.json("adapted/summary.json");
  EXPECT_LT(number(summary, "loss_last"), number(summary, "loss_first"));
  CommandResult merged = run_command(
      {"export", "--checkpoint", "adapted", "--out", "merged", "--merge-lora"}, folder_.path());
  EXPECT_EQ(merged.exit_code, 1);
  EXPECT_THAT(merged.errors, HasSubstr("is packed as MXFP4, and this version writes none"));
}

}  // namespace
}  // namespace stagecoach
