#include "scheduler/device_memory.h"

#include <algorithm>
#include <map>

#include "memory/arena.h"
#include "scheduler/bound_layout.h"
#include "scheduler/device_slots.h"
#include "scheduler/stage_places.h"

namespace stagecoach {

namespace {

/// Pieces of memory, each in use from a first to a last step; first steps never fall.
class StepHeap {
 public:
  ByteCount take(ByteCount size, int first_step, int last_step) {
    std::erase_if(pieces_, [&](const Piece& piece) { return piece.last_step < first_step; });
    // The smallest gap that is large enough, else behind everything.
    ByteCount padded = Arena::padded(size), before = 0, best_gap = 0, offset = 0;
    auto best = pieces_.end();
    for (auto at = pieces_.begin(); at != pieces_.end(); before = at++->end) {
      ByteCount gap = at->offset - before;
      if (gap < padded || (best != pieces_.end() && gap >= best_gap)) continue;
      best = at;
      best_gap = gap;
      offset = before;
    }
    if (best == pieces_.end()) offset = before;
    pieces_.insert(best, Piece{offset, offset + padded, last_step});
    peak_ = std::max(peak_, offset + padded);
    return offset;
  }
  ByteCount peak() const { return peak_; }

 private:
  struct Piece {
    ByteCount offset = 0;
    ByteCount end = 0;
    int last_step = 0;
  };
  std::vector<Piece> pieces_;  // by offset
  ByteCount peak_ = 0;
};

/// Places what micro-batches keep on one device.
class KeptPlacer {
 public:
  KeptPlacer(const Plan& plan, const std::vector<StageLayout>& layouts, int device)
      : plan_(plan),
        layouts_(layouts),
        actions_(plan.device_actions[device]),
        numbers_(stage_numbers(plan)) {
    for (size_t step = 0; step < actions_.size(); ++step) {
      last_step_[key(actions_[step])] = static_cast<int>(step);
    }
  }

  /// One entry an action, with offsets inside the kept memory.
  std::vector<ActionPlaces> place() {
    std::vector<ActionPlaces> places;
    for (size_t step = 0; step < actions_.size(); ++step) {
      places.push_back(place_action(static_cast<int>(step)));
    }
    for (ActionPlaces& action : places) {
      for (Region region : {Region::kIn, Region::kGradient}) {
        action.set(region, action.of(region) + saved_.peak());
      }
    }
    return places;
  }
  ByteCount peak() const { return saved_.peak() + uploads_.peak(); }

 private:
  std::pair<int, int> key(const Action& action) const {
    return {numbers_[action.stage], action.micro_batch};
  }

  ActionPlaces place_action(int step) {
    const Action& action = actions_[step];
    const StageLayout& layout = layouts_[action.stage];
    ActionKind kind = plan_.stage_of(action).kind;
    // Of what the forward and the input half left; pieces live until the last of its actions.
    ActionPlaces& places = places_[key(action)];
    int last = last_step_[key(action)];
    int upload = std::max(0, step - 1);
    if (kind == ActionKind::kForward) {
      places.set(Region::kIn, uploads_.take(layout.in_bytes, upload, last));
    }
    if (makes_input_gradient(kind)) {
      places.set(Region::kGradient, uploads_.take(layout.output_grad_bytes, upload, last));
    }
    if (kind == ActionKind::kForward) {
      places.set(Region::kSaved, saved_.take(layout.saved_bytes, step, last));
    }
    if (kind == ActionKind::kInputGradient) {
      places.set(Region::kHalf, saved_.take(layout.half_bytes, step, last));
    }
    ActionPlaces now = places;
    if (step == last) places_.erase(key(action));
    return now;
  }

