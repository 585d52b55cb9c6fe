#include "tools/bandwidth/profile_file.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

MachineProfile some_profile() {
  MachineProfile profile;
  profile.name = "box";
  MachineCard& card = profile.cards.emplace_back();
  card.flop_per_s = 1e12;
  card.memory_bytes = kGiB;
  card.up_bytes_per_s = card.down_bytes_per_s = 1e9;
  card.duplex_bytes_per_s = 2e9;
  profile.host_work_bytes_per_s = 1e9;
  return profile;
}

TEST(ProfileFile, ReplacesProfilesAndEmptyFilesAlone) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json");
  EXPECT_TRUE(check_profile_target(path).is_ok());
  EXPECT_FALSE(read_file(path).is_ok());  // nothing is left
  ASSERT_TRUE(write_machine_profile(path, some_profile()).is_ok());
  EXPECT_TRUE(check_profile_target(path).is_ok());
  EXPECT_TRUE(read_machine_profile(path).is_ok());
  ASSERT_TRUE(write_file_atomically(path, "").is_ok());
  EXPECT_TRUE(check_profile_target(path).is_ok());
  ASSERT_TRUE(write_file_atomically(path, "{\"results\": []}\n").is_ok());
  Status refused = check_profile_target(path);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("here.json' exists and is no machine profile"));
  EXPECT_EQ(read_file(path).value(), "{\"results\": []}\n");
}

TEST(ProfileFile, WhatTakesNoFileIsRefused) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomically(folder.file("file"), "text").is_ok());
  for (const std::string& path : {folder.file("file/here.json"), folder.path(),
                                  std::string("/dev/full"), std::string("/proc/here.json")}) {
    Status refused = check_profile_target(path);
    EXPECT_FALSE(refused.is_ok()) << path;
    EXPECT_NE(refused.code(), StatusCode::kResourceExhausted) << path;
    EXPECT_THAT(refused.message(), HasSubstr(path));
  }
  std::string path = folder.file("new/folder/here.json");
  EXPECT_TRUE(check_profile_target(path).is_ok());
  EXPECT_FALSE(std::filesystem::exists(folder.file("new")));
  EXPECT_TRUE(write_machine_profile(path, some_profile()).is_ok());
  EXPECT_TRUE(read_machine_profile(path).is_ok());
}

}  // namespace
}  // namespace stagecoach
