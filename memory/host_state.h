#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/task_pool.h"
#include "memory/arena.h"
#include "memory/block_memory.h"
#include "memory/moments.h"

namespace stagecoach {

/// What the host state must know of a block.
struct BlockLayout {
  std::string name;
  int64_t element_count = 0;
  int site_count = 1;
  bool is_frozen = false;           ///< not trained: only what devices read is kept
  std::vector<int64_t> parts = {};  ///< where parameters begin; empty: the block is one
  bool is_mapped = false;           ///< frozen, and not even that: it is in memory that `map` gets
};

/// What all blocks of a host state share.
struct HostStateOptions {
  DType compute_dtype = DType::kF32;  ///< fp32, bf16 or fp16
  int rounds = 1;                     ///< whose gradients one update adds up
  int slots_per_site =
      1;  ///< rounds whose gradients may wait to be added at once; 1 with one round
  MomentOptions moments = {};  ///< of trained blocks
  /// Copies of what devices read of a trained block: 2 where an update writes a new version while
  /// the one before it is read.
  int versions = 1;
};

/// Bytes of a host state, alignment included.
struct HostStateBytes {
  ByteCount trained = 0;  ///< weights, moments and one gradient, of blocks that are trained
  ByteCount frozen = 0;   ///< weights of the others
  /// What devices read of frozen blocks that are mapped: no memory of the state.
  ByteCount mapped = 0;
  /// Where gradients land that lie in no block's own: those of further sites and, where several
  /// rounds are added up, of all.
  ByteCount landing = 0;

  ByteCount state() const { return trained + frozen; }
  ByteCount total() const { return state() + landing; }
};

/// What `HostState::create` allocates, no more and no less. A pure function.
HostStateBytes host_state_bytes(std::span<const BlockLayout> blocks,
                                const HostStateOptions& options);

/// Part of what devices read of a mapped block.
struct MappedPart {
  ByteCount offset = 0;  ///< byte of the block's compute copy
  BufferView source;
};

/// All training state, in host memory, a block's arrays side by side. With two moments, of which
/// optimizers may keep fewer:
///
///   bf16   high halves, which devices read, remainders, moments, gradient: 2 + 2 + 8 + 2 bytes
///   fp32   master, which devices read, moments, gradient:                      4 + 8 + 4 bytes
///   fp16   master, a rounded copy for devices, moments, gradient:          4 + 2 + 8 + 2 bytes
///
/// With two versions there is a second array of what devices read: the update of a block reads the
/// newest, writes the other and `publish` makes that the newest.
///
/// One round: the gradient is the slot where the first site's lands. Several: it is the fp32 sum,
/// and all slots are extra, as those of further sites always are.
/// Thread rule: different blocks, and ranges of parameters, at once; the caller orders the rest.
class HostState {
 public:
  /// Pinned memory comes from `pinning_device`. Everything is zero. Errors: those of
  /// Arena::create_registered.
  static Result<std::unique_ptr<HostState>> create(Device& pinning_device,
                                                   std::vector<BlockLayout> blocks,
                                                   const HostStateOptions& options,
                                                   const PinSetup& pinning = {});

  int block_count() const { return static_cast<int>(blocks_.size()); }
  int64_t element_count(int block) const { return blocks_[block].layout.element_count; }
  bool is_frozen(int block) const { return blocks_[block].layout.is_frozen; }
  bool is_mapped(int block) const { return blocks_[block].layout.is_mapped; }

  /// Says where bytes of a mapped block's compute copy are: from `offset` on in `memory`, which
  /// must not change and must outlive the state. What no call names, alignment gaps, does not
  /// travel. Errors: those of Device::wrap_pageable.
  Status map(int block, ByteCount offset, std::span<const std::byte> memory);
  /// All of it, in the order in which it was given.
  std::span<const MappedPart> mapped_parts(int block) const { return blocks_[block].mapped; }

