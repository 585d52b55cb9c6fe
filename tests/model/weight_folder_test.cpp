#include "model/weight_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/json.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A folder of four tensors of 4, 8, 4 and 4 bytes in three files.
class WeightFolders : public testing::Test {
 protected:
  WeightFolders() {
    std::vector<SafetensorsTensor> tensors;
    tensors.push_back({"b", SafetensorsType::kF32, {2}, values_.data() + 1});
    tensors.push_back({"a", SafetensorsType::kF32, {1}, values_.data()});
    tensors.push_back({"c", SafetensorsType::kF32, {1}, values_.data() + 3});
    tensors.push_back({"d", SafetensorsType::kF32, {1}, values_.data() + 4});
    files_ = write_weight_folder(folder_.path(), std::move(tensors), {8}).value();
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string index_path() const { return file(kWeightsIndexFile); }
  Json index() const { return Json::parse(read_file(index_path()).value()).value(); }

  void write_index(const Json& index) const { write(kWeightsIndexFile, index.dump()); }
  void write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(write_file_atomically(file(name), content).is_ok());
  }

  /// The refusal for the folder as it is now.
  std::string refusal(StatusCode code = StatusCode::kDataLoss) const {
    Result<WeightFolder> opened = WeightFolder::open(folder_.path());
    if (opened.is_ok()) return "opened";
    EXPECT_EQ(opened.status().code(), code) << opened.status().to_string();
    return opened.status().message();
  }

  std::vector<float> values_ = {1, 2, 3, 4, 5};
  TemporaryFolder folder_;
  std::vector<std::string> files_;
};

TEST_F(WeightFolders, files_are_filled_in_order_of_name_up_to_their_size) {
  EXPECT_THAT(files_,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", kWeightsIndexFile));
  WeightFolder folder = WeightFolder::open(folder_.path()).value();
  ASSERT_EQ(folder.tensors().size(), 4u);
  const char* places[] = {"00001", "00002", "00003", "00003"};
  for (size_t i = 0; i < 4; ++i) {
    const FolderTensor& tensor = folder.tensors()[i];
    EXPECT_EQ(tensor.info->name, std::string(1, static_cast<char>('a' + i)));
    EXPECT_THAT(tensor.file->path(), HasSubstr(places[i]));
    EXPECT_EQ(tensor.file->header().metadata.at("format"), "pt");
  }
  std::vector<float> read(2);
  const FolderTensor* b = folder.find("b");
  ASSERT_TRUE(b->file->read_f32(*b->info, 0, read).is_ok());
  EXPECT_THAT(read, ElementsAre(2, 3));
  EXPECT_EQ(folder.find("e"), nullptr);
  EXPECT_EQ(index().find("metadata")->find("total_size")->as_integer(), 20);
  EXPECT_EQ(index().find("weight_map")->members().size(), 4u);
}

TEST_F(WeightFolders, weights_that_fit_one_file_have_no_index) {
  TemporaryFolder other;
  std::vector<SafetensorsTensor> tensors;
  tensors.push_back({"a", SafetensorsType::kF32, {5}, values_.data()});
  EXPECT_THAT(write_weight_folder(other.path(), tensors).value(), ElementsAre(kWeightsFile));
  WeightFolder folder = WeightFolder::open(other.path()).value();
  EXPECT_EQ(folder.path(), other.file(kWeightsFile));
  EXPECT_EQ(folder.tensors().size(), 1u);
}

TEST_F(WeightFolders, all_files_that_are_not_there_are_named_at_once) {
  std::filesystem::remove(file(files_[0]));
  std::filesystem::remove(file(files_[2]));
  ASSERT_EQ(::symlink("no/such/blob", file(files_[2]).c_str()), 0);
  std::string message = refusal();
  EXPECT_THAT(message, HasSubstr("2 of 3 files are not there"));
  EXPECT_THAT(message, HasSubstr("'" + files_[0] + "' (1 tensors, 'a' the first)"));
  EXPECT_THAT(message, HasSubstr("'" + files_[2] +
                                 "' (a link that leads nowhere, 2 tensors, 'c' the first)"));
  EXPECT_THAT(message, HasSubstr("incomplete download or copy"));
}

TEST_F(WeightFolders, links_to_files_elsewhere_are_followed) {
  TemporaryFolder blobs;
  for (size_t i = 0; i < 3; ++i) {
    std::string blob = blobs.file("blob" + std::to_string(i));
    std::filesystem::rename(file(files_[i]), blob);
    ASSERT_EQ(::symlink(blob.c_str(), file(files_[i]).c_str()), 0);
  }
  EXPECT_TRUE(WeightFolder::open(folder_.path()).is_ok());
}

TEST_F(WeightFolders, cut_off_files_are_told_from_damaged_ones) {
  std::string content = read_file(file(files_[1])).value();
  for (size_t size : {content.size() - 1, content.size() / 2, size_t{0}}) {
    write(files_[1], content.substr(0, size));
    std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(files_[1]));
    EXPECT_THAT(message, HasSubstr("incomplete download or copy")) << size;
  }
}

