#include "model/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "core/dtype.h"
#include "core/float_pieces.h"
#include "core/json.h"

namespace stagecoach {

namespace {

/// Converts elements of storage type T, which may start at any address. False when one is not
/// finite.
template <typename T>
bool convert_elements(const std::byte* from, int64_t count, float* out) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = to_float(element);
    finite &= std::isfinite(out[i]);
  }
  return finite;
}

int64_t element_count(const SafetensorsTensor& tensor) {
  int64_t count = 1;
  for (int64_t dim : tensor.shape) count *= dim;
  return count;
}

ByteCount size_bytes(const SafetensorsTensor& tensor) {
  return element_count(tensor) * safetensors_type_size(tensor.type);
}

/// The header with its length in front, padded so that data starts at a multiple of 8.
Result<std::string> make_header(const std::vector<SafetensorsTensor>& tensors) {
  Json::Object members;
  members.emplace_back("__metadata__", Json(Json::Object{{"format", Json("pt")}}));
  ByteCount offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    Json::Array shape;
    for (int64_t dim : tensor.shape) shape.emplace_back(dim);
    ByteCount end = offset + size_bytes(tensor);
    Json::Object entry;
    entry.emplace_back("dtype", Json(safetensors_type_name(tensor.type)));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(Json::Array{Json(offset), Json(end)}));
    members.emplace_back(tensor.name, Json(std::move(entry)));
    offset = end;
  }
  std::string text = Json(std::move(members)).dump();
  text.resize(static_cast<size_t>(align_up(static_cast<ByteCount>(text.size()), 8)), ' ');
  if (static_cast<ByteCount>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return invalid_argument(fmt::format("a header of {} bytes is over the format's limit of {}",
                                        text.size(), kMaxSafetensorsHeaderBytes));
  }
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  }
  return out + text;
}

Status write_tensor(const SafetensorsTensor& tensor, FileWriter& writer) {
  if (!tensor.read_f32) return writer.write(tensor.data, size_bytes(tensor));
  STAGECOACH_CHECK(tensor.type == SafetensorsType::kF32);
  int64_t count = size_bytes(tensor) / ByteCount{sizeof(float)};
  return for_each_float_piece(count, [&](int64_t first, std::span<float> piece) {
    tensor.read_f32(first, piece);
    return writer.write(piece.data(), static_cast<ByteCount>(piece.size_bytes()));
  });
}

Status write_all(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string header, make_header(tensors));
  STAGECOACH_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::create(path));
  STAGECOACH_RETURN_IF_ERROR(writer.write(header.data(), static_cast<ByteCount>(header.size())));
  for (const SafetensorsTensor& tensor : tensors) {
    STAGECOACH_RETURN_IF_ERROR(write_tensor(tensor, writer));
  }
  return writer.finish();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  STAGECOACH_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      parse_safetensors({file.data(), static_cast<size_t>(file.size())}, path));
  return SafetensorsFile(path, std::move(file), std::move(header));
}

const SafetensorInfo* SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const SafetensorInfo& info, std::string_view wanted) { return info.name < wanted; });
  return found != header_.tensors.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorInfo& tensor) const {
  return {file_.data() + tensor.offset, static_cast<size_t>(tensor.size)};
}

Status SafetensorsFile::read_f32(const SafetensorInfo& tensor, int64_t first,
                                 std::span<float> values) const {
  ByteCount element = safetensors_type_size(tensor.type);
  auto count = static_cast<int64_t>(values.size());
  STAGECOACH_CHECK(first >= 0 && (first + count) * element <= tensor.size);
  const std::byte* from = bytes(tensor).data() + first * element;
  float* out = values.data();
  bool finite = true;
  switch (tensor.type) {
    case SafetensorsType::kF32:
      finite = convert_elements<float>(from, count, out);
      break;
    case SafetensorsType::kBF16:
      finite = convert_elements<BFloat16>(from, count, out);
      break;
    case SafetensorsType::kF16:
      finite = convert_elements<Float16>(from, count, out);
      break;
    default:
      return unimplemented(fmt::format("'{}', tensor '{}': dtype is {}, expected F32, BF16 or F16",
                                       path_, tensor.name, safetensors_type_name(tensor.type)));
  }
  if (finite) return Status::ok();
  return data_loss(fmt::format("'{}', tensor '{}': an element is not finite", path_, tensor.name));
}

Status write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name != tensors[i - 1].name) continue;
    return invalid_argument(fmt::format("two tensors are called '{}'", tensors[i].name));
  }
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
