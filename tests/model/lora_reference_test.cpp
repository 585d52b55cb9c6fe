// Loss, logits and gradients of tiny models with adapters against those that PEFT computes in fp32
// from the same folders: tests/reference/make_lora_fixtures.py.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_source.h"
#include "model/peft_adapter.h"
#include "model/safetensors.h"
#include "model/weight_transfer.h"
#include "tests/model/model_fixture.h"

namespace stagecoach {

namespace {

using ::testing::HasSubstr;

/// A folder of tests/reference/lora.
class LoraReference : public testing::TestWithParam<const char*> {
 protected:
  template <typename T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    STAGECOACH_CHECK(result.is_ok());
    return std::move(result).value();
  }

  LoraReference() {
    const SafetensorInfo& tokens = *expected_.find("tokens");
    batch_.sequences = tokens.shape[1];
    batch_.sequence = tokens.shape[2];
    auto count = static_cast<size_t>(batch_.sequences * batch_.sequence);
    std::vector<double> ids = expected("tokens"), labels = expected("labels");
    for (size_t i = 0; i < count; ++i) {
      batch_.ids.push_back(static_cast<int32_t>(ids[i]));
      batch_.labels.push_back(static_cast<int32_t>(labels[i]));
    }
    auto counted = std::count_if(batch_.labels.begin(), batch_.labels.end(),
                                 [](int32_t label) { return label >= 0; });
    batch_.loss_scale = 1.0 / static_cast<double>(counted);
  }

  Network network(NetworkHead head, DType dtype) const {
    return must(make_network(source_.model, head, dtype, batch_.sequence, source_.lora));
  }

  std::vector<std::vector<float>> parameters(const Network& network) const {
    std::vector<std::vector<float>> blocks;
    for (const ParameterBlock& block : network.blocks) {
      blocks.emplace_back(static_cast<size_t>(block.element_count), 0.0f);
      if (block.constant) blocks.back() = block.constant();
    }
    auto take = [&](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), blocks[static_cast<size_t>(block)].begin() + offset);
      return Status::ok();
    };
    Result<LoadedWeights> loaded = load_weights(source_.weights_folder, network, take);
    EXPECT_TRUE(loaded.is_ok()) << loaded.status().to_string();
    Status adapters = load_adapters(folder_, network, take);
    EXPECT_TRUE(adapters.is_ok()) << adapters.to_string();
    return blocks;
  }

  std::vector<double> expected(const std::string& name) const {
    const SafetensorInfo* tensor = expected_.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(tensor->size) / sizeof(float));
    EXPECT_TRUE(expected_.read_f32(*tensor, 0, values).is_ok());
    return {values.begin(), values.end()};
  }

  void expect_loss_and_gradients(DType dtype, double loss_bound, double gradient_bound) {
    Network made = network(NetworkHead::kLoss, dtype);
    PassResult result = run_network(rig_, made, parameters(made), batch_, {});
    double loss = 0;
    for (float row : result.losses) loss += static_cast<double>(row) * batch_.loss_scale;
    EXPECT_NEAR(loss, expected("losses")[0], loss_bound);
    size_t compared = 0;
    for (size_t b = 0; b < made.blocks.size(); ++b) {
      if (!made.blocks[b].is_adapter) continue;
      for (const ParameterInfo& parameter : made.blocks[b].parameters) {
        auto first = result.gradients[b].begin() + parameter.offset;
        std::vector<double> found(first, first + parameter.shape.element_count());
        std::string name = "gradient." + adapter_tensor_name(parameter.name);
        EXPECT_LT(relative_difference(found, expected(name)), gradient_bound) << name;
        ++compared;
      }
    }
    const std::vector<SafetensorInfo>& tensors = expected_.header().tensors;
    auto gradients = std::count_if(tensors.begin(), tensors.end(), [](const SafetensorInfo& info) {
      return info.name.starts_with("gradient.");
    });
    EXPECT_EQ(compared, static_cast<size_t>(gradients));
  }

  std::string folder_ = std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/lora/" + GetParam();
  SafetensorsFile expected_ = must(SafetensorsFile::open(folder_ + "/expected.safetensors"));
  ModelSource source_ = must(resolve_model(folder_));
  reference::Gpt2Batch batch_;
  DeviceRig rig_;
};

TEST_P(LoraReference, LossAndEveryGradientAgreeWithPeft) {
  expect_loss_and_gradients(DType::kF32, 1e-5, 1e-4);
}

TEST_P(LoraReference, In16BitsTheyAgreeWithinItsRounding) {
  expect_loss_and_gradients(DType::kBF16, 8e-2, 0.2);
}

TEST_P(LoraReference, LogitsAreThoseOfTheMergedModel) {
  Network made = network(NetworkHead::kLogits, DType::kF32);
  std::vector<float> logits = run_forward(rig_, made, parameters(made), batch_);
  EXPECT_LT(relative_difference({logits.begin(), logits.end()}, expected("merged_logits")), 1e-5);
}

TEST_P(LoraReference, RecomputeAndSplitGiveTheBitsOfThePlainPass) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Network made = network(NetworkHead::kLoss, dtype);
    std::vector<std::vector<float>> weights = parameters(made);
    PassResult plain = run_network(rig_, made, weights, batch_, {});
    for (bool recompute : {false, true}) {
      for (bool split : {false, true}) {
        PassOptions options;
        options.recompute = recompute;
        options.split = split;
        PassResult other = run_network(rig_, made, weights, batch_, options);
        EXPECT_EQ(plain.losses, other.losses);
        EXPECT_EQ(plain.gradients, other.gradients);
      }
    }
  }
}