  /// Copies fp32 parameters from element `offset` of `block`, which is not mapped, on.
  void read_parameters(int block, int64_t offset, std::span<float> out) const;
  /// Sets them and what devices read of them. Invalid argument when one is not finite; nothing is
  /// written then.
  Status write_parameters(int block, int64_t offset, std::span<const float> values);
  /// Copies a moment that a trained block keeps, as fp32, likewise.
  void read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const;
  /// `count` elements of it as they are kept; 8-bit ones from a scale's first element on.
  MomentView moment(Moment moment, int block, int64_t offset, int64_t count) const;

  /// Updates of `block` so far, skipped ones included.
  int64_t version(int block) const { return blocks_[block].version; }
  /// What a device uploads for `block`, in the compute dtype: its newest version.
  BufferView compute_copy(int block) const { return compute_copy(block, blocks_[block].version); }
  /// The same for `version`: the newest or, where two are kept, the one before it.
  BufferView compute_copy(int block, int64_t version) const;
  /// Sets what devices read of the version before the newest, in the compute dtype from element
  /// `offset` on, of a trained block of which two are kept and that has had an update or a skip.
  void write_previous_copy(int block, int64_t offset, std::span<const std::byte> values);
  /// For the update of a trained block once all its gradients have landed and been added.
  BlockMemory memory(int block);
  BlockBuffers buffers(int block) const;
  /// Ends an update of `block`: what `memory` said to write is the newest version from now on, and
  /// the next gradient starts a new sum.
  void publish(int block);
  /// Ends an update that was left out: the next version is as the one before it.
  void skip(int block);

  /// Dtype in which gradients come home: the compute dtype.
  DType gradient_dtype() const { return options_.compute_dtype; }
  int slots_per_site() const { return options_.slots_per_site; }
  /// Where the gradient of (block, site) of `round` lands.
  BufferView gradient_slot(int block, int site, int round) const;
  /// Whether gradients are added up in fp32; if not, `accumulate_round` has nothing to do and the
  /// update reads the slots.
  bool accumulates() const { return accumulates_; }
  /// Adds all sites of `round`, in site order, to the fp32 sum; the first addition since `publish`
  /// or `skip` overwrites it. Denormals count as zero.
  void accumulate_round(int block, int round, TaskPool& pool);
  /// To be called before a second pass adds to the gradients of a first one: from now on they are
  /// added up, in memory that this takes where there is one round. Errors: those of allocation.
  Status keep_gradients(TaskPool& pool);

  const HostStateBytes& bytes() const { return bytes_; }
  /// How much of it is pinned.
  Pinning pinning() const;

 private:
  struct Block {
    BlockLayout layout;
    std::array<BufferView, 2> copies;  ///< what devices read; one alone where one version is kept
    BufferView master, remainder, first_moment, second_moment, sum;
    BufferView first_scales, second_scales;
    std::vector<MappedPart> mapped;
    std::vector<BufferView> slots;  ///< [site * slots_per_site + round % slots_per_site]
    bool sum_started = false;
    int64_t version = 0;
    std::array<int, 2> copy_of{};  ///< [version % 2]: which of `copies`

    int newest() const { return copy_of[static_cast<size_t>(version % 2)]; }
    const BufferView& newest_copy() const { return copies[static_cast<size_t>(newest())]; }
  };
  int copy_of_next(const Block& block) const {
    return options_.versions == 2 ? 1 - block.newest() : block.newest();
  }
  void make_next(Block& block, int copy);
  HostState() = default;
  void carve(BlockLayout layout);
  void add_slots(Block& block, int round, TaskPool& pool);

  Device* pinning_device_ = nullptr;
  HostStateOptions options_;
  HostStateBytes bytes_;
  bool accumulates_ = false;
  std::vector<Block> blocks_;
  std::vector<BufferHandle> mapped_;
  std::optional<Arena> state_;
  std::optional<Arena> landing_;
  std::optional<Arena> kept_sums_;  ///< of one round, once two passes have to be added up
};

}  // namespace stagecoach
