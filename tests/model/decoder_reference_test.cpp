// Loss, logits and gradients of tiny models against those that transformers computes in fp32 from
// the same folders: tests/reference/make_decoder_fixtures.py.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <ostream>
#include <string_view>

#include "core/file.h"
#include "model/decoder.h"
#include "model/gpt2.h"
#include "model/safetensors.h"
#include "model/weight_transfer.h"
#include "tests/core/temporary_folder.h"
#include "tests/model/model_fixture.h"
#include "tests/model/saved_weights.h"

namespace stagecoach {

namespace {

/// A folder of tests/reference/decoders.
class ReferenceModel {
 public:
  explicit ReferenceModel(const std::string& name)
      : folder_(folder_of(name)),
        expected_(must(SafetensorsFile::open(folder_ + "/expected.safetensors"))) {
    const SafetensorInfo& tokens = *expected_.find("tokens");
    batch_.sequences = tokens.shape[0];
    batch_.sequence = tokens.shape[1];
    for (double id : expected("tokens")) batch_.ids.push_back(static_cast<int32_t>(id));
    for (double id : expected("labels")) batch_.labels.push_back(static_cast<int32_t>(id));
    auto counted = std::count_if(batch_.labels.begin(), batch_.labels.end(),
                                 [](int32_t label) { return label >= 0; });
    batch_.loss_scale = 1.0 / static_cast<double>(counted);
  }

  static std::string folder_of(const std::string& name) {
    return std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/decoders/" + name;
  }
  template <typename T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    STAGECOACH_CHECK(result.is_ok());
    return std::move(result).value();
  }

  Network network(NetworkHead head, DType dtype) const {
    std::string path = folder_ + "/config.json";
    std::string text = must(read_file(path));
    if (is_gpt2()) {
      ParsedGpt2Config parsed = must(parse_gpt2_config(text, path));
      return must(make_gpt2(parsed.config, head, dtype));
    }
    return must(
        make_decoder(must(parse_decoder_config(text, path)).config, head, dtype, batch_.sequence));
  }

  /// Every block with the file's weights, and constants.
  std::vector<std::vector<float>> parameters(const Network& network) const {
    std::vector<std::vector<float>> blocks;
    for (const ParameterBlock& block : network.blocks) {
      blocks.emplace_back(static_cast<size_t>(block.element_count), 0.0f);
    }
    auto take = [&](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), blocks[static_cast<size_t>(block)].begin() + offset);
      return Status::ok();
    };
    Result<LoadedWeights> loaded = load_weights(folder_, network, take);
    EXPECT_TRUE(loaded.is_ok()) << loaded.status().to_string();
    for (size_t block = 0; block < blocks.size(); ++block) {
      if (network.blocks[block].constant) blocks[block] = network.blocks[block].constant();
      EXPECT_EQ(static_cast<int64_t>(blocks[block].size()), network.blocks[block].element_count);
    }
    return blocks;
  }

  std::vector<double> expected(const std::string& name) const { return values(expected_, name); }
  static std::vector<double> values(const SafetensorsFile& file, const std::string& name) {
    const SafetensorInfo* tensor = file.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(tensor->size) / sizeof(float));
    EXPECT_TRUE(file.read_f32(*tensor, 0, values).is_ok());
    return {values.begin(), values.end()};
  }
  size_t gradient_count() const {
    auto is_gradient = [](const SafetensorInfo& tensor) {
      return tensor.name.starts_with("gradient.");
    };
    const std::vector<SafetensorInfo>& tensors = expected_.header().tensors;
    return static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(), is_gradient));
  }

  bool is_gpt2() const { return folder_.find("/gpt2") != std::string::npos; }
  const reference::Gpt2Batch& batch() const { return batch_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  SafetensorsFile expected_;
  reference::Gpt2Batch batch_;
};

class DecoderReference : public testing::TestWithParam<const char*> {
 protected:
  DeviceRig rig_;
  ReferenceModel model_{GetParam()};

  void expect_loss_and_gradients(DType dtype, double loss_bound, double gradient_bound) {
    Network network = model_.network(NetworkHead::kLoss, dtype);
    PassResult result = run_network(rig_, network, model_.parameters(network), model_.batch(), {});
    double loss = 0;
    for (float row : result.losses) loss += static_cast<double>(row) * model_.batch().loss_scale;
    EXPECT_NEAR(loss, model_.expected("loss")[0], loss_bound);
    size_t compared = 0;
    for (size_t b = 0; b < network.blocks.size(); ++b) {
      for (const ParameterInfo& parameter : network.blocks[b].parameters) {
        auto first = result.gradients[b].begin() + parameter.offset;
        std::vector<double> found(first, first + parameter.shape.element_count());
        EXPECT_LT(relative_difference(found, model_.expected("gradient." + parameter.name)),
                  gradient_bound)
            << parameter.name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, model_.gradient_count());
  }
};

TEST_P(DecoderReference, LossAndEveryGradientAgreeWithTransformers) {
  expect_loss_and_gradients(DType::kF32, 1e-5, 1e-4);
}

TEST_P(DecoderReference, In16BitsTheyAgreeWithinItsRounding) {
  // Where gates are cut off low, rounding puts some on the other side, which takes or gives their
  // whole gradient: 0.11 was seen of own kernels on a card.
  bool cuts_gates_low = std::string_view(GetParam()) == "gpt-oss-limits";
  expect_loss_and_gradients(DType::kBF16, 5e-2, cuts_gates_low ? 0.16 : 8e-2);
}

TEST_P(DecoderReference, LogitsAgreeWithTransformers) {
  Network network = model_.network(NetworkHead::kLogits, DType::kF32);
  std::vector<float> logits =
      run_forward(rig_, network, model_.parameters(network), model_.batch());
  EXPECT_LT(relative_difference({logits.begin(), logits.end()}, model_.expected("logits")), 1e-5);
}

TEST_P(DecoderReference, RecomputeAndSplitGiveTheBitsOfThePlainPass) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Network network = model_.network(NetworkHead::kLoss, dtype);
    std::vector<std::vector<float>> parameters = model_.parameters(network);
    PassResult plain = run_network(rig_, network, parameters, model_.batch(), {});
    for (bool recompute : {false, true}) {
      for (bool split : {false, true}) {
        PassOptions options;
        options.recompute = recompute;
        options.split = split;
        PassResult other = run_network(rig_, network, parameters, model_.batch(), options);
        EXPECT_EQ(plain.losses, other.losses);
        EXPECT_EQ(plain.gradients, other.gradients);
      }
    }
  }
}

