#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/device.h"
#include "memory/pageable_memory.h"
#include "memory/registered_memory.h"

namespace stagecoach {

/// Where a piece of host memory is needed: where not all can be pinned, the first pieces to do
/// without are those that devices never touch.
enum class PieceUse : uint8_t { kTravels, kStays };

/// How much of host memory is pinned.
struct Pinning {
  ByteCount asked = 0;
  ByteCount pinned = 0;
  ByteCount slow = 0;  ///< of pieces that travel and are not pinned

  Pinning& operator+=(const Pinning& other);
};

/// One exact-size allocation carved from the front: device memory or pinned host memory. Nothing is
/// returned piece by piece; the arena is freed as a whole. Where the system does not let all of it
/// be pinned at once, pieces that travel are pinned one by one as far as that goes, and the others
/// are pageable: copies of those work and are slower.
/// Thread rule: one thread at a time.
class Arena {
 public:
  /// Pieces lie at multiples of this, which suits vector code and every copy engine.
  static constexpr ByteCount kAlignment = 256;

  static Result<Arena> create_on_device(Device& device, ByteCount size, Label label);
  /// `device` must outlive the arena. Errors: resource exhausted when the host has no such memory,
  /// pinned or not; others of the device.
  static Result<Arena> create_pinned(Device& device, ByteCount size, Label label);
  /// Much memory, which is zero, for pieces of exactly these sizes in this order: in huge pages and
  /// pinned by several threads (RegisteredMemory). Where that is more than can be pinned,
  /// create_pinned does what it can. Errors: also cancelled, when the watch of `setup` says so.
  static Result<Arena> create_registered(Device& device, std::span<const ByteCount> pieces,
                                         Label label, const PinSetup& setup);

  /// The next `size` bytes. The arena must have been created large enough: its owner computed it.
  BufferView take(ByteCount size, PieceUse use = PieceUse::kTravels);
  /// Forgets all pieces of device memory, so that it can be carved anew.
  void reset() { used_ = 0; }
  ByteCount size() const { return size_; }
  const Pinning& pinning() const { return pinning_; }
  /// Space a piece of `size` bytes takes.
  static ByteCount padded(ByteCount size) { return align_up(size, kAlignment); }

 private:
  Arena(Device& device, ByteCount size, Label label)
      : device_(&device), label_(label), size_(size), least_refused_(size) {}
  /// Null where the system refuses.
  BufferHandle pin_piece(ByteCount size);
  BufferView take_registered(ByteCount size);

  Device* device_;
  Label label_;
  ByteCount size_ = 0;
  ByteCount used_ = 0;  ///< of `buffer_` or of the whole of `registered_`
  Pinning pinning_;
  ByteCount least_refused_ = 0;  ///< so much, or more, is not asked for again
  PageableMemory memory_;        ///< of `buffer_` where not all is pinned, so it goes last
  BufferHandle buffer_;  ///< all of it; pageable ones have address space for all, of which the
                         ///< pieces in it are touched alone
  std::vector<BufferHandle> pinned_pieces_;
  bool is_cleared_ = false;                     ///< whether pieces must be zero
  std::optional<RegisteredMemory> registered_;  ///< instead of all these
  size_t piece_ = 0;                            ///< of `registered_`, from which is taken
};

}  // namespace stagecoach
