#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/token_source.h"

namespace stagecoach {

/// Separator between files and end of documents in byte-level data, where the vocabulary has room
/// for it.
inline constexpr int32_t kByteSeparator = 256;
/// Ids 0 to 255 are bytes.
inline constexpr int64_t kByteVocabulary = 256;

/// Gathers byte-level tokens in memory. Thread rule: one thread at a time.
class TokenBuilder {
 public:
  /// Makes room for `count` tokens.
  void reserve(int64_t count);
  /// What is appended next begins a document. One without tokens leaves nothing.
  void start_document();
  /// Appends bytes as ids; `is_target`: they may be predicted.
  void append(std::string_view bytes, bool is_target);
  void append_separator(bool is_target) { append_id(kByteSeparator, is_target); }
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  /// Everything so far, called `name`. `has_documents` as in TokenSource. The builder is empty
  /// then.
  TokenSource finish(std::string name, bool has_documents);

 private:
  void append_id(uint16_t id, bool is_target);

  std::vector<uint16_t> ids_;
  std::vector<uint8_t> mask_;  ///< a bit a token
  std::vector<int64_t> documents_;
  bool is_masked_ = false;  ///< any token is
};

}  // namespace stagecoach
