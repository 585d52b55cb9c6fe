#include "model/model_source.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "model/safetensors.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

namespace {

class ModelSources : public testing::Test {
 protected:
  ModelSources() {
    Gpt2Config config;
    config.n_layer = 3;
    put("config.json", gpt2_config_to_json(config).dump());
  }

  void put(const std::string& name, const std::string& content) {
    STAGECOACH_CHECK(write_file_atomically(folder_.file(name), content).is_ok());
  }

  static void expect_refused(const std::string& model, const std::string& words, StatusCode code) {
    Result<ModelSource> source = resolve_model(model);
    ASSERT_FALSE(source.is_ok()) << model;
    EXPECT_EQ(source.status().code(), code) << source.status().to_string();
    EXPECT_NE(source.status().message().find(words), std::string::npos)
        << source.status().message();
  }

  TemporaryFolder folder_;
};

TEST_F(ModelSources, a_folder_gives_shape_and_weights) {
  float value = 1;
  SafetensorsTensor tensor{"a", SafetensorsType::kF32, {1}, &value};
  ASSERT_TRUE(write_safetensors(folder_.file("model.safetensors"), {tensor}).is_ok());
  Result<ModelSource> source = resolve_model(folder_.path());
  ASSERT_TRUE(source.is_ok()) << source.status().to_string();
  EXPECT_EQ(source->architecture().layers, 3);
  EXPECT_EQ(source->weights_folder, folder_.path());
  EXPECT_TRUE(check_has_weights(*source).is_ok());
}

TEST_F(ModelSources, a_folder_without_weights_a_config_and_a_preset_give_the_shape) {
  for (const std::string& model :
       {folder_.path(), folder_.file("config.json"), std::string("gpt2")}) {
    Result<ModelSource> source = resolve_model(model);
    ASSERT_TRUE(source.is_ok()) << source.status().to_string();
    EXPECT_EQ(source->architecture().layers, model == "gpt2" ? 12 : 3);
    EXPECT_TRUE(source->weights_folder.empty());
    Status status = check_has_weights(*source);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("model '" + model + "' has no weights"), std::string::npos);
    EXPECT_NE(status.message().find("init = \"random\""), std::string::npos);
  }
}

TEST_F(ModelSources, weights_in_other_forms_are_refused_by_name) {
  put("pytorch_model.bin", "x");
  expect_refused(folder_.path(), "has its weights in pytorch_model.bin",
                 StatusCode::kUnimplemented);
  expect_refused(folder_.path(), "save_pretrained('" + folder_.path() + "')",
                 StatusCode::kUnimplemented);
  put("model-00001-of-00002.safetensors", "x");
  expect_refused(folder_.path(),
                 "has 'model-00001-of-00002.safetensors' but no model.safetensors.index.json",
                 StatusCode::kNotFound);
}

TEST_F(ModelSources, damaged_weights_are_refused_before_anything_is_built_or_planned) {
  put("model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  put("model-00001-of-00001.safetensors", "1234567");
  expect_refused(folder_.path(), "7 bytes found, at least 8 expected: incomplete download or copy",
                 StatusCode::kDataLoss);
  EXPECT_EQ(resolve_shape(folder_.path()).status().code(), StatusCode::kDataLoss);
}

TEST_F(ModelSources, names_of_the_hub_are_refused_with_the_command) {
  expect_refused("openai-community/gpt2",
                 "huggingface-cli download openai-community/gpt2 --local-dir gpt2",
                 StatusCode::kNotFound);
}

TEST_F(ModelSources, what_does_not_exist_is_refused) {
  expect_refused("", "empty", StatusCode::kInvalidArgument);
  expect_refused("./no/such/folder", "'./no/such/folder' does not exist", StatusCode::kNotFound);
  expect_refused("gpt-2", "did you mean 'gpt2'", StatusCode::kNotFound);
  TemporaryFolder empty;
  expect_refused(empty.path(), "has no config.json", StatusCode::kNotFound);
}

TEST_F(ModelSources, errors_name_the_file) {
  put("config.json", "{\"model_type\": \"bert\"}");
  expect_refused(folder_.path(), folder_.file("config.json") + ": model_type is \"bert\"",
                 StatusCode::kUnimplemented);
}

}  // namespace

}  // namespace stagecoach
