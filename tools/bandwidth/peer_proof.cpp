#include "tools/bandwidth/peer_proof.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/transfer_memory.h"

namespace stagecoach {

namespace {

constexpr ByteCount kSizes[] = {1, 4 * kKiB, kMiB, 64 * kMiB};
constexpr int64_t kMostRounds = 100, kLeastRounds = 4;
/// Around what is copied: bytes that must stay as they were.
constexpr ByteCount kMargin = 4 * kKiB;
constexpr int kProofPoison = 0xEE;

}  // namespace

/// What the copies move. The target's range has a margin on both sides.
struct PeerProof::Memory {
  std::unique_ptr<Stream> source_stream, target_stream;
  BufferHandle pattern;   ///< on the host: what is sent
  BufferHandle sent;      ///< on the source
  BufferHandle received;  ///< on the target
  BufferHandle copied;    ///< on the target, by itself
  BufferHandle landing;   ///< on the host
};

PeerProof::PeerProof(Device& source, Device& target, PeerTrial trial, TaskPool& pool)
    : source_(source), target_(target), trial_(std::move(trial)), pool_(pool) {}

Status PeerProof::run() {
  if (!outcome_.has_value()) {
    int64_t start_ns = RealClock::instance().now_ns();
    outcome_ = prove();
    duration_ns_ = RealClock::instance().now_ns() - start_ns;
  }
  return *outcome_;
}

Status PeerProof::reach() const {
  if (is_mig_instance(source_.info()) || is_mig_instance(target_.info())) {
    return unavailable(
        "no peer access: instances of a card (MIG) do not reach other memory than their own; "
        "copies go through the host");
  }
  Status enabled = source_.enable_peer(target_);
  if (enabled.is_ok()) enabled = target_.enable_peer(source_);
  if (enabled.is_ok()) return Status::ok();
  return unavailable(
      fmt::format("no peer access ({}); copies go through the host", enabled.message()));
}

Status PeerProof::prove() {
  if (source_.virtual_time() != nullptr) {
    return unimplemented("copies between simulated devices are not measured");
  }
  STAGECOACH_RETURN_IF_ERROR(reach());
  int64_t deadline_ns = RealClock::instance().now_ns() + trial_.timeout_ns;
  ByteCount largest = 1;
  for (ByteCount size : kSizes) largest = std::max(largest, std::min(size, trial_.most_bytes));
  ByteCount room = largest + 2 * kMargin;
  Memory memory;
  auto on_device = [room](Device& device) {
    return require_buffer(device.allocate(room, "p2p proof"), device, room, "p2p proof");
  };
  auto on_host = [room](Device& device) {
    return require_buffer(device.allocate_pinned(room, "p2p proof"), device, room, "p2p proof");
  };
  STAGECOACH_ASSIGN_OR_RETURN(memory.pattern, on_host(source_));
  STAGECOACH_ASSIGN_OR_RETURN(memory.sent, on_device(source_));
  STAGECOACH_ASSIGN_OR_RETURN(memory.received, on_device(target_));
  STAGECOACH_ASSIGN_OR_RETURN(memory.copied, on_device(target_));
  STAGECOACH_ASSIGN_OR_RETURN(memory.landing, on_host(target_));
  STAGECOACH_ASSIGN_OR_RETURN(memory.source_stream, source_.create_stream({"p2p_proof_source"}));
  STAGECOACH_ASSIGN_OR_RETURN(memory.target_stream, target_.create_stream({"p2p_proof_target"}));
  fill_pattern(memory.pattern->host_data(), room, trial_.seed, pool_);
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint filled,
      memory.source_stream->copy({memory.sent->view(), memory.pattern->view(), "p2p pattern"}));
  Status status = await_timepoint(source_, filled, deadline_ns);
  for (ByteCount size : kSizes) {
    if (status.is_ok() && size <= largest) status = try_size(memory, size, deadline_ns);
  }
  // What is queued must not go on into the memory of what comes next.
  if (!status.is_ok()) {
    for (Stream* stream : {memory.source_stream.get(), memory.target_stream.get()}) {
      stream->abandon(status);
    }
  }
  return status;
}

Status PeerProof::try_size(Memory& memory, ByteCount size, int64_t deadline_ns) {
  int64_t rounds = std::clamp(trial_.budget_bytes / size, kLeastRounds, kMostRounds);
  for (int64_t round = 0; round < rounds; ++round) {
    if (trial_.is_cancelled && trial_.is_cancelled()) return cancelled("interrupted");
    STAGECOACH_RETURN_IF_ERROR(try_once(memory, size, round, deadline_ns));
  }
  return Status::ok();
}

Status PeerProof::try_once(Memory& memory, ByteCount size, int64_t round, int64_t deadline_ns) {
  // Odd, and another each time: both ends of a copy lie where no bus or page likes them.
  constexpr int64_t kStride = 682;
  ByteCount offset = 1 + round * kStride % kMargin;
  BufferView window = memory.received->slice(0, size + 2 * kMargin);
  BufferView copied = memory.copied->slice(0, window.size);
  BufferView landing = memory.landing->slice(0, window.size);
  Stream& target = *memory.target_stream;
  STAGECOACH_RETURN_IF_FAILED(target.fill({copied, kProofPoison, 1, "p2p poison"}));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint poisoned,
                              target.fill({window, kProofPoison, 1, "p2p poison"}));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(target_, poisoned, deadline_ns));
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint sent, memory.source_stream->copy({memory.received->slice(offset, size),
                                                  memory.sent->slice(offset, size), "p2p proof"}));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(source_, sent, deadline_ns));
  ++copies_;
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint read, target.copy({landing, window, "p2p read back"}));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(target_, read, deadline_ns));
  STAGECOACH_RETURN_IF_ERROR(compare(memory, size, offset, "read back by the host"));
  STAGECOACH_RETURN_IF_FAILED(target.copy({copied, window, "p2p own copy"}));
  STAGECOACH_ASSIGN_OR_RETURN(read, target.copy({landing, copied, "p2p read back"}));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(target_, read, deadline_ns));
  return compare(memory, size, offset, "as the target itself sees them");
}

Status PeerProof::compare(Memory& memory, ByteCount size, ByteCount offset, const char* how) {
  DataCheck found = compare_bytes(memory.pattern->host_data() + offset,
                                  memory.landing->host_data() + offset, size, pool_);
  check_.add(found);
  const std::byte* bytes = memory.landing->host_data();
  auto is_poison = [](std::byte byte) { return byte == std::byte{kProofPoison}; };
  const std::byte* after = bytes + offset + size;
  const std::byte* end = bytes + size + 2 * kMargin;
  bool is_spilled =
      !std::all_of(bytes, bytes + offset, is_poison) || !std::all_of(after, end, is_poison);
  if (found.wrong_bytes == 0 && !is_spilled) return Status::ok();
  std::string what =
      is_spilled ? "bytes around them were overwritten"
                 : fmt::format("{} of {} bytes are wrong, the first at {}, bits {:#04x} flipped",
                               found.wrong_bytes, size, found.first_wrong, found.flipped_bits);
  return data_loss(fmt::format("unsafe: copy {} from {} to {}, of {} bytes at offset {}, {}: {}",
                               copies_, source_.id(), target_.id(), size, offset, how, what));
}

}  // namespace stagecoach
