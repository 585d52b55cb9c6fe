#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/plan.h"

namespace stagecoach {

/// Time a boundary tensor or its gradient takes from one device to another, in ns. Must give the
/// same answer every time.
using HopTime = std::function<int64_t(int from_device, int to_device, int micro_batch)>;

/// What exists when while a plan runs: boundaries, gradients, and updates that are complete. The
/// one statement of what an action waits for; validation and simulation both ask it. An action
/// waits for its input boundary, its output gradient (the loss gives the last one), for W its I,
/// and for the version its rule names, which needs every weight gradient of earlier windows of its
/// layers (of all layers with UpdateScope::kModel). Not thread-safe.
class PlanFlow {
 public:
  /// An action's inputs do not all exist yet.
  static constexpr int64_t kUnknown = -1;

  /// What an action lacks.
  enum class Missing : uint8_t { kNothing, kInput, kVersion };

  /// `plan` must outlive the flow and name only stages and micro-batches that exist. `hop_time` may
  /// be empty: hand-overs then cost nothing.
  PlanFlow(const Plan& plan, int layer_count, HopTime hop_time);

  /// When everything `action` waits for has reached `device`, in ns, or kUnknown.
  int64_t ready_ns(int device, const Action& action) const;
  Missing missing(int device, const Action& action) const;
  void finish(int device, const Action& action, int64_t end_ns);

 private:
  struct Cell {
    int64_t end_ns = kUnknown;
    int device = 0;
  };
  struct Window {
    int64_t open = 0;  ///< (micro-batch, layer) pairs whose weight gradient is not complete
    int64_t end_ns = 0;
  };

  size_t boundary(int index, int micro_batch) const {
    return static_cast<size_t>(micro_batch) * (layers_ + 1) + index;
  }
  size_t at_layer(int layer, int row) const { return static_cast<size_t>(row) * layers_ + layer; }
  int64_t arrival_ns(const Cell& cell, int device, int micro_batch) const;
  int64_t input_ns(int device, const Stage& stage, int micro_batch) const;
  int64_t version_ns(const Stage& stage, int micro_batch) const;

  const Plan& plan_;
  int layers_;
  HopTime hop_time_;
  std::vector<Cell> forward_;        ///< per (micro-batch, boundary)
  std::vector<Cell> gradient_;       ///< per (micro-batch, boundary)
  std::vector<int64_t> input_half_;  ///< per (micro-batch, layer): end of its I
  std::vector<Window> model_;        ///< per window: all layers together
  std::vector<Window> weights_;      ///< per (window, layer)
};

/// The newest update that must be complete before a forward of `micro_batch` may run: its rule's
/// version, or 0 when any version will do.
int required_version(const Plan& plan, int micro_batch);

}  // namespace stagecoach
