#include "model/gpt2_weights.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "model/safetensors.h"
#include "tests/core/temporary_folder.h"
#include "tests/model/model_fixture.h"

namespace stagecoach {

namespace {

using Blocks = std::vector<std::vector<float>>;

class Gpt2Weights : public testing::Test {
 protected:
  Gpt2Weights() : network_(make_gpt2(small_gpt2(0), NetworkHead::kLoss, DType::kF32).value()) {
    parameters_ = random_parameters(network_, 3);
  }

  /// The model's tensors as a file would hold them; tests change them before writing.
  std::map<std::string, SafetensorsTensor> tensors() const {
    std::map<std::string, SafetensorsTensor> result;
    for (size_t b = 0; b < network_.blocks.size(); ++b) {
      for (const ParameterInfo& parameter : network_.blocks[b].parameters) {
        SafetensorsTensor tensor;
        tensor.name = parameter.name;
        tensor.shape = {parameter.shape.dims.begin(),
                        parameter.shape.dims.begin() + parameter.shape.rank};
        tensor.data = parameters_[b].data() + parameter.offset;
        result[parameter.name] = tensor;
      }
    }
    return result;
  }

  void write(const std::map<std::string, SafetensorsTensor>& tensors) {
    std::vector<SafetensorsTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back(tensor);
    ASSERT_TRUE(write_safetensors(folder_.file("model.safetensors"), list).is_ok());
  }

  /// Loads into memory that holds a value no parameter has.
  Status load(Blocks& blocks, WeightNaming* naming = nullptr) {
    blocks.clear();
    for (const ParameterBlock& block : network_.blocks) {
      blocks.emplace_back(static_cast<size_t>(block.element_count), kUntouched);
    }
    auto sink = [&blocks](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), blocks[block].begin() + offset);
      return Status::ok();
    };
    return load_weights(folder_.path(), network_, sink, naming);
  }

  void expect_loaded(const Blocks& blocks) const {
    for (size_t b = 0; b < network_.blocks.size(); ++b) {
      for (const ParameterInfo& parameter : network_.blocks[b].parameters) {
        for (int64_t i = 0; i < parameter.shape.element_count(); ++i) {
          size_t at = static_cast<size_t>(parameter.offset + i);
          ASSERT_EQ(blocks[b][at], parameters_[b][at]) << parameter.name << " " << i;
        }
      }
    }
  }

  void expect_refused(const std::string& words) {
    Blocks blocks;
    Status status = load(blocks);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    for (const std::vector<float>& block : blocks) {
      for (float value : block) ASSERT_EQ(value, kUntouched);
    }
  }

  static constexpr float kUntouched = 123456.0f;
  Network network_;
  Blocks parameters_;
  TemporaryFolder folder_;
};

TEST_F(Gpt2Weights, saving_and_loading_keeps_every_value_and_the_naming) {
  auto source = [this](int block, int64_t offset, std::span<float> out) {
    std::copy_n(parameters_[block].begin() + offset, out.size(), out.begin());
  };
  for (WeightNaming naming : {WeightNaming::kPrefixed, WeightNaming::kBare}) {
    ASSERT_TRUE(save_weights(folder_.path(), network_, source, naming).is_ok());
    Blocks blocks;
    WeightNaming found = WeightNaming::kPrefixed;
    Status status = load(blocks, &found);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(found, naming);
    expect_loaded(blocks);
    SafetensorsFile file = SafetensorsFile::open(folder_.file("model.safetensors")).value();
    EXPECT_EQ(file.find("wte.weight") != nullptr, naming == WeightNaming::kBare);
    EXPECT_EQ(file.find("transformer.wte.weight") != nullptr, naming == WeightNaming::kPrefixed);
    EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  }
}

TEST_F(Gpt2Weights, alignment_gaps_are_left_alone) {
  write(tensors());
  Blocks blocks;
  ASSERT_TRUE(load(blocks).is_ok());
  const ParameterInfo& first = network_.blocks[2].parameters[0];
  EXPECT_EQ(blocks[2][static_cast<size_t>(first.shape.element_count())], kUntouched);
}

TEST_F(Gpt2Weights, mask_buffers_empty_tensors_and_an_equal_head_are_accepted) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  std::vector<float> mask(16, 1.0f);
  std::vector<uint8_t> bytes(16, 1);
  file["mask"] = {"transformer.h.0.attn.bias", SafetensorsType::kF32, {1, 1, 4, 4}, mask.data()};
  file["mask1"] = {"h.1.attn.bias", SafetensorsType::kBool, {1, 1, 4, 4}, bytes.data()};
  file["masked"] = {"h.0.attn.masked_bias", SafetensorsType::kF32, {}, mask.data()};
  file["empty"] = {"something.else", SafetensorsType::kF32, {0}, mask.data()};
  file["head"] = file["transformer.wte.weight"];
  file["head"].name = "lm_head.weight";
  write(file);
  Blocks blocks;
  Status status = load(blocks);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_loaded(blocks);
}

TEST_F(Gpt2Weights, the_head_stands_in_for_a_missing_embedding) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  file["transformer.wte.weight"].name = "lm_head.weight";
  write(file);
  Blocks blocks;
  Status status = load(blocks);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_loaded(blocks);
}

TEST_F(Gpt2Weights, a_head_that_differs_is_refused) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  std::vector<float> other = parameters_[0];
  other[5] += 1;
  file["head"] = file["transformer.wte.weight"];
  file["head"].name = "lm_head.weight";
  file["head"].data = other.data();
  write(file);
  expect_refused("tensors 'lm_head.weight' and 'transformer.wte.weight' differ");
}

TEST_F(Gpt2Weights, every_tensor_is_consumed_or_refused) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  file.erase("transformer.h.1.mlp.c_fc.bias");
  write(file);
  expect_refused("1 of the model's tensors are missing: 'transformer.h.1.mlp.c_fc.bias'");

  file = tensors();
  float value = 0;
  file["extra"] = {"score.weight", SafetensorsType::kF32, {1}, &value};
  write(file);
  expect_refused("1 tensors belong to no parameter of the model: 'score.weight'");

  file = tensors();
  SafetensorsTensor& weight = file["transformer.h.0.attn.c_attn.weight"];
  std::swap(weight.shape[0], weight.shape[1]);
  write(file);
  expect_refused("tensor 'transformer.h.0.attn.c_attn.weight' has shape [72,24], expected [24,72]");

  file = tensors();
  file["again"] = file["transformer.ln_f.bias"];
  file["again"].name = "ln_f.bias";
  write(file);
  expect_refused("tensors 'ln_f.bias' and 'transformer.ln_f.bias' are the same parameter");

  file = tensors();
  file["transformer.ln_f.bias"].shape = {0, 24};
  write(file);
  expect_refused("tensor 'transformer.ln_f.bias' has shape [0,24], expected [24]");
}

TEST_F(Gpt2Weights, a_sink_that_refuses_ends_the_loading) {
  write(tensors());
  int calls = 0;
  auto sink = [&calls](int, int64_t, std::span<const float>) {
    ++calls;
    return invalid_argument("not this one");
  };
  EXPECT_EQ(load_weights(folder_.path(), network_, sink).message(), "not this one");
  EXPECT_EQ(calls, 1);
}

}  // namespace

}  // namespace stagecoach
