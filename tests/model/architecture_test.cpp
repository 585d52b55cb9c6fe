#include "model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "model/architecture_config.h"
#include "model/architecture_network.h"
#include "model/decoder.h"
#include "model/gpt2.h"
#include "scheduler/network_profile.h"

namespace stagecoach {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ProfileRates kRates{1e12, 80e9};

Network shape_network(const Architecture& architecture, int64_t lora_rank = 0,
                      DType dtype = DType::kBF16, bool has_documents = false,
                      bool has_router_loss = false) {
  Result<Network> network =
      make_shape_network(architecture, {dtype, lora_rank, has_documents, has_router_loss});
  EXPECT_TRUE(network.is_ok()) << network.status().to_string();
  return std::move(network).value();
}

// As the models' own files count; a tied head counts once.
TEST(Architecture, PresetsHaveThePublishedParameters) {
  const std::pair<const char*, int64_t> published[] = {
      {"gpt2", 124'439'808},           {"gpt2-medium", 354'823'168},
      {"llama3.1-8b", 8'030'261'248},  {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},     {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},   {"qwen3-32b", 32'762'123'264},
      {"gpt-oss-20b", 20'914'757'184}, {"qwen3-235b-a22b", 235'093'634'560},
  };
  for (const auto& [name, parameters] : published) {
    ASSERT_TRUE(is_model_preset(name)) << name;
    Result<Architecture> architecture = architecture_preset(name);
    ASSERT_TRUE(architecture.is_ok()) << name;
    EXPECT_EQ(shape_network(*architecture).parameter_count(), parameters) << name;
  }
  EXPECT_FALSE(is_model_preset("qwen3-9b"));
  EXPECT_THAT(architecture_preset("qwen3-9b").status().message(), HasSubstr("did you mean"));
}

// PEFT prints these for adapters of all linear modules of dense models.
TEST(Architecture, AdaptersHaveThePublishedParameters) {
  struct Case {
    const char* name;
    int64_t rank, adapters;
  };
  for (const Case& one : {Case{"gpt2", 16, 2'359'296}, Case{"qwen3-1.7b", 32, 34'865'152},
                          Case{"qwen3-4b", 16, 33'030'144}, Case{"qwen3-8b", 16, 43'646'976}}) {
    Architecture architecture = *architecture_preset(one.name);
    Network network = shape_network(architecture, one.rank);
    EXPECT_EQ(network.trained_parameter_count(), one.adapters) << one.name;
    int64_t base = shape_network(architecture).parameter_count();
    EXPECT_EQ(network.parameter_count(), base + one.adapters) << one.name;
  }
}

// The generic layers against those that compute: all bytes and times are equal.
TEST(Architecture, Gpt2sProfileIsThatOfItsNetwork) {
  Gpt2Config config;
  config.n_embd = 256;
  config.n_head = 4;
  config.n_inner = 768;
  config.n_layer = 3;
  config.vocab_size = 5000;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  for (auto [dtype, has_documents] : {std::pair(DType::kF32, false),
                                      {DType::kBF16, false},
                                      {DType::kF32, true},
                                      {DType::kBF16, true}}) {
    Result<Network> real = make_gpt2(config, NetworkHead::kLoss, dtype, {}, has_documents);
    ASSERT_TRUE(real.is_ok());
    Network shape = shape_network(architecture_of(config), 0, dtype, has_documents);
    EXPECT_EQ(shape.parameter_count(), real->parameter_count());
    for (const MicroBatchShape& micro_batch : {MicroBatchShape{1, 1024}, MicroBatchShape{4, 96}}) {
      std::vector<LayerProfile> expected = profile_network(*real, micro_batch, kRates);
      std::vector<LayerProfile> found = profile_network(shape, micro_batch, kRates);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t layer = 0; layer < found.size(); ++layer) {
        SCOPED_TRACE(expected[layer].name);
        const LayerProfile &a = expected[layer], &b = found[layer];
        EXPECT_EQ(a.parameter_bytes, b.parameter_bytes);
        EXPECT_EQ(a.gradient_bytes, b.gradient_bytes);
        EXPECT_EQ(a.gradient_sum_bytes, b.gradient_sum_bytes);
        EXPECT_EQ(a.boundary_bytes, b.boundary_bytes);
        EXPECT_EQ(a.input_bytes, b.input_bytes);
        EXPECT_EQ(a.row_bytes.values, b.row_bytes.values);
        EXPECT_EQ(a.saved_bytes, b.saved_bytes);
        EXPECT_EQ(a.forward_workspace_bytes, b.forward_workspace_bytes);
        EXPECT_EQ(a.backward_workspace_bytes, b.backward_workspace_bytes);
        EXPECT_EQ(a.copy_shares, b.copy_shares);
        EXPECT_EQ(a.shared_layers, b.shared_layers);
        EXPECT_NEAR(a.forward_ns, b.forward_ns, 1e-9 * a.forward_ns);
        EXPECT_NEAR(a.early_stop_ns, b.early_stop_ns, 1e-9 * a.forward_ns);
        EXPECT_NEAR(a.backward_ns, b.backward_ns, 1e-9 * a.backward_ns);
        EXPECT_NEAR(a.update_ns, b.update_ns, 1e-9 * a.update_ns);
      }
    }
  }
}

