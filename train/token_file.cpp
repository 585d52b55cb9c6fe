#include "train/token_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace stagecoach {

namespace {

constexpr std::string_view kMagic = "SCTOKENS";
constexpr uint32_t kVersion = 1;
/// kVersion as a machine of the other byte order writes it.
constexpr uint32_t kSwappedVersion = 1u << 24;
constexpr uint32_t kMaskFlag = 1;
constexpr int64_t kMaxVocabulary = int64_t{1} << 31;
/// So that no size computed below can overflow.
constexpr uint64_t kMaxTokens = uint64_t{1} << 56;
constexpr ByteCount kTokenizerBytes = 32;
constexpr const char* kTokeniseAgain = "make it again with stagecoach-prepare";

using HeaderBytes = std::array<unsigned char, kTokenFileHeaderBytes>;

template <typename T>
T number_at(const HeaderBytes& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Status refuse(const ByteSource& file, const std::string& what) {
  return invalid_argument(fmt::format("'{}' {}; {}", file.name(), what, kTokeniseAgain));
}

std::string tokenizer_of(const HeaderBytes& bytes) {
  std::string digits;
  bool is_zero = true;
  for (size_t i = 48; i < 48 + kTokenizerBytes; ++i) {
    digits += fmt::format("{:02x}", bytes[i]);
    is_zero = is_zero && bytes[i] == 0;
  }
  return is_zero ? kBytesTokenizer : digits;
}

bool all_zero(const HeaderBytes& bytes, size_t first, size_t end) {
  return std::all_of(bytes.begin() + first, bytes.begin() + end,
                     [](unsigned char byte) { return byte == 0; });
}

Status check_version(const ByteSource& file, uint32_t version) {
  if (version == kVersion) return Status::ok();
  if (version == kSwappedVersion) {
    return refuse(file, "is big endian, by its version; expected little endian");
  }
  return refuse(file,
                fmt::format("has version {}; this program reads version {}", version, kVersion));
}

/// Fields by themselves and with each other.
Status check_fields(const ByteSource& file, const HeaderBytes& bytes) {
  auto bits = number_at<uint32_t>(bytes, 12);
  auto vocabulary = number_at<uint64_t>(bytes, 16);
  auto tokens = number_at<uint64_t>(bytes, 24);
  auto documents = number_at<uint64_t>(bytes, 32);
  auto flags = number_at<uint32_t>(bytes, 40);
  if (bits != 16 && bits != 32) {
    return refuse(file, fmt::format("has ids of {} bits; expected 16 or 32", bits));
  }
  if (vocabulary < 1 || vocabulary > static_cast<uint64_t>(kMaxVocabulary)) {
    return refuse(
        file, fmt::format("has a vocabulary of {}; expected 1 to {}", vocabulary, kMaxVocabulary));
  }
  if (bits == 16 && vocabulary > static_cast<uint64_t>(kBareVocabulary)) {
    return refuse(file, fmt::format("has ids of 16 bits and a vocabulary of {}, of which they hold "
                                    "{}",
                                    vocabulary, kBareVocabulary));
  }
  if (tokens == 0) {
    return invalid_argument(
        fmt::format("'{}' is empty: it holds no tokens; leave it out", file.name()));
  }
  if (tokens > kMaxTokens) return refuse(file, fmt::format("claims {} tokens", tokens));
  if (documents > tokens) {
    return refuse(file, fmt::format("claims {} documents in {} tokens", documents, tokens));
  }
  if ((flags & ~kMaskFlag) != 0 || !all_zero(bytes, 44, 48) || !all_zero(bytes, 80, bytes.size())) {
    return refuse(file, "has flags, or bytes behind its header's fields, that version 1 has not");
  }
  return Status::ok();
}

Result<TokenFileHeader> read_header(const ByteSource& file) {
  if (file.size() < kTokenFileHeaderBytes) {
    return refuse(file, fmt::format("has {} bytes and its header alone {}: the download or copy is "
                                    "incomplete",
                                    file.size(), kTokenFileHeaderBytes));
  }
  HeaderBytes bytes = {};
  STAGECOACH_RETURN_IF_ERROR(file.read(0, bytes.data(), kTokenFileHeaderBytes));
  STAGECOACH_RETURN_IF_ERROR(check_version(file, number_at<uint32_t>(bytes, 8)));
  STAGECOACH_RETURN_IF_ERROR(check_fields(file, bytes));
  TokenFileHeader header;
  header.width_bytes = static_cast<int>(number_at<uint32_t>(bytes, 12) / 8);
  header.vocabulary = number_at<int64_t>(bytes, 16);
  header.tokens = number_at<int64_t>(bytes, 24);
  header.documents = number_at<int64_t>(bytes, 32);
  header.has_mask = (number_at<uint32_t>(bytes, 40) & kMaskFlag) != 0;
  header.tokenizer = tokenizer_of(bytes);
  if (file.size() != header.file_bytes()) {
    return refuse(
        file,
        fmt::format("has {} bytes and its header says {}: {}", file.size(), header.file_bytes(),
                    file.size() < header.file_bytes() ? "the download or copy is incomplete"
                                                      : "something was added to it"));
  }
  return header;
}

Status read_documents(const ByteSource& file, const TokenFileHeader& header,
                      std::vector<int64_t>& documents) {
  documents.resize(static_cast<size_t>(header.documents));
  STAGECOACH_RETURN_IF_ERROR(
      file.read(header.documents_offset(), documents.data(), header.documents * 8));
  int64_t least = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    // The first begins the file; each of the others holds a token or more.
    bool is_right =
        i == 0 ? documents[0] == 0 : documents[i] >= least && documents[i] < header.tokens;
    if (!is_right) {
      return refuse(file,
                    fmt::format("has document {} of {} at token {}; expected {}", i + 1,
                                documents.size(), documents[i],
                                i == 0 ? "0" : fmt::format("{} to {}", least, header.tokens - 1)));
    }
    least = documents[i] + 1;
  }
  return Status::ok();
}

/// Formats that are told apart by their first bytes, so that their headers are not taken for ids.
std::string_view foreign_format(std::string_view start) {
  constexpr std::string_view kLlmC16("\x88\xd8\x34\x01", 4), kLlmC32("\xa1\xd9\x34\x01", 4);
  if (start.starts_with("\x93NUMPY")) return "a NumPy array";
  if (start.starts_with(kLlmC16) || start.starts_with(kLlmC32)) return "a token file of llm.c";
  if (start.starts_with("PK\x03\x04")) return "a ZIP archive or PyTorch file";
  if (start.starts_with("\x1f\x8b\x08")) return "a gzip file";
  return "";
}

Result<TokenSource> open_bare(std::shared_ptr<const ByteSource> file, int64_t vocabulary) {
  char start[8] = {};
  STAGECOACH_RETURN_IF_ERROR(file->read(0, start, std::min<ByteCount>(8, file->size())));
  std::string_view format = foreign_format({start, sizeof(start)});
  if (!format.empty()) {
    return refuse(*file, fmt::format("is {}; expected a token file of stagecoach-prepare, or bare "
                                     "16-bit ids without any header",
                                     format));
  }
  if (file->size() == 0) {
    return invalid_argument(
        fmt::format("'{}' is empty: it holds no tokens; leave it out", file->name()));
  }
  if (file->size() % 2 != 0) {
    return refuse(*file, fmt::format("has no header, so it should hold 16-bit ids, and its size of "
                                     "{} bytes is odd: the download or copy is incomplete",
                                     file->size()));
  }
  if (vocabulary > kBareVocabulary) {
    return refuse(*file, fmt::format("has no header, so it holds 16-bit ids, which end at {}; the "
                                     "model's vocabulary is {}",
                                     kBareVocabulary - 1, vocabulary));
  }
  TokenSource source;
  source.count = file->size() / 2;
  source.ids = std::move(file);
  return source;
}

}  // namespace

