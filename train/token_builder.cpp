#include "train/token_builder.h"

#include <utility>

namespace stagecoach {

namespace {

template <typename T>
std::shared_ptr<const ByteSource> bytes_of(const std::string& name, std::vector<T>&& values) {
  auto size = static_cast<ByteCount>(values.size() * sizeof(T));
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  std::shared_ptr<const std::byte> data(owner, reinterpret_cast<const std::byte*>(owner->data()));
  return bytes_in_memory(name, std::move(data), size);
}

}  // namespace

void TokenBuilder::reserve(int64_t count) {
  ids_.reserve(static_cast<size_t>(count));
  mask_.reserve(static_cast<size_t>(count) / 8 + 1);
}

void TokenBuilder::start_document() {
  if (documents_.empty() || documents_.back() < count()) documents_.push_back(count());
}

void TokenBuilder::append(std::string_view bytes, bool is_target) {
  for (char byte : bytes) append_id(static_cast<unsigned char>(byte), is_target);
}

void TokenBuilder::append_id(uint16_t id, bool is_target) {
  if (ids_.size() % 8 == 0) mask_.push_back(0);
  if (is_target) mask_.back() |= static_cast<uint8_t>(1u << (ids_.size() % 8));
  is_masked_ = is_masked_ || !is_target;
  ids_.push_back(id);
}

TokenSource TokenBuilder::finish(std::string name, bool has_documents) {
  TokenSource source;
  source.count = count();
  source.tokenizer = kBytesTokenizer;
  source.has_documents = has_documents;
  if (!documents_.empty() && documents_.back() == source.count) documents_.pop_back();
  if (!documents_.empty()) source.documents = std::move(documents_);
  if (is_masked_) source.mask = bytes_of(name, std::move(mask_));
  source.ids = bytes_of(name, std::move(ids_));
  *this = TokenBuilder();
  return source;
}

}  // namespace stagecoach
