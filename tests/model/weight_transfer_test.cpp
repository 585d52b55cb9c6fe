#include "model/weight_transfer.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "core/dtype.h"
#include "model/gpt2.h"
#include "model/safetensors.h"
#include "tests/core/temporary_folder.h"
#include "tests/model/model_fixture.h"
#include "tests/model/saved_weights.h"

namespace stagecoach {

namespace {

using Blocks = std::vector<std::vector<float>>;

class WeightTransfer : public testing::Test {
 protected:
  WeightTransfer() : network_(make_gpt2(small_gpt2(0), NetworkHead::kLoss, DType::kF32).value()) {
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
  Status load(Blocks& blocks, LoadedWeights* loaded = nullptr) {
    blocks.clear();
    for (const ParameterBlock& block : network_.blocks) {
      blocks.emplace_back(static_cast<size_t>(block.element_count), kUntouched);
    }
    auto sink = [&blocks](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), blocks[block].begin() + offset);
      return Status::ok();
    };
    Result<LoadedWeights> result = load_weights(folder_.path(), network_, sink);
    if (result.is_ok() && loaded != nullptr) *loaded = *result;
    return result.status();
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

TEST_F(WeightTransfer, saving_and_loading_keeps_every_value_and_the_naming) {
  auto source = [this](int block, int64_t offset, std::span<float> out) {
    std::copy_n(parameters_[block].begin() + offset, out.size(), out.begin());
  };
  for (WeightNaming naming : {WeightNaming::kPrefixed, WeightNaming::kBare}) {
    ASSERT_TRUE(save_weights(folder_.path(), network_, source, naming).is_ok());
    Blocks blocks;
    LoadedWeights loaded;
    Status status = load(blocks, &loaded);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(loaded.naming, naming);
    expect_loaded(blocks);
    SafetensorsFile file = SafetensorsFile::open(folder_.file("model.safetensors")).value();
    EXPECT_EQ(file.find("wte.weight") != nullptr, naming == WeightNaming::kBare);
    EXPECT_EQ(file.find("transformer.wte.weight") != nullptr, naming == WeightNaming::kPrefixed);
    EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  }
}

TEST_F(WeightTransfer, alignment_gaps_are_left_alone) {
  write(tensors());
  Blocks blocks;
  ASSERT_TRUE(load(blocks).is_ok());
  const ParameterInfo& first = network_.blocks[2].parameters[0];
  EXPECT_EQ(blocks[2][static_cast<size_t>(first.shape.element_count())], kUntouched);
}

TEST_F(WeightTransfer, mask_buffers_empty_tensors_and_an_equal_head_are_accepted) {
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

TEST_F(WeightTransfer, the_head_stands_in_for_a_missing_embedding) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  file["transformer.wte.weight"].name = "lm_head.weight";
  write(file);
  Blocks blocks;
  Status status = load(blocks);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_loaded(blocks);
}

TEST_F(WeightTransfer, a_head_that_differs_is_refused) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  std::vector<float> other = parameters_[0];
  other[5] += 1;
  file["head"] = file["transformer.wte.weight"];
  file["head"].name = "lm_head.weight";
  file["head"].data = other.data();
  write(file);
  expect_refused("tensors 'lm_head.weight' and 'transformer.wte.weight' differ");
}

TEST_F(WeightTransfer, every_tensor_is_consumed_or_refused) {
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

TEST_F(WeightTransfer, a_sink_that_refuses_ends_the_loading) {
  write(tensors());
  int calls = 0;
  auto sink = [&calls](int, int64_t, std::span<const float>) {
    ++calls;
    return invalid_argument("not this one");
  };
  EXPECT_EQ(load_weights(folder_.path(), network_, sink).status().message(), "not this one");
  EXPECT_EQ(calls, 1);
}

TEST_F(WeightTransfer, a_model_in_several_files_loads_as_from_one) {
  std::vector<SafetensorsTensor> list;
  for (const auto& [name, tensor] : tensors()) list.push_back(tensor);
  Result<std::vector<std::string>> files = write_weight_folder(folder_.path(), list, {8000});
  ASSERT_TRUE(files.is_ok()) << files.status().to_string();
  EXPECT_GT(files->size(), 3u);
  Blocks blocks;
  Status status = load(blocks);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_loaded(blocks);
}

TEST_F(WeightTransfer, a_head_of_another_dtype_is_compared_by_value) {
  std::map<std::string, SafetensorsTensor> file = tensors();
  SafetensorsTensor& tokens = file["transformer.wte.weight"];
  for (float& value : parameters_[0]) value = to_float(to_bfloat16(value));
  std::vector<BFloat16> rounded;
  for (float value : parameters_[0]) rounded.push_back(to_bfloat16(value));
  file["head"] = tokens;
  file["head"].name = "lm_head.weight";
  file["head"].type = SafetensorsType::kBF16;
  file["head"].data = rounded.data();
  write(file);
  Blocks blocks;
  Status status = load(blocks);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  rounded[3] = to_bfloat16(1e9f);
  write(file);
  expect_refused("tensors 'lm_head.weight' and 'transformer.wte.weight' differ");
}

/// A network of blocks alone, with what a file holds for it.
class NamedWeights : public testing::Test {
 protected:
  /// Adds a block of one parameter.
  void add(const std::string& name, const Shape& shape) {
    ParameterBlock block;
    block.name = name;
    block.add(name, shape, true, {});
    network_.blocks.push_back(std::move(block));
    loaded_.emplace_back(static_cast<size_t>(network_.blocks.back().element_count), kUntouched);
  }
  /// Adds a tensor of elements first, first + 1, …
  void put(const std::string& name, std::vector<int64_t> shape, float first,
           SafetensorsType type = SafetensorsType::kF32) {
    SafetensorsTensor tensor{name, type, std::move(shape)};
    tensor.read_f32 = [first](int64_t index, std::span<float> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = first + static_cast<float>(index) + static_cast<float>(i);
      }
      return Status::ok();
    };
    file_.push_back(std::move(tensor));
  }
  Status load() {
    Status written = write_safetensors(folder_.file("model.safetensors"), file_);
    if (!written.is_ok()) return written;
    auto sink = [this](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), loaded_[static_cast<size_t>(block)].begin() + offset);
      return Status::ok();
    };
    return load_weights(folder_.path(), network_, sink).status();
  }
  void expect_block(size_t block, const std::vector<float>& values) const {
    ASSERT_GE(loaded_[block].size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(loaded_[block][i], values[i]) << network_.blocks[block].name << " " << i;
    }
  }
  void expect_untouched() const {
    for (const std::vector<float>& block : loaded_) {
      for (float value : block) ASSERT_EQ(value, kUntouched);
    }
  }
  void remove(const std::string& name) {
    std::erase_if(file_, [&](const SafetensorsTensor& tensor) { return tensor.name == name; });
  }