ByteCount TokenFileHeader::mask_offset() const {
  return kTokenFileHeaderBytes + align_up(tokens * width_bytes, 8);
}

ByteCount TokenFileHeader::documents_offset() const {
  return mask_offset() + (has_mask ? align_up((tokens + 7) / 8, 8) : 0);
}

ByteCount TokenFileHeader::file_bytes() const {
  return documents_offset() + documents * 8;
}

Result<bool> has_token_file_magic(const ByteSource& file) {
  char start[kMagic.size()] = {};
  if (file.size() < static_cast<ByteCount>(kMagic.size())) return false;
  STAGECOACH_RETURN_IF_ERROR(file.read(0, start, static_cast<ByteCount>(kMagic.size())));
  return std::string_view(start, kMagic.size()) == kMagic;
}

Result<TokenSource> open_token_file(std::shared_ptr<const ByteSource> file, int64_t vocabulary) {
  STAGECOACH_ASSIGN_OR_RETURN(bool has_header, has_token_file_magic(*file));
  if (!has_header) return open_bare(std::move(file), vocabulary);
  STAGECOACH_ASSIGN_OR_RETURN(TokenFileHeader header, read_header(*file));
  TokenSource source;
  source.ids_offset = kTokenFileHeaderBytes;
  source.width_bytes = header.width_bytes;
  source.count = header.tokens;
  source.vocabulary = header.vocabulary;
  source.tokenizer = header.tokenizer;
  source.has_documents = header.documents > 0;
  if (source.has_documents) {
    STAGECOACH_RETURN_IF_ERROR(read_documents(*file, header, source.documents));
  }
  if (header.has_mask) {
    source.mask = file;
    source.mask_offset = header.mask_offset();
  }
  source.ids = std::move(file);
  return source;
}

}  // namespace stagecoach
