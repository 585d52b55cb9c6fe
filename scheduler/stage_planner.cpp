#include "scheduler/stage_planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "scheduler/plan_fit.h"
#include "scheduler/stage_packing.h"
#include "scheduler/step_limits.h"

namespace stagecoach {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Differences below this are rounding.
constexpr double kSame = 1 - 1e-9;
/// Models of up to so many layers are searched more widely: every size of the fused stage, more
/// starts, pairs of changes.
constexpr int kFewLayers = 16;

bool are_equal(const std::vector<PlannedDevice>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [&](const PlannedDevice& device) { return device.equals(devices.front()); });
}

/// Names the layer that needs the most alone, and the device that has the most.
Status does_not_fit(const CostTable& costs, const std::vector<PlannedDevice>& devices) {
  int largest = 0;
  StageBytes most, all;
  for (int layer = 0; layer < costs.layer_count(); ++layer) {
    bool last = layer + 1 == costs.layer_count();
    ActionKind kind = last ? ActionKind::kForwardBackward : ActionKind::kBackward;
    const StageBytes& bytes = costs.bytes({kind, layer, layer});
    all.cover(bytes);
    if (bytes.total() <= most.total()) continue;
    most = bytes;
    largest = layer;
  }
  auto device = std::max_element(devices.begin(), devices.end(),
                                 [](const PlannedDevice& left, const PlannedDevice& right) {
                                   return left.memory_bytes < right.memory_bytes;
                                 });
  return resource_exhausted(fmt::format(
      "device {} has {} ({} bytes) for stages, but the smallest stages together need {} bytes; "
      "layer "
      "'{}' alone needs {} bytes: parameters {}, gradients {}, boundaries {}, activations {}. Give "
      "the device at least {} bytes (memory=…), or use smaller micro-batches or a shorter sequence",
      device->name, format_bytes(device->memory_bytes), device->memory_bytes, all.total(),
      costs.layer(largest).name, most.total(), format_bytes(2 * most.parameters),
      format_bytes(2 * most.gradients + most.gradient_sums), format_bytes(2 * (most.in + most.out)),
      format_bytes(most.work), all.total()));
}

class StageSearch {
 public:
  StageSearch(const StepSetup& setup, const StageSearchOptions& options)
      : setup_(setup), options_(options), costs_(setup.layers), recurrence_(setup, costs_) {
    for (const PlannedDevice& device : setup.devices) {
      has_transfers_ |= device.up_bytes_per_ns > 0 || device.down_bytes_per_ns > 0;
    }
    has_transfers_ |= costs_.update_ns() > 0;
    starts_ = costs_.layer_count() <= kFewLayers ? 24 : 4;
    most_slots_ =
        options.most_slots > 0 ? options.most_slots : slots_within_budget(costs_.layer_count());
  }

  Result<PlannedStages> run();

 private:
  struct Candidate {
    double bound_ns = 0;
    SlotPlan plan;
  };
  struct Found {
    double step_ns = kInfinity;
    SlotPlan plan;
  };

  void add_seeds();
  void add_equal_stages(SlotDispatch dispatch);
  void add_stages_by_place();
  void add(std::vector<Stage> stages, SlotDispatch dispatch, int fused_place);
  void note_paper_choice(const std::vector<Stage>& stages, SlotDispatch dispatch, int fused_place);
  void rank();
  void improve(size_t start);
  void improve_all();
  void look_closer();
  bool try_better(Found& from, const StageCuts& cuts);
  bool step_to_neighbour(Found& best);
  double step_ns(const SlotPlan& plan, double worse_than_ns);
  void keep(double step_ns, SlotPlan plan);
  SlotPlan slots_of(std::vector<Stage> stages, SlotDispatch dispatch, int fused_place) const;
  std::vector<double> limits(const std::vector<double>& speeds) const;
  double best_ns() const { return found_.empty() ? kInfinity : found_.front().step_ns; }
  /// The coarse search leaves half of the budget.
  bool is_spent() const { return visited() >= (is_coarse_ ? most_slots_ / 2 : most_slots_); }
  int64_t visited() const { return recurrence_.slots_visited() + visited_; }

