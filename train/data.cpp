#include "train/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

#include "core/digest.h"
#include "core/file.h"
#include "core/random.h"

namespace stagecoach {

namespace {

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
constexpr std::string_view kUtf16LittleMark = "\xff\xfe";
constexpr std::string_view kUtf16BigMark = "\xfe\xff";
/// Bytes looked at (and least that tell), and share of zeros on even or odd places, that make
/// UTF-16 without a mark.
constexpr size_t kEncodingProbeBytes = 4096;
constexpr size_t kLeastProbeBytes = 8;
constexpr double kUtf16ZeroShare = 0.4;

/// Rounds of the keyed permutation; four make a Feistel network pseudo-random (Luby, Rackoff).
constexpr uint32_t kPermutationRounds = 4;
/// Keeps the shuffle's random stream apart from those of layers.
constexpr uint32_t kShuffleSite = 0x5348'5546;

/// Name of a 16-bit encoding the text seems to have; empty when it reads as bytes.
std::string_view wide_encoding(std::string_view text) {
  if (text.starts_with(kUtf16LittleMark)) return "UTF-16 (little endian, by its byte-order mark)";
  if (text.starts_with(kUtf16BigMark)) return "UTF-16 (big endian, by its byte-order mark)";
  std::string_view probe = text.substr(0, kEncodingProbeBytes);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < probe.size(); ++i) zeros[i % 2] += probe[i] == '\0' ? 1 : 0;
  double half = static_cast<double>(probe.size()) / 2.0;
  bool even = static_cast<double>(zeros[0]) > kUtf16ZeroShare * half && zeros[1] == 0;
  bool odd = static_cast<double>(zeros[1]) > kUtf16ZeroShare * half && zeros[0] == 0;
  if (probe.size() >= kLeastProbeBytes && (even || odd))
    return "UTF-16 (every second byte is zero)";
  return "";
}

/// Appends the bytes of `text` as ids, CRLF as LF.
void append_bytes(std::string_view text, std::vector<int32_t>& tokens) {
  tokens.reserve(tokens.size() + text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    tokens.push_back(static_cast<unsigned char>(text[i]));
  }
}

Status append_file(const std::string& file, bool separate, TokenData& data) {
  Result<std::string> content = read_file(file);
  if (!content.is_ok()) {
    return content.status().with_context("training and validation text must be readable files");
  }
  std::string_view text = *content;
  data.source_bytes += static_cast<int64_t>(text.size());
  if (std::string_view encoding = wide_encoding(text); !encoding.empty()) {
    return invalid_argument(
        fmt::format("'{}' looks like {}; byte-level data must be UTF-8 or plain bytes: convert it, "
                    "for example with iconv -f UTF-16 -t UTF-8",
                    file, encoding));
  }
  if (text.starts_with(kUtf8Mark)) text.remove_prefix(kUtf8Mark.size());
  if (text.empty()) {
    return invalid_argument(
        fmt::format("'{}' is empty; give a file that holds text, or leave it out", file));
  }
  if (separate && !data.tokens.empty()) data.tokens.push_back(kByteSeparator);
  append_bytes(text, data.tokens);
  return Status::ok();
}

}  // namespace

Result<TokenData> read_byte_data(const std::vector<std::string>& files, int64_t vocabulary,
                                 int64_t sequence) {
  if (vocabulary < kByteVocabulary) {
    return invalid_argument(
        fmt::format("the model's vocabulary is {}; byte-level data need {} or more: set vocab_size "
                    "in its config.json",
                    vocabulary, kByteVocabulary));
  }
  if (files.empty()) return invalid_argument("no data files are named; name at least one");
  TokenData data;
  for (const std::string& file : files) {
    STAGECOACH_RETURN_IF_ERROR(append_file(file, vocabulary > kByteVocabulary, data));
  }
  int64_t found = static_cast<int64_t>(data.tokens.size());
  if (found < sequence + 1) {
    return invalid_argument(
        fmt::format("'{}'{} holds {} tokens; one sequence of {} and its next token need {}: give "
                    "more text or lower data.sequence to {} or less",
                    files.front(), files.size() > 1 ? " and the files after it" : "", found,
                    sequence, sequence + 1, std::max<int64_t>(found - 1, 1)));
  }
  data.digest = sha256_hex(data.tokens.data(),
                           static_cast<ByteCount>(data.tokens.size() * sizeof(data.tokens[0])));
  return data;
}

BatchSampler::BatchSampler(const TokenData& data, int64_t sequence, int64_t sequences,
                           uint64_t seed)
    : data_(&data),
      sequence_(sequence),
      sequences_(sequences),
      seed_(seed),
      windows_((static_cast<int64_t>(data.tokens.size()) - 1) / sequence) {
  STAGECOACH_CHECK(sequence > 0 && sequences > 0 && windows_ > 0);
}

int64_t BatchSampler::iterations_per_epoch() const {
  return (windows_ + sequences_ - 1) / sequences_;
}

int64_t BatchSampler::window_at(int64_t epoch, int64_t position) const {
  // A Feistel network permutes [0, 4^half_bits); walking on until the value is a window makes it a
  // permutation of the windows, without a table to build, keep or save.
  uint64_t windows = static_cast<uint64_t>(windows_);
  uint32_t half_bits = (std::bit_width(windows) + 1) / 2;
  uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  RandomKey key{seed_, static_cast<uint32_t>(epoch), 0, 0, kShuffleSite};
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & half_mask;
    for (uint32_t round = 0; round < kPermutationRounds; ++round) {
      key.layer = round;
      uint64_t mixed = left ^ (random_word(key, right) & half_mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= windows);
  return static_cast<int64_t>(value);
}

void BatchSampler::fill(int64_t iteration, TokenBatch& batch) const {
  STAGECOACH_CHECK(iteration >= 0);
  batch.sequences = sequences_;
  batch.sequence = sequence_;
  batch.inputs.resize(static_cast<size_t>(sequences_ * sequence_));
  batch.labels.resize(batch.inputs.size());
  for (int64_t i = 0; i < sequences_; ++i) {
    int64_t drawn = iteration * sequences_ + i;
    int64_t window = window_at(drawn / windows_, drawn % windows_);
    auto first = data_->tokens.begin() + window * sequence_;
    std::copy_n(first, sequence_, batch.inputs.begin() + i * sequence_);
    std::copy_n(first + 1, sequence_, batch.labels.begin() + i * sequence_);
  }
}

double bigram_entropy(std::span<const int32_t> tokens) {
  if (tokens.size() < 2) return 0.0;
  std::vector<std::pair<int32_t, int32_t>> pairs(tokens.size() - 1);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) pairs[i] = {tokens[i], tokens[i + 1]};
  std::sort(pairs.begin(), pairs.end());
  double sum = 0.0;
  for (size_t group = 0; group < pairs.size();) {
    size_t group_end = group;
    while (group_end < pairs.size() && pairs[group_end].first == pairs[group].first) ++group_end;
    double group_count = static_cast<double>(group_end - group);
    for (size_t i = group; i < group_end;) {
      size_t same_end = i;
      while (same_end < group_end && pairs[same_end] == pairs[i]) ++same_end;
      double count = static_cast<double>(same_end - i);
      sum -= count * std::log(count / group_count);
      i = same_end;
    }
    group = group_end;
  }
  return sum / static_cast<double>(pairs.size());
}

}  // namespace stagecoach
