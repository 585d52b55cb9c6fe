#include "scheduler/partition.h"

#include <algorithm>
#include <limits>

namespace stagecoach {

namespace {

/// Sums that are equal up to rounding count as equal, so that a candidate admits its own stage.
constexpr double kSlack = 1.0 + 1e-9;

using CostOf = double (*)(const LayerCost&);

double forward_cost(const LayerCost& layer) {
  return layer.forward;
}
double backward_cost(const LayerCost& layer) {
  return layer.backward;
}
double fused_cost(const LayerCost& layer) {
  return layer.fused_backward;
}

void add_contiguous_sums(const PartitionRequest& request, CostOf cost, std::vector<double>& sums) {
  for (size_t first = 0; first < request.layers.size(); ++first) {
    double sum = 0;
    for (size_t last = first; last < request.layers.size(); ++last) {
      sum += cost(request.layers[last]);
      sums.push_back(sum);
    }
  }
}

bool may_grow(const PartitionRequest& request, int layers) {
  return request.max_stage_layers == 0 || layers < request.max_stage_layers;
}

/// Packs layers [0, end) into stages no longer than `limit`, from `end` back; the short one, if
/// any, comes first. Empty when one layer alone is longer.
std::vector<Stage> pack_back(const PartitionRequest& request, int end, double limit, CostOf cost) {
  std::vector<Stage> stages;
  int last = end - 1;
  while (last >= 0) {
    int first = last;
    double sum = cost(request.layers[last]);
    if (sum > limit * kSlack) return {};
    while (first > 0 && may_grow(request, last - first + 1) &&
           sum + cost(request.layers[first - 1]) <= limit * kSlack) {
      sum += cost(request.layers[--first]);
    }
    stages.push_back(Stage{ActionKind::kForward, first, last});
    last = first - 1;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

/// Packs layers [0, end) from 0 up for the backward pass and returns them in running order, last
/// layers first; the short stage, if any, lands next to the fused one.
std::vector<Stage> pack_backward(const PartitionRequest& request, int end, double limit) {
  std::vector<Stage> stages;
  int first = 0;
  while (first < end) {
    int last = first;
    double sum = backward_cost(request.layers[first]);
    if (sum > limit * kSlack) return {};
    while (last + 1 < end && may_grow(request, last - first + 1) &&
           sum + backward_cost(request.layers[last + 1]) <= limit * kSlack) {
      sum += backward_cost(request.layers[++last]);
    }
    stages.push_back(Stage{ActionKind::kBackward, first, last});
    first = last + 1;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

std::vector<Stage> pack_training(const PartitionRequest& request, double limit) {
  int count = static_cast<int>(request.layers.size());
  int first = count - 1;
  double sum = fused_cost(request.layers[first]);
  if (sum > limit * kSlack) return {};
  while (first > 0 && may_grow(request, count - first) &&
         sum + fused_cost(request.layers[first - 1]) <= limit * kSlack) {
    sum += fused_cost(request.layers[--first]);
  }
  std::vector<Stage> stages = pack_back(request, first, limit, forward_cost);
  std::vector<Stage> backward = pack_backward(request, first, limit);
  if (first > 0 && (stages.empty() || backward.empty())) return {};
  stages.push_back(Stage{ActionKind::kForwardBackward, first, count - 1});
  stages.insert(stages.end(), backward.begin(), backward.end());
  return stages;
}

std::vector<Stage> pack_inference(const PartitionRequest& request, double limit) {
  return pack_back(request, static_cast<int>(request.layers.size()), limit, forward_cost);
}

Result<std::vector<Stage>> search(const PartitionRequest& request, std::vector<double> limits,
                                  std::vector<Stage> (*pack)(const PartitionRequest&, double)) {
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  std::vector<Stage> best;
  double best_cost = std::numeric_limits<double>::infinity();
  double devices = request.devices;
  for (double limit : limits) {
    std::vector<Stage> stages = pack(request, limit);
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

}  // namespace

Result<std::vector<Stage>> partition_for_training(const PartitionRequest& request) {
  std::vector<double> limits;
  add_contiguous_sums(request, forward_cost, limits);
  add_contiguous_sums(request, backward_cost, limits);
  add_contiguous_sums(request, fused_cost, limits);
  Result<std::vector<Stage>> found = search(request, std::move(limits), pack_training);
  if (found.is_ok()) return found;
  // Stages may be too large for memory however short their time is: cut by layer count instead.
  PartitionRequest narrow = request;
  int most = static_cast<int>(request.layers.size());
  if (request.max_stage_layers > 0) most = std::min(most, request.max_stage_layers);
  for (narrow.max_stage_layers = most - 1; narrow.max_stage_layers >= 1;
       --narrow.max_stage_layers) {
    std::vector<Stage> stages = pack_training(narrow, std::numeric_limits<double>::max() / 2);
    if (!stages.empty() && request.fits(stages)) return stages;
  }
  return found.status();
}

Result<std::vector<Stage>> partition_for_inference(const PartitionRequest& request) {
  std::vector<double> limits;
  add_contiguous_sums(request, forward_cost, limits);
  return search(request, std::move(limits), pack_inference);
}

namespace {

/// The best cut into `count` stages, none longer than `limit`: `join` adds a stage to the value of
/// those before it, and the smallest value wins.
template <typename Join>
StageLayers best_cut(const std::vector<double>& costs, int count, double limit, double& value,
                     Join join) {
  int layers = static_cast<int>(costs.size());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  using Row = std::vector<double>;
  std::vector<Row> best(count + 1, Row(layers + 1, kNever));
  std::vector<std::vector<int>> first(count + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = 0;
  for (int stages = 1; stages <= count; ++stages) {
    for (int end = stages; end <= layers; ++end) {
      double sum = 0;
      for (int begin = end - 1; begin >= stages - 1; --begin) {
        sum += costs[begin];
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

StageLayers partition_evenly(const std::vector<double>& layer_costs, int count) {
  double longest = 0, squares = 0;
  best_cut(layer_costs, count, std::numeric_limits<double>::max() / 2, longest,
           [](double before, double stage) { return std::max(before, stage); });
  return best_cut(layer_costs, count, longest, squares,
                  [](double before, double stage) { return before + stage * stage; });
}

}  // namespace stagecoach