/// All but GPT-2 in small, with everything that changes a layer.
std::vector<DecoderConfig> small_decoders() {
  std::vector<DecoderConfig> configs;
  for (ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen3, ModelFamily::kQwen3Moe, ModelFamily::kGptOss}) {
    for (bool has_bias : {false, true}) {
      DecoderConfig& config = configs.emplace_back();
      Architecture& a = config.architecture;
      a.family = family;
      a.vocabulary = 5000;
      a.positions = 2048;
      a.hidden = 256;
      a.layers = 3;
      a.heads = 4;
      a.kv_heads = 2;
      a.head_dim = 96;
      a.intermediate = 768;
      bool is_gpt_oss = family == ModelFamily::kGptOss;
      if (family == ModelFamily::kQwen3Moe || is_gpt_oss) {
        a.experts = 12;
        a.experts_per_token = has_bias ? 1 : 3;
        config.router_loss = has_bias ? 0 : 0.001;
      }
      a.ties_head = a.attention_bias = has_bias;
      a.mlp_bias = (has_bias && family == ModelFamily::kLlama) || is_gpt_oss;
      if (is_gpt_oss) a.windows = {40, 0, 2000};
    }
  }
  return configs;
}

// As for GPT-2; but for the constant that positions come from, which shapes know nothing of.
TEST(Architecture, ADecodersProfileIsThatOfItsNetwork) {
  for (const DecoderConfig& config : small_decoders()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const MicroBatchShape& micro_batch :
           {MicroBatchShape{1, 1024}, MicroBatchShape{4, 96}}) {
        Result<Network> real =
            make_decoder(config, NetworkHead::kLoss, dtype, micro_batch.sequence, {},
                         /*has_documents=*/true);
        ASSERT_TRUE(real.is_ok()) << real.status().to_string();
        Network shape = shape_network(config.architecture, 0, dtype, /*has_documents=*/true,
                                      config.router_loss > 0);
        EXPECT_EQ(shape.parameter_count(), real->parameter_count());
        EXPECT_EQ(real->parameter_count(), real->trained_parameter_count());
        std::vector<LayerProfile> expected = profile_network(*real, micro_batch, kRates);
        std::vector<LayerProfile> found = profile_network(shape, micro_batch, kRates);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t layer = 0; layer < found.size(); ++layer) {
          SCOPED_TRACE(expected[layer].name);
          const LayerProfile &a = expected[layer], &b = found[layer];
          ByteCount constant = a.frozen_copies > 0 ? real->block_bytes(1, dtype) : 0;
          EXPECT_EQ(constant > 0, a.name.starts_with("layers."));
          EXPECT_EQ(a.parameter_bytes, b.parameter_bytes + constant);
          EXPECT_EQ(a.gradient_bytes, b.gradient_bytes);
          EXPECT_EQ(a.gradient_sum_bytes, b.gradient_sum_bytes);
          EXPECT_EQ(a.boundary_bytes, b.boundary_bytes);
          EXPECT_EQ(a.row_bytes.values, b.row_bytes.values);
          EXPECT_EQ(a.report_bytes, b.report_bytes);
          EXPECT_EQ(a.report_bytes > 0, config.router_loss > 0 && a.name.starts_with("layers."));
          EXPECT_EQ(a.saved_bytes, b.saved_bytes);
          EXPECT_EQ(a.forward_workspace_bytes, b.forward_workspace_bytes);
          EXPECT_EQ(a.backward_workspace_bytes, b.backward_workspace_bytes);
          EXPECT_NEAR(a.forward_ns, b.forward_ns, 1e-9 * a.forward_ns);
          EXPECT_NEAR(a.early_stop_ns, b.early_stop_ns, 1e-9 * a.forward_ns);
          EXPECT_NEAR(a.backward_ns, b.backward_ns, 1e-9 * a.backward_ns);
          EXPECT_NEAR(a.update_ns, b.update_ns, 1e-9 * a.update_ns);
        }
      }
    }
  }
}

