#include "memory/registered_memory.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/clock.h"
#include "memory/numa_placement.h"
#include "memory/pageable_memory.h"

namespace stagecoach {

namespace {

constexpr ByteCount kPageBytes = 4 * kKiB;

/// Makes the system give the memory, in huge pages where it has them.
void touch(std::byte* data, ByteCount size) {
  for (ByteCount offset = 0; offset < size; offset += kPageBytes) {
    *const_cast<volatile std::byte*>(data + offset) = std::byte{0};
  }
}

/// What the threads that pin share.
class PinCount {
 public:
  PinCount(ByteCount total, const PinWatch& watch)
      : watch_(watch), start_ns_(RealClock::instance().now_ns()) {
    progress_.total = total;
  }

  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  void fail(const Status& status) {
    std::lock_guard lock(mutex_);
    if (failure_.is_ok()) failure_ = status;
    has_failed_.store(true, std::memory_order_release);
  }
  void add(ByteCount bytes) {
    std::lock_guard lock(mutex_);
    progress_.done += bytes;
    progress_.elapsed_ns = RealClock::instance().now_ns() - start_ns_;
    if (!failure_.is_ok() || !watch_ || watch_(progress_)) return;
    failure_ = Status(StatusCode::kCancelled, "interrupted while host memory was being pinned");
    has_failed_.store(true, std::memory_order_release);
  }
  const Status& failure() const { return failure_; }

 private:
  const PinWatch& watch_;
  const int64_t start_ns_;
  std::mutex mutex_;
  PinProgress progress_;
  Status failure_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace

std::vector<HostPiece> cut_into_pieces(std::span<const ByteCount> parts, ByteCount alignment,
                                       ByteCount piece_bytes) {
  std::vector<HostPiece> pieces;
  for (ByteCount part : parts) {
    if (pieces.empty() || pieces.back().size >= piece_bytes) {
      ByteCount end = pieces.empty() ? 0 : pieces.back().start + pieces.back().size;
      pieces.push_back({align_up(end, kPageBytes), 0});
    }
    pieces.back().size += align_up(part, alignment);
  }
  return pieces;
}

Result<RegisteredMemory> RegisteredMemory::create(Device& device, std::vector<HostPiece> pieces,
                                                  Label label, const PinSetup& setup) {
  STAGECOACH_CHECK(!pieces.empty());
  RegisteredMemory made;
  ByteCount size = pieces.back().start + pieces.back().size, total = 0;
  for (const HostPiece& piece : pieces) total += piece.size;
  STAGECOACH_ASSIGN_OR_RETURN(PageableMemory created, PageableMemory::create(size));
  auto memory = std::make_shared<PageableMemory>(std::move(created));
  spread_over_numa_nodes(memory->data(), size);
  made.pieces_ = std::move(pieces);
  made.buffers_.resize(made.pieces_.size());
  PinCount count(total, setup.watch);
  auto pin = [&](int64_t index) {
    if (count.has_failed()) return;
    const HostPiece& piece = made.pieces_[static_cast<size_t>(index)];
    std::byte* data = memory->data() + piece.start;
    touch(data, piece.size);
    Result<BufferHandle> buffer = device.register_host(data, piece.size, label);
    if (!buffer.is_ok()) return count.fail(buffer.status());
    (*buffer)->keep(memory);
    made.buffers_[static_cast<size_t>(index)] = std::move(buffer).value();
    count.add(piece.size);
  };
  auto piece_count = static_cast<int64_t>(made.pieces_.size());
  if (setup.pool != nullptr) {
    setup.pool->parallel_for(piece_count, pin);
  } else {
    for (int64_t index = 0; index < piece_count; ++index) pin(index);
  }
  if (!count.failure().is_ok()) return count.failure();
  return made;
}

}  // namespace stagecoach