  static constexpr float kUntouched = 123456.0f;
  Network network_;
  Blocks loaded_;
  std::vector<SafetensorsTensor> file_;
  TemporaryFolder folder_;
};

TEST_F(NamedWeights, families_without_a_rule_of_their_own_need_their_exact_names) {
  add("special.weight", {2});
  put("special.weight", {2}, 5);
  ASSERT_TRUE(load().is_ok());
  expect_block(0, {5, 6});
  put("lm_head.weight", {1}, 0);
  EXPECT_NE(load().message().find("belong to no parameter of the model: 'lm_head.weight'"),
            std::string::npos);
}

TEST_F(NamedWeights, names_of_llama_may_lack_their_prefix_and_carry_frequencies) {
  add("model.embed_tokens.weight", {3, 2});
  add("model.layers.0.self_attn.q_proj.weight", {2, 2});
  put("embed_tokens.weight", {3, 2}, 0);
  put("layers.0.self_attn.q_proj.weight", {2, 2}, 10);
  put("layers.0.self_attn.rotary_emb.inv_freq", {1}, 1);
  Status status = load();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_block(0, {0, 1, 2, 3, 4, 5});
  expect_block(1, {10, 11, 12, 13});
}

TEST_F(NamedWeights, a_tied_model_takes_either_name_and_an_untied_one_needs_both) {
  add("model.embed_tokens.weight", {3, 2});
  put("lm_head.weight", {3, 2}, 4);
  Status status = load();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_block(0, {4, 5, 6, 7, 8, 9});
  put("model.embed_tokens.weight", {3, 2}, 4);
  EXPECT_TRUE(load().is_ok());
  add("lm_head.weight", {3, 2});
  EXPECT_TRUE(load().is_ok());
  expect_block(1, {4, 5, 6, 7, 8, 9});
  remove("model.embed_tokens.weight");
  EXPECT_NE(
      load().message().find("1 of the model's tensors are missing: 'model.embed_tokens.weight'"),
      std::string::npos);
}

TEST_F(NamedWeights, biases_that_the_model_has_not_are_refused) {
  add("model.embed_tokens.weight", {3, 2});
  put("model.embed_tokens.weight", {3, 2}, 0);
  put("model.layers.0.self_attn.q_proj.bias", {2}, 0);
  EXPECT_NE(load().message().find("'model.layers.0.self_attn.q_proj.bias'"), std::string::npos);
  expect_untouched();
}

TEST_F(NamedWeights, mixed_16_and_32_bit_tensors_load_exactly) {
  add("a", {3});
  add("b", {2});
  put("a", {3}, 1, SafetensorsType::kBF16);
  std::vector<uint16_t> halves = {0x7bff, 0x0001};  // 65504, 2^-24
  file_.push_back({"b", SafetensorsType::kF16, {2}, halves.data()});
  Status status = load();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_block(0, {1, 2, 3});
  expect_block(1, {65504.0f, 0x1p-24f});
}

