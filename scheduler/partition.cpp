#include "scheduler/partition.h"

#include <algorithm>
#include <limits>

#include "scheduler/stage_packing.h"

namespace stagecoach {

namespace {

/// Packs all layers into stages no longer than `limit`, from the last back; the short one, if any,
/// comes first. Empty when one layer alone is longer.
std::vector<Stage> pack_back(const std::vector<double>& costs, int most_layers, double limit) {
  std::vector<Stage> stages;
  int last = static_cast<int>(costs.size()) - 1;
  while (last >= 0) {
    int first = last;
    double sum = costs[last];
    if (sum > limit * kSlack) return {};
    while (first > 0 && (most_layers == 0 || last - first + 1 < most_layers) &&
           sum + costs[first - 1] <= limit * kSlack) {
      sum += costs[--first];
    }
    stages.push_back(Stage{ActionKind::kForward, first, last});
    last = first - 1;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

}  // namespace

Result<std::vector<Stage>> partition_for_inference(const PartitionRequest& request) {
  const std::vector<double>& costs = request.forward_costs;
  std::vector<double> limits;
  for (size_t first = 0; first < costs.size(); ++first) {
    double sum = 0;
    for (size_t last = first; last < costs.size(); ++last) limits.push_back(sum += costs[last]);
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  std::vector<Stage> best;
  double best_cost = std::numeric_limits<double>::infinity();
  double devices = request.devices;
  for (double limit : limits) {
    std::vector<Stage> stages = pack_back(costs, request.max_stage_layers, limit);
    if (stages.empty()) continue;
    double slots = std::max(static_cast<double>(stages.size()), devices);
    double cost = (request.micro_batches * slots + devices * (devices - 1)) * limit;
    if (cost >= best_cost || !request.fits(stages)) continue;
    best = std::move(stages);
    best_cost = cost;
  }
  if (best.empty()) return not_found("no partition fits the devices' memory");
  return best;
}

namespace {

/// The best cut into a stage a speed, none longer than `limit`: `join` adds a stage to the value of
/// those before it, and the smallest value wins.
template <typename Join>
StageLayers best_cut(const std::vector<double>& costs, const std::vector<double>& speeds,
                     double limit, double& value, Join join) {
  int layers = static_cast<int>(costs.size()), count = static_cast<int>(speeds.size());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  using Row = std::vector<double>;
  std::vector<Row> best(count + 1, Row(layers + 1, kNever));
  std::vector<std::vector<int>> first(count + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = 0;
  for (int stages = 1; stages <= count; ++stages) {
    for (int end = stages; end <= layers; ++end) {
      double sum = 0;
      for (int begin = end - 1; begin >= stages - 1; --begin) {
        sum += costs[begin] / speeds[stages - 1];
        double candidate = join(best[stages - 1][begin], sum);
        if (sum > limit * kSlack || candidate >= best[stages][end]) continue;
        best[stages][end] = candidate;
        first[stages][end] = begin;
      }
    }
  }
  value = best[count][layers];
  StageLayers cut(count);
  for (int stages = count, end = layers; stages > 0; end = first[stages--][end]) {
    cut[stages - 1] = {first[stages][end], end - 1};
  }
  return cut;
}

}  // namespace

StageLayers partition_evenly(const std::vector<double>& layer_costs,
                             const std::vector<double>& speeds) {
  double longest = 0, squares = 0;
  best_cut(layer_costs, speeds, std::numeric_limits<double>::max() / 2, longest,
           [](double before, double stage) { return std::max(before, stage); });
  return best_cut(layer_costs, speeds, longest, squares,
                  [](double before, double stage) { return before + stage * stage; });
}

StageLayers partition_evenly(const std::vector<double>& layer_costs, int count) {
  return partition_evenly(layer_costs, std::vector<double>(static_cast<size_t>(count), 1));
}

}  // namespace stagecoach
