#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/byte_source.h"
#include "train/token_source.h"

namespace stagecoach {

/// Header of a token file (`.bin`), which stagecoach-prepare writes. All numbers are little endian.
///   offset  bytes
///        0      8  "SCTOKENS"
///        8      4  version, 1
///       12      4  bits of an id, 16 or 32
///       16      8  vocabulary: ids are below it
///       24      8  tokens
///       32      8  documents; 0: the file does not say where documents start
///       40      4  flags: 1: there is a mask
///       44      4  zero
///       48     32  sha256 of the tokenizer.json; zeros: byte-level
///       80     48  zeros
/// Then, each filled up with zeros to a multiple of 8 bytes: the ids; the mask, a bit a token from
/// the lowest of its byte on, 1 where the token may be predicted; the first token of every
/// document, 8 bytes each, ascending from 0. Nothing follows.
struct TokenFileHeader {
  int width_bytes = 2;
  int64_t vocabulary = 0;
  int64_t tokens = 0;
  int64_t documents = 0;
  bool has_mask = false;
  std::string tokenizer;  ///< as TokenSource has it

  ByteCount mask_offset() const;
  ByteCount documents_offset() const;
  ByteCount file_bytes() const;
};

inline constexpr ByteCount kTokenFileHeaderBytes = 128;
/// Bits and ids of files without a header, as nanoGPT writes them.
inline constexpr int64_t kBareVocabulary = 1 << 16;

/// Whether the file begins as a token file does. Errors: those of the file.
Result<bool> has_token_file_magic(const ByteSource& file);

/// Opens a token file: with the header above, or without one as 16-bit ids. Ids are not looked at
/// (see scan_tokens). `vocabulary` is the model's. Errors: invalid argument that names the file,
/// the field, what was found and expected, and what to do: another version or byte order, a file
/// that is cut or too long, fields that contradict each other, documents that do not ascend, and
/// other formats by name; those of the file.
Result<TokenSource> open_token_file(std::shared_ptr<const ByteSource> file, int64_t vocabulary);

}  // namespace stagecoach
