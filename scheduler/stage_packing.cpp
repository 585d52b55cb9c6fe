#include "scheduler/stage_packing.h"

#include <algorithm>
#include <limits>

namespace stagecoach {

namespace {

constexpr ActionKind kKinds[] = {ActionKind::kForward, ActionKind::kBackward,
                                 ActionKind::kForwardBackward};

}  // namespace

std::vector<Stage> stages_of(const StageCuts& cuts, int layer_count) {
  std::vector<Stage> stages;
  stages.reserve(cuts.forward.size() + cuts.backward.size() + 1);
  for (size_t i = 0; i < cuts.forward.size(); ++i) {
    int next = i + 1 < cuts.forward.size() ? cuts.forward[i + 1] : cuts.fused;
    stages.push_back({ActionKind::kForward, cuts.forward[i], next - 1});
  }
  stages.push_back({ActionKind::kForwardBackward, cuts.fused, layer_count - 1});
  int end = cuts.fused;
  for (size_t i = cuts.backward.size(); i-- > 0;) {
    stages.push_back({ActionKind::kBackward, cuts.backward[i], end - 1});
    end = cuts.backward[i];
  }
  return stages;
}

StageCuts cuts_of(const std::vector<Stage>& stages) {
  StageCuts cuts;
  for (const Stage& stage : stages) {
    if (stage.kind == ActionKind::kForward) cuts.forward.push_back(stage.first_layer);
    if (stage.kind == ActionKind::kBackward) cuts.backward.push_back(stage.first_layer);
    if (stage.kind == ActionKind::kForwardBackward) cuts.fused = stage.first_layer;
  }
  std::reverse(cuts.backward.begin(), cuts.backward.end());
  return cuts;
}

MemoryReach::MemoryReach(const CostTable& costs, ByteCount memory_bytes, double share,
                         int max_stage_layers) {
  int layers = costs.layer_count();
  auto limit = static_cast<ByteCount>(share * static_cast<double>(memory_bytes));
  for (ActionKind kind : kKinds) {
    std::vector<int>& last = last_[kind_row(kind)];
    std::vector<int>& first = first_[kind_row(kind)];
    first.resize(layers);
    for (int from = 0; from < layers; ++from) {
      int to = from - 1;
      while (to + 1 < layers && (max_stage_layers == 0 || to + 2 - from <= max_stage_layers) &&
             (memory_bytes == 0 || costs.bytes({kind, from, to + 1}).total() <= limit)) {
        ++to;
      }
      last.push_back(to);
    }
    for (int to = 0; to < layers; ++to) {
      int from = to + 1;
      while (from > 0 && last[from - 1] >= to) --from;
      first[to] = from;
    }
  }
}

namespace {

/// First layer of the longest stage of `kind` that ends at `last`; last + 1 when even one layer is
/// too long or too large.
int grow_back(const CostTable& costs, const PlaceLimit& place, ActionKind kind, int last) {
  int first = last + 1;
  int least = place.reach->first(kind, last);
  while (first > least && costs.time_ns({kind, first - 1, last}) <= place.longest_ns * kSlack) {
    --first;
  }
  return first;
}

}  // namespace

std::vector<Stage> pack_stages(const CostTable& costs, const std::vector<PlaceLimit>& places,
                               int least_fused) {
  int layers = costs.layer_count();
  auto count = static_cast<int>(places.size());
  StageCuts cuts;
  cuts.fused = grow_back(costs, places[0], ActionKind::kForwardBackward, layers - 1);
  cuts.fused = std::max(cuts.fused, least_fused);
  if (cuts.fused == layers) return {};
  for (int end = cuts.fused, place = count - 1; end > 0; place = (place + count - 1) % count) {
    int first = grow_back(costs, places[place], ActionKind::kForward, end - 1);
    if (first == end) return {};
    cuts.forward.push_back(first);
    end = first;
  }
  std::reverse(cuts.forward.begin(), cuts.forward.end());
  if (count > 1) {
    for (int end = cuts.fused, place = 1; end > 0; place = (place + 1) % count) {
      int first = grow_back(costs, places[place], ActionKind::kBackward, end - 1);
      if (first == end) return {};
      cuts.backward.push_back(first);
      end = first;
    }
    std::reverse(cuts.backward.begin(), cuts.backward.end());
    return stages_of(cuts, layers);
  }
  for (int first = 0; first < cuts.fused;) {
    int last = first - 1;
    int most = std::min(places[0].reach->last(ActionKind::kBackward, first), cuts.fused - 1);
    while (last < most && costs.time_ns({ActionKind::kBackward, first, last + 1}) <=
                              places[0].longest_ns * kSlack) {
      ++last;
    }
    if (last < first) return {};
    cuts.backward.push_back(first);
    first = last + 1;
  }
  return stages_of(cuts, layers);
}

std::vector<Stage> pack_by_roundpipe_rule(const CostTable& costs, int devices,
                                          ByteCount memory_bytes) {
  std::vector<LayerProfile> as_timed;
  double heaviest = 0;
  for (int layer = 0; layer < costs.layer_count(); ++layer) {
    LayerProfile profile = costs.layer(layer);
    // Its timers see one forward, which never stops early, and the fused stage counts as any
    // backward.
    profile.early_stop_ns = 0;
    double forward = profile.recompute_ns > 0 ? profile.recompute_ns : profile.forward_ns;
    profile.forward_ns = profile.recompute_ns = forward;
    heaviest = std::max(heaviest, forward + profile.backward_ns);
    as_timed.push_back(profile);
  }
  CostTable timed(as_timed);
  MemoryReach reach(timed, memory_bytes, 1, 0);
  std::vector<double> limits;
  for (ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    for (int first = 0; first < timed.layer_count(); ++first) {
      for (int last = first; last < timed.layer_count(); ++last) {
        double sum = timed.time_ns({kind, first, last});
        if (sum >= heaviest / kSlack && sum <= 1.1 * heaviest * kSlack) limits.push_back(sum);
      }
    }
  }
  std::sort(limits.begin(), limits.end());
  std::vector<Stage> best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (double limit : limits) {
    std::vector<Stage> stages = pack_stages(timed, {{limit, &reach}});
    if (stages.empty()) continue;
    double cost =
        std::max(static_cast<double>(stages.size()), static_cast<double>(devices)) * limit;
    if (cost >= best_cost / kSlack) continue;
    if (memory_bytes > 0 && timed.bytes(stages).total() > memory_bytes) continue;
    best = std::move(stages);
    best_cost = cost;
  }
  return best;
}

}  // namespace stagecoach
