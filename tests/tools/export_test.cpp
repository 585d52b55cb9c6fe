#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/file.h"
#include "model/weight_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// One trained run, and what is exported from it.
class Export : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new RunFolder();
    CommandResult result = folder_->train({"train.iterations=3"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::vector<std::string> arguments(const std::string& checkpoint, const std::string& out,
                                            const std::vector<std::string>& more) {
    std::vector<std::string> list = {"export", "--checkpoint", checkpoint, "--out", out};
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }
  static CommandResult run(const std::string& checkpoint, const std::string& out,
                           const std::vector<std::string>& more = {}) {
    return run_command(arguments(checkpoint, out, more), folder_->path());
  }
  /// Its JSON; fails the test when the export does.
  static Json exported(const std::string& checkpoint, const std::string& out,
                       std::vector<std::string> more = {}) {
    more.emplace_back("--json");
    CommandResult result = run(checkpoint, out, more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output).value();
  }
  static std::vector<std::string> texts(const Json& json, const char* key) {
    std::vector<std::string> list;
    for (const Json& item : json.find(key)->items()) list.push_back(item.as_string());
    return list;
  }
  static WeightFolder weights(const std::string& name) {
    return WeightFolder::open(folder_->file(name)).value();
  }
  static std::vector<float> values(const FolderTensor& tensor) {
    std::vector<float> out(
        static_cast<size_t>(tensor.info->size / safetensors_type_size(tensor.info->type)));
    EXPECT_TRUE(tensor.file->read_f32(*tensor.info, 0, out).is_ok());
    return out;
  }
  /// On bytes as ids that no tokenizer is named for: text is refused for models that have one.
  static double loss_of(const std::string& model) {
    std::string ids;
    for (char byte : folder_->read("validation.txt")) ids += {byte, '\0'};
    folder_->write("validation.bin", ids);
    CommandResult result = run_command(
        {"eval", "--model", model, "--data", "validation.bin", "--sequence", "16", "--json"},
        folder_->path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return number(Json::parse(result.output).value(), "loss");
  }
  /// A model folder as people get it: weights in bf16 but for one tensor, in several files, under
  /// bare names, with fields of its own and a tokenizer.
  static void make_model(const std::string& name) {
    exported("out/checkpoint", name, {"--dtype", "bf16"});
    WeightFolder source = weights(name);
    std::vector<SafetensorsTensor> tensors;
    for (const FolderTensor& tensor : source.tensors()) {
      SafetensorsTensor out{tensor.info->name.substr(std::string("transformer.").size()),
                            tensor.info->type, tensor.info->shape};
      if (out.name == "ln_f.weight") out.type = SafetensorsType::kF32;
      out.read_f32 = [&tensor](int64_t first, std::span<float> piece) {
        return tensor.file->read_f32(*tensor.info, first, piece);
      };
      tensors.push_back(std::move(out));
    }
    ASSERT_TRUE(write_weight_folder(folder_->file(name), tensors, {5000}).is_ok());
    std::filesystem::remove(folder_->file(name + "/" + kWeightsFile));
    Json config = folder_->json(name + "/config.json");
    config["n_inner"] = Json();
    config["our_field"] = "kept";
    Json without = Json::object();
    for (const auto& [key, value] : config.members()) {
      if (key != "dtype") without[key] = value;
    }
    without["torch_dtype"] = "bfloat16";
    folder_->write(name + "/config.json", without.dump());
    folder_->write(name + "/tokenizer.json", "{\"model\":1}");
    folder_->write(name + "/merges.txt", "a b\n");
    folder_->write(name + "/generation_config.json", "{\"eos_token_id\":3}");
    folder_->write(name + "/README.md", "not copied");
  }

  static RunFolder* folder_;
};

RunFolder* Export::folder_ = nullptr;

TEST_F(Export, AFolderOfItsOwnThatComputesTheSame) {
  Json json = exported("out", "plain");
  EXPECT_THAT(texts(json, "files"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(folder_->list("plain"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(json.find("iteration")->as_integer(), 3);
  EXPECT_EQ(json.find("dtype")->as_string(), "float32");
  EXPECT_EQ(loss_of("plain"), loss_of("out/checkpoint"));
  Json config = folder_->json("plain/config.json");
  EXPECT_EQ(config.find("dtype")->as_string(), "float32");
  EXPECT_EQ(config.find("torch_dtype")->as_string(), "float32");
  EXPECT_EQ(config.find("architectures")->items().front().as_string(), "GPT2LMHeadModel");
  // Nothing unfinished is left beside it.
  for (const std::string& name : folder_->list(".")) EXPECT_THAT(name, Not(HasSubstr(".tmp")));
}

TEST_F(Export, AnInterruptLeavesNothingAndIsAnObject) {
  folder_->write("wide.json", R"({
    "model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 256, "n_layer": 4,
    "n_head": 4, "activation_function": "gelu_new"})");
  CommandResult trained =
      folder_->train({"model.path=wide.json", "train.iterations=1", "output.dir=wide"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  int interrupted = 0;
  for (int delay_ms = 1; interrupted < 3 && delay_ms < 2000; delay_ms += 1 + delay_ms / 10) {
    std::string out = "interrupted-" + std::to_string(delay_ms);
    RunningCommand command(arguments("wide", out, {"--json"}), folder_->path());
    usleep(static_cast<useconds_t>(delay_ms * 1000));
    command.send(SIGINT);
    CommandResult result = command.wait();
    if (result.signal != 0) continue;  // it came before the program had begun
    Result<Json> json = Json::parse(result.output);
    ASSERT_TRUE(json.is_ok()) << result.exit_code << result.output << result.errors;
    if (result.exit_code == 0) continue;  // and here it was done
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_EQ(number(*json, "exit_code"), 130);
    EXPECT_FALSE(folder_->exists(out));
    for (const std::string& name : folder_->list(".")) EXPECT_THAT(name, Not(HasSubstr(".tmp")));
    if (!result.errors.empty()) ++interrupted;  // the export itself has said so
  }
  EXPECT_GT(interrupted, 0);
}

TEST_F(Export, WhatAKilledExportLeftGoesWithTheNext) {
  pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  std::string left = ".killed." + std::to_string(ended) + ".tmp";
  std::string alive = ".killed." + std::to_string(::getpid()) + ".tmp";
  std::string other = ".killed.more." + std::to_string(ended) + ".tmp";
  for (const std::string& name : {left, alive, other}) {
    std::filesystem::create_directory(folder_->file(name));
    folder_->write(name + "/model.safetensors", "half");
  }
  Json json = exported("out", "killed");
  EXPECT_FALSE(folder_->exists(left));
  EXPECT_TRUE(folder_->exists(alive));
  EXPECT_TRUE(folder_->exists(other));
  EXPECT_THAT(texts(json, "notes"), Contains(HasSubstr(left)));
  EXPECT_TRUE(folder_->exists("killed/model.safetensors"));
  for (const std::string& name : {alive, other}) std::filesystem::remove_all(folder_->file(name));
}

TEST_F(Export, DtypesAreRoundedToTheNearestEven) {
  WeightFolder exact = weights("out/checkpoint");
  for (const char* dtype : {"bf16", "fp16"}) {
    std::string name = std::string("in-") + dtype;
    Json json = exported("out/checkpoint", name, {"--dtype", dtype});
    bool is_bf16 = std::string(dtype) == "bf16";
    EXPECT_EQ(folder_->json(name + "/config.json").find("dtype")->as_string(),
              is_bf16 ? "bfloat16" : "float16");
    WeightFolder rounded = weights(name);
    ASSERT_EQ(rounded.tensors().size(), exact.tensors().size());
    for (const FolderTensor& tensor : exact.tensors()) {
      std::vector<float> expected = values(tensor);
      for (float& value : expected) {
        value = is_bf16 ? to_float(to_bfloat16(value)) : to_float(to_float16(value));
      }
      EXPECT_EQ(values(*rounded.find(tensor.info->name)), expected) << tensor.info->name;
    }
  }
}

TEST_F(Export, LargeWeightsGoIntoSeveralFilesWithAnIndex) {
  Json json = exported("out/checkpoint", "sharded", {"--max-shard-size", "8K"});
  EXPECT_THAT(texts(json, "files"), Contains("model.safetensors.index.json"));
  WeightFolder folder = weights("sharded");
  int64_t total = 0;
  for (const FolderTensor& tensor : folder.tensors()) {
    total += tensor.info->size;
    EXPECT_EQ(tensor.file->header().metadata.at("format"), "pt");
  }
  EXPECT_EQ(folder_->json("sharded/model.safetensors.index.json")
                .find("metadata")
                ->find("total_size")
                ->as_integer(),
            total);
  EXPECT_EQ(json.find("weight_bytes")->as_integer(), total);
  EXPECT_EQ(loss_of("sharded"), loss_of("out/checkpoint"));
}

TEST_F(Export, AModelThatWasNotChangedComesBackBitForBit) {
  make_model("hf");
  CommandResult trained =
      folder_->train({"model.path=hf", "model.init=weights", "train.iterations=1",
                      "optimizer.lr=1e-300", "output.dir=still"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_THAT(trained.errors, HasSubstr(" of weights from hf in "));
  EXPECT_THAT(trained.errors, HasSubstr(" GB/s"));
  Json json = exported("still", "back", {"--max-shard-size", "5000"});
  EXPECT_THAT(texts(json, "notes"), IsEmpty());
  WeightFolder before = weights("hf");
  WeightFolder after = weights("back");
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const FolderTensor& tensor : before.tensors()) {
    const FolderTensor* same = after.find(tensor.info->name);
    ASSERT_NE(same, nullptr) << tensor.info->name;
    EXPECT_EQ(same->info->type, tensor.info->type);
    EXPECT_EQ(same->info->shape, tensor.info->shape);
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.info->size));
    std::vector<std::byte> found(bytes.size());
    ASSERT_TRUE(tensor.file->read(*tensor.info, 0, bytes).is_ok());
    ASSERT_TRUE(same->file->read(*same->info, 0, found).is_ok());
    EXPECT_EQ(found, bytes) << tensor.info->name;
  }
  Json config = folder_->json("back/config.json");
  EXPECT_EQ(config.find("our_field")->as_string(), "kept");
  EXPECT_TRUE(config.find("n_inner")->is_null());
  EXPECT_EQ(config.find("dtype")->as_string(), "bfloat16");
  for (const char* name : {"tokenizer.json", "merges.txt", "generation_config.json"}) {
    EXPECT_EQ(folder_->read(std::string("back/") + name), folder_->read(std::string("hf/") + name));
    EXPECT_THAT(texts(json, "files"), Contains(name));
  }
  EXPECT_FALSE(folder_->exists("back/README.md"));
  EXPECT_EQ(loss_of("back"), loss_of("hf"));

  // A run from that run's checkpoint still finds the model, and one whose model has gone says so.
  CommandResult again = folder_->train({"model.path=still/checkpoint", "model.init=weights",
                                        "train.iterations=1", "output.dir=again"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  exported("again", "grandchild");
  EXPECT_TRUE(folder_->exists("grandchild/tokenizer.json"));
  folder_->write("hf/config.json", R"({"model_type": "gpt2", "n_layer": 77, "vocab_size": 257})");
  json = exported("still", "other");
  EXPECT_THAT(texts(json, "notes"), ElementsAre(HasSubstr("is not the model that was trained: ")));
  EXPECT_FALSE(folder_->exists("other/tokenizer.json"));
  std::filesystem::rename(folder_->file("hf"), folder_->file("moved"));
  json = exported("still", "orphan");
  EXPECT_THAT(texts(json, "notes"), ElementsAre(HasSubstr("'hf', is no folder here")));
  EXPECT_THAT(folder_->list("orphan"), ElementsAre("config.json", "model.safetensors"));
}

TEST_F(Export, RefusalsWriteNothing) {
  std::vector<std::string> before = folder_->list(".");
  auto refusal = [&](const std::string& checkpoint, const std::string& out,
                     const std::vector<std::string>& more = {}) {
    CommandResult result = run(checkpoint, out, more);
    EXPECT_EQ(result.exit_code, 1) << result.errors;
    return result.errors;
  };
  EXPECT_THAT(refusal("out", "out"), HasSubstr("--out is 'out', which is not empty"));
  EXPECT_THAT(refusal("out", "train.txt"), HasSubstr("--out is 'train.txt', which is a file"));
  EXPECT_THAT(refusal("nowhere", "new"), HasSubstr("there is no checkpoint in 'nowhere'"));
  EXPECT_THAT(refusal("out", "new", {"--merge-lora"}), HasSubstr("holds no adapters"));
  EXPECT_THAT(refusal("out", "new", {"--dtype", "fp8"}), HasSubstr("--dtype: dtype 'fp8'"));
  EXPECT_THAT(refusal("out", "new", {"--max-shard-size", "0"}), HasSubstr("--max-shard-size"));
  EXPECT_EQ(folder_->list("."), before);
}

TEST_F(Export, WeightsThatWereChangedAreNotExported) {
  std::filesystem::copy(folder_->file("out"), folder_->file("damaged"),
                        std::filesystem::copy_options::recursive);
  std::string path = "damaged/checkpoint-3/model.safetensors";
  std::string content = folder_->read(path);
  content[content.size() - 3] = static_cast<char>(content[content.size() - 3] ^ 1);
  folder_->write(path, content);
  CommandResult result = run("damaged", "from-damaged");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.errors, HasSubstr("the sha256 of the weights is "));
  EXPECT_FALSE(folder_->exists("from-damaged"));
}

TEST_F(Export, AnEmptyFolderIsFilled) {
  ASSERT_TRUE(make_folders(folder_->file("empty/inner")).is_ok());
  EXPECT_EQ(run("out", "empty/inner/").exit_code, 0);
  EXPECT_THAT(folder_->list("empty/inner"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(folder_->list("empty"), ElementsAre("inner"));
}

TEST_F(Export, AFullDiskLeavesNothing) {
  std::string place = folder_->file("small");
  ASSERT_TRUE(make_folders(place).is_ok());
  MountedFolder mounted(place, 32 << 10);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  CommandResult result = run("out", "small/model");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("the export needs"));
  EXPECT_THAT(folder_->list("small"), IsEmpty());
}

}  // namespace
}  // namespace stagecoach
