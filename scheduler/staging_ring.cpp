#include "scheduler/staging_ring.h"

#include <algorithm>
#include <cstring>

#include "hal/host_access.h"

namespace stagecoach {

namespace {

/// One thread does not keep up with a fast link.
constexpr int kCopyThreads = 4;
constexpr ByteCount kCopyPart = 512 * kKiB;

}  // namespace

StagingRing::StagingRing(int places, ByteCount place_bytes)
    : place_count_(places),
      place_bytes_(place_bytes),
      pool_(TaskPool::create(std::min(kCopyThreads, usable_thread_count()))) {}

Result<std::unique_ptr<StagingRing>> StagingRing::create(Device& device, int places,
                                                         ByteCount place_bytes) {
  std::unique_ptr<StagingRing> ring(new StagingRing(places, place_bytes));
  ByteCount bytes = ring->bytes();
  STAGECOACH_ASSIGN_OR_RETURN(
      ring->memory_,
      require_buffer(device.allocate_pinned(bytes, "staging ring"), device, bytes, "staging ring"));
  return ring;
}

BufferView StagingRing::next(ByteCount size) {
  return memory_->slice(chunks_++ % place_count_ * place_bytes_, size);
}

void StagingRing::copy(const BufferView& target, const BufferView& source) {
  note_host_read(source.host_data(), source.size, "staging");
  note_host_write(target.host_data(), target.size, "staging");
  std::byte* to = target.host_data();
  const std::byte* from = source.host_data();
  pool_->parallel_for((target.size + kCopyPart - 1) / kCopyPart, [&](int64_t part) {
    ByteCount begin = part * kCopyPart;
    std::memcpy(to + begin, from + begin,
                static_cast<size_t>(std::min(kCopyPart, target.size - begin)));
  });
}

}  // namespace stagecoach
