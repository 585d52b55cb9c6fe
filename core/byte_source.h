#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Largest single read or write: Linux moves at most 2 GiB - 4 KiB a call.
inline constexpr ByteCount kMaxTransferBytes = kGiB;
/// How much of a file is looked at together by those who go through it once.
inline constexpr ByteCount kPieceBytes = kMiB;

/// Bytes that are read at any place and never change: an open file, or memory. A file is read, not
/// mapped, so that one which is cut meanwhile is an error and not a signal.
/// Thread rule: any thread.
class ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// What messages call it, such as a path.
  const std::string& name() const { return name_; }
  virtual ByteCount size() const = 0;
  /// Copies `count` bytes from `offset` on, which lie inside. Errors: io, naming file and offset,
  /// also when a file is shorter now than when it was opened.
  virtual Status read(ByteCount offset, void* target, ByteCount count) const = 0;

 private:
  std::string name_;
};

/// Opens a file. Errors as `read_file` has them; devices and pipes are refused.
Result<std::shared_ptr<const ByteSource>> open_byte_source(const std::string& path);

/// `size` bytes at `data`, which the source keeps alive.
std::shared_ptr<const ByteSource> bytes_in_memory(std::string name,
                                                  std::shared_ptr<const std::byte> data,
                                                  ByteCount size);

}  // namespace stagecoach
