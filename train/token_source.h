#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/byte_source.h"

namespace stagecoach {

/// What `TokenSource::tokenizer` is called when ids are bytes.
inline constexpr const char* kBytesTokenizer = "bytes";

/// The tokens of one data file, as they are stored: 16-bit ids stay 16-bit, and files that hold ids
/// are not copied to memory. Thread rule: any thread reads.
struct TokenSource {
  std::shared_ptr<const ByteSource> ids;  ///< little endian, `width_bytes` each
  ByteCount ids_offset = 0;
  int width_bytes = 2;  ///< 2 or 4
  int64_t count = 0;
  int64_t vocabulary = 0;                  ///< ids are below it, the file says; 0: it does not say
  std::shared_ptr<const ByteSource> mask;  ///< null: every token may be predicted
  ByteCount mask_offset = 0;               ///< bit i % 8 of byte i / 8: token i may be predicted
  std::vector<int64_t> documents = {0};    ///< first tokens, ascending, the first 0
  bool has_documents = false;              ///< said by the file; else it is taken as one document
  std::string tokenizer;                   ///< "bytes", sha256 of a tokenizer.json; empty: unknown

  /// The file's path.
  const std::string& name() const { return ids->name(); }
  ByteCount mask_bytes() const { return (count + 7) / 8; }
  /// Copies ids `first` to `first` + `number` - 1. Errors: those of the file.
  Status read_ids(int64_t first, int64_t number, int32_t* out) const;
  /// 1 for each of these tokens that may be predicted: not masked, and not the first of a document,
  /// before which there is nothing to predict it from; else 0.
  Status read_targets(int64_t first, int64_t number, uint8_t* out) const;
};

}  // namespace stagecoach
