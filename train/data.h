#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "train/token_scan.h"
#include "train/token_source.h"

namespace stagecoach {

/// How tokens become sequences.
///   stream     files and documents follow each other without a gap, so a sequence may begin inside
///              one and hold several, which then see each other
///   pad        no sequence holds more than one document; short ones are filled up with what does
///              not count, long ones cut into sequences that follow each other
///   documents  sequences hold several whole documents that do not see each other; what is left is
///              filled up, and long ones are cut, as with pad
///   auto       documents when a file says where they start (JSONL does), else stream
/// The first token of a document is never predicted.
enum class Packing { kAuto, kStream, kPad, kDocuments };

/// "auto", "stream", "pad" or "documents", as data.packing has it.
const char* packing_name(Packing packing);
/// The packing of that name, which must be one of them.
Packing packing_of(std::string_view name);

/// What to read.
struct DataRequest {
  std::vector<std::string> files;
  int64_t vocabulary = 0;                   ///< of the model
  std::string tokenizer = kBytesTokenizer;  ///< data.tokenizer: "bytes" or a folder
  Packing packing = Packing::kAuto;
};

/// Token ids of a data set: its files, one after the other. Thread rule: any thread reads.
struct TokenData {
  std::vector<TokenSource> sources;
  std::vector<int64_t> starts;         ///< place of each source's first token
  int64_t count = 0;                   ///< tokens
  Packing packing = Packing::kStream;  ///< never kAuto
  int64_t vocabulary = 0;
  std::string tokenizer;           ///< as TokenSource has it; the same for all
  std::string digest;              ///< for resume checks: see scan_tokens
  std::vector<std::string> notes;  ///< what a person should know: files without headers

  bool is_empty() const { return count == 0; }
  /// Whether any token is masked or any document starts inside a source.
  bool has_boundaries() const;
  /// Number of the source that holds token `position`.
  size_t source_of(int64_t position) const;
  /// Inputs `first` to `first` + `length` - 1 and what follows each as its label, kIgnoredLabel
  /// where it does not count. Errors: those of the files, and invalid argument for an id that is
  /// not below the vocabulary any more.
  Status read(int64_t first, int64_t length, int32_t* inputs, int32_t* labels) const;
};

/// Reads or opens data files by their kind: `.jsonl` JSONL, `.bin` token files, others text (see
/// jsonl_data.h, token_file.h, text_data.h). Text and JSONL become byte-level tokens, for which the
/// vocabulary must hold 256. All files must have one tokenizer. Errors: invalid argument that names
/// the file, what was found and what is expected; those of the files and of scan_tokens.
Result<TokenData> read_token_data(const DataRequest& request, const ScanWatch& watch = nullptr);

}  // namespace stagecoach
