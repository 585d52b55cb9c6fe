#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/file.h"
#include "model/weight_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace fs = std::filesystem;

/// Model folders as strangers leave them, given to the command. "hf" is a good one in several
/// files; tests change a copy of it, "m".
class ModelFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new RunFolder();
    CommandResult trained = folder_->train({"train.iterations=3"});
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    CommandResult exported =
        run_command({"export", "--checkpoint", "out", "--out", "hf", "--max-shard-size", "8K"},
                    folder_->path());
    ASSERT_EQ(exported.exit_code, 0) << exported.errors;
    fs::remove_all(folder_->file("out"));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override {
    fs::remove_all(path("m"));
    fs::copy(path("hf"), path("m"));
  }

  static std::string path(const std::string& name) { return folder_->file(name); }
  static std::string shard(int number) {
    return fmt::format("m/model-{:05}-of-00006.safetensors", number);
  }
  static CommandResult train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings = {"model.path=m", "model.init=weights", "train.iterations=1",
                                         "output.dir=never"};
    settings.insert(settings.end(), more.begin(), more.end());
    return folder_->train(settings);
  }

  /// Training, evaluating, planning and inspecting all refuse "m" alike, fast and without a trace.
  static void expect_refused(int exit_code, const testing::Matcher<std::string>& message) {
    std::vector<CommandResult> results;
    results.push_back(train());
    for (std::vector<std::string> arguments :
         {std::vector<std::string>{"inspect", "m"},
          {"plan", "--model", "m", "--devices", "cpu:2"},
          {"eval", "--model", "m", "--data", "validation.txt"}}) {
      results.push_back(run_command(arguments, folder_->path()));
    }
    for (const CommandResult& result : results) {
      EXPECT_EQ(result.exit_code, exit_code) << result.errors;
      EXPECT_EQ(result.signal, 0);
      EXPECT_THAT(result.errors, message);
      EXPECT_THAT(result.output, IsEmpty());
      EXPECT_LT(result.seconds, 1.0);
    }
    EXPECT_FALSE(folder_->exists("never"));
  }

  static double loss_of(const std::string& model) {
    CommandResult result = run_command(
        {"eval", "--model", model, "--data", "validation.txt", "--sequence", "16", "--json"},
        folder_->path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    last_errors_ = result.errors;
    return number(Json::parse(result.output).value(), "loss");
  }

  /// The weights of "hf", to be written into "m" as one file after changes. `folder_of_hf` must
  /// live as long.
  static std::vector<SafetensorsTensor> tensors_of(const WeightFolder& folder_of_hf) {
    std::vector<SafetensorsTensor> tensors;
    for (const FolderTensor& tensor : folder_of_hf.tensors()) {
      SafetensorsTensor out{tensor.info->name, tensor.info->type, tensor.info->shape};
      out.read_f32 = [&tensor](int64_t first, std::span<float> piece) {
        return tensor.file->read_f32(*tensor.info, first, piece);
      };
      tensors.push_back(std::move(out));
    }
    return tensors;
  }
  static SafetensorsTensor& tensor_of(std::vector<SafetensorsTensor>& tensors,
                                      const std::string& name) {
    for (SafetensorsTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }
  static void write_single(std::vector<SafetensorsTensor> tensors) {
    for (const auto& entry : fs::directory_iterator(path("m"))) {
      if (entry.path().filename() != "config.json") fs::remove(entry.path());
    }
    ASSERT_TRUE(write_safetensors(path("m/model.safetensors"), std::move(tensors)).is_ok());
  }
  static void change_config(const std::string& key, const Json& value) {
    Json config = folder_->json("m/config.json");
    config[key] = value;
    folder_->write("m/config.json", config.dump());
  }

  static RunFolder* folder_;
  static std::string last_errors_;
};

RunFolder* ModelFiles::folder_ = nullptr;
std::string ModelFiles::last_errors_;

// Field report 1: resident memory does not grow with the length that a file claims.
TEST_F(ModelFiles, HeaderLengthsThatLieAreRefusedWithoutReadingThem) {
  CommandResult whole = run_command({"inspect", "m"}, folder_->path());
  std::string length("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 100,000,001
  folder_->write(shard(1), length);
  fs::resize_file(path(shard(1)), 300'000'000);
  expect_refused(3, AllOf(HasSubstr("header length is 100000001, expected at most 100000000"),
                          HasSubstr("the file has 300000000 bytes")));
  CommandResult result = run_command({"inspect", "m"}, folder_->path());
  EXPECT_LT(result.peak_bytes, whole.peak_bytes + 50'000'000);
}

// Field report 2.
TEST_F(ModelFiles, CutOffFilesAreIncompleteDownloads) {
  uintmax_t whole = fs::file_size(path(shard(2)));
  for (uintmax_t size : {whole - 1, whole / 2, uintmax_t{0}}) {
    fs::resize_file(path(shard(2)), size);
    expect_refused(3, AllOf(HasSubstr(shard(2)), HasSubstr("incomplete download or copy")));
  }
}

// Field report 3: one rule everywhere.
TEST_F(ModelFiles, BytesThatNoTensorOwnsAreRefused) {
  std::string content = folder_->read(shard(3));
  folder_->write(shard(3), content + std::string(16, '\0'));
  expect_refused(3, AllOf(HasSubstr(shard(3)), HasSubstr("belong to no tensor")));
}

// Field report 9.
TEST_F(ModelFiles, FilesThatTheIndexNamesAndThatAreNotThereAreAllListed) {
  fs::remove(path(shard(2)));
  fs::remove(path(shard(5)));
  ASSERT_EQ(::symlink("../../blobs/none", path(shard(5)).c_str()), 0);
  expect_refused(3, AllOf(HasSubstr("2 of 6 files are not there"),
                          HasSubstr("'model-00002-of-00006.safetensors' ("),
                          HasSubstr("'model-00005-of-00006.safetensors' (a link that leads"),
                          HasSubstr("incomplete download or copy")));
}

TEST_F(ModelFiles, LinksOfADownloadCacheAreFollowed) {
  fs::create_directory(path("blobs"));
  for (int number = 1; number <= 6; ++number) {
    std::string blob = "blobs/" + std::to_string(number);
    fs::rename(path(shard(number)), path(blob));
    ASSERT_EQ(::symlink(("../" + blob).c_str(), path(shard(number)).c_str()), 0);
  }
  EXPECT_EQ(loss_of("m"), loss_of("hf"));
}

// Field report 10.
TEST_F(ModelFiles, AnIndexThatDisagreesWithTheFilesIsRefused) {
  Json index = folder_->json("m/model.safetensors.index.json");
  index["weight_map"]["transformer.ln_f.weight"] = "model-00001-of-00006.safetensors";
  folder_->write("m/model.safetensors.index.json", index.dump());
  expect_refused(3, AllOf(HasSubstr("'transformer.ln_f.weight' should be in "
                                    "'model-00001-of-00006.safetensors'"),
                          HasSubstr("it is in 'm/model-")));
}

// Field report 24: what is not consumed is listed, before anything is trained.
TEST_F(ModelFiles, TensorsThatTheModelDoesNotHaveAreRefused) {
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  float value = 1;
  tensors.push_back({"transformer.h.0.attn.extra.bias", SafetensorsType::kF32, {1}, &value});
  write_single(std::move(tensors));
  expect_refused(1, AllOf(HasSubstr("1 tensors belong to no parameter of the model: "
                                    "'transformer.h.0.attn.extra.bias'"),
                          HasSubstr("is config.json the one")));
}

TEST_F(ModelFiles, NamesInFilesAreShownToTerminalsAndNotObeyed) {
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  float value = 1;
  tensors.push_back({"red\x1b[31m\nname", SafetensorsType::kF32, {1}, &value});
  tensors.push_back({"empty\x1b[2J", SafetensorsType::kF32, {0}, &value});
  write_single(std::move(tensors));
  expect_refused(1, AllOf(HasSubstr("'red\\x1b[31m\\x0aname'"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(train().errors, HasSubstr("empty tensor 'empty\\x1b[2J' is ignored"));
  CommandResult named = run_command({"inspect", "m\x1b[2J"}, folder_->path());
  EXPECT_THAT(named.errors, AllOf(HasSubstr("m\\x1b[2J"), Not(HasSubstr("\x1b"))));
}

TEST_F(ModelFiles, AConfigOfAnotherModelIsRefusedBeforeAnythingIsRead) {
  change_config("n_layer", 3);
  expect_refused(1, AllOf(HasSubstr("12 of the model's tensors are missing: "
                                    "'transformer.h.2.ln_1.weight'"),
                          HasSubstr("is config.json the one")));
  change_config("n_layer", 1);
  expect_refused(1, HasSubstr("12 tensors belong to no parameter of the model"));
  change_config("n_layer", 2);
  change_config("n_inner", 48);
  expect_refused(1, AllOf(HasSubstr("tensor 'transformer.h.0.mlp.c_fc.weight' has shape [16,64], "
                                    "expected [16,48]"),
                          HasSubstr("is config.json the one")));
  // As one line, and as JSON for scripts.
  auto line = [](const CommandResult& result) {
    return result.errors.substr(result.errors.find(": ") + 2);
  };
  CommandResult inspected = run_command({"inspect", "m", "--json"}, folder_->path());
  EXPECT_EQ(line(inspected), line(run_command({"eval", "--model", "m", "--data", "validation.txt"},
                                              folder_->path())));
  Json refusal = Json::parse(inspected.output).value();
  EXPECT_EQ(refusal.find("error")->as_string() + "\n", line(inspected));
  EXPECT_EQ(number(refusal, "exit_code"), 1);
}

// Field report 7.
TEST_F(ModelFiles, UnknownEmptyTensorsAreNotedAndRequiredOnesRefused) {
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  float value = 1;
  tensors.push_back({"empty.one", SafetensorsType::kF32, {0}, &value});
  tensors.push_back({"empty.two", SafetensorsType::kF32, {0, 64}, &value});
  write_single(tensors);
  double expected = loss_of("hf");
  EXPECT_EQ(loss_of("m"), expected);
  EXPECT_THAT(last_errors_, AllOf(HasSubstr("empty tensor 'empty.one' is ignored"),
                                  HasSubstr("empty tensor 'empty.two' is ignored")));
  tensor_of(tensors, "transformer.ln_f.bias").shape = {0, 16};
  write_single(tensors);
  CommandResult result = train();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors,
              HasSubstr("tensor 'transformer.ln_f.bias' has shape [0,16], expected [16]"));
}

// Field report 8: 16-bit tensors load value-exactly, 8-bit ones are refused with their name.
TEST_F(ModelFiles, DtypesMayBeMixedAndForeignOnesAreRefused) {
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  auto rounded_to = [](const SafetensorsTensor& tensor, auto round) {
    SafetensorsTensor out = tensor;
    out.read_f32 = [read = tensor.read_f32, round](int64_t first, std::span<float> piece) {
      Status status = read(first, piece);
      for (float& value : piece) value = to_float(round(value));
      return status;
    };
    return out;
  };
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  SafetensorsTensor& brain = tensor_of(tensors, "transformer.h.0.attn.c_attn.weight");
  SafetensorsTensor& half = tensor_of(tensors, "transformer.h.1.mlp.c_fc.weight");
  brain = rounded_to(brain, to_bfloat16);
  half = rounded_to(half, to_float16);
  write_single(tensors);
  double expected = loss_of("m");
  brain.type = SafetensorsType::kBF16;
  half.type = SafetensorsType::kF16;
  write_single(tensors);
  EXPECT_EQ(loss_of("m"), expected);

  std::string content = folder_->read("m/model.safetensors");
  size_t at = content.find("\"BF16\"");
  ASSERT_NE(at, std::string::npos);
  folder_->write("m/model.safetensors", content.replace(at, 6, "\"F8_Q\""));
  expect_refused(1, AllOf(HasSubstr("tensor 'transformer.h.0.attn.c_attn.weight'"),
                          HasSubstr("dtype is F8_Q, expected F32, BF16, F16")));
}

// Field reports 15 and 16.
TEST_F(ModelFiles, TheTiedHeadMayStandForTheEmbeddingOrRepeatIt) {
  double expected = loss_of("hf");
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  tensor_of(tensors, "transformer.wte.weight").name = "lm_head.weight";
  write_single(tensors);
  EXPECT_EQ(loss_of("m"), expected);
  // What is saved has the embedding's name and is not twice as large.
  CommandResult trained = train({"output.dir=tied"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  CommandResult exported =
      run_command({"export", "--checkpoint", "tied", "--out", "tied-hf"}, folder_->path());
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  WeightFolder saved = WeightFolder::open(path("tied-hf")).value();
  EXPECT_NE(saved.find("transformer.wte.weight"), nullptr);
  EXPECT_EQ(saved.find("lm_head.weight"), nullptr);
  EXPECT_EQ(saved.tensors().size(), hf.tensors().size());

  tensors = tensors_of(hf);
  SafetensorsTensor head = tensor_of(tensors, "transformer.wte.weight");
  head.name = "lm_head.weight";
  tensors.push_back(head);
  write_single(tensors);
  EXPECT_EQ(loss_of("m"), expected);

  tensors.back().read_f32 = [](int64_t, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.5f);
    return Status::ok();
  };
  write_single(tensors);
  CommandResult result = train();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors,
              HasSubstr("tensors 'lm_head.weight' and 'transformer.wte.weight' differ"));
}

// Field report 26.
TEST_F(ModelFiles, VariantsOfGpt2LoadToTheSameLoss) {
  double expected = loss_of("hf");
  WeightFolder hf = WeightFolder::open(path("hf")).value();
  std::vector<SafetensorsTensor> tensors = tensors_of(hf);
  std::vector<float> mask(32 * 32, 1.0f);
  for (SafetensorsTensor& tensor : tensors) {
    tensor.name = tensor.name.substr(std::string("transformer.").size());
  }
  tensors.push_back({"h.0.attn.bias", SafetensorsType::kF32, {1, 1, 32, 32}, mask.data()});
  tensors.push_back({"h.0.attn.masked_bias", SafetensorsType::kF32, {}, mask.data()});
  write_single(tensors);
  change_config("n_inner", Json());
  EXPECT_EQ(loss_of("m"), expected);
}

// Field report 14: loading takes no memory that grows with the weights or with the devices.
TEST_F(ModelFiles, LoadingTakesNoMoreMemoryThanTheRun) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  folder_->write("large.json", R"({
    "model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 384, "n_layer": 6,
    "n_head": 4, "activation_function": "gelu_new"})");
  std::vector<std::string> settings = {"train.iterations=1", "train.batch=1",
                                       "train.microbatches=1", "devices.use=cpu:1",
                                       "output.trace=false"};
  auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), more.begin(), more.end());
    CommandResult result = folder_->train(all);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  };
  run({"model.path=large.json", "output.dir=large"});
  ASSERT_EQ(run_command({"export", "--checkpoint", "large", "--out", "large-hf"}, folder_->path())
                .exit_code,
            0);
  auto file_bytes = static_cast<int64_t>(fs::file_size(path("large-hf/model.safetensors")));
  ASSERT_GT(file_bytes, 40'000'000);
  for (int devices : {1, 2, 4}) {
    std::string use = fmt::format("devices.use=cpu:{}", devices);
    CommandResult random =
        run({"model.path=large.json", use, fmt::format("output.dir=random{}", devices)});
    CommandResult loaded = run({"model.path=large-hf", "model.init=weights", use,
                                fmt::format("output.dir=loaded{}", devices)});
    EXPECT_LT(loaded.peak_bytes, random.peak_bytes + file_bytes / 5) << devices;
  }
}

// Other formats are refused with what to do.
TEST_F(ModelFiles, PickledWeightsAreRefusedWithTheWayToConvertThem) {
  for (const auto& entry : fs::directory_iterator(path("m"))) {
    if (entry.path().filename() != "config.json") fs::remove(entry.path());
  }
  folder_->write("m/pytorch_model.bin", "x");
  CommandResult result = train();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("pytorch_model.bin"),
                                   HasSubstr("from_pretrained('m').save_pretrained('m')")));
  EXPECT_FALSE(folder_->exists("never"));
}

}  // namespace
}  // namespace stagecoach
