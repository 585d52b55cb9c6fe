// Adapters of tests/reference/lora through the trainer: the losses of 20 steps are those of PEFT
// and torch's AdamW, a base that is mapped gives the bits of one in memory, and nothing depends on
// micro-batches and devices.

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "core/file.h"
#include "model/safetensors.h"
#include "tests/core/temporary_folder.h"
#include "tests/model/test_devices.h"
#include "train/checkpoint.h"
#include "train/model_session.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 20;

std::vector<float> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorInfo& tensor = *file.find(name);
  std::vector<float> values(static_cast<size_t>(tensor.size) / sizeof(float));
  EXPECT_TRUE(file.read_f32(tensor, 0, values).is_ok());
  return values;
}

/// Training from one of the folders.
class LoraRun {
 public:
  explicit LoraRun(const std::string& name)
      : LoraRun(name, SafetensorsFile::open(folder_of(name) + "/expected.safetensors").value()) {}

  static std::string folder_of(const std::string& name) {
    return std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/lora/" + name;
  }

  TrainConfig config;
  std::vector<float> expected_losses;

  /// Builds a trainer with everything filled in.
  Trainer& begin() {
    trainer_.reset();
    Result<ModelSource> source = resolve_model_for(config.model, config.data.sequence);
    EXPECT_TRUE(source.is_ok()) << source.status().to_string();
    devices_ = open_configured_devices(backends_, config).value();
    Result<std::unique_ptr<Trainer>> made =
        make_trainer(*source, NetworkHead::kLoss, config, devices_);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    trainer_ = std::move(made).value();
    Progress progress;
    Status filled = fill_parameters(*source, config.model, *trainer_, progress);
    EXPECT_TRUE(filled.is_ok()) << filled.to_string();
    return *trainer_;
  }
  std::vector<double> train(int64_t first, int64_t count) {
    std::vector<double> losses;
    for (int64_t step = first; step < first + count; ++step) {
      Shape shape{config.train.batch, config.data.sequence};
      auto size = shape.element_count();
      std::vector<int32_t> ids(tokens_.begin() + step * size, tokens_.begin() + (step + 1) * size);
      std::vector<int32_t> labels(labels_.begin() + step * size,
                                  labels_.begin() + (step + 1) * size);
      Result<StepLoss> loss =
          trainer_->forward_backward(HostTensor::of(ids, shape), HostTensor::of(labels, shape));
      EXPECT_TRUE(loss.is_ok()) << loss.status().to_string();
      if (!loss.is_ok()) return losses;
      losses.push_back(loss->loss);
      EXPECT_TRUE(trainer_->step(config.optimizer.lr).is_ok());
    }
    EXPECT_TRUE(trainer_->synchronize().is_ok());
    return losses;
  }
  Trainer& trainer() { return *trainer_; }

  /// Every trained parameter, one behind the other.
  std::vector<float> adapters() const {
    std::vector<float> values;
    for (size_t block = 0; block < trainer_->network().blocks.size(); ++block) {
      if (!trainer_->network().blocks[block].is_adapter) continue;
      size_t first = values.size();
      values.resize(first + static_cast<size_t>(trainer_->network().blocks[block].element_count));
      trainer_->read_parameters(static_cast<int>(block), 0, std::span(values).subspan(first));
    }
    return values;
  }

 private:
  LoraRun(const std::string& name, const SafetensorsFile& file) {
    expected_losses = read_tensor(file, "losses");
    for (float id : read_tensor(file, "tokens")) tokens_.push_back(static_cast<int32_t>(id));
    for (float id : read_tensor(file, "labels")) labels_.push_back(static_cast<int32_t>(id));
    config.model.path = folder_of(name);
    config.train.batch = file.find("tokens")->shape[1];
    config.data.sequence = file.find("tokens")->shape[2];
    config.train.micro_batches = 2;
    config.devices.use = "cpu:2";
    config.optimizer.lr = 1e-2;
    config.optimizer.clip_norm = 0;
    config.output.trace = false;
  }

  BackendRegistry backends_ = built_in_backends();
  std::vector<int32_t> tokens_, labels_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Trainer> trainer_;
};

