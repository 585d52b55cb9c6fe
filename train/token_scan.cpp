#include "train/token_scan.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "core/digest.h"
#include "core/task_pool.h"
#include "train/interrupt.h"

namespace stagecoach {

namespace {

/// Part of the digest's definition.
constexpr int64_t kChunkTokens = int64_t{4} << 20;
/// A range of a source that one thread reads.
struct Chunk {
  const TokenSource* source;
  bool is_mask;
  int64_t first;  ///< token
  int64_t count;  ///< tokens
  ByteCount bytes() const { return is_mask ? (count + 7) / 8 : count * source->width_bytes; }
  std::string digest;
  Status status = Status::ok();
};

std::vector<Chunk> cut(const std::vector<TokenSource>& sources) {
  std::vector<Chunk> chunks;
  for (const TokenSource& source : sources) {
    for (bool is_mask : {false, true}) {
      if (is_mask && source.mask == nullptr) continue;
      // Chunks of masks are whole bytes, since their tokens are a multiple of 8.
      for (int64_t first = 0; first < source.count; first += kChunkTokens) {
        int64_t count = std::min(kChunkTokens, source.count - first);
        chunks.push_back({&source, is_mask, first, count, {}, Status::ok()});
      }
    }
  }
  return chunks;
}

/// Status of the first of `count` ids that is not below `limit`.
template <typename Id>
Status check_ids(const TokenSource& source, const std::byte* bytes, int64_t first, int64_t count,
                 int64_t vocabulary) {
  const Id* ids = reinterpret_cast<const Id*>(bytes);
  Id most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, ids[i]);
  int64_t limit = source.vocabulary > 0 ? std::min(source.vocabulary, vocabulary) : vocabulary;
  if (int64_t{most} < limit) return Status::ok();
  const Id* bad = std::find_if(ids, ids + count, [&](Id id) { return int64_t{id} >= limit; });
  return id_out_of_range(source, first + (bad - ids), int64_t{*bad}, vocabulary);
}

Status read_chunk(Chunk& chunk, int64_t vocabulary) {
  const TokenSource& source = *chunk.source;
  const ByteSource& file = chunk.is_mask ? *source.mask : *source.ids;
  ByteCount offset = chunk.is_mask ? source.mask_offset + chunk.first / 8
                                   : source.ids_offset + chunk.first * source.width_bytes;
  Sha256 digest;
  // Enough alignment for ids of any width.
  std::vector<uint32_t> piece(static_cast<size_t>(kPieceBytes / 4));
  auto* bytes = reinterpret_cast<std::byte*>(piece.data());
  for (ByteCount done = 0; done < chunk.bytes(); done += kPieceBytes) {
    if (InterruptGuard::is_interrupted()) return cancelled("reading data was interrupted");
    ByteCount count = std::min(kPieceBytes, chunk.bytes() - done);
    STAGECOACH_RETURN_IF_ERROR(file.read(offset + done, bytes, count));
    digest.update(bytes, count);
    if (chunk.is_mask) continue;
    int64_t first = chunk.first + done / source.width_bytes;
    int64_t ids = count / source.width_bytes;
    STAGECOACH_RETURN_IF_ERROR(source.width_bytes == 2
                                   ? check_ids<uint16_t>(source, bytes, first, ids, vocabulary)
                                   : check_ids<uint32_t>(source, bytes, first, ids, vocabulary));
  }
  chunk.digest = digest.hex();
  return Status::ok();
}

std::string combine(const std::vector<TokenSource>& sources, const std::vector<Chunk>& chunks) {
  Sha256 digest;
  auto add = [&](const std::string& text) {
    digest.update(text.data(), static_cast<ByteCount>(text.size()));
  };
  for (const TokenSource& source : sources) {
    add(fmt::format("tokens {} width {} tokenizer {} documents {} ", source.count,
                    source.width_bytes, source.tokenizer, source.documents.size()));
    digest.update(source.documents.data(),
                  static_cast<ByteCount>(source.documents.size() * sizeof(int64_t)));
  }
  for (const Chunk& chunk : chunks) add((chunk.is_mask ? "mask " : "ids ") + chunk.digest);
  return digest.hex();
}

}  // namespace

Status id_out_of_range(const TokenSource& source, int64_t position, int64_t id,
                       int64_t vocabulary) {
  if (source.vocabulary > 0 && id >= source.vocabulary) {
    return invalid_argument(fmt::format(
        "'{}' holds id {} at token {}, and its own vocabulary is {}: the file is damaged; make it "
        "again with stagecoach-prepare",
        source.name(), id, position, source.vocabulary));
  }
  bool is_bare = source.tokenizer.empty();
  return invalid_argument(fmt::format(
      "'{}' holds id {} at token {}, and the model's vocabulary is {}, so ids end at {}; {}use "
      "the tokenizer that belongs to the model, or a model with a larger vocab_size",
      source.name(), id, position, vocabulary, vocabulary - 1,
      is_bare ? "the file has no header and is read as little-endian ids of 16 bits; " : ""));
}

Result<std::string> scan_tokens(const std::vector<TokenSource>& sources, int64_t vocabulary,
                                const ScanWatch& watch) {
  std::vector<Chunk> chunks = cut(sources);
  ByteCount total = 0, done = 0;
  for (const Chunk& chunk : chunks) total += chunk.bytes();
  // Threads are for data that is worth them.
  int threads = chunks.size() > 1 ? usable_thread_count() : 1;
  std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
  auto group = static_cast<size_t>(threads) * 4;
  for (size_t first = 0; first < chunks.size(); first += group) {
    size_t count = std::min(group, chunks.size() - first);
    pool->parallel_for(static_cast<int64_t>(count), [&](int64_t i) {
      Chunk& chunk = chunks[first + static_cast<size_t>(i)];
      chunk.status = read_chunk(chunk, vocabulary);
    });
    for (size_t i = first; i < first + count; ++i) {
      STAGECOACH_RETURN_IF_ERROR(chunks[i].status);
      done += chunks[i].bytes();
    }
    if (watch) watch(done, total);
  }
  return combine(sources, chunks);
}

}  // namespace stagecoach
