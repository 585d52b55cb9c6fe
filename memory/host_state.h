#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/task_pool.h"
#include "memory/arena.h"

namespace stagecoach {

/// What the host state must know of a block.
struct BlockLayout {
  std::string name;
  int64_t element_count = 0;
  int site_count = 1;
};

/// All training state, in host memory: per block the fp32 optimizer copy with two moments, the
/// compute copy that devices upload (the same memory when computing in fp32), the fp32 gradient
/// sum, and pinned slots in which gradients of (site, round) land. Thread rule: different blocks
/// from different threads; the caller orders accesses to one block.
class HostState {
 public:
  /// Pinned memory comes from `pinning_device`. `slots_per_site`: rounds whose gradients may wait
  /// in landing slots at once.
  static Result<std::unique_ptr<HostState>> create(Device& pinning_device,
                                                   std::vector<BlockLayout> blocks,
                                                   DType compute_dtype, int slots_per_site);

  int block_count() const { return static_cast<int>(blocks_.size()); }
  int64_t element_count(int block) const { return blocks_[block].layout.element_count; }
  float* parameters(int block) { return float_data(blocks_[block].parameters); }
  float* first_moment(int block) { return float_data(blocks_[block].first_moment); }
  float* second_moment(int block) { return float_data(blocks_[block].second_moment); }
  /// Sum over sites, rounds and calls since `clear_gradients`; valid once all have been added.
  float* gradients(int block) { return float_data(blocks_[block].gradients); }

  /// What a device uploads for `block`, in the compute dtype.
  BufferView compute_copy(int block) const { return blocks_[block].compute_copy; }
  /// Rounds the optimizer copy of `block` into its compute copy; nothing to do in fp32.
  void publish(int block, TaskPool& pool);

  /// Dtype in which gradients come home: the compute dtype.
  DType gradient_dtype() const { return compute_dtype_; }
  int slots_per_site() const { return slots_per_site_; }
  /// Where the gradient of (block, site) of `round` lands.
  BufferView gradient_slot(int block, int site, int round) const;
  /// Adds all sites of `round`, in site order, into the fp32 sum; the first addition since
  /// `clear_gradients` overwrites it.
  void accumulate_round(int block, int round, TaskPool& pool);
  /// The next `accumulate_round` of every block starts a new sum.
  void clear_gradients();
  /// To be called before a second pass adds to the sums of a first one.
  Status keep_gradients();

  /// Host bytes of parameters, moments, gradients and compute copies.
  ByteCount total_bytes() const { return total_bytes_; }

 private:
  struct Block {
    BlockLayout layout;
    BufferView parameters, first_moment, second_moment, gradients, compute_copy;
    std::vector<BufferView> slots;  ///< [site * slots_per_site + round % slots_per_site]
    bool sum_started = false;
    /// The one fp32 landing slot is the whole gradient, so it serves as the sum.
    bool slot_is_sum = false;
  };
  HostState() = default;
  static float* float_data(const BufferView& view) {
    return reinterpret_cast<float*>(view.host_data());
  }
  Status allocate_sums(bool (*wanted)(const Block&), std::optional<Arena>& arena);

  Device* pinning_device_ = nullptr;
  DType compute_dtype_ = DType::kF32;
  int slots_per_site_ = 1;
  ByteCount total_bytes_ = 0;
  std::vector<Block> blocks_;
  std::optional<Arena> state_;  ///< parameters, moments, compute copies
  std::optional<Arena> slots_;
  std::optional<Arena> sums_;       ///< of blocks with several sites, rounds or 16-bit slots
  std::optional<Arena> kept_sums_;  ///< of the others, once two passes have to be added up
};

}  // namespace stagecoach
