#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "core/dtype.h"
#include "core/float_pieces.h"
#include "model/safetensors_writer.h"

namespace stagecoach {

namespace {

bool all_finite(std::span<const float> values) {
  // Without a way out early, so that it becomes vector code.
  int bad = 0;
  for (float value : values) bad += !(std::fabs(value) <= std::numeric_limits<float>::max());
  return bad == 0;
}

float widen(BFloat16 value) {
  return to_float(value);
}

/// As `to_float`, without a branch, so that it becomes vector code.
float widen(Float16 value) {
  constexpr uint32_t kBias = 112u << 23;  // of fp32's exponent over fp16's
  uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  int32_t magnitude = value.bits & 0x7fff;
  // Masks: all ones where it holds.
  uint32_t is_small = 0u - static_cast<uint32_t>(magnitude < 0x0400);
  uint32_t is_special = 0u - static_cast<uint32_t>(magnitude >= 0x7c00);
  uint32_t normal = (static_cast<uint32_t>(magnitude) << 13) + kBias + (is_special & kBias);
  auto subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | (normal & ~is_small) | (subnormal & is_small));
}

/// Bytes of 16-bit elements that are read before they are converted: they stay in the cache.
constexpr size_t kPieceBytes = 64 * 1024;

/// Fills `out` with elements of storage type T that lie from byte `offset` of a tensor on. Sets
/// `finite` to whether all are.
template <typename T>
Status read_elements(const SafetensorsFile& file, const SafetensorInfo& tensor, ByteCount offset,
                     std::span<float> out, bool& finite) {
  std::array<T, kPieceBytes / sizeof(T)> piece;
  for (size_t done = 0; done < out.size();) {
    std::span<T> part = std::span(piece).first(std::min(piece.size(), out.size() - done));
    STAGECOACH_RETURN_IF_ERROR(file.read(tensor, offset + static_cast<ByteCount>(done * sizeof(T)),
                                         std::as_writable_bytes(part)));
    for (size_t i = 0; i < part.size(); ++i) out[done + i] = widen(part[i]);
    done += part.size();
  }
  finite = all_finite(out);
  return Status::ok();
}

/// Writes fp32 elements from element `first` on, rounded to storage type T.
template <typename T>
Status write_rounded(const SafetensorsTensor& tensor, int64_t first, std::span<const float> values,
                     size_t index, SafetensorsWriter& writer) {
  std::vector<T> rounded(values.size());
  bool fits = true;
  for (size_t i = 0; i < values.size(); ++i) {
    rounded[i] = from_float<T>(values[i]);
    fits &= std::isfinite(to_float(rounded[i]));
  }
  if (!fits) {
    return data_loss(
        fmt::format("tensor '{}' has an element that {} cannot hold; choose another dtype",
                    tensor.name, safetensors_type_name(tensor.type)));
  }
  return writer.write(index, first * ByteCount{sizeof(T)}, std::as_bytes(std::span(rounded)));
}

Status write_tensor(const SafetensorsTensor& tensor, size_t index, SafetensorsWriter& writer) {
  if (!tensor.read_f32) {
    return writer.write(
        index, 0,
        {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.size_bytes())});
  }
  int64_t count = tensor.size_bytes() / safetensors_type_size(tensor.type);
  return for_each_float_piece(count, [&](int64_t first, std::span<float> piece) -> Status {
    STAGECOACH_RETURN_IF_ERROR(tensor.read_f32(first, piece));
    switch (tensor.type) {
      case SafetensorsType::kF32:
        return writer.write(index, first * ByteCount{sizeof(float)}, std::as_bytes(piece));
      case SafetensorsType::kBF16:
        return write_rounded<BFloat16>(tensor, first, piece, index, writer);
      case SafetensorsType::kF16:
        return write_rounded<Float16>(tensor, first, piece, index, writer);
      default:
        return internal_error(fmt::format("tensor '{}' is no floating-point one", tensor.name));
    }
  });
}

Status write_all(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::create(path, tensors));
  for (size_t index = 0; index < tensors.size(); ++index) {
    STAGECOACH_RETURN_IF_ERROR(write_tensor(tensors[index], index, writer));
  }
  return writer.finish();
}

}  // namespace

ByteCount SafetensorsTensor::size_bytes() const {
  ByteCount size = safetensors_type_size(type);
  for (int64_t dim : shape) size *= dim;
  return size;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(FileReader file, FileReader::open(path));
  std::vector<std::byte> start(static_cast<size_t>(std::min(file.size(), kSafetensorsLengthBytes)));
  STAGECOACH_RETURN_IF_ERROR(file.read(0, start));
  STAGECOACH_ASSIGN_OR_RETURN(ByteCount data_start,
                              safetensors_data_start(start, file.size(), path));
  start.resize(static_cast<size_t>(data_start));
  STAGECOACH_RETURN_IF_ERROR(file.read(0, start));
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsHeader header,
                              parse_safetensors(start, file.size(), path));
  return SafetensorsFile(std::move(file), std::move(header));
}

const SafetensorInfo* SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const SafetensorInfo& info, std::string_view wanted) { return info.name < wanted; });
  return found != header_.tensors.end() && found->name == name ? &*found : nullptr;
}

Status SafetensorsFile::read(const SafetensorInfo& tensor, ByteCount first,
                             std::span<std::byte> out) const {
  STAGECOACH_CHECK(first >= 0 && first + static_cast<ByteCount>(out.size()) <= tensor.size);
  return file_.read(tensor.offset + first, out);
}

Status SafetensorsFile::read_f32(const SafetensorInfo& tensor, int64_t first,
                                 std::span<float> out) const {
  ByteCount offset = first * safetensors_type_size(tensor.type);
  bool finite = true;
  switch (tensor.type) {
    case SafetensorsType::kF32:
      STAGECOACH_RETURN_IF_ERROR(read(tensor, offset, std::as_writable_bytes(out)));
      finite = all_finite(out);
      break;
    case SafetensorsType::kBF16:
      STAGECOACH_RETURN_IF_ERROR(read_elements<BFloat16>(*this, tensor, offset, out, finite));
      break;
    case SafetensorsType::kF16:
      STAGECOACH_RETURN_IF_ERROR(read_elements<Float16>(*this, tensor, offset, out, finite));
      break;
    default:
      return unimplemented(fmt::format("'{}', tensor '{}': dtype is {}, expected F32, BF16 or F16",
                                       path(), tensor.name, safetensors_type_name(tensor.type)));
  }
  if (finite) return Status::ok();
  return data_loss(fmt::format("'{}', tensor '{}': an element is not finite", path(), tensor.name));
}

Status write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return a.name < b.name; });
  std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  Status status = write_all(temporary, tensors);
  if (status.is_ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = io_error(
        fmt::format("cannot replace '{}': {}", path, std::generic_category().message(errno)));
  }
  if (!status.is_ok()) {
    std::remove(temporary.c_str());
    return status;
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  return sync_folder(folder.empty() ? "." : folder);
}

}  // namespace stagecoach