TEST_F(NamedWeights, integers_for_a_parameter_are_refused_before_anything_is_loaded) {
  add("a", {1});
  add("b", {2});
  put("a", {1}, 1);
  std::vector<int32_t> integers = {1, 2};
  file_.push_back({"b", SafetensorsType::kI32, {2}, integers.data()});
  EXPECT_NE(load().message().find("tensor 'b' is I32, expected F32, BF16 or F16"),
            std::string::npos);
  expect_untouched();
}

TEST_F(NamedWeights, stacked_experts_are_made_of_experts_one_by_one) {
  add("model.layers.1.mlp.experts.gate_up_proj", {2, 4, 3});
  add("model.layers.1.mlp.experts.down_proj", {2, 3, 2});
  for (int expert = 0; expert < 2; ++expert) {
    std::string name = "model.layers.1.mlp.experts." + std::to_string(expert);
    auto first = static_cast<float>(100 * expert);
    put(name + ".gate_proj.weight", {2, 3}, first);
    put(name + ".up_proj.weight", {2, 3}, first + 10);
    put(name + ".down_proj.weight", {3, 2}, first + 20);
  }
  Status status = load();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_block(0, {0,   1,   2,   3,   4,   5,   10,  11,  12,  13,  14,  15,
                   100, 101, 102, 103, 104, 105, 110, 111, 112, 113, 114, 115});
  expect_block(1, {20, 21, 22, 23, 24, 25, 120, 121, 122, 123, 124, 125});
}

TEST_F(NamedWeights, experts_one_by_one_are_cut_from_a_stack) {
  for (int expert = 0; expert < 2; ++expert) {
    std::string name = "model.layers.1.mlp.experts." + std::to_string(expert);
    add(name + ".gate_proj.weight", {2, 3});
    add(name + ".up_proj.weight", {2, 3});
    add(name + ".down_proj.weight", {3, 2});
  }
  put("model.layers.1.mlp.experts.gate_up_proj", {2, 4, 3}, 0);
  put("model.layers.1.mlp.experts.down_proj", {2, 3, 2}, 50);
  Status status = load();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_block(1, {6, 7, 8, 9, 10, 11});
  expect_block(2, {50, 51, 52, 53, 54, 55});
  expect_block(3, {12, 13, 14, 15, 16, 17});
  expect_block(5, {56, 57, 58, 59, 60, 61});
  remove("model.layers.1.mlp.experts.gate_up_proj");
  put("model.layers.1.mlp.experts.gate_up_proj", {1, 4, 3}, 0);
  EXPECT_NE(load().message().find("'model.layers.1.mlp.experts.gate_up_proj' has shape [1,4,3], "
                                  "but 'model.layers.1.mlp.experts.1.gate_proj.weight'"),
            std::string::npos);
}

TEST_F(NamedWeights, a_missing_expert_is_named_with_its_layer) {
  add("model.layers.1.mlp.experts.down_proj", {3, 3, 2});
  put("model.layers.1.mlp.experts.0.down_proj.weight", {3, 2}, 0);
  put("model.layers.1.mlp.experts.2.down_proj.weight", {3, 2}, 0);
  EXPECT_NE(
      load().message().find("tensors are missing: 'model.layers.1.mlp.experts.1.down_proj.weight'"),
      std::string::npos);
  expect_untouched();
}

/// Enough to be read by several threads.
TEST_F(NamedWeights, large_tensors_load_in_slices_by_several_threads) {
  constexpr int64_t kRows = 9000;
  add("a", {kRows, 1024});
  add("b", {kRows, 1024});
  auto put_pattern = [&](const char* name, int64_t salt) {
    SafetensorsTensor tensor{name, SafetensorsType::kF32, {kRows, 1024}};
    tensor.read_f32 = [salt](int64_t first, std::span<float> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>((first + static_cast<int64_t>(i)) % 8191 + salt);
      }
      return Status::ok();
    };
    file_.push_back(std::move(tensor));
  };
  put_pattern("a", 1);
  put_pattern("b", 2);
  ASSERT_TRUE(load().is_ok());
  for (size_t block = 0; block < 2; ++block) {
    for (int64_t i = 0; i < kRows * 1024; ++i) {
      ASSERT_EQ(loaded_[block][static_cast<size_t>(i)],
                static_cast<float>(i % 8191 + static_cast<int64_t>(block) + 1));
    }
  }
  // A file that is cut while it is read ends the loading with an error.
  auto sink = [this](int, int64_t, std::span<const float>) {
    std::filesystem::resize_file(folder_.file("model.safetensors"), 1 << 20);
    return Status::ok();
  };
  Result<LoadedWeights> cut = load_weights(folder_.path(), network_, sink);
  ASSERT_FALSE(cut.is_ok());
  EXPECT_EQ(cut.status().code(), StatusCode::kIo);
  EXPECT_NE(cut.status().message().find("it was shortened while it was read"), std::string::npos);
}

}  // namespace

}  // namespace stagecoach
