#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What of a layer was timed.
enum class LayerPhase : uint8_t {
  kForward,        ///< keeping nothing
  kSavingForward,  ///< keeping what backward reads
  kEarlyStop,      ///< the same without the layer's output
  kBackward,       ///< both halves
  kInput,          ///< the gradient of the input alone
  kWeight          ///< the gradients of the weights alone
};
inline constexpr int kLayerPhaseCount = 6;

/// One layer's phase for one micro-batch, by events of the device it ran on.
struct LayerSample {
  int device = 0;
  int layer = 0;
  LayerPhase phase = LayerPhase::kForward;
  double time_ns = 0;
};

/// Copies of one device in one direction.
struct LinkSample {
  int64_t bytes = 0;
  int64_t busy_ns = 0;
};

/// Layers and devices as they were measured; the fastest device has speed 1.
struct MeasuredRun {
  std::vector<LayerProfile> layers;
  std::vector<PlannedDevice> devices;
};

/// Gathers device-timed samples and makes layer times and device speeds of them.
/// Thread rule: one thread.
class LayerTiming {
 public:
  LayerTiming(int layers, int devices);

  void add(const LayerSample& sample);
  void add_link(int device, bool up, const LinkSample& sample);
  /// All updates of one iteration.
  void add_update(double update_ns) { updates_ns_.push_back(update_ns); }
  bool is_empty() const { return count_ == 0; }
  void clear();

  /// `by_flop` (times of any one unit) fills what was not measured in proportion, and keeps its
  /// bytes; `hints` give speeds of devices that ran nothing. A layer's time on a device is taken to
  /// be time / speed; each is the median of its samples, so single outliers change nothing, and
  /// speeds follow from all layers that devices have in common. Updates are shared out by what
  /// `by_flop` says. At least one sample.
  MeasuredRun measured(const std::vector<LayerProfile>& by_flop,
                       const std::vector<PlannedDevice>& hints) const;

 private:
  /// Samples kept of each phase: later ones change a median little.
  static constexpr size_t kMostSamples = 64;
  using Medians = std::vector<double>;  ///< per device, layer and phase; 0: not measured

  size_t place(int device, int layer, int phase) const {
    return (static_cast<size_t>(device) * layers_ + layer) * kLayerPhaseCount + phase;
  }
  Medians medians() const;
  std::vector<double> speeds(const Medians& medians, std::vector<double>& times,
                             const std::vector<PlannedDevice>& hints) const;

  int layers_, devices_;
  int64_t count_ = 0;
  std::vector<std::vector<double>> samples_;
  std::vector<LinkSample> up_, down_;
  std::vector<double> updates_ns_;
};

}  // namespace stagecoach
