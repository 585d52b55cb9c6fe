#include "scheduler/alike_devices.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

std::vector<int> kinds_of(const std::vector<PlannedDevice>& devices) {
  std::vector<int> kinds;
  for (const PlannedDevice& device : devices) {
    auto same = std::find_if(devices.begin(), devices.end(),
                             [&](const PlannedDevice& other) { return device.equals(other); });
    kinds.push_back(static_cast<int>(same - devices.begin()));
  }
  return kinds;
}

std::vector<double> level_alike(std::vector<double> values, const std::vector<int>& kinds,
                                double noise) {
  for (int kind : kinds) {
    double sum = 0, count = 0;
    for (size_t device = 0; device < values.size(); ++device) {
      if (kinds[device] != kind) continue;
      sum += values[device];
      ++count;
    }
    double mean = sum / count;
    bool is_noise = true;
    for (size_t device = 0; device < values.size(); ++device) {
      if (kinds[device] != kind) continue;
      is_noise = is_noise && std::abs(values[device] - mean) <= noise * mean;
    }
    for (size_t device = 0; is_noise && device < values.size(); ++device) {
      if (kinds[device] == kind) values[device] = mean;
    }
  }
  return values;
}

}  // namespace stagecoach
