#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/byte_source.h"
#include "train/data.h"
#include "train/token_file.h"

namespace stagecoach {

/// What a token file is to hold, for tests, written by the text of train/token_file.h alone.
struct TokenFileImage {
  std::vector<uint32_t> ids;
  uint32_t version = 1;
  uint32_t bits = 16;
  uint64_t vocabulary = 1000;
  std::vector<bool> mask;          ///< empty: none
  std::vector<int64_t> documents;  ///< empty: none said
  std::string tokenizer = std::string(32, '\0');

  std::string bytes() const {
    std::string out = "SCTOKENS";
    add(out, version, 4);
    add(out, bits, 4);
    add(out, vocabulary, 8);
    add(out, ids.size(), 8);
    add(out, documents.size(), 8);
    add(out, mask.empty() ? 0 : 1, 4);
    out.resize(48, '\0');
    out += tokenizer;
    out.resize(128, '\0');
    for (uint32_t id : ids) add(out, id, bits / 8);
    out.resize((out.size() + 7) / 8 * 8, '\0');
    std::string packed((mask.size() + 7) / 8, '\0');
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) packed[i / 8] = static_cast<char>(packed[i / 8] | (1 << (i % 8)));
    }
    out += packed;
    out.resize((out.size() + 7) / 8 * 8, '\0');
    for (int64_t document : documents) add(out, static_cast<uint64_t>(document), 8);
    return out;
  }

  static void add(std::string& out, uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  }
};

/// `text` as a source that owns a copy.
inline std::shared_ptr<const ByteSource> source_of(const std::string& name,
                                                   const std::string& text) {
  auto owner = std::make_shared<const std::string>(text);
  std::shared_ptr<const std::byte> data(owner, reinterpret_cast<const std::byte*>(owner->data()));
  return bytes_in_memory(name, std::move(data), static_cast<ByteCount>(text.size()));
}

/// Token files as one data set.
inline TokenData data_of(const std::vector<TokenFileImage>& images, Packing packing) {
  TokenData data;
  data.vocabulary = 1000;
  data.packing = packing;
  for (const TokenFileImage& image : images) {
    std::string name = "file " + std::to_string(data.sources.size());
    data.starts.push_back(data.count);
    data.sources.push_back(open_token_file(source_of(name, image.bytes()), 1000).value());
    data.count += data.sources.back().count;
  }
  return data;
}

}  // namespace stagecoach