double distance(const std::vector<float>& one, const std::vector<float>& other) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference += std::pow(double{one[i]} - double{other[i]}, 2);
    norm += std::pow(double{one[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class LoraTraining : public testing::TestWithParam<const char*> {};

TEST_P(LoraTraining, LossesOfTwentyStepsAreThoseOfPeft) {
  LoraRun run(GetParam());
  run.config.devices.use = test_devices("cpu:2");
  run.begin();
  std::vector<double> losses = run.train(0, kSteps);
  ASSERT_EQ(losses.size(), run.expected_losses.size());
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], run.expected_losses[step], 1e-4) << "step " << step;
  }
}

TEST_P(LoraTraining, MicroBatchesDevicesRoundsAndSchedulesGiveTheSameWeights) {
  LoraRun plain(GetParam());
  plain.config.devices.use = "cpu:1";
  plain.config.train.micro_batches = 1;
  plain.begin();
  std::vector<double> losses = plain.train(0, 5);
  std::vector<float> weights = plain.adapters();
  for (const auto& [devices, rounds, schedule] : {std::tuple{"cpu:1", 1, "roundpipe"},
                                                  {"cpu:3", 1, "roundpipe"},
                                                  {"cpu:2", 2, "roundpipe"},
                                                  {"cpu:2", 1, "1f1b"},
                                                  {"cpu:2", 1, "zb-h1"}}) {
    LoraRun other(GetParam());
    other.config.devices.use = devices;
    other.config.train.rounds = rounds;
    other.config.schedule.kind = schedule;
    other.begin();
    std::vector<double> others = other.train(0, 5);
    ASSERT_EQ(others.size(), losses.size());
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(others[step], losses[step], 1e-6 * losses[step]);
    }
    EXPECT_LT(distance(weights, other.adapters()), 1e-6) << devices << " " << schedule;
  }
}

