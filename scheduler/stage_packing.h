#pragma once

#include <vector>

#include "scheduler/cost_table.h"

namespace stagecoach {

/// Sums of times that are equal up to rounding count as equal, so that a limit admits the stage it
/// was taken from.
inline constexpr double kSlack = 1.0 + 1e-9;

/// Where a chain of layers is cut: first layers of the forward and of the backward stages, both in
/// layer order, and of the fused stage. Both lists are empty when all layers are fused.
struct StageCuts {
  std::vector<int> forward;
  std::vector<int> backward;
  int fused = 0;

  bool operator==(const StageCuts&) const = default;
};

/// Stages in data-flow order.
std::vector<Stage> stages_of(const StageCuts& cuts, int layer_count);
/// The inverse.
StageCuts cuts_of(const std::vector<Stage>& stages);

/// How far stages may reach within a device's memory, from tables made once.
class MemoryReach {
 public:
  /// `memory_bytes` of 0 is no limit. `share` of the memory counts: regions are as large as the
  /// largest stage needs them, so stages that each fit may not fit together.
  MemoryReach(const CostTable& costs, ByteCount memory_bytes, double share, int max_stage_layers);

  /// Last layer that a stage of `kind` from `first` on may hold; first - 1 when it holds none.
  int last(ActionKind kind, int first) const { return last_[kind_row(kind)][first]; }
  /// First layer that a stage of `kind` up to `last` may hold; last + 1 when it holds none.
  int first(ActionKind kind, int last) const { return first_[kind_row(kind)][last]; }

 private:
  static int kind_row(ActionKind kind) { return static_cast<int>(kind); }

  std::vector<int> last_[3], first_[3];
};

/// What one place of the rotation allows its stages.
struct PlaceLimit {
  double longest_ns = 0;  ///< time of a stage on a device of speed 1
  const MemoryReach* reach = nullptr;
};

/// Greedy packing under time and memory: the fused stage from the last layer back, forward stages
/// back to layer 0, backward stages from the fused one down to layer 0. `places` are the devices of
/// the rotation, the fused stage on the first; one place for equal devices, where backward stages
/// are packed from layer 0 up instead, so that the short one lands next to the fused stage, as in
/// RoundPipe (arXiv 2604.27085). `least_fused` limits the fused stage from below. Empty stages when
/// a layer is too long or too large.
std::vector<Stage> pack_stages(const CostTable& costs, const std::vector<PlaceLimit>& places,
                               int least_fused = 0);

/// RoundPipe's released rule: longest stages between the heaviest layer and 1.1 times that, packed
/// as above, and of these the least max(S, N) * t; forward counts as recompute, the fused stage as
/// backward. Memory as in MemoryReach. Empty when nothing fits.
std::vector<Stage> pack_by_roundpipe_rule(const CostTable& costs, int devices,
                                          ByteCount memory_bytes);

}  // namespace stagecoach
