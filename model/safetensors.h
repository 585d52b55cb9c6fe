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

/// Checks and reads the header of a whole file in memory. Nothing in it is trusted: lengths are
/// compared with the file, offsets with shapes, and every byte must belong to exactly one tensor.
/// `path` names the file in errors. Errors: data loss, naming file, tensor, found and expected
/// ("incomplete download or copy" when the file is too short); unimplemented for a foreign dtype.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            const std::string& path);

/// A file open for reading, memory-mapped. It must not be shortened while it is open.
/// Thread rule: any thread once opened.
class SafetensorsFile {
 public:
  /// Errors: those of `parse_safetensors`, and of opening the file.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  /// The tensor called `name`, or null.
  const SafetensorInfo* find(std::string_view name) const;
  /// Bytes of a tensor of this file; of no particular alignment.
  std::span<const std::byte> bytes(const SafetensorInfo& tensor) const;
  /// Elements from `first` on as fp32, exactly, as many as `out` has. Errors: unimplemented when
  /// they are not F32, BF16 or F16, data loss when one is not finite.
  Status read_f32(const SafetensorInfo& tensor, int64_t first, std::span<float> out) const;

 private:
  SafetensorsFile(std::string path, MappedFile file, SafetensorsHeader header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

/// A tensor to write, in row-major order: from `data`, or, of fp32 that lies nowhere as such, piece
/// by piece from `read_f32`.
struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  /// Fills `out` with elements from `first` on.
  std::function<void(int64_t first, std::span<float> out)> read_f32 = {};
};

/// Writes one file, tensors in order of name, tagged {"format": "pt"}. After a crash `path` holds
/// the old file or the new one: written beside it, fsync, rename, fsync of the folder.
/// Errors: invalid argument for two tensors of one name; those of file operations.
Status write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors);

}  // namespace stagecoach
