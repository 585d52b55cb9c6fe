// Models of tests/reference/decoders through the trainer, on devices that stream their stages and
// that hold them: the loss is that of transformers, and grows smaller.

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "backends/register_backends.h"
#include "model/model_source.h"
#include "model/safetensors.h"
#include "model/weight_transfer.h"
#include "tests/model/test_devices.h"
#include "train/trainer.h"

namespace stagecoach {
namespace {

std::vector<float> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorInfo& tensor = *file.find(name);
  std::vector<float> values(static_cast<size_t>(tensor.size) / sizeof(float));
  EXPECT_TRUE(file.read_f32(tensor, 0, values).is_ok());
  return values;
}

struct Case {
  const char* schedule;
  DType dtype;
  double loss_bound;
};

class ReferenceTraining : public testing::TestWithParam<std::tuple<const char*, Case>> {};

TEST_P(ReferenceTraining, StartsAtTheLossOfTransformers) {
  const auto& [name, one] = GetParam();
  std::string folder = std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/decoders/" + name;
  Result<SafetensorsFile> file = SafetensorsFile::open(folder + "/expected.safetensors");
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  Shape shape{file->find("tokens")->shape[0], file->find("tokens")->shape[1]};
  std::vector<float> ids = read_tensor(*file, "tokens"), targets = read_tensor(*file, "labels");
  std::vector<int32_t> tokens(ids.begin(), ids.end()), labels(targets.begin(), targets.end());
  double expected = static_cast<double>(read_tensor(*file, "loss")[0]);

  Result<ModelSource> source = resolve_model(folder);
  ASSERT_TRUE(source.is_ok()) << source.status().to_string();
  Result<Network> network = make_network(source->model, NetworkHead::kLoss, one.dtype, shape[1]);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  auto devices = built_in_backends().open_devices(test_devices("cpu:2"));
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  TrainerOptions options;
  options.batch = shape[0];
  options.sequence = shape[1];
  options.micro_batches = 2;
  options.schedule = one.schedule;
  std::vector<Device*> used;
  for (const auto& device : *devices) used.push_back(device.get());
  Result<std::unique_ptr<Trainer>> made =
      Trainer::create(std::move(network).value(), used, options);
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  Trainer& trainer = **made;
  auto write = [&](int block, int64_t offset, std::span<const float> values) {
    return trainer.write_parameters(block, offset, values);
  };
  Result<LoadedWeights> loaded = load_weights(folder, trainer.network(), write);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();

  HostTensor inputs = HostTensor::of(tokens, shape), outputs = HostTensor::of(labels, shape);
  Result<StepLoss> loss = trainer.evaluate(inputs, outputs);
  ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
  EXPECT_EQ(loss->targets, shape[0] * shape[1] - 2);
  EXPECT_NEAR(loss->loss, expected, one.loss_bound);
  for (int step = 0; step < 5; ++step) {
    Result<StepLoss> trained = trainer.forward_backward(inputs, outputs);
    ASSERT_TRUE(trained.is_ok()) << trained.status().to_string();
    if (step == 0) {
      EXPECT_NEAR(trained->loss, expected, one.loss_bound);
    }
    ASSERT_TRUE(trainer.step(1e-2).is_ok());
  }
  ASSERT_TRUE(trainer.synchronize().is_ok());
  EXPECT_LT(trainer.evaluate(inputs, outputs)->loss, expected - 0.1);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTraining,
                         testing::Combine(testing::Values("gpt2", "llama-linear",
                                                          "llama-llama3-tied-biases",
                                                          "qwen3-tied-yarn", "qwen3-moe-one-by-one",
                                                          "gpt-oss", "gpt-oss-mxfp4"),
                                          testing::Values(Case{"roundpipe", DType::kF32, 1e-5},
                                                          Case{"1f1b", DType::kF32, 1e-5},
                                                          Case{"roundpipe", DType::kBF16, 5e-2})));

}  // namespace
}  // namespace stagecoach