TEST_P(DecoderReference, WhatIsSavedHoldsTheBitsThatWereLoaded) {
  Network network = model_.network(NetworkHead::kLoss, DType::kF32);
  std::vector<std::vector<float>> parameters = model_.parameters(network);
  TemporaryFolder folder;
  auto give = [&](int block, int64_t offset, std::span<float> out) {
    std::copy_n(parameters[static_cast<size_t>(block)].begin() + offset, out.size(), out.begin());
  };
  ASSERT_TRUE(save_weights(folder.path(), network, give).is_ok());
  SafetensorsFile file =
      ReferenceModel::must(SafetensorsFile::open(model_.folder() + "/model.safetensors"));
  SafetensorsFile saved =
      ReferenceModel::must(SafetensorsFile::open(folder.file("model.safetensors")));
  size_t seen = 0, written_tensors = 0;
  for (const SafetensorInfo& copy : saved.header().tensors) {
    if (file.find(copy.name + "_blocks") != nullptr) {
      std::vector<double> unpacked = model_.expected("unpacked." + copy.name);
      std::vector<float> written(unpacked.size());
      ASSERT_TRUE(saved.read_f32(copy, 0, written).is_ok());
      EXPECT_TRUE(std::equal(written.begin(), written.end(), unpacked.begin())) << copy.name;
      seen += 2;  // blocks and scales
      ++written_tensors;
      continue;
    }
    // Experts of the file may be one by one.
    std::vector<ExpertTensor> parts;
    if (file.find(copy.name) == nullptr) parts = experts_one_by_one(copy.name, copy.shape);
    if (parts.empty()) parts.push_back({copy.name, copy.shape, 0});
    for (const ExpertTensor& part : parts) {
      const SafetensorInfo* tensor = file.find(part.name);
      ASSERT_NE(tensor, nullptr) << part.name;
      EXPECT_EQ(tensor->shape, part.shape);
      std::vector<float> stored(
          static_cast<size_t>(tensor->size / safetensors_type_size(tensor->type)));
      std::vector<float> written(stored.size());
      ASSERT_TRUE(file.read_f32(*tensor, 0, stored).is_ok());
      ASSERT_TRUE(saved.read_f32(copy, part.first, written).is_ok());
      EXPECT_EQ(std::memcmp(stored.data(), written.data(), stored.size() * sizeof(float)), 0)
          << part.name;
      ++seen;
    }
    ++written_tensors;
  }
  EXPECT_EQ(seen, file.header().tensors.size());
  size_t parameters_of_network = 0;
  for (const ParameterBlock& block : network.blocks) {
    parameters_of_network += block.parameters.size();
  }
  EXPECT_EQ(written_tensors, parameters_of_network);
}

// Every seventh element of each gradient, so that what is committed stays small.
TEST(LossTermsReference, LossAndEveryGradientAgreeWithPyTorch) {
  constexpr size_t kStep = 7;
  DeviceRig rig;
  ReferenceModel model("llama-plain");
  SafetensorsFile file =
      ReferenceModel::must(SafetensorsFile::open(model.folder() + "/loss_terms.safetensors"));
  std::vector<double> terms = ReferenceModel::values(file, "terms");
  PassOptions options;
  options.loss_terms = {static_cast<float>(terms[0]), static_cast<float>(terms[1])};
  Network network = model.network(NetworkHead::kLoss, DType::kF32);
  PassResult result = run_network(rig, network, model.parameters(network), model.batch(), options);
  double loss = 0;
  for (float row : result.losses) loss += static_cast<double>(row) * model.batch().loss_scale;
  EXPECT_NEAR(loss, ReferenceModel::values(file, "loss")[0], 1e-5);
  EXPECT_GT(loss, model.expected("loss")[0] + 0.1);
  for (size_t b = 0; b < network.blocks.size(); ++b) {
    for (const ParameterInfo& parameter : network.blocks[b].parameters) {
      std::vector<double> found;
      auto count = static_cast<size_t>(parameter.shape.element_count());
      for (size_t i = 0; i < count; i += kStep) {
        found.push_back(result.gradients[b][static_cast<size_t>(parameter.offset) + i]);
      }
      EXPECT_LT(
          relative_difference(found, ReferenceModel::values(file, "gradient." + parameter.name)),
          1e-4)
          << parameter.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderReference,
                         testing::Values("gpt2", "llama-plain", "llama-linear", "llama-llama3",
                                         "llama-llama3-tied-biases", "qwen3", "qwen3-tied-yarn",
                                         "qwen3-linear", "gpt2-narrow", "qwen3-moe",
                                         "qwen3-moe-one-by-one", "qwen3-moe-tied-top1",
                                         "qwen3-windows", "qwen3-windows-by-layer", "gpt-oss",
                                         "gpt-oss-limits", "gpt-oss-mxfp4"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace

}  // namespace stagecoach