TEST_P(LoraReference, WhatIsFrozenAsksForNoGradientAndKeepsNothingForOne) {
  Network with = network(NetworkHead::kLoss, DType::kF32);
  Network without =
      must(make_network(source_.model, NetworkHead::kLoss, DType::kF32, batch_.sequence));
  MicroBatchShape shape{batch_.sequences, batch_.sequence};
  for (size_t layer = 0; layer < with.layers.size(); ++layer) {
    LayerFlop flop = with.layers[layer]->flop(shape);
    bool has_adapters = layer > 0 && layer + 1 < with.layers.size();
    EXPECT_EQ(flop.backward_weight > 0, has_adapters) << with.layers[layer]->name();
    if (has_adapters) {
      // The last product, with its adapters, is not recomputed.
      LayerFlop base = without.layers[layer]->flop(shape);
      EXPECT_LT(flop.recompute / flop.forward, base.recompute / base.forward + 0.1);
      continue;
    }
    EXPECT_LE(with.layers[layer]->memory(shape).saved_bytes,
              without.layers[layer]->memory(shape).saved_bytes);
  }
  EXPECT_EQ(with.layers[0]->memory(shape).saved_bytes, 0);
  EXPECT_EQ(with.trained_parameter_count() + without.parameter_count(), with.parameter_count());
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraReference,
                         testing::Values("gpt2", "llama", "qwen3", "llama-rslora"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::string config_with(const std::string& field) {
  return R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"])" +
         (field.empty() ? "" : ", " + field) + "}";
}

TEST(AdapterConfigFile, ReadsBackWhatItWrites) {
  AdapterConfig config;
  config.lora = {8, 12.5, true, {"down_proj", "q_proj"}};
  config.base = "base";
  config.is_transposed = true;
  Result<AdapterConfig> read =
      parse_adapter_config(adapter_config_to_json(config).dump(), "a.json");
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read->lora.rank, 8);
  EXPECT_EQ(read->lora.alpha, 12.5);
  EXPECT_TRUE(read->lora.uses_rslora);
  EXPECT_EQ(read->lora.targets, config.lora.targets);
  EXPECT_EQ(read->base, "base");
  EXPECT_TRUE(read->is_transposed);
}

TEST(AdapterConfigFile, RefusesByNameWhatChangesTheResult) {
  ASSERT_TRUE(parse_adapter_config(config_with(""), "a.json").is_ok());
  for (const char* field :
       {R"("use_dora": true)", R"("bias": "all")", R"("rank_pattern": {"q_proj": 8})",
        R"("alpha_pattern": {"q_proj": 8})", R"("modules_to_save": ["lm_head"])",
        R"("layers_to_transform": [0])", R"("target_parameters": ["experts.gate_up_proj"])",
        R"("trainable_token_indices": [1])", R"("lora_bias": true)", R"("exclude_modules": ["x"])",
        R"("layer_replication": [[0, 1]])", R"("use_qalora": true)", R"("task_type": "SEQ_CLS")",
        R"("init_lora_weights": "pissa")", R"("something_new": 3)"}) {
    Result<AdapterConfig> read = parse_adapter_config(config_with(field), "a.json");
    ASSERT_FALSE(read.is_ok()) << field;
    std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    EXPECT_THAT(read.status().message(), HasSubstr("a.json"));
    EXPECT_THAT(read.status().message(), HasSubstr(name));
  }
  EXPECT_THAT(parse_adapter_config(R"({"peft_type": "IA3"})", "a.json").status().message(),
              HasSubstr("peft_type"));
  EXPECT_THAT(parse_adapter_config(
                  R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ".*_proj"})",
                  "a.json")
                  .status()
                  .message(),
              HasSubstr("patterns are not read"));
  EXPECT_EQ(parse_adapter_config(config_with(R"("lora_dropout": 0.1)"), "a.json")->notes.size(),
            1u);
}

std::string target_refusal(const std::string& target) {
  DecoderConfig config = *decoder_preset("qwen3-1.7b");
  LoraOptions lora{4, 4, false, {target}};
  return make_decoder(config, NetworkHead::kLoss, DType::kBF16, 8, lora).status().message();
}

TEST(LoraTargets, ThatNameNothingAreRefusedWithTheNearest) {
  EXPECT_THAT(target_refusal("q_porj"), HasSubstr("did you mean 'q_proj'"));
  EXPECT_THAT(target_refusal("experts"), HasSubstr("down_proj, gate_proj, k_proj"));
  EXPECT_EQ(target_refusal("self_attn.q_proj"), "");
  EXPECT_EQ(target_refusal("model.layers.3.mlp.down_proj").find("refused"), std::string::npos);
}

// Field report 17: an adapter on a head that is the embedding would change both, or be lost.
TEST(LoraTargets, TheHeadAndTheEmbeddingAreRefused) {
  EXPECT_THAT(target_refusal("lm_head"), HasSubstr("'lm_head' names no module of the layers"));
  EXPECT_THAT(target_refusal("embed_tokens"), HasSubstr("names no module of the layers"));
}

}  // namespace

}  // namespace stagecoach
