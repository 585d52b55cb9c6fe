#pragma once

#include <span>
#include <vector>

#include "core/bytes.h"

namespace stagecoach {

/// A block of parameters that a slot reads.
struct BlockRead {
  int block = 0;
  ByteCount size = 0;
};

/// Where a slot finds a block that it reads.
struct BlockCopy {
  bool is_kept = false;  ///< in memory for copies that stay, not in the slot's own buffer
  ByteCount offset = 0;  ///< there
  bool uploads = true;   ///< false: a slot before has brought it
  bool is_last = true;   ///< no slot after reads this copy
};

/// What copies that stay may take.
struct ResidencyLimits {
  ByteCount capacity = 0;
  /// Whether the list begins anew while its last slot runs, so that what its first slot uploads
  /// must find its place free.
  bool next_begins_early = false;
};

/// Which blocks stay on a device from one slot to a later one.
struct ResidencyPlan {
  std::vector<std::vector<BlockCopy>> slots;  ///< parallel to the slots and their reads
  ByteCount used_bytes = 0;                   ///< of the memory for copies that stay
  ByteCount saved_bytes = 0;                  ///< uploads that this spares
};

/// Plans which copies stay. `slots` are what the slots of a device read, in order, each block once
/// a slot and with one size, all at one version. A copy is uploaded to where it stays, by the first
/// slot that reads it; that may happen while the slot before runs, so its place is another's again
/// two slots after the last read.
///
/// Spans from one read of a block to its next are taken by their ends, the shortest first, into the
/// place that was free for the shortest time. That keeps as much as can be kept of the lists of one
/// device that goes forward and back, and 95 % or more of it over random lists of blocks of one
/// size (tests/memory/residency_test.cpp tries all choices). Pure.
ResidencyPlan plan_residency(std::span<const std::vector<BlockRead>> slots,
                             const ResidencyLimits& limits);

}  // namespace stagecoach