  const StepSetup& setup_;
  const StageSearchOptions& options_;
  CostTable costs_;
  SlotRecurrence recurrence_;
  bool has_transfers_ = false;
  bool is_coarse_ = false;  ///< transfers count as a bound only
  size_t starts_ = 0;       ///< partitions that are improved
  int64_t most_slots_ = 0, visited_ = 0, packed_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<SlotPlan> seeds_;
  double paper_cost_ = kInfinity;
  SlotPlan paper_choice_;
  std::vector<Found> found_;  ///< best first, at most `starts_`
};

SlotPlan StageSearch::slots_of(std::vector<Stage> stages, SlotDispatch dispatch,
                               int fused_place) const {
  SlotPlan plan;
  plan.stages = std::move(stages);
  plan.dispatch = dispatch;
  if (dispatch != SlotDispatch::kByStage) return plan;
  int fused = 0;
  while (plan.stages[fused].kind != ActionKind::kForwardBackward) ++fused;
  int count = setup_.device_count();
  for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
    int place = (fused_place + stage - fused) % count;
    plan.device_of_stage.push_back(place < 0 ? place + count : place);
  }
  return plan;
}

/// Step time, or infinity when the plan does not fit or cannot be better than `worse_than_ns`.
double StageSearch::step_ns(const SlotPlan& plan, double worse_than_ns) {
  if (!plan_fits(setup_, costs_, plan)) return kInfinity;
  if (options_.fits && !options_.fits(plan.stages)) return kInfinity;
  double step = recurrence_.step_ns(plan);
  if (is_coarse_) return std::max(step, step_lower_bound_ns(setup_, costs_, plan.stages));
  if (!has_transfers_ || step >= worse_than_ns * kSame) return step;
  // The full model looks at every micro-batch.
  int iterations = measured_iterations(setup_).count;
  visited_ += static_cast<int64_t>(plan.stages.size()) * setup_.micro_batches * iterations * 2;
  return predict_step(setup_, costs_, plan).step_ns;
}

void StageSearch::keep(double step_ns, SlotPlan plan) {
  if (step_ns == kInfinity) return;
  for (const Found& found : found_) {
    if (found.plan.stages == plan.stages && found.plan.dispatch == plan.dispatch &&
        found.plan.device_of_stage == plan.device_of_stage) {
      return;
    }
  }
  auto place = std::find_if(found_.begin(), found_.end(),
                            [&](const Found& found) { return step_ns < found.step_ns * kSame; });
  found_.insert(place, {step_ns, std::move(plan)});
  if (found_.size() > starts_) found_.pop_back();
}

/// Keeps the best packing by (M * S + N * (N - 1)) * t_max, the published objective: it knows of no
/// transfers, but its fewer, longer slots may be what a slow link wants.
void StageSearch::note_paper_choice(const std::vector<Stage>& stages, SlotDispatch dispatch,
                                    int fused_place) {
  double devices = setup_.device_count();
  double slots = std::max(static_cast<double>(stages.size()), devices);
  double cost =
      (setup_.micro_batches * slots + devices * (devices - 1)) * longest_stage_ns(costs_, stages);
  if (cost >= paper_cost_) return;
  SlotPlan plan = slots_of(stages, dispatch, fused_place);
  if (!plan_fits(setup_, costs_, plan)) return;
  paper_cost_ = cost;
  paper_choice_ = std::move(plan);
}

void StageSearch::add(std::vector<Stage> stages, SlotDispatch dispatch, int fused_place) {
  ++packed_;
  if (stages.empty()) return;
  note_paper_choice(stages, dispatch, fused_place);
  double bound = step_lower_bound_ns(setup_, costs_, stages);
  if (bound >= best_ns()) return;
  if (!candidates_.empty() && candidates_.back().plan.stages == stages &&
      candidates_.back().plan.dispatch == dispatch) {
    return;
  }
  candidates_.push_back({bound, slots_of(std::move(stages), dispatch, fused_place)});
}

