#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"

namespace stagecoach {

/// How far the pinning of an arena is.
struct PinProgress {
  ByteCount done = 0;
  ByteCount total = 0;
  int64_t elapsed_ns = 0;
};

/// Called after each piece with how far it is, by any thread of the pool, one at a time. False ends
/// the pinning.
using PinWatch = std::function<bool(const PinProgress&)>;

/// How large host memory is pinned.
struct PinSetup {
  /// Few enough calls of the driver that they cost nothing, enough pieces for all threads and for
  /// an answer to whoever wants to stop.
  static constexpr ByteCount kPieceBytes = 256 * kMiB;

  TaskPool* pool = nullptr;  ///< whose threads touch and pin pieces at the same time; null: none
  PinWatch watch;            ///< may be none
  ByteCount piece_bytes = kPieceBytes;
};

/// A range of an allocation that is pinned by itself.
struct HostPiece {
  ByteCount start = 0;
  ByteCount size = 0;
};

/// Cuts memory for `parts`, which lie one behind the other at multiples of `alignment`, into pieces
/// of at least `piece_bytes`, the last excepted. Pieces begin on pages of their own, and no part
/// lies in two of them: CUDA refuses copies across two registrations. Pure.
std::vector<HostPiece> cut_into_pieces(std::span<const ByteCount> parts, ByteCount alignment,
                                       ByteCount piece_bytes);

/// Host memory in huge pages, pinned piece by piece: all of it or none. It is zero, and was first
/// touched by the threads of the pool: that is most of what pinning costs (4 GiB on the host of an
/// H200: 2.8 s by one thread, and 0.2 s to pin them then). On several NUMA nodes it is spread over
/// them page by page: updates and devices read it from all of them.
class RegisteredMemory {
 public:
  /// `device` must outlive it. Errors: cancelled when the watch says so; resource exhausted when
  /// there is no such address space; those of the device when it refuses a piece.
  static Result<RegisteredMemory> create(Device& device, std::vector<HostPiece> pieces, Label label,
                                         const PinSetup& setup);

  const std::vector<HostPiece>& pieces() const { return pieces_; }
  /// Of pieces()[index].
  Buffer& buffer(size_t index) const { return *buffers_[index]; }

 private:
  std::vector<HostPiece> pieces_;
  std::vector<BufferHandle> buffers_;  ///< the last to go takes the memory along
};

}  // namespace stagecoach