  const Plan& plan_;
  const std::vector<StageLayout>& layouts_;
  const std::vector<Action>& actions_;
  std::vector<int> numbers_;
  std::map<std::pair<int, int>, int> last_step_;
  std::map<std::pair<int, int>, ActionPlaces> places_;
  // Apart, because pieces of very different sizes leave gaps in each other's places.
  StepHeap saved_, uploads_;
};

/// Region sizes for all of `layouts` whose stage `runs_here`.
template <typename RunsHere>
DeviceMemoryNeed region_sizes(const std::vector<StageLayout>& layouts, RunsHere runs_here) {
  DeviceMemoryNeed need;
  for (size_t stage = 0; stage < layouts.size(); ++stage) {
    if (runs_here(stage)) grow_need(need, layouts[stage]);
  }
  return need;
}

/// Parameters and sums of a bound device lie side by side: the regions end where the last ends.
void measure_holdings(const StageLayout& layout, DeviceMemoryNeed& need) {
  for (const StageLayout::BlockPlace& block : layout.blocks) {
    need.parameter_bytes = std::max(need.parameter_bytes, block.offset + Arena::padded(block.size));
  }
  need.gradient_bytes =
      std::max(need.gradient_bytes, layout.gradient_offset + layout.gradient_bytes);
}

}  // namespace

std::vector<StageLayout> layout_stages(const Network& network, const Plan& plan,
                                       const MicroBatchShape& shape, bool recomputes) {
  if (plan.residence == Residence::kBound) {
    return layout_bound_stages(network, plan, shape, recomputes);
  }
  std::vector<bool> starts = stage_starts(plan.stages, static_cast<int>(network.layers.size()));
  std::vector<StageLayout> layouts;
  for (const Stage& stage : plan.stages) {
    layouts.push_back(layout_stage(network, stage, starts, shape));
  }
  return layouts;
}

ResidencyPlan device_residency(const Plan& plan, const std::vector<StageLayout>& layouts,
                               int device, const ResidencyLimits& limits) {
  std::vector<std::vector<BlockRead>> reads;
  for (const Slot& slot : slots_of_device(plan, device, 0)) {
    std::vector<BlockRead>& of_slot = reads.emplace_back();
    for (const StageLayout::BlockPlace& place : layouts[static_cast<size_t>(slot.stage)].blocks) {
      of_slot.push_back({place.block, place.size});
    }
  }
  return plan_residency(reads, limits);
}

bool next_pass_begins_early(UpdateMode update) {
  return update == UpdateMode::kAsync;
}

DeviceMemory carve_device_memory(const Plan& plan, const std::vector<StageLayout>& layouts,
                                 int device, bool rounds_gradients,
                                 const ResidencyLimits& resident) {
  DeviceMemory memory;
  DeviceMemoryNeed& need = memory.need;
  bool bound = plan.residence == Residence::kBound;
  std::vector<ActionPlaces> kept(plan.device_actions[device].size());
  if (bound) {
    std::vector<int> numbers = stage_numbers(plan), devices = stage_devices(plan);
    need = region_sizes(layouts, [&](size_t s) { return devices[numbers[s]] == device; });
    for (size_t s = 0; s < layouts.size(); ++s) {
      if (devices[numbers[s]] == device) measure_holdings(layouts[s], need);
    }
    KeptPlacer placer(plan, layouts, device);
    kept = placer.place();
    need.kept_bytes = placer.peak();
    need.in_bytes = 0;
  } else {
    std::vector<bool> runs_here(layouts.size(), false);
    for (const Action& action : plan.device_actions[device]) runs_here[action.stage] = true;
    need = region_sizes(layouts, [&](size_t s) { return runs_here[s]; });
  }
  need.bound = bound;
  need.rounds_gradients = rounds_gradients;

  RegionSizer arena(Region::kNone);
  auto take = [&](ByteCount size) { return arena.take(size).offset; };
  auto take_twice = [&](ByteCount size) {
    return std::array<ByteCount, 2>{take(size), take(size)};
  };
  auto take_once = [&](ByteCount size) {
    ByteCount offset = take(size);
    return std::array<ByteCount, 2>{offset, offset};
  };
  memory.parameters = need.parameter_buffers() == 2 ? take_twice(need.parameter_bytes)
                                                    : take_once(need.parameter_bytes);
  memory.rounded = take_twice(need.rounded_bytes);
  std::array<ByteCount, 2> in = take_twice(need.in_bytes), out = take_twice(need.out_bytes);
  memory.gradients = need.gradient_buffers() == 2 ? take_twice(need.gradient_bytes)
                                                  : take_once(need.gradient_bytes);
  ByteCount work = take(need.work_bytes), kept_start = take(need.kept_bytes);
  if (resident.capacity > 0) {
    STAGECOACH_CHECK(!bound);
    need.resident_bytes = resident.capacity;
    memory.resident = take(resident.capacity);
    memory.copies = device_residency(plan, layouts, device, resident).slots;
  }
  for (size_t action = 0; action < kept.size(); ++action) {
    ActionPlaces places = kept[action];
    for (ByteCount& start : places.start) start += kept_start;
    if (!bound) places.set(Region::kIn, in[action % 2]);
    places.set(Region::kOut, out[action % 2]);
    places.set(Region::kWork, work);
    memory.actions.push_back(places);
  }
  return memory;
}

}  // namespace stagecoach
