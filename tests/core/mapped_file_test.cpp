#include "core/mapped_file.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() { EXPECT_TRUE(write_file_atomically(path_, std::string(kSize, 'a')).is_ok()); }
  static constexpr size_t kSize = size_t{64} * 1024;
  TemporaryFolder folder_;
  std::string path_ = folder_.file("weights");
};

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  Result<MappedFile> file = MappedFile::open(path_);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  MappedFile moved = std::move(file).value();
  ASSERT_EQ(moved.bytes().size(), kSize);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), std::string(kSize, 'a').data(), kSize), 0);
  EXPECT_TRUE(moved.check_unchanged().is_ok());
  EXPECT_THAT(MappedFile::open(folder_.file("none")).status().message(), HasSubstr("none"));
}

TEST_F(MappedFileTest, FindsAFileThatWasChanged) {
  MappedFile file = MappedFile::open(path_).value();
  ASSERT_EQ(::truncate(path_.c_str(), kSize / 2), 0);
  EXPECT_EQ(file.check_unchanged().code(), StatusCode::kIo);
  EXPECT_THAT(file.check_unchanged().message(), HasSubstr(path_));
  // Replaced by a rename, as tools do, the mapped one is as it was.
  MappedFile half = MappedFile::open(path_).value();
  ASSERT_TRUE(write_file_atomically(path_, "new").is_ok());
  EXPECT_TRUE(half.check_unchanged().is_ok());
}

TEST_F(MappedFileTest, TouchingWhatIsGoneIsAMessageAndNoSignal) {
  auto touch = [this] {
    MappedFile file = MappedFile::open(path_).value();
    if (::truncate(path_.c_str(), 0) != 0) return;
    volatile std::byte last = file.bytes()[kSize - 1];
    static_cast<void>(last);
  };
  EXPECT_EXIT(touch(), testing::ExitedWithCode(1), "cannot read '.*weights', which is mapped");
}

}  // namespace
}  // namespace stagecoach
