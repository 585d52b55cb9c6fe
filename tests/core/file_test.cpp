#include "core/file.h"

#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "temporary_folder.h"

namespace stagecoach {
namespace {

size_t file_count(const std::string& folder) {
  auto entries = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST(File, WritesAtomicallyAndReadsBack) {
  TemporaryFolder folder;
  std::string path = folder.file("a.txt");
  std::string content("first\0line\n", 11);
  ASSERT_TRUE(write_file_atomically(path, content).is_ok());
  EXPECT_EQ(*read_file(path), content);
  ASSERT_TRUE(write_file_atomically(path, "").is_ok());
  EXPECT_EQ(*read_file(path), "");
  std::string large(3'000'000, 'x');
  ASSERT_TRUE(write_file_atomically(path, large).is_ok());
  EXPECT_EQ(*read_file(path), large);
  EXPECT_EQ(file_count(folder.path()), 1u);  // no temporary file stays
}

TEST(File, AFailedWriteKeepsTheOldContent) {
  TemporaryFolder folder;
  std::string path = folder.file("a.txt");
  ASSERT_TRUE(write_file_atomically(path, "old").is_ok());
  // A limit on the size of files stands for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = write_file_atomically(path, std::string(5000, 'n'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.is_ok());
  EXPECT_EQ(*read_file(path), "old");
  EXPECT_EQ(file_count(folder.path()), 1u);
}

TEST(File, ErrorsNameTheFileAndTheReason) {
  TemporaryFolder folder;
  std::string missing = folder.file("none/a.txt");
  Status status = read_file(missing).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find(missing), std::string::npos);
  EXPECT_NE(status.message().find("No such file"), std::string::npos);
  EXPECT_EQ(write_file_atomically(missing, "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(FileWriter::create(missing).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FileReader::open(missing).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(sync_folder(missing).code(), StatusCode::kNotFound);
  EXPECT_EQ(read_file(folder.path()).status().code(), StatusCode::kIo);  // a folder
}

TEST(File, MakesFolders) {
  TemporaryFolder folder;
  EXPECT_TRUE(make_folders(folder.file("a/b/c")).is_ok());
  EXPECT_TRUE(make_folders(folder.file("a/b/c")).is_ok());
  EXPECT_TRUE(sync_folder(folder.file("a/b")).is_ok());
  ASSERT_TRUE(write_file_atomically(folder.file("file"), "x").is_ok());
  EXPECT_FALSE(make_folders(folder.file("file")).is_ok());
  EXPECT_FALSE(make_folders(folder.file("file/below")).is_ok());
}

TEST(File, ChecksFoldersByWriting) {
  TemporaryFolder folder;
  EXPECT_TRUE(check_folder_writable(folder.file("new")).is_ok());
  EXPECT_EQ(file_count(folder.file("new")), 0u);
  // Nobody, not even root, creates files in /proc.
  EXPECT_FALSE(check_folder_writable("/proc/self").is_ok());
}

TEST(FileWriter, WritesPieces) {
  TemporaryFolder folder;
  std::string path = folder.file("pieces");
  {
    Result<FileWriter> created = FileWriter::create(path);
    ASSERT_TRUE(created.is_ok());
    FileWriter writer = std::move(created).value();
    EXPECT_TRUE(writer.write("ab", 2).is_ok());
    EXPECT_TRUE(writer.write(nullptr, 0).is_ok());
    FileWriter moved = std::move(writer);
    EXPECT_TRUE(moved.write("cd", 2).is_ok());
    EXPECT_TRUE(moved.finish().is_ok());
    EXPECT_EQ(moved.finish().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(moved.write("x", 1).code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(*read_file(path), "abcd");
}

TEST(FileWriter, AFullDiskIsResourceExhausted) {
  Result<FileWriter> writer = FileWriter::create("/dev/full");
  ASSERT_TRUE(writer.is_ok());
  Status status = writer->write("x", 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos);
}

TEST(FileReader, ReadsAnywhereAndNamesWhereAFileThatWasCutEnds) {
  TemporaryFolder folder;
  std::string path = folder.file("a.txt");
  ASSERT_TRUE(write_file_atomically(path, "0123456789").is_ok());
  Result<FileReader> opened = FileReader::open(path);
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  FileReader file = std::move(opened).value();
  EXPECT_EQ(file.size(), 10);
  std::string read(4, ' ');
  ASSERT_TRUE(file.read(3, std::as_writable_bytes(std::span(read))).is_ok());
  EXPECT_EQ(read, "3456");
  std::filesystem::resize_file(path, 5);
  Status status = file.read(3, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("'" + path + "' ends at byte 5, it had 10 when it was opened"));
}

TEST(FileReader, TakesEmptyFilesAndRefusesFoldersAndPipes) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomically(folder.file("empty"), "").is_ok());
  EXPECT_EQ(FileReader::open(folder.file("empty"))->size(), 0);
  EXPECT_FALSE(FileReader::open(folder.path()).is_ok());
  EXPECT_EQ(FileReader::open(folder.file("none")).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(FileReader::open(folder.file("pipe")).is_ok());
}

TEST(File, OnlyLeftoversOfInterruptedWritesAreRemoved) {
  TemporaryFolder folder;
  std::vector<std::string> leftovers = {"trace.json.4852.17.tmp", "a.1.2.tmp"};
  std::vector<std::string> others = {"notes.tmp", "x.1.tmp", "y.1.b.tmp", ".1.2.tmp", "trace.json"};
  for (const auto* names : {&leftovers, &others}) {
    for (const std::string& name : *names) {
      ASSERT_TRUE(write_file_atomically(folder.file(name), "text").is_ok());
    }
  }
  remove_unfinished_files(folder.path());
  for (const std::string& name : leftovers) EXPECT_FALSE(read_file(folder.file(name)).is_ok());
  for (const std::string& name : others) EXPECT_TRUE(read_file(folder.file(name)).is_ok()) << name;
}

TEST(File, DevicesAndPipesAreRefusedAtOnce) {
  TemporaryFolder folder;
  std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    EXPECT_THAT(read_file(path).status().message(), testing::HasSubstr("device or pipe")) << path;
    EXPECT_FALSE(FileReader::open(path).is_ok()) << path;
  }
}

TEST(FolderLock, HasOneHolderAtATime) {
  TemporaryFolder folder;
  {
    Result<FolderLock> first = FolderLock::acquire(folder.path());
    ASSERT_TRUE(first.is_ok());
    Status second = FolderLock::acquire(folder.path()).status();
    EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.message(), testing::HasSubstr(folder.path()));
  }
  EXPECT_TRUE(FolderLock::acquire(folder.path()).is_ok());
  EXPECT_EQ(file_count(folder.path()), 0u);
}

}  // namespace
}  // namespace stagecoach
