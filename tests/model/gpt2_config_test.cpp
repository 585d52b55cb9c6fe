#include "model/gpt2_config.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace stagecoach {

namespace {

/// The configuration of the published "gpt2", shortened.
constexpr const char* kPublished = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_inner": null, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
  "summary_type": "cls_index",
  "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257
})";

Json published() {
  return Json::parse(kPublished).value();
}

void expect_refused(const Json& json, const std::string& words,
                    StatusCode code = StatusCode::kInvalidArgument) {
  Result<ParsedGpt2Config> parsed = parse_gpt2_config(json.dump(), "config.json");
  ASSERT_FALSE(parsed.is_ok()) << words;
  EXPECT_EQ(parsed.status().code(), code) << words;
  EXPECT_NE(parsed.status().message().find(words), std::string::npos) << parsed.status().message();
  EXPECT_NE(parsed.status().message().find("config.json"), std::string::npos);
}

TEST(Gpt2Config, reads_the_published_file) {
  Result<ParsedGpt2Config> parsed = parse_gpt2_config(kPublished, "config.json");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->config.n_inner, 3072);
  EXPECT_EQ(parsed->config.vocab_size, 50257);
  EXPECT_EQ(parsed->config.layer_norm_epsilon, 1e-5);
  EXPECT_EQ(parsed->defaulted, (std::vector<std::string>{"n_inner = 3072"}));
  EXPECT_TRUE(parsed->ignored.empty());
}

TEST(Gpt2Config, lists_what_is_defaulted_and_what_is_ignored) {
  Result<ParsedGpt2Config> parsed = parse_gpt2_config(
      R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "rope_theta": 1})", "config.json");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->config.n_inner, 256);
  EXPECT_EQ(parsed->ignored, (std::vector<std::string>{"rope_theta"}));
  for (const char* line :
       {"vocab_size = 50257", "n_positions = 1024", "n_layer = 12", "n_inner = 256",
        "attn_pdrop = 0.1", "layer_norm_epsilon = 1e-05", "activation_function = gelu_new"}) {
    EXPECT_EQ(std::count(parsed->defaulted.begin(), parsed->defaulted.end(), line), 1) << line;
  }
}

TEST(Gpt2Config, refuses_other_models_by_name) {
  Json json = published();
  json["model_type"] = "llama";
  expect_refused(json, "model_type is \"llama\", expected \"gpt2\"", StatusCode::kUnimplemented);
  json["model_type"] = 3;
  expect_refused(json, "model_type is 3, expected text");
  json["model_type"] = nullptr;
  expect_refused(json, "model_type is missing");
}

TEST(Gpt2Config, refuses_settings_that_change_the_result) {
  for (auto [name, value] : {std::pair<const char*, Json>{"activation_function", "relu"},
                             {"scale_attn_weights", false},
                             {"scale_attn_by_inverse_layer_idx", true},
                             {"reorder_and_upcast_attn", true},
                             {"add_cross_attention", true},
                             {"is_encoder_decoder", true},
                             {"tie_word_embeddings", false},
                             {"tie_word_embeddings", "yes"},
                             {"scale_attn_weights", nullptr},
                             {"pruned_heads", Json(Json::Object{{"0", Json(Json::Array{1})}})},
                             {"quantization_config", Json::object()},
                             {"n_ctx", 512}}) {
    Json json = published();
    json[name] = value;
    expect_refused(json, name);
  }
  Json json = published();
  json["scale_attn_weights"] = true;
  json["pruned_heads"] = Json::object();
  EXPECT_TRUE(parse_gpt2_config(json.dump(), "config.json").is_ok());
}

TEST(Gpt2Config, refuses_bad_values_by_name) {
  for (auto [name, value, words] :
       {std::tuple<const char*, Json, const char*>{"n_embd", 768.0, "n_embd is 768.0, expected an"},
        {"n_embd", "768", "n_embd is \"768\", expected an integer"},
        {"n_embd", 0, "n_embd is 0, expected 1 to"},
        {"n_embd", int64_t{1} << 40, "n_embd is 1099511627776, expected 1 to"},
        {"n_layer", -1, "n_layer is -1"},
        {"n_head", 7, "n_embd is 768, expected a multiple of n_head, 7"},
        {"vocab_size", 0, "vocab_size is 0"},
        {"n_inner", 0, "n_inner is 0"},
        {"attn_pdrop", 1.0, "attn_pdrop is 1, expected at least 0 and below 1"},
        {"resid_pdrop", -0.1, "resid_pdrop is -0.1"},
        {"embd_pdrop", "0.1", "embd_pdrop is \"0.1\", expected a number"},
        {"layer_norm_epsilon", 0, "layer_norm_epsilon is 0"},
        {"initializer_range", -1, "initializer_range is -1"}}) {
    Json json = published();
    json[name] = value;
    if (std::string(name) == "n_embd") json["n_inner"] = 16;
    expect_refused(json, words);
  }
}

TEST(Gpt2Config, refuses_text_that_is_not_one_json_object) {
  for (const char* text : {"", "[]", "{", "{\"model_type\": \"gpt2\", \"model_type\": \"gpt2\"}"}) {
    Result<ParsedGpt2Config> parsed = parse_gpt2_config(text, "config.json");
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_EQ(parsed.status().message().find("config.json"), 0u) << parsed.status().message();
  }
}

TEST(Gpt2Config, json_reads_back_to_the_same_configuration) {
  Gpt2Config config;
  config.vocab_size = 257;
  config.n_embd = 48;
  config.n_head = 3;
  config.n_inner = 100;
  config.attn_pdrop = 0;
  config.layer_norm_epsilon = 1e-6;
  Json json = gpt2_config_to_json(config);
  Result<ParsedGpt2Config> parsed = parse_gpt2_config(json.dump(true), "config.json");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_TRUE(parsed->defaulted.empty());
  EXPECT_TRUE(parsed->ignored.empty());
  EXPECT_EQ(gpt2_config_to_json(parsed->config).dump(), json.dump());
}

TEST(Gpt2Config, presets) {
  Result<Gpt2Config> medium = gpt2_preset("gpt2-medium");
  ASSERT_TRUE(medium.is_ok());
  EXPECT_EQ(medium->n_embd, 1024);
  EXPECT_EQ(medium->n_layer, 24);
  EXPECT_EQ(medium->n_head, 16);
  EXPECT_EQ(medium->n_inner, 4096);
  EXPECT_EQ(gpt2_preset("gpt2")->n_embd, 768);
  Result<Gpt2Config> later = gpt2_preset("qwen3-4b");
  ASSERT_FALSE(later.is_ok());
  EXPECT_EQ(later.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(later.status().message().find("'qwen3-4b' is of another family"), std::string::npos);
  Result<Gpt2Config> wrong = gpt2_preset("gpt2-medum");
  ASSERT_FALSE(wrong.is_ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::kNotFound);
  EXPECT_NE(wrong.status().message().find("did you mean 'gpt2-medium'"), std::string::npos);
}

}  // namespace

}  // namespace stagecoach
