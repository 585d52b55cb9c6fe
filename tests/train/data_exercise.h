#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/byte_source.h"
#include "train/data.h"
#include "train/jsonl_data.h"
#include "train/token_file.h"
#include "train/token_windows.h"

namespace stagecoach {

/// What random inputs are held to; also what fuzz targets call. A check that does not hold ends the
/// process.
inline void check_windows(TokenSource source) {
  constexpr int64_t kVocabulary = 1000;
  if (!scan_tokens({source}, kVocabulary).is_ok()) return;
  TokenData data;
  data.vocabulary = kVocabulary;
  data.count = source.count;
  data.starts = {0};
  data.sources.push_back(std::move(source));
  for (Packing packing : {Packing::kStream, Packing::kPad, Packing::kDocuments}) {
    data.packing = packing;
    Result<TokenWindows> windows = TokenWindows::create(data, 5, true);
    if (!windows.is_ok()) continue;
    std::vector<int32_t> inputs(5), labels(5), starts(5);
    for (int64_t i = 0; i < windows->count(); ++i) {
      STAGECOACH_CHECK(windows->read(i, inputs.data(), labels.data(), starts.data()).is_ok());
      int64_t targets = 0;
      for (int32_t label : labels) {
        STAGECOACH_CHECK(label >= -1 && label < kVocabulary);
        targets += label >= 0 ? 1 : 0;
      }
      for (size_t at = 0; at < starts.size(); ++at) {
        bool begins = starts[at] == static_cast<int32_t>(at);
        STAGECOACH_CHECK(begins || (at > 0 && starts[at] == starts[at - 1]));
      }
      for (int32_t id : inputs) STAGECOACH_CHECK(id >= 0 && id < kVocabulary);
      STAGECOACH_CHECK(targets > 0);
    }
  }
}

/// Refusals must name the file and say more than that.
inline void check_refusal(const Status& status, std::string_view name) {
  STAGECOACH_CHECK(status.code() == StatusCode::kInvalidArgument);
  STAGECOACH_CHECK(status.message().find(name) != std::string::npos);
  STAGECOACH_CHECK(status.message().size() > name.size() + 10);
}

/// `bytes` as a source that does not own them.
inline std::shared_ptr<const ByteSource> borrowed(std::span<const std::byte> bytes,
                                                  const char* name) {
  std::shared_ptr<const std::byte> data(std::shared_ptr<const void>(), bytes.data());
  return bytes_in_memory(name, std::move(data), static_cast<ByteCount>(bytes.size()));
}

/// Reads a token file from memory.
inline bool exercise_token_file(std::span<const std::byte> bytes) {
  Result<TokenSource> source = open_token_file(borrowed(bytes, "f.bin"), 1000);
  if (source.is_ok()) {
    check_windows(std::move(source).value());
    return true;
  }
  check_refusal(source.status(), "'f.bin'");
  return false;
}

/// Reads JSONL from memory.
inline bool exercise_jsonl(std::string_view text) {
  std::span<const char> bytes(text.data(), text.size());
  Result<TokenSource> source =
      read_jsonl_tokens(*borrowed(std::as_bytes(bytes), "f.jsonl"), {true});
  if (source.is_ok()) {
    check_windows(std::move(source).value());
    return true;
  }
  check_refusal(source.status(), "'f.jsonl'");
  return false;
}

}  // namespace stagecoach
