#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "core/check.h"
#include "core/json.h"
#include "model/safetensors.h"

namespace stagecoach {

namespace {

struct TypeRow {
  SafetensorsType type;
  const char* name;
  ByteCount size;
};

constexpr std::array<TypeRow, 7> kTypes = {{
    {SafetensorsType::kF32, "F32", 4},
    {SafetensorsType::kBF16, "BF16", 2},
    {SafetensorsType::kF16, "F16", 2},
    {SafetensorsType::kI32, "I32", 4},
    {SafetensorsType::kI64, "I64", 8},
    {SafetensorsType::kU8, "U8", 1},
    {SafetensorsType::kBool, "BOOL", 1},
}};

/// Reads one header.
class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> start, ByteCount file_size, const std::string& path)
      : start_(start), file_size_(file_size), path_(path) {}

  Result<ByteCount> data_start() {
    STAGECOACH_RETURN_IF_ERROR(read_length());
    return data_start_;
  }

  Result<SafetensorsHeader> parse() {
    STAGECOACH_RETURN_IF_ERROR(read_length());
    STAGECOACH_CHECK(static_cast<ByteCount>(start_.size()) >= data_start_);
    std::string_view text(reinterpret_cast<const char*>(start_.data()) + kSafetensorsLengthBytes,
                          static_cast<size_t>(data_start_ - kSafetensorsLengthBytes));
    if (text.empty() || text.front() != '{') return corrupt("the header is not a JSON object");
    Result<Json> json = Json::parse(text);
    if (!json.is_ok()) return corrupt("header: " + json.status().message());
    if (!json->is_object()) return corrupt("the header is not a JSON object");
    for (const auto& [name, value] : json->members()) {
      STAGECOACH_RETURN_IF_ERROR(name == "__metadata__" ? read_metadata(value)
                                                        : read_tensor(name, value));
    }
    STAGECOACH_RETURN_IF_ERROR(check_coverage());
    std::sort(header_.tensors.begin(), header_.tensors.end(),
              [](const SafetensorInfo& a, const SafetensorInfo& b) { return a.name < b.name; });
    return std::move(header_);
  }

 private:
  ByteCount data_size() const { return file_size_ - data_start_; }

  Status corrupt(std::string_view what) const {
    return data_loss(fmt::format("'{}': {}", path_, what));
  }
  Status corrupt_tensor(std::string_view tensor, std::string_view what) const {
    return data_loss(fmt::format("'{}', tensor '{}': {}", path_, tensor, what));
  }

  Status read_length() {
    if (file_size_ < kSafetensorsLengthBytes) {
      return corrupt(
          fmt::format("{} bytes found, at least {} expected: incomplete download or copy",
                      file_size_, kSafetensorsLengthBytes));
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<uint64_t>(start_[i]);
    if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
      return corrupt(
          fmt::format("header length is {}, expected at most {} (the file has {} bytes): not a "
                      "safetensors file",
                      length, kMaxSafetensorsHeaderBytes, file_size_));
    }
    data_start_ = kSafetensorsLengthBytes + static_cast<ByteCount>(length);
    if (data_start_ <= file_size_) return Status::ok();
    return corrupt(
        fmt::format("the header ends at byte {}, the file has {}: incomplete download or copy",
                    data_start_, file_size_));
  }

  Status read_metadata(const Json& value) {
    if (!value.is_object()) return corrupt("__metadata__ is not a table");
    for (const auto& [key, text] : value.members()) {
      if (!text.is_string()) {
        return corrupt(fmt::format("__metadata__ '{}' is {}, expected text", key, text.dump()));
      }
      header_.metadata[key] = text.as_string();
    }
    return Status::ok();
  }

  Status read_tensor(const std::string& name, const Json& value) {
    if (!value.is_object()) {
      return corrupt_tensor(name, fmt::format("is {}, expected a table", value.type_name()));
    }
    for (const auto& [key, unused] : value.members()) {
      if (key == "dtype" || key == "shape" || key == "data_offsets") continue;
      return corrupt_tensor(name, fmt::format("unknown field '{}'", key));
    }
    SafetensorInfo info;
    info.name = name;
    STAGECOACH_RETURN_IF_ERROR(read_type(value.find("dtype"), info));
    STAGECOACH_RETURN_IF_ERROR(read_shape(value.find("shape"), info));
    STAGECOACH_RETURN_IF_ERROR(read_offsets(value.find("data_offsets"), info));
    header_.tensors.push_back(std::move(info));
    return Status::ok();
  }

