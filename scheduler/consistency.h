#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "core/task.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// The orderings between passes and updates (RoundPipe, arXiv 2604.27085, stated per block and
/// version).
enum class Ordering : uint8_t {
  kReadBeforeOverwrite,    ///< P1: a version is overwritten when all reads of it have ended
  kVersionBeforeRead,      ///< P2: a pass reads the version of its step
  kSlotBeforeLanding,      ///< P3: a gradient lands in a slot whose last one has been added
  kGradientsBeforeUpdate,  ///< P4: an update waits for all gradients, the verdict, and the last one
  kUpdateBeforeStorage,    ///< P5: gradient storage is used again when the update has read it
  kCopyBeforeOverwrite     ///< P1, of what is copied for a reader: when it has been
};
inline constexpr int kOrderingCount = 6;

/// Which versions of blocks the host holds and who reads them. Version v of a block is what v
/// updates made of it; step T (from 0) computes with version T, with kAsync with max(0, T - 1), and
/// its update makes version T + 1. Frozen blocks have all versions.
/// Thread rule: the executor's thread only.
class Consistency {
 public:
  /// All blocks have had `version` updates.
  Consistency(Executor& executor, const std::vector<bool>& is_frozen, UpdateMode update,
              int64_t version);

  UpdateMode update() const { return update_; }
  /// P2: the version that passes of `step` compute with.
  int64_t version_read_by(int64_t step) const;

  /// P2, P4, P5: resumes when `block` has had `version` updates.
  Task<Status> reached(int block, int64_t version);
  bool has_reached(int block, int64_t version) const {
    return blocks_[block].is_frozen || blocks_[block].version >= version;
  }

  /// P1: `block` is going to be read at `version`, once more; `release` says that this has ended.
  void lease(int block, int64_t version);
  void release(int block, int64_t version);
  /// P1: resumes when nobody reads what the update of `block` that makes `version` overwrites.
  Task<Status> overwritable(int block, int64_t version);

  /// P1: all of a block's state at `version`, moments among it, is going to be read by somebody
  /// else than a pass, so that the next update waits; `end_reading` says that this has ended.
  void begin_reading(int block, int64_t version);
  void end_reading(int block, int64_t version);
  /// Asked to end the reading of `block` early when the update that makes `version` would wait for
  /// it; it may leave that to the reader.
  using Copier = std::function<Task<Status>(int block, int64_t version)>;
  void set_copier(Copier copier) { copier_ = std::move(copier); }
  /// For how long so far at least one update has waited for such readers.
  int64_t reading_wait_ns() const { return reading_wait_ns_; }

  /// An update of `block` has been made or skipped: it is at its next version.
  void publish(int block);

  /// Ends all waits, now and later.
  void fail(const Status& status);

  /// For proofs: leaves an ordering out, so that what it prevents can happen. `holds` is asked
  /// wherever one is waited for.
  void leave_out(Ordering ordering) { left_out_[static_cast<size_t>(ordering)] = true; }
  bool holds(Ordering ordering) const { return !left_out_[static_cast<size_t>(ordering)]; }

 private:
  /// Versions of a block that may be leased at a time: those of two passes in flight.
  static constexpr int kLeasedVersions = 4;

  struct Block {
    explicit Block(Executor& executor) : changed(executor) {}
    bool is_frozen = false;
    int64_t version = 0;
    std::array<int, kLeasedVersions> leases{};  ///< [version % kLeasedVersions]
    int readers = 0;                            ///< of those leases, by begin_reading
    Signal changed;
  };

  /// The version that lies where the update that makes `version` writes; negative: none does. With
  /// one copy it is the one before, with two the one before that.
  int64_t overwritten_by(int64_t version) const {
    return version - (update_ == UpdateMode::kAsync ? 2 : 1);
  }
  void count_reading_wait(int change);

  UpdateMode update_;
  std::vector<Block> blocks_;
  int waiting_for_readers_ = 0;  ///< updates
  int64_t reading_wait_began_ns_ = 0;
  int64_t reading_wait_ns_ = 0;
  Copier copier_;
  std::array<bool, kOrderingCount> left_out_{};
};

}  // namespace stagecoach
