#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// A whole file as memory that is only read: pages come from the file when they are touched, and go
/// when the system wants them back. Touching what cannot be read (the file was shortened, the disk
/// fails) ends the program with exit code 1 and a message that names the file, not with a signal;
/// `check_unchanged` finds a file that was changed before that.
/// Thread rule: any thread once opened.
class MappedFile {
 public:
  /// Errors: io, naming the file and the system's reason.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  /// Io failure when the file has another size or was written since it was opened. One that is
  /// written over and given its old time back is not noticed.
  Status check_unchanged() const;

 private:
  MappedFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  void close();

  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  ByteCount size_ = 0;
  int64_t written_ns_ = 0;  ///< when it was last written
};

}  // namespace stagecoach
