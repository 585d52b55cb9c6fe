#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/status.h"
#include "model/safetensors.h"

namespace stagecoach {

/// A file whose tensors are written piece by piece in any order. What is never written is zero.
/// Thread rule: one thread at a time.
class SafetensorsWriter {
 public:
  /// Creates or truncates `path` and writes its header, tagged {"format": "pt"}. Of `tensors`, in
  /// order of name, only name, type and shape count. Errors: invalid argument for two of one name
  /// and for a header over the format's limit; those of file operations.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::vector<SafetensorsTensor>& tensors);
  /// Writes bytes of tensor `index` from byte `first` of it on.
  Status write(size_t index, ByteCount first, std::span<const std::byte> bytes);
  /// fsync and close.
  Status finish() { return file_.finish(); }

 private:
  explicit SafetensorsWriter(FileWriter file) : file_(std::move(file)) {}
  FileWriter file_;
  std::vector<ByteCount> begin_;  ///< of tensors in the file, then the end of the last
};

}  // namespace stagecoach
