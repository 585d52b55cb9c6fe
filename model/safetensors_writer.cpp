#include "model/safetensors_writer.h"

#include <fmt/format.h>

#include "core/check.h"
#include "core/json.h"

namespace stagecoach {

namespace {

/// The header with its length in front, padded so that data starts at a multiple of 8.
Result<std::string> make_header(const std::vector<SafetensorsTensor>& tensors) {
  Json::Object members;
  members.emplace_back("__metadata__", Json(Json::Object{{"format", Json("pt")}}));
  ByteCount offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    Json::Array shape;
    for (int64_t dim : tensor.shape) shape.emplace_back(dim);
    ByteCount end = offset + tensor.size_bytes();
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
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    out += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  }
  return out + text;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<SafetensorsTensor>& tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    STAGECOACH_CHECK(tensors[i - 1].name <= tensors[i].name);
    if (tensors[i].name != tensors[i - 1].name) continue;
    return invalid_argument(fmt::format("two tensors are called '{}'", tensors[i].name));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string header, make_header(tensors));
  STAGECOACH_ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(path));
  SafetensorsWriter writer(std::move(file));
  writer.begin_ = {static_cast<ByteCount>(header.size())};
  for (const SafetensorsTensor& tensor : tensors) {
    writer.begin_.push_back(writer.begin_.back() + tensor.size_bytes());
  }
  STAGECOACH_RETURN_IF_ERROR(writer.file_.resize(writer.begin_.back()));
  STAGECOACH_RETURN_IF_ERROR(
      writer.file_.write_at(0, header.data(), static_cast<ByteCount>(header.size())));
  return writer;
}

Status SafetensorsWriter::write(size_t index, ByteCount first, std::span<const std::byte> bytes) {
  STAGECOACH_CHECK(index + 1 < begin_.size() && first >= 0);
  auto size = static_cast<ByteCount>(bytes.size());
  STAGECOACH_CHECK(begin_[index] + first + size <= begin_[index + 1]);
  return file_.write_at(begin_[index] + first, bytes.data(), size);
}

}  // namespace stagecoach