/// Every contiguous sum of one kind's times, over every speed, ascending.
std::vector<double> StageSearch::limits(const std::vector<double>& speeds) const {
  double least = 0;
  for (int layer = 0; layer < costs_.layer_count(); ++layer) {
    bool last = layer + 1 == costs_.layer_count();
    least = std::max(
        least, costs_.time_ns(last ? ActionKind::kForwardBackward : ActionKind::kBackward, layer));
  }
  least /= *std::max_element(speeds.begin(), speeds.end());
  // A longer stage makes the chain of one round longer than the best step so far.
  double work = costs_.time_ns({ActionKind::kForwardBackward, 0, costs_.layer_count() - 1});
  double most = kInfinity;
  if (setup_.update != UpdateMode::kAsync && setup_.round_size() > 1) {
    most = (best_ns() * *std::max_element(speeds.begin(), speeds.end()) - work) /
           (setup_.round_size() - 1);
  }
  std::vector<double> sums;
  for (ActionKind kind :
       {ActionKind::kForward, ActionKind::kBackward, ActionKind::kForwardBackward}) {
    for (int first = 0; first < costs_.layer_count(); ++first) {
      for (int last = first; last < costs_.layer_count(); ++last) {
        double time = costs_.time_ns({kind, first, last});
        for (double speed : speeds) {
          if (time / speed >= least * kSame && time <= most) sums.push_back(time / speed);
        }
      }
    }
  }
  std::sort(sums.begin(), sums.end());
  sums.erase(std::unique(sums.begin(), sums.end(),
                         [](double left, double right) { return right * kSame <= left; }),
             sums.end());
  return sums;
}

/// Plans to measure others by: RoundPipe's own and single layers.
void StageSearch::add_seeds() {
  SlotDispatch dispatch =
      are_equal(setup_.devices) ? SlotDispatch::kRotation : SlotDispatch::kEarliestFinish;
  std::vector<Stage> rule =
      pack_by_roundpipe_rule(costs_, setup_.device_count(), least_memory(setup_.devices));
  MemoryReach single(costs_, 0, 1, 1);
  for (std::vector<Stage> stages : {rule, pack_stages(costs_, {{kInfinity, &single}})}) {
    if (stages.empty()) continue;
    bool narrow = options_.max_stage_layers == 0 ||
                  std::all_of(stages.begin(), stages.end(), [&](const Stage& stage) {
                    return stage.layer_count() <= options_.max_stage_layers;
                  });
    if (!narrow) continue;
    seeds_.push_back(slots_of(std::move(stages), dispatch, 0));
    keep(step_ns(seeds_.back(), kInfinity), seeds_.back());
  }
}

void StageSearch::add_equal_stages(SlotDispatch dispatch) {
  // Stages of unequal memory may be as large as the largest device holds.
  ByteCount memory = least_memory(setup_.devices);
  if (dispatch == SlotDispatch::kEarliestFinish) {
    for (const PlannedDevice& device : setup_.devices) {
      memory = device.memory_bytes == 0 ? 0 : std::max(memory, device.memory_bytes);
      if (memory == 0) break;
    }
  }
  std::vector<double> all = limits({1.0});
  for (double share : {1.0, 0.85, 0.7, 0.55}) {
    MemoryReach reach(costs_, memory, share, options_.max_stage_layers);
    size_t before = candidates_.size();
    for (double limit : all) {
      std::vector<Stage> stages = pack_stages(costs_, {{limit, &reach}});
      int fused = 0;
      for (const Stage& stage : stages) {
        if (stage.kind == ActionKind::kForwardBackward) fused = stage.first_layer;
      }
      add(std::move(stages), dispatch, 0);
      if (costs_.layer_count() > kFewLayers) continue;
      for (int least = fused + 1; least < costs_.layer_count(); ++least) {
        add(pack_stages(costs_, {{limit, &reach}}, least), dispatch, 0);
      }
    }
    if (memory == 0) return;
    bool fit = false;
    for (size_t index = before; index < candidates_.size() && !fit; ++index) {
      fit = plan_fits(setup_, costs_, candidates_[index].plan);
    }
    if (fit) return;
  }
}

void StageSearch::add_stages_by_place() {
  int count = setup_.device_count();
  std::vector<double> speeds;
  for (const PlannedDevice& device : setup_.devices) speeds.push_back(device.speed);
  std::sort(speeds.begin(), speeds.end());
  std::vector<double> distinct = speeds;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<double> all = limits(distinct);
  std::vector<MemoryReach> reaches;
  reaches.reserve(count);
  for (const PlannedDevice& device : setup_.devices) {
    reaches.emplace_back(costs_, device.memory_bytes, 1, options_.max_stage_layers);
  }
  for (double limit : all) {
    for (int fused = 0; fused < count; ++fused) {
      std::vector<PlaceLimit> places;
      for (int offset = 0; offset < count; ++offset) {
        int device = (fused + offset) % count;
        places.push_back({limit * setup_.devices[device].speed, &reaches[device]});
      }
      add(pack_stages(costs_, places), SlotDispatch::kByStage, fused);
    }
  }
}

