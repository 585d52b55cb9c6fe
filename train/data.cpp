#include "train/data.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <memory>
#include <string_view>
#include <utility>

#include "core/digest.h"
#include "core/file.h"
#include "train/jsonl_data.h"
#include "train/labels.h"
#include "train/text_data.h"
#include "train/token_builder.h"
#include "train/token_file.h"

namespace stagecoach {

namespace {

/// Endings of formats that would make no sense as text.
constexpr std::array<std::string_view, 19> kNotText = {
    ".json", ".parquet", ".arrow", ".npy", ".npz", ".gz", ".tgz", ".zst",         ".zip", ".tar",
    ".7z",   ".xz",      ".bz2",   ".pt",  ".pth", ".h5", ".pkl", ".safetensors", ".gguf"};

bool is_bytes(const std::string& tokenizer) {
  return tokenizer == kBytesTokenizer;
}

/// What a message calls a tokenizer.
std::string describe_tokenizer(const std::string& tokenizer) {
  if (tokenizer.empty()) return "an unknown tokenizer (a file without a header)";
  if (is_bytes(tokenizer)) return "the tokenizer \"bytes\"";
  return fmt::format("the tokenizer.json with sha256 {}", tokenizer);
}

Status check_byte_level(const DataRequest& request, const std::string& file) {
  if (!is_bytes(request.tokenizer)) {
    return invalid_argument(fmt::format(
        "'{}' is not tokenised yet, and data.tokenizer is \"{}\"; run stagecoach-prepare "
        "--tokenizer \"{}\" --out PREPARED \"{}\" and name the .bin file that it writes to "
        "PREPARED",
        file, request.tokenizer, request.tokenizer, file));
  }
  if (request.vocabulary >= kByteVocabulary) return Status::ok();
  return invalid_argument(
      fmt::format("the model's vocabulary is {}; byte-level data need {} or more: set vocab_size "
                  "in its config.json",
                  request.vocabulary, kByteVocabulary));
}

Result<TokenSource> read_source(const DataRequest& request, const std::string& file, bool is_last) {
  std::string name = file;
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (std::string_view ending : kNotText) {
    if (name.ends_with(ending)) {
      return invalid_argument(
          fmt::format("'{}' is a {} file; allowed: text (.txt), JSONL (.jsonl: a JSON object a "
                      "line) and token files (.bin); convert it",
                      file, ending));
    }
  }
  Result<std::shared_ptr<const ByteSource>> opened = open_byte_source(file);
  if (!opened.is_ok()) {
    return opened.status().with_context("training and validation data must be readable files");
  }
  std::shared_ptr<const ByteSource> bytes = std::move(opened).value();
  if (name.ends_with(".bin")) return open_token_file(std::move(bytes), request.vocabulary);
  STAGECOACH_ASSIGN_OR_RETURN(bool is_token_file, has_token_file_magic(*bytes));
  if (is_token_file) {
    return invalid_argument(
        fmt::format("'{}' is a token file by its first bytes; rename it to end in .bin", file));
  }
  STAGECOACH_RETURN_IF_ERROR(check_byte_level(request, file));
  bool has_separator = request.vocabulary > kByteVocabulary;
  if (name.ends_with(".jsonl")) return read_jsonl_tokens(*bytes, {has_separator});
  return read_text_tokens(*bytes, has_separator && !is_last);
}

Status check_tokenizers(const DataRequest& request, const TokenData& data) {
  for (const TokenSource& source : data.sources) {
    if (source.tokenizer == data.tokenizer) continue;
    return invalid_argument(
        fmt::format("'{}' has {} and '{}' {}; all files must have one: make them again with one "
                    "stagecoach-prepare",
                    data.sources.front().name(), describe_tokenizer(data.tokenizer), source.name(),
                    describe_tokenizer(source.tokenizer)));
  }
  if (is_bytes(request.tokenizer) || data.tokenizer.empty()) return Status::ok();
  std::string file = request.tokenizer + "/tokenizer.json";
  Result<std::string> content = read_file(file);
  if (!content.is_ok()) {
    return content.status().with_context(fmt::format(
        "data.tokenizer = \"{}\" must be \"bytes\" or a folder that holds a tokenizer.json",
        request.tokenizer));
  }
  std::string digest = sha256_hex(content->data(), static_cast<ByteCount>(content->size()));
  if (digest == data.tokenizer) return Status::ok();
  return invalid_argument(fmt::format(
      "'{}' was made with {}; data.tokenizer names '{}' with sha256 {}; make the file again with "
      "stagecoach-prepare --tokenizer \"{}\"",
      data.sources.front().name(), describe_tokenizer(data.tokenizer), file, digest,
      request.tokenizer));
}

constexpr std::array<std::pair<Packing, const char*>, 4> kPackings = {{
    {Packing::kAuto, "auto"},
    {Packing::kStream, "stream"},
    {Packing::kPad, "pad"},
    {Packing::kDocuments, "documents"},
}};

}  // namespace

const char* packing_name(Packing packing) {
  for (const auto& [known, name] : kPackings) {
    if (known == packing) return name;
  }
  STAGECOACH_CHECK(false);
  return "";
}

Packing packing_of(std::string_view name) {
  for (const auto& [packing, known] : kPackings) {
    if (known == name) return packing;
  }
  STAGECOACH_CHECK(false);
  return Packing::kAuto;
}

bool TokenData::has_boundaries() const {
  return std::any_of(sources.begin(), sources.end(),
                     [](const TokenSource& source) {
                       return source.mask != nullptr || source.documents.size() > 1;
                     }) ||
         sources.size() > 1;
}

size_t TokenData::source_of(int64_t position) const {
  auto after = std::upper_bound(starts.begin(), starts.end(), position);
  return static_cast<size_t>(after - starts.begin()) - 1;
}

Status TokenData::read(int64_t first, int64_t length, int32_t* inputs, int32_t* labels) const {
  STAGECOACH_CHECK(first >= 0 && length > 0 && first + length < count);
  std::vector<int32_t> ids(static_cast<size_t>(length) + 1);
  std::vector<uint8_t> targets(ids.size());
  for (int64_t done = 0; done <= length;) {
    size_t index = source_of(first + done);
    const TokenSource& source = sources[index];
    int64_t from = first + done - starts[index];
    int64_t here = std::min(length + 1 - done, source.count - from);
    STAGECOACH_RETURN_IF_ERROR(source.read_ids(from, here, ids.data() + done));
    STAGECOACH_RETURN_IF_ERROR(source.read_targets(from, here, targets.data() + done));
    for (int64_t i = 0; i < here; ++i) {
      // A file may have been written to since it was scanned.
      int64_t id = static_cast<uint32_t>(ids[static_cast<size_t>(done + i)]);
      if (id >= vocabulary) return id_out_of_range(source, from + i, id, vocabulary);
    }
    done += here;
  }
  std::copy_n(ids.begin(), length, inputs);
  for (int64_t i = 0; i < length; ++i) {
    size_t next = static_cast<size_t>(i) + 1;
    labels[i] = targets[next] != 0 ? ids[next] : kIgnoredLabel;
  }
  return Status::ok();
}

Result<TokenData> read_token_data(const DataRequest& request, const ScanWatch& watch) {
  if (request.files.empty()) return invalid_argument("no data files are named; name at least one");
  TokenData data;
  data.vocabulary = request.vocabulary;
  data.packing = request.packing == Packing::kAuto ? Packing::kStream : request.packing;
  for (const std::string& file : request.files) {
    bool is_last = &file == &request.files.back();
    STAGECOACH_ASSIGN_OR_RETURN(TokenSource source, read_source(request, file, is_last));
    if (request.packing == Packing::kAuto && source.has_documents) {
      data.packing = Packing::kDocuments;
    }
    if (source.tokenizer.empty()) {
      data.notes.push_back(fmt::format(
          "'{}' has no header: read as {} ids of 16 bits, as nanoGPT writes them; their "
          "tokenizer is not known",
          file, source.count));
    }
    data.starts.push_back(data.count);
    data.count += source.count;
    data.sources.push_back(std::move(source));
  }
  data.tokenizer = data.sources.front().tokenizer;
  STAGECOACH_RETURN_IF_ERROR(check_tokenizers(request, data));
  STAGECOACH_ASSIGN_OR_RETURN(data.digest, scan_tokens(data.sources, request.vocabulary, watch));
  return data;
}

}  // namespace stagecoach