  Status read_type(const Json* value, SafetensorInfo& info) const {
    if (value == nullptr || !value->is_string()) {
      return corrupt_tensor(info.name, "dtype is missing or not text");
    }
    for (const TypeRow& row : kTypes) {
      if (value->as_string() != row.name) continue;
      info.type = row.type;
      return Status::ok();
    }
    return unimplemented(
        fmt::format("'{}', tensor '{}': dtype is {}, expected F32, BF16, F16, I32, I64, U8 or BOOL",
                    path_, info.name, value->as_string()));
  }

  /// Also sets the size that the shape asks for.
  Status read_shape(const Json* value, SafetensorInfo& info) const {
    if (value == nullptr || !value->is_array()) {
      return corrupt_tensor(info.name, "shape is missing or not a list");
    }
    info.size = safetensors_type_size(info.type);
    bool is_empty = false;
    for (const Json& dim : value->items()) {
      if (!dim.is_integer() || dim.as_integer() < 0) {
        return corrupt_tensor(info.name,
                              fmt::format("shape has {}, expected integers >= 0", dim.dump()));
      }
      info.shape.push_back(dim.as_integer());
      is_empty |= dim.as_integer() == 0;
    }
    for (int64_t dim : info.shape) {
      if (is_empty) break;
      Result<ByteCount> product = checked_multiply(info.size, dim);
      if (!product.is_ok()) {
        return corrupt_tensor(info.name, fmt::format("shape {} does not fit 63 bits of bytes",
                                                     format_shape(info.shape)));
      }
      info.size = *product;
    }
    if (is_empty) info.size = 0;
    return Status::ok();
  }

  Status read_offsets(const Json* value, SafetensorInfo& info) const {
    if (value == nullptr || !value->is_array() || value->items().size() != 2 ||
        !value->items()[0].is_integer() || !value->items()[1].is_integer()) {
      return corrupt_tensor(info.name, "data_offsets is missing or not two integers");
    }
    int64_t begin = value->items()[0].as_integer();
    int64_t end = value->items()[1].as_integer();
    if (begin < 0 || end < begin) {
      return corrupt_tensor(
          info.name,
          fmt::format("data_offsets are {} and {}, expected 0 <= begin <= end", begin, end));
    }
    if (end - begin != info.size) {
      return corrupt_tensor(
          info.name, fmt::format("shape {} of {} needs {} bytes, data_offsets {} to {} hold {}",
                                 format_shape(info.shape), safetensors_type_name(info.type),
                                 info.size, begin, end, end - begin));
    }
    if (end > data_size()) {
      return corrupt_tensor(info.name,
                            fmt::format("ends at byte {} of the data, the file has {}: incomplete "
                                        "download or copy",
                                        end, data_size()));
    }
    info.offset = data_start_ + begin;
    return Status::ok();
  }

  /// Every data byte belongs to exactly one tensor.
  Status check_coverage() const {
    std::vector<const SafetensorInfo*> order;
    for (const SafetensorInfo& info : header_.tensors) {
      if (info.size > 0) order.push_back(&info);
    }
    std::sort(order.begin(), order.end(), [](const SafetensorInfo* a, const SafetensorInfo* b) {
      return a->offset != b->offset ? a->offset < b->offset : a->name < b->name;
    });
    ByteCount covered = data_start_;
    const SafetensorInfo* previous = nullptr;
    for (const SafetensorInfo* info : order) {
      if (info->offset > covered) return uncovered(covered, info->offset);
      if (info->offset < covered) {
        ByteCount shared_end = std::min(covered, info->offset + info->size);
        return corrupt(fmt::format("tensors '{}' and '{}' share bytes {} to {} of the data",
                                   previous->name, info->name, info->offset - data_start_,
                                   shared_end - data_start_));
      }
      covered = info->offset + info->size;
      previous = info;
    }
    return covered == file_size_ ? Status::ok() : uncovered(covered, file_size_);
  }

  Status uncovered(ByteCount begin, ByteCount end) const {
    return corrupt(fmt::format("bytes {} to {} of the data belong to no tensor",
                               begin - data_start_, end - data_start_));
  }

  std::span<const std::byte> start_;
  ByteCount file_size_;
  const std::string& path_;
  ByteCount data_start_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

std::string_view safetensors_type_name(SafetensorsType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

ByteCount safetensors_type_size(SafetensorsType type) {
  return kTypes[static_cast<size_t>(type)].size;
}

std::string format_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

Result<ByteCount> safetensors_data_start(std::span<const std::byte> first, ByteCount file_size,
                                         const std::string& path) {
  return HeaderParser(first, file_size, path).data_start();
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> start, ByteCount file_size,
                                            const std::string& path) {
  return HeaderParser(start, file_size, path).parse();
}

}  // namespace stagecoach