void StageSearch::rank() {
  std::stable_sort(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& left, const Candidate& right) { return left.bound_ns < right.bound_ns; });
  // Most of the budget is left for improving.
  for (Candidate& candidate : candidates_) {
    if (candidate.bound_ns >= best_ns() || visited() > most_slots_ / 4) break;
    double step = step_ns(candidate.plan, found_.size() < starts_ ? kInfinity : best_ns());
    keep(step, std::move(candidate.plan));
  }
}

bool StageSearch::try_better(Found& from, const StageCuts& cuts) {
  std::vector<Stage> stages = stages_of(cuts, costs_.layer_count());
  for (const Stage& stage : stages) {
    if (options_.max_stage_layers > 0 && stage.layer_count() > options_.max_stage_layers) {
      return false;
    }
  }
  if (step_lower_bound_ns(setup_, costs_, stages) >= from.step_ns) return false;
  int place = 0;
  if (from.plan.dispatch == SlotDispatch::kByStage) {
    for (size_t stage = 0; stage < from.plan.stages.size(); ++stage) {
      if (from.plan.stages[stage].kind == ActionKind::kForwardBackward) {
        place = from.plan.device_of_stage[stage];
      }
    }
  }
  SlotPlan plan = slots_of(std::move(stages), from.plan.dispatch, place);
  double step = step_ns(plan, from.step_ns);
  if (step >= from.step_ns * kSame) return false;
  from = {step, std::move(plan)};
  return true;
}

/// Every single change to the cuts of one direction: shift, join, split.
void add_moved_cuts(const StageCuts& cuts, bool forward, std::vector<StageCuts>& others) {
  const std::vector<int>& old = forward ? cuts.forward : cuts.backward;
  auto with = [&](std::vector<int> list) {
    StageCuts other = cuts;
    (forward ? other.forward : other.backward) = std::move(list);
    others.push_back(std::move(other));
  };
  for (size_t index = 1; index < old.size(); ++index) {
    int next = index + 1 < old.size() ? old[index + 1] : cuts.fused;
    for (int shift : {-1, 1}) {
      int moved = old[index] + shift;
      if (moved <= old[index - 1] || moved >= next) continue;
      std::vector<int> list = old;
      list[index] = moved;
      with(std::move(list));
    }
    std::vector<int> list = old;
    list.erase(list.begin() + static_cast<int64_t>(index));
    with(std::move(list));
  }
  for (int layer = 1; layer < cuts.fused; ++layer) {
    auto place = std::lower_bound(old.begin(), old.end(), layer);
    if (place != old.end() && *place == layer) continue;
    std::vector<int> list = old;
    list.insert(list.begin() + (place - old.begin()), layer);
    with(std::move(list));
  }
}

/// The fused stage one layer longer or shorter.
void add_other_fused_stages(const StageCuts& cuts, int layers, std::vector<StageCuts>& others) {
  if (cuts.fused > 0) {
    StageCuts more = cuts;
    --more.fused;
    for (std::vector<int>* list : {&more.forward, &more.backward}) {
      if (!list->empty() && list->back() == more.fused) list->pop_back();
    }
    others.push_back(more);
  }
  if (cuts.fused + 1 < layers) {
    StageCuts fewer = cuts;
    ++fewer.fused;
    for (std::vector<int>* list : {&fewer.forward, &fewer.backward}) {
      if (list->empty()) list->push_back(0);
    }
    others.push_back(fewer);
    if (cuts.fused > 0) {
      fewer.backward.push_back(cuts.fused);
      others.push_back(fewer);
      fewer.forward.push_back(cuts.fused);
      others.push_back(fewer);
    }
  }
}

std::vector<StageCuts> neighbours(const StageCuts& cuts, int layers) {
  std::vector<StageCuts> others;
  add_moved_cuts(cuts, false, others);
  add_moved_cuts(cuts, true, others);
  add_other_fused_stages(cuts, layers, others);
  return others;
}