double layer_flop(const Architecture& architecture, const MicroBatchShape& shape) {
  return shape_network(architecture).layers[1]->flop(shape).forward;
}

TEST(Architecture, FlopAreThoseOfTheExpertsThatTokensChoose) {
  Architecture architecture = *architecture_preset("qwen3-235b-a22b");
  MicroBatchShape shape{1, 1024};
  double eight = layer_flop(architecture, shape);
  architecture.experts_per_token = 16;
  double sixteen = layer_flop(architecture, shape);
  double chosen = 8.0 * 1024 * 3 * 2 * 4096 * 1536;
  EXPECT_NEAR(sixteen - eight, chosen, 0.02 * chosen);
  architecture.experts = 256;
  double router = 1024.0 * 2 * 4096 * 128;
  EXPECT_NEAR(layer_flop(architecture, shape) - sixteen, router, 0.02 * router);
  EXPECT_EQ(architecture.experts_in_use(1024), 256);
  EXPECT_EQ(architecture.experts_in_use(3), 48);
}

// Two FLOP for each parameter that a token passes: published active parameters, without the
// embedding's, which are looked up.
TEST(Architecture, OneTokenTakesTwoFlopAnActiveParameter) {
  const std::pair<const char*, double> active[] = {
      {"qwen3-235b-a22b", 22'190'763'520.0 - 151'936.0 * 4096}, {"gpt-oss-20b", 3'608'307'264.0}};
  for (const auto& [name, parameters] : active) {
    Network network = shape_network(*architecture_preset(name));
    double flop = 0;
    for (const auto& layer : network.layers) flop += layer->flop({1, 1}).forward;
    EXPECT_NEAR(flop, 2 * parameters, 0.005 * 2 * parameters) << name;
  }
}

TEST(Architecture, AttentionIsCausalAndSlides) {
  Architecture architecture = *architecture_preset("gpt-oss-20b");
  Network network = shape_network(architecture);
  MicroBatchShape shape{1, 4096};
  double sliding = network.layers[1]->flop(shape).forward;
  double full = network.layers[2]->flop(shape).forward;
  double pairs = 4096.0 * 4097 / 2 - (128.0 * 129 / 2 + (4096 - 128) * 128);
  EXPECT_NEAR(full - sliding, 4 * pairs * 64 * 64, 1);
}

TEST(Architecture, AFrozenBaseHasNoWeightGradientsNorUpdates) {
  Architecture architecture = *architecture_preset("qwen3-8b");
  Network full = shape_network(architecture), lora = shape_network(architecture, 16);
  MicroBatchShape shape{1, 2048};
  for (size_t layer : {size_t{0}, size_t{1}, full.layers.size() - 1}) {
    LayerFlop a = full.layers[layer]->flop(shape), b = lora.layers[layer]->flop(shape);
    EXPECT_LT(b.backward_weight, 0.03 * a.backward_weight + 1) << layer;
    EXPECT_GE(b.forward, a.forward) << layer;
  }
  std::vector<LayerProfile> profiles = profile_network(lora, shape, kRates);
  std::vector<LayerProfile> trained = profile_network(full, shape, kRates);
  ASSERT_EQ(profiles.size(), 38u);
  for (size_t layer : {size_t{0}, profiles.size() - 1}) {
    EXPECT_EQ(profiles[layer].gradient_bytes, 0);
    EXPECT_EQ(profiles[layer].update_ns, 0);
    EXPECT_EQ(profiles[layer].parameter_bytes, trained[layer].parameter_bytes);
  }
  int64_t adapters = 43'646'976 / 36;
  EXPECT_EQ(profiles[1].gradient_bytes, 2 * adapters);
  EXPECT_EQ(profiles[1].frozen_copies, 1);
  EXPECT_EQ(profiles[1].parameter_bytes, trained[1].parameter_bytes + 2 * adapters);
  EXPECT_NEAR(profiles[1].update_ns, static_cast<double>(adapters) * 26 / 80, 1);
}

TEST(Architecture, BadOptionsAreRefused) {
  EXPECT_EQ(make_shape_network(*architecture_preset("gpt2"), {DType::kBF16, -1}).status().code(),
            StatusCode::kInvalidArgument);
  Status bad = make_shape_network(*architecture_preset("gpt2"), {DType::kI32, 0}).status();
  EXPECT_THAT(bad.message(), HasSubstr("fp32, bf16 or fp16"));
}

/// A config.json of Qwen3-8B with `changes` in it; null takes a field out.
Json qwen_config(const std::vector<std::pair<std::string, Json>>& changes = {}) {
  Json json = Json::object();
  const std::pair<const char*, Json> fields[] = {
      {"model_type", "qwen3"},        {"vocab_size", 151936},    {"hidden_size", 4096},
      {"intermediate_size", 12288},   {"num_hidden_layers", 36}, {"num_attention_heads", 32},
      {"num_key_value_heads", 8},     {"head_dim", 128},         {"max_position_embeddings", 40960},
      {"tie_word_embeddings", false}, {"attention_bias", false}, {"use_sliding_window", false},
      {"hidden_act", "silu"},         {"max_window_layers", 36}};
  for (const auto& [name, value] : fields) json[name] = value;
  for (const auto& [name, value] : changes) json[name] = value;
  return json;
}

Result<ParsedArchitecture> parsed(const Json& json) {
  return parse_architecture(json.dump(), "dir/config.json");
}

TEST(ArchitectureConfig, ReadsWhatThePresetSays) {
  Result<ParsedArchitecture> found = parsed(qwen_config());
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_THAT(found->defaulted, ElementsAre());
  EXPECT_EQ(shape_network(found->architecture).parameter_count(), 8'190'735'360);
  EXPECT_EQ(found->architecture.positions, 40960);
}

TEST(ArchitectureConfig, LlamaMayLeaveOutHeadSizes) {
  Json json = qwen_config({{"model_type", "llama"},
                           {"vocab_size", 128256},
                           {"num_hidden_layers", 32},
                           {"intermediate_size", 14336},
                           {"head_dim", nullptr},
                           {"mlp_bias", nullptr}});
  Result<ParsedArchitecture> found = parsed(json);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_THAT(found->defaulted, ElementsAre("head_dim = 128", "mlp_bias = false"));
  EXPECT_EQ(shape_network(found->architecture).parameter_count(), 8'030'261'248);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parsed(json)->architecture.kv_heads, 32);
}

// GPT-OSS before and after version 5 of transformers: both names, with and without layer types.
TEST(ArchitectureConfig, BothGenerationsOfGptOssGiveTheSameShape) {
  std::vector<std::pair<std::string, Json>> common = {{"model_type", "gpt_oss"},
                                                      {"vocab_size", 201088},
                                                      {"hidden_size", 2880},
                                                      {"intermediate_size", 2880},
                                                      {"num_hidden_layers", 24},
                                                      {"num_attention_heads", 64},
                                                      {"head_dim", 64},
                                                      {"attention_bias", true},
                                                      {"sliding_window", 128},
                                                      {"num_local_experts", 32},
                                                      {"use_sliding_window", nullptr}};
  Json older = qwen_config(common), newer = qwen_config(common);
  older["experts_per_token"] = 4;
  older["num_experts_per_tok"] = 4;
  older["quantization_config"]["quant_method"] = "mxfp4";
  older["quantization_config"]["modules_to_not_convert"] =
      Json(Json::Array{"model.layers.*.self_attn", "lm_head"});
  newer["num_experts_per_tok"] = 4;
  newer["num_local_experts"] = nullptr;
  newer["num_experts"] = 32;
  newer["rope_parameters"]["rope_type"] = "yarn";
  for (int layer = 0; layer < 24; ++layer) {
    newer["layer_types"].push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  for (const Json& json : {older, newer}) {
    Result<ParsedArchitecture> found = parsed(json);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(shape_network(found->architecture).parameter_count(), 20'914'757'184);
    EXPECT_EQ(found->architecture.windows, architecture_preset("gpt-oss-20b")->windows);
  }
  older["num_experts_per_tok"] = 8;
  EXPECT_THAT(parsed(older).status().message(),
              HasSubstr("dir/config.json: experts_per_token is 4, expected 8 as "
                        "num_experts_per_tok says"));
  older["num_experts_per_tok"] = 4;
  older["quantization_config"]["modules_to_not_convert"] =
      Json(Json::Array{"model.layers.0.mlp.experts"});
  EXPECT_THAT(parsed(older).status().message(),
              HasSubstr("quantization_config.modules_to_not_convert is "
                        "\"model.layers.0.mlp.experts\", expected names of modules"));
  older["quantization_config"]["modules_to_not_convert"] = Json();
  older["quantization_config"]["group_size"] = 64;
  EXPECT_THAT(parsed(older).status().message(), HasSubstr("quantization_config.group_size is 64"));
  older["quantization_config"] = Json::object();
  older["quantization_config"]["quant_method"] = "fp8";
  EXPECT_THAT(parsed(older).status().message(), HasSubstr("quantization_config is {"));
}

TEST(ArchitectureConfig, SlidingWindowsOfQwenStartBehindTheFullLayers) {
  Result<ParsedArchitecture> found = parsed(qwen_config(
      {{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 30}}));
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(found->architecture.window(29), 0);
  EXPECT_EQ(found->architecture.window(30), 4096);
}

// Families differ in what they take of these fields, and transformers is who says how.
TEST(ArchitectureConfig, WindowsAreThoseOfTheFamilysOwnCode) {
  Json experts = qwen_config({{"model_type", "qwen3_moe"},
                              {"num_experts", 4},
                              {"num_experts_per_tok", 2},
                              {"moe_intermediate_size", 64},
                              {"use_sliding_window", true},
                              {"sliding_window", 16},
                              {"max_window_layers", 1}});
  Result<ParsedArchitecture> found = parsed(experts);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(found->architecture.window(0), 16);
  EXPECT_EQ(found->architecture.window(found->architecture.layers - 1), 16);
  experts["use_sliding_window"] = false;
  EXPECT_EQ(parsed(experts)->architecture.window(0), 0);

  Json llama = qwen_config({{"model_type", "llama"},
                            {"use_sliding_window", true},
                            {"sliding_window", 16},
                            {"max_window_layers", 0}});
  found = parsed(llama);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(found->architecture.window(0), 0);

  Json qwen = qwen_config({{"use_sliding_window", false}, {"sliding_window", 16}});
  for (int layer = 0; layer < 36; ++layer) qwen["layer_types"].push_back("sliding_attention");
  EXPECT_THAT(parsed(qwen).status().message(),
              HasSubstr("use_sliding_window is false, expected true, as layer_types[0] slides"));
}

TEST(ArchitectureConfig, BadConfigsAreRefusedByFileAndField) {
  struct Case {
    const char* field;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"model_type", nullptr, "model_type is missing, expected text"},
      {"model_type", "mamba", "model_type is \"mamba\"; this version knows gpt2, llama"},
      {"vocab_size", nullptr, "vocab_size is missing"},
      {"vocab_size", "x", "vocab_size is \"x\", expected an integer"},
      {"vocab_size", 0, "vocab_size is 0, expected 1 to 1048576"},
      {"head_dim", nullptr, "head_dim is missing"},
      {"hidden_size", int64_t{1} << 40, "hidden_size is 1099511627776, expected 1 to"},
      {"num_hidden_layers", -1, "num_hidden_layers is -1"},
      {"num_key_value_heads", 5, "num_attention_heads is 32, expected a multiple"},
      {"hidden_act", "gelu", "hidden_act is \"gelu\", expected \"silu\""},
      {"tie_word_embeddings", 1, "tie_word_embeddings is 1, expected true or false"},
      {"layer_types", Json(Json::Array{"full_attention"}), "layer_types is 1 entries"},
      {"use_sliding_window", true, "sliding_window is missing"},
      {"quantization_config", Json::object(), "quantization_config is {}"},
  };
  for (const Case& one : cases) {
    Status status = parsed(qwen_config({{one.field, one.value}})).status();
    EXPECT_THAT(status.to_string(), HasSubstr("dir/config.json: ")) << one.message;
    EXPECT_THAT(status.to_string(), HasSubstr(one.message));
  }
  Json experts = qwen_config({{"model_type", "qwen3_moe"},
                              {"num_experts", 128},
                              {"num_experts_per_tok", 200},
                              {"moe_intermediate_size", 1536}});
  EXPECT_THAT(parsed(experts).status().to_string(), HasSubstr("num_experts_per_tok is 200"));
  experts["num_experts_per_tok"] = 8;
  EXPECT_TRUE(parsed(experts).is_ok());
  experts["decoder_sparse_step"] = 2;
  EXPECT_THAT(parsed(experts).status().to_string(), HasSubstr("decoder_sparse_step is 2"));
  EXPECT_THAT(parse_architecture("[]", "f").status().message(), HasSubstr("f: expected a JSON"));
  EXPECT_FALSE(parse_architecture("{", "f").is_ok());
}

}  // namespace

}  // namespace stagecoach
