#pragma once

#include <vector>

#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What one slot does for each micro-batch, and once.
struct StageLoad {
  double time_ns = 0;             ///< a micro-batch, on a device of speed 1
  ByteCount in_bytes = 0;         ///< a micro-batch: boundary and output gradient
  ByteCount out_bytes = 0;        ///< a micro-batch: boundaries or input gradient
  ByteCount parameter_bytes = 0;  ///< once
  ByteCount gradient_bytes = 0;   ///< once
};

/// Device memory of stages by region, as scheduler/stage_memory carves it. Transfers run beside
/// compute, so parameters (current and prefetched stage), sent gradients and boundaries are there
/// twice.
struct StageBytes {
  ByteCount parameters = 0, gradients = 0, gradient_sums = 0, in = 0, out = 0, work = 0;

  ByteCount total() const { return 2 * (parameters + gradients + in + out) + gradient_sums + work; }
  /// Regions are as large as the largest stage needs them.
  void cover(const StageBytes& other);
};

/// Sums over ranges of layers, in constant time.
class CostTable {
 public:
  explicit CostTable(const std::vector<LayerProfile>& layers);

  int layer_count() const { return static_cast<int>(layers_.size()); }
  const LayerProfile& layer(int index) const { return layers_[index]; }
  /// F: forward; B: recompute, which stops early in the last layer, and backward; FB: forward and
  /// backward.
  double time_ns(const Stage& stage) const {
    const std::vector<double>& sums = sums_of(stage.kind);
    double time = sums[stage.last_layer + 1] - sums[stage.first_layer];
    bool stops = stage.kind == ActionKind::kBackward;
    return stops ? time - layers_[stage.last_layer].early_stop_ns : time;
  }
  double time_ns(ActionKind kind, int layer) const { return time_ns(Stage{kind, layer, layer}); }
  double update_ns() const { return update_ns_; }
  /// Loads of complete stages: a boundary travels where a stage starts.
  std::vector<StageLoad> loads(const std::vector<Stage>& stages) const;
  /// Never less than the runtime carves.
  const StageBytes& bytes(const Stage& stage) const {
    return tables_[kind_index(stage.kind)][range(stage)];
  }
  /// Regions of a device that runs all of `stages`.
  StageBytes bytes(const std::vector<Stage>& stages) const;

 private:
  const std::vector<double>& sums_of(ActionKind kind) const;
  ByteCount boundary(int index) const {  ///< before layer `index`
    return index == 0 ? layers_[0].input_bytes : layers_[index - 1].boundary_bytes;
  }

  /// F, B and FB are the first three kinds.
  static int kind_index(ActionKind kind) { return static_cast<int>(kind); }
  size_t range(const Stage& stage) const {
    return static_cast<size_t>(stage.first_layer) * layers_.size() + stage.last_layer;
  }
  void fill_bytes(ActionKind kind);

  std::vector<LayerProfile> layers_;
  std::vector<StageBytes> tables_[3];               ///< per kind, first and last layer
  std::vector<double> forward_, backward_, fused_;  ///< prefix sums
  double update_ns_ = 0;
};

}  // namespace stagecoach
