#include "scheduler/layer_timing.h"

#include <algorithm>
#include <utility>

#include "scheduler/alike_devices.h"

namespace stagecoach {

namespace {

double median_of(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Bytes per ns; 0, which planning takes for free, where nothing was copied.
double rate_of(const LinkSample& sample) {
  if (sample.bytes <= 0 || sample.busy_ns <= 0) return 0;
  return static_cast<double>(sample.bytes) / static_cast<double>(sample.busy_ns);
}

constexpr int index_of(LayerPhase phase) {
  return static_cast<int>(phase);
}

/// Time of each phase by FLOP. Halves of a backward are planned as one, so they have none.
std::vector<double> expected_times(const std::vector<LayerProfile>& layers) {
  std::vector<double> times;
  for (const LayerProfile& layer : layers) {
    times.insert(times.end(), {layer.forward_ns, layer.recompute_ns,
                               layer.recompute_ns - layer.early_stop_ns, layer.backward_ns, 0, 0});
  }
  return times;
}

/// What was measured of one layer over what was expected of the same phases; 0: nothing was.
double measured_ratio(const double* times, const double* expected) {
  double measured = 0, planned = 0;
  for (int phase = 0; phase <= index_of(LayerPhase::kBackward); ++phase) {
    if (times[phase] <= 0) continue;
    measured += times[phase];
    planned += expected[phase];
  }
  return planned > 0 ? measured / planned : 0;
}

}  // namespace

LayerTiming::LayerTiming(int layers, int devices)
    : layers_(layers),
      devices_(devices),
      samples_(static_cast<size_t>(layers) * devices * kLayerPhaseCount),
      up_(static_cast<size_t>(devices)),
      down_(static_cast<size_t>(devices)) {}

void LayerTiming::add(const LayerSample& sample) {
  std::vector<double>& samples =
      samples_[place(sample.device, sample.layer, index_of(sample.phase))];
  if (samples.size() == kMostSamples || sample.time_ns <= 0) return;
  samples.push_back(sample.time_ns);
  ++count_;
}

void LayerTiming::add_link(int device, bool up, const LinkSample& sample) {
  LinkSample& sum = (up ? up_ : down_)[device];
  sum.bytes += sample.bytes;
  sum.busy_ns += sample.busy_ns;
}

void LayerTiming::clear() {
  for (std::vector<double>& samples : samples_) samples.clear();
  for (std::vector<LinkSample>* links : {&up_, &down_}) links->assign(links->size(), LinkSample{});
  updates_ns_.clear();
  count_ = 0;
}

LayerTiming::Medians LayerTiming::medians() const {
  Medians medians(samples_.size(), 0);
  for (size_t index = 0; index < samples_.size(); ++index) {
    if (!samples_[index].empty()) medians[index] = median_of(samples_[index]);
  }
  // Two halves are a whole backward where that did not run.
  for (int device = 0; device < devices_; ++device) {
    for (int layer = 0; layer < layers_; ++layer) {
      double* phases = &medians[place(device, layer, 0)];
      double input = phases[index_of(LayerPhase::kInput)];
      double weight = phases[index_of(LayerPhase::kWeight)];
      double& whole = phases[index_of(LayerPhase::kBackward)];
      if (whole == 0 && input > 0 && weight > 0) whole = input + weight;
      phases[index_of(LayerPhase::kInput)] = phases[index_of(LayerPhase::kWeight)] = 0;
    }
  }
  return medians;
}

/// Speeds from times and times from speeds, in turn: with every layer on several devices both
/// settle at once, and what only one device ran does not disturb them. `times` begins as expected
/// and ends as measured, 0 where nothing was.
std::vector<double> LayerTiming::speeds(const Medians& medians, std::vector<double>& times,
                                        const std::vector<PlannedDevice>& hints) const {
  constexpr int kTurns = 4;
  std::vector<double> speeds(devices_, 0);
  for (int turn = 0; turn < kTurns; ++turn) {
    double hinted = 0, found = 0;
    for (int device = 0; device < devices_; ++device) {
      double expected = 0, taken = 0;
      for (size_t index = 0; index < times.size(); ++index) {
        double median = medians[static_cast<size_t>(device) * times.size() + index];
        if (median <= 0 || times[index] <= 0) continue;
        expected += times[index];
        taken += median;
      }
      speeds[device] = taken > 0 ? expected / taken : 0;
      if (taken <= 0) continue;
      found += speeds[device];
      hinted += hints[device].speed;
    }
    for (int device = 0; device < devices_; ++device) {
      if (speeds[device] == 0) speeds[device] = hints[device].speed * found / hinted;
    }
    for (size_t index = 0; index < times.size(); ++index) {
      std::vector<double> scaled;
      for (int device = 0; device < devices_; ++device) {
        double median = medians[static_cast<size_t>(device) * times.size() + index];
        if (median > 0) scaled.push_back(median * speeds[device]);
      }
      times[index] = scaled.empty() ? 0 : median_of(scaled);
    }
  }
  speeds = level_alike(std::move(speeds), kinds_of(hints), kSpeedNoise);
  double fastest = *std::max_element(speeds.begin(), speeds.end());
  for (double& speed : speeds) speed /= fastest;
  for (double& time : times) time /= fastest;
  return speeds;
}

MeasuredRun LayerTiming::measured(const std::vector<LayerProfile>& by_flop,
                                  const std::vector<PlannedDevice>& hints) const {
  MeasuredRun run{by_flop, hints};
  std::vector<double> expected = expected_times(by_flop), times = expected;
  std::vector<double> speed = speeds(medians(), times, hints);
  std::vector<int> kinds = kinds_of(hints);
  std::vector<double> up, down;
  for (int device = 0; device < devices_; ++device) {
    up.push_back(rate_of(up_[device]));
    down.push_back(rate_of(down_[device]));
  }
  up = level_alike(std::move(up), kinds, kLinkNoise);
  down = level_alike(std::move(down), kinds, kLinkNoise);
  for (int device = 0; device < devices_; ++device) {
    run.devices[device].speed = speed[device];
    run.devices[device].up_bytes_per_ns = up[device];
    run.devices[device].down_bytes_per_ns = down[device];
  }
  double all_measured = 0, all_expected = 0, update = 0;
  for (size_t index = 0; index < times.size(); ++index) {
    if (times[index] <= 0) continue;
    all_measured += times[index];
    all_expected += expected[index];
  }
  for (const LayerProfile& layer : by_flop) update += layer.update_ns;
  double update_ratio = updates_ns_.empty() || update <= 0 ? 1 : median_of(updates_ns_) / update;
  for (int layer = 0; layer < layers_; ++layer) {
    const double* took = &times[place(0, layer, 0)];
    const double* plan = &expected[place(0, layer, 0)];
    double ratio = measured_ratio(took, plan);
    if (ratio <= 0) ratio = all_measured / all_expected;
    auto time_of = [&](LayerPhase phase) {
      double time = took[index_of(phase)];
      return time > 0 ? time : plan[index_of(phase)] * ratio;
    };
    LayerProfile& profile = run.layers[layer];
    profile.forward_ns = time_of(LayerPhase::kForward);
    profile.recompute_ns = time_of(LayerPhase::kSavingForward);
    profile.early_stop_ns = std::clamp(profile.recompute_ns - time_of(LayerPhase::kEarlyStop), 0.0,
                                       profile.recompute_ns);
    profile.backward_ns = time_of(LayerPhase::kBackward);
    profile.update_ns *= update_ratio;
  }
  return run;
}

}  // namespace stagecoach
