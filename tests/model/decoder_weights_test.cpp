// Weights of Llama and Qwen3 as files have them: tied heads under either name, shapes and biases
// that config.json and file must agree on. Numbers are those of reference/field-reports.md.

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "model/computed_model.h"
#include "model/safetensors.h"
#include "model/weight_transfer.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

namespace {

using testing::HasSubstr;

/// A copy of a folder of tests/reference/decoders that a test changes.
class FixtureFolder {
 public:
  explicit FixtureFolder(const std::string& name) {
    std::string from = std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/decoders/" + name;
    config = Json::parse(read_file(from + "/config.json").value()).value();
    SafetensorsFile file = SafetensorsFile::open(from + "/model.safetensors").value();
    for (const SafetensorInfo& info : file.header().tensors) {
      std::vector<float>& values = tensors[info.name].values;
      tensors[info.name].shape = info.shape;
      values.resize(static_cast<size_t>(info.size / safetensors_type_size(info.type)));
      EXPECT_TRUE(file.read_f32(info, 0, values).is_ok());
    }
  }

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  Json config;
  std::map<std::string, Tensor> tensors;

  const std::string& write() {
    std::vector<SafetensorsTensor> list;
    for (const auto& [name, tensor] : tensors) {
      list.push_back({name, SafetensorsType::kF32, tensor.shape, tensor.values.data()});
    }
    EXPECT_TRUE(write_safetensors(folder_.file("model.safetensors"), std::move(list)).is_ok());
    return folder_.path();
  }

  /// What loading into the network of `config` yields: all blocks.
  Result<std::vector<std::vector<float>>> load() {
    STAGECOACH_ASSIGN_OR_RETURN(ParsedModel parsed, parse_model(config.dump(), "config.json"));
    STAGECOACH_ASSIGN_OR_RETURN(Network network,
                                make_network(parsed.model, NetworkHead::kLoss, DType::kF32, 8));
    std::vector<std::vector<float>> blocks;
    for (const ParameterBlock& block : network.blocks) {
      blocks.emplace_back(static_cast<size_t>(block.element_count));
    }
    auto take = [&](int block, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), blocks[static_cast<size_t>(block)].begin() + offset);
      return Status::ok();
    };
    STAGECOACH_RETURN_IF_FAILED(load_weights(write(), network, take));
    return blocks;
  }

  void expect_refused(const std::string& words) {
    Status status = load().status();
    EXPECT_THAT(status.message(), HasSubstr(words));
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors"));
  }

 private:
  TemporaryFolder folder_;
};

// 15 and 16: the one tensor of a tied model under either name, or under both.
TEST(DecoderWeights, ATiedHeadMayStandUnderEitherName) {
  FixtureFolder folder("qwen3-tied-yarn");
  std::vector<std::vector<float>> expected = folder.load().value();
  FixtureFolder::Tensor tokens = folder.tensors.at("model.embed_tokens.weight");
  folder.tensors["lm_head.weight"] = tokens;
  EXPECT_EQ(folder.load().value(), expected);
  folder.tensors.erase("model.embed_tokens.weight");
  EXPECT_EQ(folder.load().value(), expected);
  folder.tensors["model.embed_tokens.weight"] = tokens;
  folder.tensors["lm_head.weight"].values[3] += 1;
  folder.expect_refused(
      "tensors 'lm_head.weight' and 'model.embed_tokens.weight' differ, but the model's head is "
      "its token embedding");
}

TEST(DecoderWeights, ATiedHeadOfAnotherShapeIsRefusedWithBothShapes) {
  FixtureFolder folder("qwen3-tied-yarn");
  FixtureFolder::Tensor head = folder.tensors.at("model.embed_tokens.weight");
  std::string expected = format_shape(head.shape);
  head.shape[0] /= 2;
  head.values.resize(head.values.size() / 2);
  folder.tensors["lm_head.weight"] = head;
  folder.expect_refused(fmt::format(
      "tensor 'lm_head.weight' has shape {}, expected {}, that of 'model.embed_tokens.weight'",
      format_shape(head.shape), expected));
}

TEST(DecoderWeights, AnOwnHeadMustBeThere) {
  FixtureFolder folder("qwen3");
  folder.tensors.erase("lm_head.weight");
  folder.expect_refused("1 of the model's tensors are missing: 'lm_head.weight'");
}

// 23: the file's key heads against those of config.json.
TEST(DecoderWeights, KeyHeadsOfTheFileMustBeThoseOfTheConfig) {
  FixtureFolder folder("llama-linear");
  folder.config["num_key_value_heads"] = nullptr;
  folder.expect_refused(
      "tensor 'model.layers.0.self_attn.k_proj.weight' has shape [8,16], expected [16,16]");
}

// 24: biases in the file alone, or in config.json alone.
TEST(DecoderWeights, BiasesMustBeInBothOrInNeither) {
  FixtureFolder folder("llama-llama3-tied-biases");
  EXPECT_TRUE(folder.load().is_ok());
  folder.config["attention_bias"] = false;
  folder.expect_refused(
      "8 tensors belong to no parameter of the model: 'model.layers.0.self_attn.k_proj.bias', "
      "'model.layers.0.self_attn.o_proj.bias'");
  FixtureFolder without("llama-llama3-tied-biases");
  without.tensors.erase("model.layers.1.mlp.down_proj.bias");
  without.expect_refused(
      "1 of the model's tensors are missing: 'model.layers.1.mlp.down_proj.bias'");
}

}  // namespace

}  // namespace stagecoach
