#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/file.h"
#include "core/status.h"

namespace stagecoach {

/// Largest header that is read or written: the format's own limit.
inline constexpr ByteCount kMaxSafetensorsHeaderBytes = 100'000'000;

/// Element types that are read; any other is refused by name.
enum class SafetensorsType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8, kBool };

/// "F32", "BF16", …, as the file spells them.
std::string_view safetensors_type_name(SafetensorsType type);
/// Bytes of one element.
ByteCount safetensors_type_size(SafetensorsType type);
/// Whether elements are floating-point numbers, which `SafetensorsFile::read_f32` reads.
constexpr bool is_float(SafetensorsType type) {
  return type == SafetensorsType::kF32 || type == SafetensorsType::kBF16 ||
         type == SafetensorsType::kF16;
}
/// "[2,3]".
std::string format_shape(std::span<const int64_t> shape);

/// One tensor of a file.
struct SafetensorInfo {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  ByteCount offset = 0;  ///< of the first byte, from the start of the file
  ByteCount size = 0;    ///< bytes
};

/// What a file says of itself.
struct SafetensorsHeader {
  std::vector<SafetensorInfo> tensors;  ///< by name
  std::map<std::string, std::string> metadata;
};

/// Bytes of the length that a file begins with.
inline constexpr ByteCount kSafetensorsLengthBytes = 8;

/// Where the data of a file of `file_size` bytes begins, by its first 8 bytes (or what there is of
/// them). Errors: those of `parse_safetensors`.
Result<ByteCount> safetensors_data_start(std::span<const std::byte> first, ByteCount file_size,
                                         const std::string& path);

/// Checks and reads the header of a file of `file_size` bytes; `start` is its first bytes, at least
/// those before the data. Nothing in it is trusted: lengths are compared with the file, offsets
/// with shapes, and every byte must belong to exactly one tensor. `path` names the file in errors.
/// Errors: data loss, naming file, tensor, found and expected ("incomplete download or copy" when
/// the file is too short); unimplemented for a foreign dtype.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> start, ByteCount file_size,
                                            const std::string& path);

/// A file open for reading: its header in memory, its tensors where they are. Reads are plain
/// reads: through a mapping, a file that is shortened or a disk that fails would be a signal.
/// Thread rule: any thread once opened.
class SafetensorsFile {
 public:
  /// Errors: those of `parse_safetensors`, and of opening the file.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  /// The tensor called `name`, or null.
  const SafetensorInfo* find(std::string_view name) const;
  /// Bytes of a tensor of this file from byte `first` of it on, as many as `out` has. Errors: those
  /// of `FileReader::read`.
  Status read(const SafetensorInfo& tensor, ByteCount first, std::span<std::byte> out) const;
  /// Elements from `first` on as fp32, exactly, as many as `out` has. Errors: those of `read`;
  /// unimplemented when they are not F32, BF16 or F16, data loss when one is not finite.
  Status read_f32(const SafetensorInfo& tensor, int64_t first, std::span<float> out) const;

 private:
  SafetensorsFile(FileReader file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  FileReader file_;
  SafetensorsHeader header_;
};

/// A tensor to write, in row-major order: from `data`, or, where it lies nowhere as such, piece by
/// piece from `read_f32`, rounded to `type` (F32, BF16 or F16; nearest, ties to even).
struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  /// Fills `out` with elements from `first` on.
  std::function<Status(int64_t first, std::span<float> out)> read_f32 = {};

  ByteCount size_bytes() const;
};

/// Writes one file, tensors in order of name, tagged {"format": "pt"}. After a crash `path` holds
/// the old file or the new one: written beside it, fsync, rename, fsync of the folder.
/// Errors: invalid argument for two tensors of one name; data loss, naming the tensor, for an
/// element that `type` cannot hold; those of `read_f32` and of file operations.
Status write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors);

}  // namespace stagecoach
