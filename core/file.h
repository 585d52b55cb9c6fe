#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Whole file as text. The error names the file and the system's reason; devices and pipes, which
/// may never end, are refused.
Result<std::string> read_file(const std::string& path);

/// Writes `content` to `path` so that after a crash the file holds either the old or the new
/// content: temporary file beside it, fsync, rename, fsync of the folder.
Status write_file_atomically(const std::string& path, std::string_view content);

/// Deletes what `write_file_atomically` left in `folder` when its process was killed half-way.
void remove_unfinished_files(const std::string& folder);

/// Creates `path` and missing parents.
Status make_folders(const std::string& path);

/// Ok when a file can be created inside `path` (which is created if missing); tried for real,
/// because permission bits do not tell about read-only mounts.
Status check_folder_writable(const std::string& path);

/// Makes a rename or creation inside folder `path` durable.
Status sync_folder(const std::string& path);

/// A file being written, as a rule front to back. Every short write and every failed close is an
/// error that names the file; "no space left" is resource exhausted.
/// Thread rule: one thread at a time.
class FileWriter {
 public:
  /// Creates or truncates `path`.
  static Result<FileWriter> create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Status write(const void* data, ByteCount size);
  /// The same at `offset`, whatever has been written; `write` goes on where it was.
  Status write_at(ByteCount offset, const void* data, ByteCount size);
  /// Makes the file `size` long; what has not been written is zero.
  Status resize(ByteCount size);
  /// fsync and close; without it the destructor only closes.
  Status finish();

 private:
  FileWriter(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

/// Keeps other processes that ask for it out of a folder, for as long as it lives; leaves no file.
class FolderLock {
 public:
  /// A failed precondition when another process holds it.
  static Result<FolderLock> acquire(const std::string& path);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// A file open for reading at any place. A file that is shortened while it is open is an error of
/// the read that meets its end; with a mapping it would be a signal.
/// Thread rule: any thread once opened.
class FileReader {
 public:
  static Result<FileReader> open(const std::string& path);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  const std::string& path() const { return path_; }
  /// Bytes it had when it was opened.
  ByteCount size() const { return size_; }
  /// Fills `out` with the bytes from `offset` on. Errors: io, naming file and offset.
  Status read(ByteCount offset, std::span<std::byte> out) const;

 private:
  FileReader(int descriptor, std::string path, ByteCount size)
      : descriptor_(descriptor), path_(std::move(path)), size_(size) {}
  int descriptor_ = -1;
  std::string path_;
  ByteCount size_ = 0;
};

}  // namespace stagecoach