TEST_F(WeightFolders, files_outside_the_folder_are_refused) {
  for (const char* name : {"../model-00001-of-00003.safetensors", "/etc/passwd", "..", "",
                           "deeper/file.safetensors"}) {
    Json changed = index();
    changed["weight_map"]["a"] = name;
    write_index(changed);
    EXPECT_THAT(refusal(), HasSubstr("expected the name of a file in the folder")) << name;
  }
}

TEST_F(WeightFolders, indexes_that_are_none_are_refused) {
  auto refuses = [&](const std::string& text, const std::string& words) {
    write(kWeightsIndexFile, text);
    std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(words));
    EXPECT_THAT(message, HasSubstr(kWeightsIndexFile));
  };
  refuses("{}", "weight_map is missing");
  refuses("[]", "weight_map is missing");
  refuses("{\"weight_map\":{}}", "weight_map is empty");
  refuses("{\"weight_map\":[\"a\"]}", "weight_map is a list");
  refuses("{\"weight_map\":{\"a\":3}}", "weight_map 'a' is 3, expected a file name");
  refuses("{\"weight_map\":", "line 1");
  refuses("{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "key 'a' appears twice");
}

TEST_F(WeightFolders, an_index_and_headers_that_disagree_are_refused_by_case) {
  Json good = index();
  Json changed = good;
  changed["weight_map"]["c"] = files_[0];
  write_index(changed);
  EXPECT_THAT(refusal(),
              HasSubstr("tensor 'c' should be in '" + files_[0] +
                        "', whose header does not name it; it is in '" + file(files_[2]) + "'"));
  changed = good;
  changed["weight_map"]["never"] = files_[0];
  write_index(changed);
  EXPECT_THAT(refusal(), HasSubstr("tensor 'never' should be in '" + files_[0] +
                                   "', whose header does not name it; nor does that of any other"));
  changed = Json::object();
  for (const char* name : {"a", "b", "d"}) {
    changed["weight_map"][name] = *good.find("weight_map")->find(name);
  }
  write_index(changed);
  EXPECT_THAT(refusal(),
              HasSubstr("tensor 'c' of '" + file(files_[2]) + "' is not in the weight_map"));
  // An index left over from a larger model.
  changed = good;
  changed["weight_map"]["z"] = "model-00009-of-00009.safetensors";
  write_index(changed);
  EXPECT_THAT(refusal(), HasSubstr("1 of 4 files are not there"));
}

TEST_F(WeightFolders, a_tensor_in_two_files_is_refused) {
  std::vector<SafetensorsTensor> both;
  both.push_back({"a", SafetensorsType::kF32, {1}, values_.data()});
  both.push_back({"b", SafetensorsType::kF32, {2}, values_.data() + 1});
  ASSERT_TRUE(write_safetensors(file(files_[1]), both).is_ok());
  EXPECT_THAT(refusal(), HasSubstr("tensor 'a' is both in '" + file(files_[0]) + "' and in '" +
                                   file(files_[1]) + "'"));
}

TEST_F(WeightFolders, two_sets_of_weights_are_refused) {
  std::vector<SafetensorsTensor> other;
  other.push_back({"a", SafetensorsType::kF32, {1}, values_.data()});
  ASSERT_TRUE(write_safetensors(file(kWeightsFile), other).is_ok());
  EXPECT_THAT(refusal(StatusCode::kInvalidArgument), HasSubstr("two sets of weights"));
  // An index of that very file is what some tools write.
  Json index = Json::object();
  index["weight_map"]["a"] = kWeightsFile;
  write_index(index);
  EXPECT_TRUE(WeightFolder::open(folder_.path()).is_ok());
}

TEST_F(WeightFolders, a_file_that_is_shortened_while_it_is_read_is_an_error) {
  WeightFolder folder = WeightFolder::open(folder_.path()).value();
  const FolderTensor* b = folder.find("b");
  std::filesystem::resize_file(file(files_[1]), static_cast<uintmax_t>(b->info->offset + 4));
  std::vector<float> read(2);
  Status status = b->file->read_f32(*b->info, 0, read);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(
      status.message(),
      HasSubstr("'" + file(files_[1]) + "' ends at byte " + std::to_string(b->info->offset + 4) +
                ", it had " + std::to_string(b->info->offset + 8) + " when it was opened"));
}

}  // namespace

}  // namespace stagecoach