/// Takes the first better neighbour until there is none; few layers also try pairs of changes.
bool StageSearch::step_to_neighbour(Found& best) {
  int layers = costs_.layer_count();
  std::vector<StageCuts> near = neighbours(cuts_of(best.plan.stages), layers);
  for (const StageCuts& cuts : near) {
    if (is_spent()) return false;
    if (try_better(best, cuts)) return true;
  }
  if (layers > kFewLayers) return false;
  for (const StageCuts& cuts : near) {
    for (const StageCuts& next : neighbours(cuts, layers)) {
      if (is_spent()) return false;
      if (try_better(best, next)) return true;
    }
  }
  return false;
}

void StageSearch::improve(size_t start) {
  Found best = found_[start];
  while (step_to_neighbour(best)) {
  }
  found_[start] = std::move(best);
}

void StageSearch::improve_all() {
  for (size_t start = 0; start < found_.size() && !is_spent(); ++start) improve(start);
}

/// Ranks what the coarse search found, and what others are measured by, with all transfers.
void StageSearch::look_closer() {
  is_coarse_ = false;
  std::vector<Found> coarse = std::move(found_);
  found_.clear();
  for (SlotPlan& seed : seeds_) keep(step_ns(seed, kInfinity), seed);
  for (Found& found : coarse) {
    double step = step_ns(found.plan, kInfinity);
    keep(step, std::move(found.plan));
  }
  improve_all();
}

Result<PlannedStages> StageSearch::run() {
  is_coarse_ = has_transfers_;
  add_seeds();
  if (are_equal(setup_.devices)) {
    add_equal_stages(SlotDispatch::kRotation);
  } else {
    add_stages_by_place();
    add_equal_stages(SlotDispatch::kEarliestFinish);
  }
  if (paper_cost_ < kInfinity) {
    seeds_.push_back(paper_choice_);
    keep(step_ns(paper_choice_, kInfinity), paper_choice_);
  }
  rank();
  if (found_.empty()) return does_not_fit(costs_, setup_.devices);
  improve_all();
  if (has_transfers_) look_closer();
  auto best = std::min_element(
      found_.begin(), found_.end(),
      [](const Found& left, const Found& right) { return left.step_ns < right.step_ns; });
  PlannedStages planned;
  planned.slots = std::move(best->plan);
  planned.prediction = predict_step(setup_, costs_, planned.slots);
  planned.t_max_ns = longest_stage_ns(costs_, planned.slots.stages);
  planned.candidates = packed_;
  planned.slots_visited = visited();
  return planned;
}

}  // namespace

int64_t slots_within_budget(int layers) {
  return layers <= kFewLayers ? 800'000 : int64_t{150} * layers * layers;
}

Result<PlannedStages> plan_stages(const StepSetup& setup, const StageSearchOptions& options) {
  STAGECOACH_RETURN_IF_ERROR(check_step_setup(setup));
  if (!has_shared_limits(setup)) return StageSearch(setup, options).run();
  CostTable costs(setup.layers);
  std::vector<StepSetup> setups = setups_without_limits(setup);
  StageSearchOptions part = options;
  if (part.most_slots == 0) part.most_slots = slots_within_budget(costs.layer_count());
  part.most_slots /= std::ssize(setups);
  Result<PlannedStages> best = plan_by_roundpipe_rule(setup);
  if (!are_equal(setup.devices)) best = not_found("RoundPipe knows equal devices only");
  for (const StepSetup& one : setups) {
    Result<PlannedStages> found = StageSearch(one, part).run();
    if (!found.is_ok()) return found.status();
    found->prediction = predict_step(setup, costs, found->slots);
    bool is_better = !best.is_ok() || found->prediction.step_ns < best->prediction.step_ns;
    if (is_better) best = std::move(found);
  }
  return best;
}

Result<PlannedStages> plan_by_roundpipe_rule(const StepSetup& setup) {
  STAGECOACH_RETURN_IF_ERROR(check_step_setup(setup));
  CostTable costs(setup.layers);
  PlannedStages planned;
  planned.slots.stages =
      pack_by_roundpipe_rule(costs, setup.device_count(), least_memory(setup.devices));
  if (planned.slots.stages.empty()) return not_found("no partition by RoundPipe's rule fits");
  planned.prediction = predict_step(setup, costs, planned.slots);
  planned.t_max_ns = longest_stage_ns(costs, planned.slots.stages);
  return planned;
}

}  // namespace stagecoach
