// What config.json of Llama and Qwen3 says, in both generations of field placement. Numbers in
// comments are those of reference/field-reports.md.

#include "model/decoder_config.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "model/head_rotation.h"

namespace stagecoach {

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Fields = std::vector<std::pair<std::string, Json>>;

/// TL: a tiny Llama with 4 heads.
Json llama(const Fields& changes = {}) {
  Json json = Json::object();
  const std::pair<const char*, Json> fields[] = {
      {"model_type", "llama"},     {"vocab_size", 64},
      {"hidden_size", 64},         {"intermediate_size", 96},
      {"num_hidden_layers", 2},    {"num_attention_heads", 4},
      {"num_key_value_heads", 2},  {"max_position_embeddings", 128},
      {"rms_norm_eps", 1e-5},      {"hidden_act", "silu"},
      {"rope_theta", 500000.0},    {"attention_bias", false},
      {"attention_dropout", 0.0},  {"mlp_bias", false},
      {"initializer_range", 0.02}, {"tie_word_embeddings", false}};
  for (const auto& [name, value] : fields) json[name] = value;
  for (const auto& [name, value] : changes) json[name] = value;
  return json;
}

/// TQ: a tiny Qwen3 whose heads are wider than hidden_size / num_attention_heads.
Json qwen3(const Fields& changes = {}) {
  Json json = llama({{"model_type", "qwen3"}, {"head_dim", 32}});
  for (const auto& [name, value] : changes) json[name] = value;
  return json;
}

Json object(const Fields& fields) {
  Json json = Json::object();
  for (const auto& [name, value] : fields) json[name] = value;
  return json;
}

Json llama3_scaling(const char* key = "rope_type") {
  return object({{key, "llama3"},
                 {"factor", 8.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 8192}});
}

Result<ParsedDecoderConfig> parse(const Json& json) {
  return parse_decoder_config(json.dump(), "dir/config.json");
}

ParsedDecoderConfig parsed(const Json& json) {
  Result<ParsedDecoderConfig> found = parse(json);
  EXPECT_TRUE(found.is_ok()) << found.status().to_string();
  return found.is_ok() ? std::move(found).value() : ParsedDecoderConfig{};
}

void expect_refused(const Json& json, const std::string& words) {
  Result<ParsedDecoderConfig> found = parse(json);
  ASSERT_FALSE(found.is_ok()) << words;
  EXPECT_THAT(found.status().message(), HasSubstr("dir/config.json: "));
  EXPECT_THAT(found.status().message(), HasSubstr(words));
}

TEST(DecoderConfig, ReadsEveryNumber) {
  ParsedDecoderConfig found = parsed(llama({{"attention_dropout", 0.25}}));
  EXPECT_EQ(found.config.norm_epsilon, 1e-5);
  EXPECT_EQ(found.config.attention_drop, 0.25);
  EXPECT_EQ(found.config.rotary.theta, 500000);
  EXPECT_EQ(found.config.rotary.kind, RotaryScaling::Kind::kNone);
  EXPECT_THAT(found.defaulted, ElementsAre("head_dim = 16"));
  EXPECT_THAT(found.ignored, IsEmpty());
}

TEST(DecoderConfig, SaysWhatItDefaultsAndWhatItIgnores) {
  ParsedDecoderConfig found = parsed(llama({{"rms_norm_eps", nullptr},
                                            {"rope_theta", nullptr},
                                            {"initializer_range", nullptr},
                                            {"attention_dropout", nullptr},
                                            {"use_cache", true},
                                            {"my_field", 1}}));
  EXPECT_THAT(found.defaulted,
              ElementsAre("head_dim = 16", "rms_norm_eps = 1e-06", "attention_dropout = 0",
                          "initializer_range = 0.02", "rope_theta = 10000"));
  EXPECT_THAT(found.ignored, ElementsAre("my_field"));
}

// 18: the frequencies of Llama 3.1, under either spelling of the key.
TEST(DecoderConfig, Llama3ScalingSlowsLongWaves) {
  for (const char* key : {"rope_type", "type"}) {
    RotaryScaling rotary = parsed(llama({{"rope_scaling", llama3_scaling(key)}})).config.rotary;
    std::vector<double> scaled = rotary_frequencies(rotary, 128);
    std::vector<double> plain = rotary_frequencies({.theta = 500000}, 128);
    for (size_t i = 0; i <= 28; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
    EXPECT_NEAR(plain[29], 2.61610e-3, 1e-8);
    EXPECT_NEAR(scaled[29], 2.16657e-3, 1e-8);
    for (size_t i = 29; i <= 34; ++i) {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
    }
    for (size_t i = 35; i < 64; ++i) EXPECT_NEAR(scaled[i], plain[i] / 8, 1e-18) << i;
    EXPECT_NEAR(plain[63], 2.45514e-6, 1e-11);
    EXPECT_NEAR(scaled[63], 3.06893e-7, 1e-12);
  }
  EXPECT_EQ(parsed(llama({{"rope_scaling", nullptr}})).config.rotary.kind,
            RotaryScaling::Kind::kNone);
}

TEST(DecoderConfig, ScalingsThatItDoesNotHaveAreRefusedByName) {
  expect_refused(llama({{"rope_scaling", object({{"rope_type", "longrope"}, {"factor", 2}})}}),
                 "rope_scaling.rope_type is \"longrope\", expected \"default\", \"linear\"");
  expect_refused(llama({{"rope_scaling", object({{"type", "dynamic"}, {"factor", 2}})}}),
                 "rope_scaling.rope_type is \"dynamic\"");
  expect_refused(
      llama({{"rope_scaling", object({{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2}})}}),
      "rope_scaling.type is \"linear\", expected \"yarn\" as rope_type says");
  expect_refused(llama({{"rope_scaling", object({{"factor", 4}})}}),
                 "rope_scaling.factor is set, expected nothing of that name with rope_type");
  expect_refused(llama({{"rope_scaling", object({{"type", "llama3"}, {"factor", 4}})}}),
                 "rope_scaling.low_freq_factor is missing");
  expect_refused(llama({{"rope_scaling", "linear"}}),
                 "rope_scaling is \"linear\", expected a table");
  Json odd = llama3_scaling();
  odd["high_freq_factor"] = 1.0;
  expect_refused(llama({{"rope_scaling", odd}}), "high_freq_factor is 1, expected more than");
}

// 19: position p turns by (p / 4) times the frequency.
TEST(DecoderConfig, LinearScalingDividesPositions) {
  auto linear = [](Json factor) {
    return llama({{"rope_scaling", object({{"type", "linear"}, {"factor", std::move(factor)}})}});
  };
  RotaryScaling rotary = parsed(linear(4)).config.rotary;
  std::vector<float> scaled = rotary_table(rotary, 16, 9);
  std::vector<float> plain = rotary_table({.theta = 500000}, 16, 9);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(scaled[4 * 8 + i], plain[1 * 8 + i]);
    EXPECT_EQ(scaled[72 + 8 * 8 + i], plain[72 + 2 * 8 + i]);
  }
  expect_refused(linear(0.5), "rope_scaling.factor is 0.5, expected 1 or more");
  expect_refused(linear("4"), "rope_scaling.factor is \"4\", expected a number");
  expect_refused(linear(nullptr), "rope_scaling.factor is missing");
}

// 20: cosines and sines grow by 0.1 ln(factor) + 1.
TEST(DecoderConfig, YarnGrowsCosinesAndSinesOnce) {
  Json yarn = object({{"rope_type", "yarn"},
                      {"factor", 32.0},
                      {"beta_fast", 32.0},
                      {"beta_slow", 1.0},
                      {"truncate", false},
                      {"original_max_position_embeddings", 4096}});
  RotaryScaling rotary = parsed(llama({{"rope_scaling", yarn}})).config.rotary;
  EXPECT_NEAR(rotary.magnitude, 1.34657, 1e-5);
  EXPECT_FALSE(rotary.truncates);
  EXPECT_FLOAT_EQ(rotary_table(rotary, 64, 1)[0], static_cast<float>(rotary.magnitude));
  yarn["factor"] = 4.0;
  EXPECT_NEAR(parsed(llama({{"rope_scaling", yarn}})).config.rotary.magnitude, 1.13863, 1e-5);
  yarn["attention_factor"] = 2.0;
  EXPECT_EQ(parsed(llama({{"rope_scaling", yarn}})).config.rotary.magnitude, 2);
  yarn["beta_fast"] = 0.5;
  expect_refused(llama({{"rope_scaling", yarn}}), "beta_fast is 0.5, expected beta_slow, 1");
}

// As transformers 5.24 has them for GPT-OSS's numbers, with the range of slowed pairs as it is and
// rounded outwards.
TEST(DecoderConfig, YarnSlowsTheSamePairsAsTransformers) {
  RotaryScaling rotary;
  rotary.kind = RotaryScaling::Kind::kYarn;
  rotary.theta = 150000;
  rotary.factor = 32;
  rotary.original_positions = 4096;
  const std::pair<bool, std::vector<double>> expected[] = {
      {false, {5.081327e-2, 3.170570e-2, 6.794959e-3, 4.564839e-4, 1.293187e-4, 3.830881e-5}},
      {true, {5.081327e-2, 3.162075e-2, 7.015714e-3, 5.809475e-4, 2.279478e-4, 3.830881e-5}}};
  for (const auto& [truncates, numbers] : expected) {
    rotary.truncates = truncates;
    std::vector<double> frequencies = rotary_frequencies(rotary, 64);
    size_t pairs[] = {8, 9, 12, 16, 17, 18};
    for (size_t i = 0; i < std::size(pairs); ++i) {
      EXPECT_NEAR(frequencies[pairs[i]], numbers[i], 1e-6 * numbers[i]) << truncates << pairs[i];
    }
  }
}

// 21: the base of rotary positions, where it was and where it is.
TEST(DecoderConfig, OldAndNewPlacesOfTheRotaryBaseMeanTheSame) {
  Json newer = llama3_scaling();
  newer["rope_theta"] = 500000.0;
  RotaryScaling old = parsed(llama({{"rope_scaling", llama3_scaling()}})).config.rotary;
  EXPECT_EQ(parsed(llama({{"rope_theta", nullptr}, {"rope_parameters", newer}})).config.rotary,
            old);
  EXPECT_EQ(parsed(llama({{"rope_parameters", newer}})).config.rotary, old);
  EXPECT_EQ(
      parsed(llama({{"rope_parameters", newer}, {"rope_scaling", llama3_scaling()}})).config.rotary,
      old);
  expect_refused(llama({{"rope_theta", 10000.0}, {"rope_parameters", newer}}),
                 "rope_parameters.rope_theta is 500000, expected 10000 as the file says elsewhere");
  Json other = llama3_scaling();
  other["factor"] = 4.0;
  expect_refused(llama({{"rope_parameters", newer}, {"rope_scaling", other}}),
                 "rope_scaling is another scaling than rope_parameters");
  ParsedDecoderConfig neither = parsed(llama({{"rope_theta", nullptr}}));
  EXPECT_EQ(neither.config.rotary.theta, 10000);
  EXPECT_THAT(neither.defaulted, Contains("rope_theta = 10000"));
  expect_refused(llama({{"rope_parameters", object({{"full_attention", newer}})}}),
                 "rope_parameters.full_attention is a table, expected one set of numbers");
  EXPECT_THAT(describe_rotary(old), HasSubstr("theta 500000, llama3 scaling by 8"));
}

// 22: heads as wide as head_dim says.
TEST(DecoderConfig, HeadDimIsReadNotDerived) {
  ParsedDecoderConfig found = parsed(qwen3({{"hidden_size", 1024},
                                            {"num_attention_heads", 16},
                                            {"num_key_value_heads", 8},
                                            {"head_dim", 128}}));
  Result<Network> network = make_decoder(found.config, NetworkHead::kLoss, DType::kBF16, 16);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  const ParameterInfo& query = network->blocks[2].parameters[1];
  EXPECT_EQ(query.name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(query.shape, (Shape{2048, 1024}));
  expect_refused(llama({{"hidden_size", 65}}),
                 "hidden_size is 65, expected a multiple of num_attention_heads, 4");
  expect_refused(qwen3({{"head_dim", 33}}), "head_dim is 33, expected an even number");
  expect_refused(qwen3({{"head_dim", nullptr}}), "head_dim is missing");
}

// 23: without num_key_value_heads every head has its own.
TEST(DecoderConfig, KeyHeadsDefaultToHeads) {
  ParsedDecoderConfig found = parsed(llama({{"num_key_value_heads", nullptr}}));
  EXPECT_EQ(found.config.architecture.kv_heads, 4);
  EXPECT_THAT(found.defaulted, Contains("num_key_value_heads = 4"));
  expect_refused(llama({{"num_key_value_heads", 3}}),
                 "num_attention_heads is 4, expected a multiple of num_key_value_heads, 3");
}

// 24: biases where the file says so, of queries, keys, values and outputs alike.
TEST(DecoderConfig, BiasesBecomeParameters) {
  ParsedDecoderConfig found = parsed(llama({{"attention_bias", true}, {"mlp_bias", true}}));
  Result<Network> network = make_decoder(found.config, NetworkHead::kLoss, DType::kF32, 8);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  std::vector<std::string> biases;
  for (const ParameterInfo& parameter : network->blocks[2].parameters) {
    if (!parameter.name.ends_with(".bias")) continue;
    biases.push_back(parameter.name.substr(std::string("model.layers.0.").size()));
    EXPECT_FALSE(parameter.decay);
  }
  EXPECT_THAT(biases, ElementsAre("self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                  "self_attn.v_proj.bias", "self_attn.o_proj.bias",
                                  "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"));
  expect_refused(qwen3({{"mlp_bias", true}}), "mlp_bias is true, expected false");
  expect_refused(llama({{"attention_bias", true}, {"head_dim", 8}}),
                 "num_key_value_heads x head_dim, with attention_bias, is 16, expected a multiple");
}

// 25: the stored type under its old and its new name.
TEST(DecoderConfig, TheStoredTypeHasTwoNames) {
  const Fields accepted[] = {{{"dtype", "bfloat16"}},
                             {{"torch_dtype", "bfloat16"}},
                             {{"dtype", "float32"}, {"torch_dtype", "torch.float32"}},
                             {{"dtype", nullptr}},
                             {{"torch_dtype", "torch.bfloat16"}}};
  for (const Fields& fields : accepted) {
    ParsedDecoderConfig found = parsed(llama(fields));
    EXPECT_THAT(found.ignored, IsEmpty());
    Json saved = beside_fp32_weights(llama(fields));
    EXPECT_EQ(saved.find("dtype")->as_string(), "float32");
    EXPECT_EQ(saved.find("torch_dtype")->as_string(), "float32");
    EXPECT_TRUE(parse(saved).is_ok());
  }
  expect_refused(llama({{"dtype", "float64"}}), "dtype is \"float64\", expected \"float32\"");
  expect_refused(llama({{"dtype", "bfloat16"}, {"torch_dtype", "float32"}}),
                 "torch_dtype is \"float32\", expected \"bfloat16\" as dtype says");
}

TEST(DecoderConfig, SettingsThatChangeTheResultAreRefusedByName) {
  const std::pair<const char*, Json> refused[] = {{"hidden_act", "gelu"},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"attn_logit_softcapping", 50.0},
                                                  {"is_encoder_decoder", true},
                                                  {"embedding_multiplier", 12.0},
                                                  {"pruned_heads", object({{"0", 1}})},
                                                  {"quantization_config", Json::object()},
                                                  {"rms_norm_eps", -1.0},
                                                  {"rms_norm_eps", "small"},
                                                  {"attention_dropout", 1.0},
                                                  {"rope_theta", 0.0},
                                                  {"intermediate_size", 0}};
  for (const auto& [name, value] : refused) {
    expect_refused(llama({{name, value}}), std::string(name) + " is ");
  }
  Fields neutral = {{"partial_rotary_factor", 1.0},
                    {"is_encoder_decoder", false},
                    {"attn_logit_softcapping", nullptr},
                    {"pruned_heads", Json::object()}};
  EXPECT_THAT(parsed(llama(neutral)).ignored, IsEmpty());
}

TEST(DecoderConfig, SaysHowExpertsAreChosen) {
  Fields fields = {{"model_type", "qwen3_moe"},
                   {"num_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 32}};
  ParsedDecoderConfig silent = parsed(qwen3(fields));
  EXPECT_FALSE(silent.config.normalizes_choice);
  EXPECT_THAT(silent.defaulted, Contains("norm_topk_prob = false"));
  EXPECT_EQ(silent.config.architecture.experts, 8);
  EXPECT_EQ(silent.config.architecture.intermediate, 32);
  fields.emplace_back("norm_topk_prob", true);
  ParsedDecoderConfig said = parsed(qwen3(fields));
  EXPECT_TRUE(said.config.normalizes_choice);
  EXPECT_THAT(said.defaulted, Not(Contains(HasSubstr("norm_topk_prob"))));
  std::string text = decoder_config_to_json(said.config).dump();
  ParsedDecoderConfig back = parse_decoder_config(text, "again").value();
  EXPECT_EQ(back.config.architecture.experts_per_token, 2);
  EXPECT_TRUE(back.config.normalizes_choice);
  EXPECT_EQ(decoder_config_to_json(back.config).dump(), text);

  // Field report 29.
  EXPECT_EQ(training_warning(said.config), "");
  fields.emplace_back("num_experts_per_tok", 1);
  EXPECT_THAT(training_warning(parsed(qwen3(fields)).config), HasSubstr("get no gradient"));
  fields.emplace_back("output_router_logits", true);
  EXPECT_EQ(training_warning(parsed(qwen3(fields)).config), "");  // a balance loss moves routers
}

Json gpt_oss(const Fields& changes = {}) {
  Json yarn = object({{"rope_type", "yarn"},
                      {"factor", 32.0},
                      {"truncate", false},
                      {"original_max_position_embeddings", 64}});
  Json json = llama({{"model_type", "gpt_oss"},
                     {"head_dim", 16},
                     {"num_local_experts", 4},
                     {"num_experts_per_tok", 2},
                     {"sliding_window", 8},
                     {"attention_bias", true},
                     {"rms_norm_eps", nullptr},
                     {"rope_scaling", yarn}});
  for (const auto& [name, value] : changes) json[name] = value;
  return json;
}

TEST(DecoderConfig, GptOssHasDefaultsOfItsOwn) {
  DecoderConfig config = parsed(gpt_oss({})).config;
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_TRUE(config.normalizes_choice);
  EXPECT_EQ(config.gate_alpha, 1.702);
  EXPECT_EQ(config.gate_limit, 7.0);
  EXPECT_FALSE(config.rotary.truncates);
  EXPECT_EQ(config.architecture.window(0), 8);
  EXPECT_EQ(config.architecture.window(1), 0);
  DecoderConfig other = parsed(gpt_oss({{"swiglu_limit", 2.5}, {"swiglu_alpha", 1.0}})).config;
  EXPECT_EQ(other.gate_limit, 2.5);
  EXPECT_EQ(other.gate_alpha, 1.0);
  expect_refused(gpt_oss({{"swiglu_limit", 0.0}}), "swiglu_limit is 0, expected above 0");
  expect_refused(gpt_oss({{"rope_theta", nullptr}}), "rope_theta is missing");
  expect_refused(gpt_oss({{"rope_scaling", nullptr}}), "rope_scaling is missing");
}

TEST(DecoderConfig, ExpertsAreBalancedWhereRouterLogitsArePutOut) {
  for (bool is_gpt_oss : {false, true}) {
    auto config = [&](Fields fields) {
      if (is_gpt_oss) return gpt_oss(fields);
      for (auto field : Fields{{"model_type", "qwen3_moe"},
                               {"num_experts", 4},
                               {"num_experts_per_tok", 2},
                               {"moe_intermediate_size", 48}}) {
        fields.push_back(field);
      }
      return qwen3(fields);
    };
    EXPECT_EQ(parsed(config({})).config.router_loss, 0);
    EXPECT_EQ(parsed(config({{"router_aux_loss_coef", 0.02}})).config.router_loss, 0);
    ParsedDecoderConfig on = parsed(config({{"output_router_logits", true}}));
    EXPECT_EQ(on.config.router_loss, 0.001);
    EXPECT_THAT(on.defaulted, Contains(HasSubstr("router_aux_loss_coef = 0.001")));
    DecoderConfig said =
        parsed(config({{"output_router_logits", true}, {"router_aux_loss_coef", 0.02}})).config;
    EXPECT_EQ(said.router_loss, 0.02);
    std::string text = decoder_config_to_json(said).dump();
    EXPECT_EQ(parse_decoder_config(text, "again").value().config.router_loss, 0.02);
    expect_refused(config({{"output_router_logits", true}, {"router_aux_loss_coef", -0.5}}),
                   "router_aux_loss_coef is -0.5, expected 0 to 10");
    expect_refused(config({{"output_router_logits", true}, {"router_aux_loss_coef", "much"}}),
                   "router_aux_loss_coef");
  }
}

TEST(DecoderConfig, PresetsAreWhatWasPublished) {
  Result<DecoderConfig> llama31 = decoder_preset("llama3.1-8b");
  ASSERT_TRUE(llama31.is_ok()) << llama31.status().to_string();
  EXPECT_EQ(llama31->norm_epsilon, 1e-5);
  EXPECT_EQ(llama31->rotary, parsed(llama({{"rope_scaling", llama3_scaling()}})).config.rotary);
  Result<DecoderConfig> qwen = decoder_preset("qwen3-1.7b");
  ASSERT_TRUE(qwen.is_ok()) << qwen.status().to_string();
  EXPECT_EQ(qwen->rotary.theta, 1e6);
  EXPECT_TRUE(qwen->architecture.ties_head);
  Result<DecoderConfig> oss = decoder_preset("gpt-oss-20b");
  ASSERT_TRUE(oss.is_ok()) << oss.status().to_string();
  EXPECT_EQ(decoder_preset("llama").status().code(), StatusCode::kNotFound);
  for (const DecoderConfig& config : {*llama31, *qwen, *oss}) {
    ParsedDecoderConfig again = parsed(decoder_config_to_json(config));
    EXPECT_EQ(again.config.rotary, config.rotary);
    EXPECT_EQ(again.config.norm_epsilon, config.norm_epsilon);
    EXPECT_EQ(again.config.architecture.windows, config.architecture.windows);
    EXPECT_EQ(again.config.gate_limit, config.gate_limit);
    EXPECT_EQ(again.config.normalizes_choice, config.normalizes_choice);
    EXPECT_EQ(again.config.architecture.head_dim, config.architecture.head_dim);
    EXPECT_THAT(again.defaulted, IsEmpty());
    EXPECT_THAT(again.ignored, IsEmpty());
  }
}

// The constant a network reads in 16 bits adds up to the fp32 numbers.
TEST(HeadRotationTable, PartsAddUpToTheWhole) {
  RotaryScaling scaling{.theta = 500};
  std::vector<float> whole = rotary_table(scaling, 16, 50);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<float> parts = HeadRotation::table_values(scaling, 16, 50, dtype);
    EXPECT_EQ(static_cast<int64_t>(parts.size()), HeadRotation::table_elements(16, 50, dtype));
    for (size_t i = 0; i < whole.size(); ++i) {
      float sum = 0;
      for (size_t at = i; at < parts.size(); at += whole.size()) sum += parts[at];
      double bound = dtype == DType::kF16 ? 3e-8 : 0;
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(whole[i]), bound);
    }
  }
  // Of positions so far that fp32 angles would be off by a hundredth.
  double angle = 99'999 * std::pow(500.0, -2.0 / 16);
  EXPECT_EQ(rotary_table(scaling, 16, 100'000)[99'999 * 8 + 1],
            static_cast<float>(std::cos(angle)));
}

}  // namespace

}  // namespace stagecoach