TEST_P(LoraTraining, AMappedBaseGivesTheBitsOfOneInMemory) {
  LoraRun memory(GetParam());
  // The bases differ in the type of their files.
  bool is_bf16 = std::string(GetParam()) == "qwen3" || std::string(GetParam()) == "llama-rslora";
  memory.config.model.dtype = is_bf16 ? DType::kBF16 : DType::kF32;
  for (const char* update : {"overlap", "async"}) {
    memory.config.schedule.update = update;
    memory.config.model.base = "memory";
    memory.begin();
    std::vector<double> losses = memory.train(0, 5);
    std::string digest = memory.trainer().weights_sha256();
    EXPECT_EQ(memory.trainer().host_state().bytes().mapped, 0);
    EXPECT_GT(memory.trainer().host_state().bytes().frozen, 0);
    ByteCount frozen = memory.trainer().host_state().bytes().frozen;
    memory.config.model.base = "mapped";
    memory.begin();
    EXPECT_EQ(memory.train(0, 5), losses);
    EXPECT_EQ(memory.trainer().weights_sha256(), digest);
    EXPECT_GT(memory.trainer().host_state().bytes().mapped, 0);
    EXPECT_LT(memory.trainer().host_state().bytes().frozen, frozen);
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraTraining,
                         testing::Values("gpt2", "llama", "qwen3", "llama-rslora", "qwen3-moe"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LoraState, HoldsTheBaseOnceAndNothingElseOfIt) {
  LoraRun run("qwen3");
  run.config.model.dtype = DType::kBF16;
  Trainer& trainer = run.begin();
  int64_t frozen = 0, trained = 0;
  for (const ParameterBlock& block : trainer.network().blocks) {
    ByteCount elements = block.element_count;
    (block.is_frozen ? frozen : trained) +=
        block.is_frozen ? Arena::padded(2 * elements) : 14 * elements;
  }
  EXPECT_EQ(trainer.host_state().bytes().frozen, frozen);
  // Each of a block's arrays is padded.
  EXPECT_GE(trainer.host_state().bytes().trained, trained);
  EXPECT_LE(trainer.host_state().bytes().trained, trained + 10 * 5 * Arena::kAlignment);
}

TEST(LoraStart, NewAdaptersChangeNothingUntilTheyAreTrained) {
  LoraRun run("llama");
  run.config.model.path = LoraRun::folder_of("../decoders/llama-linear");
  run.begin();
  double base = run.train(0, 1)[0];
  run.config.model.lora = {4, 8, false, {"all-linear"}};
  Trainer& trainer = run.begin();
  std::vector<float> values = run.adapters();
  EXPECT_EQ(run.train(0, 1)[0], base);
  // Of A, uniform up to 1 / sqrt(columns); of B, zero.
  for (const ParameterBlock& block : trainer.network().blocks) {
    if (!block.is_adapter) continue;
    for (const ParameterInfo& parameter : block.parameters) {
      auto begin = values.begin() + parameter.offset;
      auto [least, most] = std::minmax_element(begin, begin + parameter.shape.element_count());
      bool is_first = parameter.name.ends_with("lora_A.weight");
      float bound = 1 / std::sqrt(static_cast<float>(parameter.shape.dims[1]));
      EXPECT_LE(*most, is_first ? bound : 0) << parameter.name;
      EXPECT_GE(*least, is_first ? -bound : 0) << parameter.name;
      EXPECT_EQ(*most > bound / 2, is_first) << parameter.name;
    }
    break;
  }
  // Other draws for another seed.
  run.config.train.seed = 2;
  run.begin();
  EXPECT_NE(run.adapters(), values);
}

TEST(LoraStart, AnAdapterGoesOnFromAnotherPlaceThanItsBase) {
  LoraRun run("llama");
  run.begin();
  std::vector<double> losses = run.train(0, 2);
  run.config.model.path = LoraRun::folder_of("../decoders/llama-linear");
  run.config.model.lora_path = LoraRun::folder_of("llama");
  run.begin();
  EXPECT_EQ(run.train(0, 2), losses);
}

std::string refusal(const ModelConfig& model) {
  Result<ModelSource> source = resolve_model_for(model, 12);
  return source.is_ok() ? "" : source.status().message();
}

TEST(LoraStart, RefusesWhatContradictsItself) {
  ModelConfig model;
  model.path = LoraRun::folder_of("llama");
  model.lora = {4, 8, false, {"all-linear"}};
  EXPECT_THAT(refusal(model), HasSubstr("goes on with its own settings"));
  model.path = LoraRun::folder_of("../decoders/gpt2");
  model.lora = {};
  model.base = "mapped";
  EXPECT_THAT(refusal(model), HasSubstr("without model.lora"));
  model.base = "memory";
  model.lora_path = LoraRun::folder_of("llama");
  EXPECT_THAT(refusal(model), HasSubstr("fan_in_fan_out is false, expected true"));
}

TEST(LoraStart, MapsNothingThatWouldHaveToBeConverted) {
  LoraRun run("qwen3");
  run.config.model.base = "mapped";
  ModelSource source = resolve_model_for(run.config.model, 12).value();
  auto devices = open_configured_devices(built_in_backends(), run.config).value();
  Status status = make_trainer(source, NetworkHead::kLoss, run.config, devices).status();
  EXPECT_THAT(status.message(), HasSubstr("is BF16, and model.dtype = \"fp32\""));
  EXPECT_THAT(status.message(), HasSubstr("model.base = \"memory\""));
}

TEST(LoraStart, ABaseThatChangesWhileItIsMappedEndsTheRun) {
  TemporaryFolder folder;
  std::string base = LoraRun::folder_of("../decoders/gpt2");
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::string content = read_file(base + "/" + name).value();
    ASSERT_TRUE(write_file_atomically(folder.file(name), content).is_ok());
  }
  LoraRun run("gpt2");
  run.config.model.path = folder.path();
  run.config.model.lora = {4, 8, false, {"all-linear"}};
  run.config.model.base = "mapped";
  Trainer& trainer = run.begin();
  run.train(0, 1);
  // Written over in place, as no tool does that replaces a file.
  std::FILE* file = std::fopen(folder.file("model.safetensors").c_str(), "ab");
  ASSERT_NE(file, nullptr);
  std::fputc('x', file);
  std::fclose(file);
  std::vector<int32_t> ids(24, 1);
  Status status =
      trainer.forward_backward(HostTensor::of(ids, {2, 12}), HostTensor::of(ids, {2, 12})).status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("model.safetensors' was changed from"));
}

}  // namespace
}  // namespace stagecoach
