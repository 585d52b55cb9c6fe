#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "hal/stream.h"
#include "hal/tensor.h"
#include "memory/arena.h"
#include "memory/host_state.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// Updates blocks of the host state on a device: weights, moments and gradients stream up in
/// pieces, the device computes, weights, moments and what devices read of them stream back, while
/// the next piece is on its way. The same bits as `update_parameters`: which of them updates a
/// block changes no result. Thread rule: one thread at a time; the host state as for
/// `update_parameters`.
class DeviceUpdater {
 public:
  /// Takes memory for two pieces of `piece_elements` on `device`, which must outlive it. Errors:
  /// resource exhausted.
  static Result<std::unique_ptr<DeviceUpdater>> create(Device& device, int64_t piece_elements);
  /// Device memory that takes, in bytes, with the scratch memory of its operations: GPU backends
  /// give what is set aside for that to the stream of passes.
  static ByteCount bytes(int64_t piece_elements);
  /// Host memory beside that, in bytes.
  static ByteCount host_bytes();
  /// Whether `update` takes what has this memory, by this rule.
  static bool takes(const BlockMemory& memory, UpdateRule rule);
  /// Those that it uses: abandoning them ends an update that is under way.
  std::vector<Stream*> streams() const { return {up_.get(), compute_.get(), down_.get()}; }

  /// As `update_parameters`, of AdamW with fp32 moments and gradients in one place; anything else
  /// is unimplemented, with nothing touched. Returns how many parameters and moments would not have
  /// been finite: above zero, training must stop; the piece that they are in and what follows stay
  /// as they were. Returns when all is back in host memory.
  Result<int64_t> update(HostState& state, int block, int64_t offset, int64_t count,
                         const UpdateNumbers& numbers);

 private:
  static constexpr int kSlots = 2;
  static constexpr int kCounts = 3;  ///< parameters, first moments, second moments

  /// Where a piece lies on the device.
  struct Slot {
    std::optional<Arena> memory;
    std::optional<Arena> host;  ///< pinned
    BufferView counts;          ///< in it
    TensorView master, high, remainder, first, second, gradient, rounded, not_finite;
    Timepoint judged;   ///< the counts are on the host
    Timepoint written;  ///< the piece is back
  };
  explicit DeviceUpdater(Device& device, int64_t piece_elements)
      : device_(device), piece_elements_(piece_elements) {}
  Status build();
  void place(Slot& slot, const BlockBuffers& block, DType gradient, int64_t count);
  Status send(Slot& slot, const BlockBuffers& block, int64_t offset, const UpdateNumbers& numbers);
  Status compute(Slot& slot, const UpdateNumbers& numbers);
  Result<int64_t> bring_back(Slot& slot, const BlockBuffers& block, int64_t offset);
  Result<int64_t> run(const BlockBuffers& block, DType gradient, int64_t offset, int64_t count,
                      const UpdateNumbers& numbers);

  Device& device_;
  int64_t piece_elements_;
  std::unique_ptr<Stream> up_, compute_, down_;
  std::array<Slot, kSlots> slots_;
};

}  // namespace stagecoach
