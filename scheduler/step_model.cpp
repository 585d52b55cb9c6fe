#include "scheduler/step_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>

namespace stagecoach {

std::string_view step_lane_name(StepLane lane) {
  switch (lane) {
    case StepLane::kCompute:
      return "compute";
    case StepLane::kParametersUp:
      return "parameters_up";
    case StepLane::kActivationsUp:
      return "activations_up";
    case StepLane::kActivationsDown:
      return "activations_down";
    case StepLane::kGradientsDown:
      return "gradients_down";
    case StepLane::kHostUpdate:
      return "host_update";
  }
  return "";
}

std::string_view StepPrediction::bottleneck() const {
  double compute = lane(StepLane::kCompute);
  double up = lane(StepLane::kParametersUp) + lane(StepLane::kActivationsUp);
  double down = lane(StepLane::kActivationsDown) + lane(StepLane::kGradientsDown);
  double host = lane(StepLane::kHostUpdate);
  double most = std::max({compute, up, down, host});
  if (most == compute) return "compute";
  if (most == up) return "link up";
  return most == down ? "link down" : "host update";
}

namespace {

/// A copy engine: one copy at a time, in the order in which they become ready. Urgent copies are
/// asked for as they come; bulk ones wait in order, each ready when the one before it is through.
class CopyEngine {
 public:
  struct Bulk {
    double ready_ns = 0;
    double length_ns = 0;
    int slot = 0;   ///< whose it is: the device's slots, counted
    int layer = 0;  ///< what it carries
  };

  /// Runs urgent copies, one after the other, each after the bulk that was ready before it; returns
  /// the end of the last.
  template <typename Done>
  double run_urgent(double ready_ns, double length_ns, int copies, Done done) {
    urgent_end_ns_ = std::max(ready_ns, urgent_end_ns_);
    for (int copy = 0; copy < copies && length_ns > 0; ++copy) {
      while (has_bulk() && ready_of(bulk_[next_]) <= urgent_end_ns_) run_bulk(done);
      urgent_end_ns_ = free_ns_ = std::max(free_ns_, urgent_end_ns_) + length_ns / copies;
    }
    return urgent_end_ns_;
  }
  /// Adds bulk in copies of these shares; empty: in one.
  void add_bulk(const Bulk& bulk, const std::vector<double>& shares) {
    bulk_.push_back(bulk);
    if (shares.empty()) return;
    bulk_.back().length_ns *= shares.front();
    for (size_t copy = 1; copy < shares.size(); ++copy) {
      bulk_.push_back(bulk);
      bulk_.back().length_ns *= shares[copy];
    }
  }
  /// Runs what waits of slots up to `slot`; returns the end of the last of `slot`.
  template <typename Done>
  double finish_bulk(int slot, Done done) {
    while (has_bulk() && bulk_[next_].slot <= slot) run_bulk(done);
    return slot < static_cast<int>(slot_end_ns_.size()) ? slot_end_ns_[slot] : 0;
  }

 private:
  bool has_bulk() const { return next_ < bulk_.size(); }
  double ready_of(const Bulk& bulk) const { return std::max(bulk.ready_ns, bulk_end_ns_); }
  template <typename Done>
  void run_bulk(Done done) {
    const Bulk& bulk = bulk_[next_++];
    bulk_end_ns_ = ready_of(bulk);
    if (bulk.length_ns > 0) bulk_end_ns_ = std::max(bulk_end_ns_, free_ns_) + bulk.length_ns;
    if (bulk.length_ns > 0) free_ns_ = bulk_end_ns_;
    if (slot_end_ns_.size() <= static_cast<size_t>(bulk.slot))
      slot_end_ns_.resize(bulk.slot + 1, 0);
    slot_end_ns_[bulk.slot] = bulk_end_ns_;
    done(bulk.layer, bulk_end_ns_);
    if (has_bulk()) return;
    bulk_.clear();
    next_ = 0;
  }

  double free_ns_ = 0, bulk_end_ns_ = 0, urgent_end_ns_ = 0;
  std::vector<Bulk> bulk_;  ///< from `next_` on
  size_t next_ = 0;
  std::vector<double> slot_end_ns_;
};

/// One device's lanes. Buffers come in pairs: what is there twice is free again once the use before
/// last has ended.
struct DeviceLanes {
  CopyEngine up, down;
  double compute_free_ns = 0;
  double computed_ns[2] = {0, 0};  ///< ends of its last two micro-batches, the older first
  double sent_ns[2] = {0, 0};      ///< likewise: their outputs are on the host
  double parameters_free_ns = 0;   ///< end of the slot before last
  int slots = 0;                   ///< so far
  int requested_slot = -1;         ///< the last whose parameters were asked for
  std::vector<int> summing_slots;  ///< slots with gradients, counted as `slots`
};

/// Simulates iterations in slot order: a slot depends on earlier slots only.
class StepSimulation {
 public:
  StepSimulation(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan)
      : setup_(setup),
        costs_(costs),
        plan_(plan),
        loads_(costs.loads(plan.stages)),
        lanes_(setup.devices.size()),
        updated_ns_(2, std::vector<double>(costs.layer_count(), 0)) {
    prediction_.compute_ns.assign(setup.devices.size(), 0);
    if (plan.dispatch == SlotDispatch::kEarliestFinish) {
      fits_ = stages_that_fit(costs, plan.stages, setup.devices);
    }
  }

  StepPrediction run();

 private:
  void run_iteration(int iteration);
  void run_slot(int stage, int round, int iteration);
  int device_for(int stage, double gate_ns) const;
  int next_stage_on(int device, int stage, int round) const;
  void request_parameters(int stage, int device, int device_slot, double ready_ns);
  void run_micro_batches(int stage, int device, int round, int iteration, double start_ns);
  void add_gradients(int stage, int device);
  void update_layers();
  double gate_ns(int stage, int iteration) const;
  void charge(StepLane lane, double time_ns) {
    if (counts_) busy_ns_[static_cast<int>(lane)] += time_ns;
  }
  static double transfer_ns(ByteCount bytes, double bytes_per_ns) {
    return bytes_per_ns > 0 ? static_cast<double>(bytes) / bytes_per_ns : 0;
  }

  const StepSetup& setup_;
  const CostTable& costs_;
  const SlotPlan& plan_;
  std::vector<StageLoad> loads_;
  std::vector<DeviceLanes> lanes_;
  std::vector<bool> fits_;
  std::vector<double> arrived_ns_;   ///< per micro-batch of the round: the chain's last output
  std::vector<double> computed_ns_;  ///< per micro-batch: ends of the slot that runs
  std::vector<double> landed_ns_;    ///< per layer: its last gradient of this iteration
  std::vector<std::vector<double>> updated_ns_;  ///< per layer, after this and the last iteration
  double host_free_ns_ = 0, compute_end_ns_ = 0;
  double compute_start_ns_ = std::numeric_limits<double>::infinity();
  int last_device_ = -1;
  int64_t slot_ = 0;
  bool counts_ = false;
  bool is_first_ = true;
  double busy_ns_[kStepLanes] = {};
  StepPrediction prediction_;
};

int StepSimulation::device_for(int stage, double gate_ns) const {
  int devices = setup_.device_count();
  if (plan_.dispatch == SlotDispatch::kByStage) return plan_.device_of_stage[stage];
  int next = static_cast<int>(slot_ % devices);
  if (plan_.dispatch == SlotDispatch::kRotation) return next;
  int best = next;
  double best_end = std::numeric_limits<double>::infinity();
  for (int offset = 0; offset < devices; ++offset) {
    int device = (next + offset) % devices;
    if (!fits_[static_cast<size_t>(stage) * devices + device]) continue;
    double time = loads_[stage].time_ns / setup_.devices[device].speed;
    double hop = last_device_ == device || last_device_ < 0 ? 0 : setup_.hop_ns;
    double end = std::max(lanes_[device].compute_free_ns, gate_ns);
    for (double arrival : arrived_ns_) end = std::max(end, arrival + hop) + time;
    bool earlier = end < best_end || (end == best_end && lanes_[device].compute_free_ns <
                                                             lanes_[best].compute_free_ns);
    if (!earlier) continue;
    best = device;
    best_end = end;
  }
  return best;
}

/// The stage of the device's next slot in this iteration; -1 when it has none or that is not known.
int StepSimulation::next_stage_on(int device, int stage, int round) const {
  auto count = static_cast<int>(plan_.stages.size());
  int last = count * setup_.rounds;
  int next = round * count + stage;
  if (plan_.dispatch == SlotDispatch::kEarliestFinish) return -1;
  if (plan_.dispatch == SlotDispatch::kRotation) {
    next += setup_.device_count();
    return next < last ? next % count : -1;
  }
  for (++next; next < last; ++next) {
    if (plan_.device_of_stage[next % count] == device) return next % count;
  }
  return -1;
}

void StepSimulation::request_parameters(int stage, int device, int device_slot, double ready_ns) {
  const Stage& layers = plan_.stages[stage];
  DeviceLanes& lanes = lanes_[device];
  for (int layer = layers.first_layer; layer <= layers.last_layer; ++layer) {
    const LayerProfile& profile = costs_.layer(layer);
    double length = transfer_ns(profile.parameter_bytes, setup_.devices[device].up_bytes_per_ns);
    std::vector<double> shares = profile.copy_shares;
    for (size_t copy = 0; copy < profile.shared_layers.size(); ++copy) {
      if (profile.shared_layers[copy] >= layers.first_layer) shares[copy] = 0;
    }
    lanes.up.add_bulk({ready_ns, length, device_slot, layer}, shares);
    double sent = std::accumulate(shares.begin(), shares.end(), 0.0);
    charge(StepLane::kParametersUp, shares.empty() ? length : length * sent);
  }
  lanes.requested_slot = device_slot;
}

void StepSimulation::run_micro_batches(int stage, int device, int round, int iteration,
                                       double start_ns) {
  DeviceLanes& lanes = lanes_[device];
  const PlannedDevice& info = setup_.devices[device];
  const StageLoad& load = loads_[stage];
  double time = load.time_ns / info.speed;
  double up = transfer_ns(load.in_bytes, info.up_bytes_per_ns);
  double down = transfer_ns(load.out_bytes, info.down_bytes_per_ns);
  double hop = last_device_ == device || last_device_ < 0 ? 0 : setup_.hop_ns;
  auto count = static_cast<int>(arrived_ns_.size());
  auto ignore = [](int, double) {};
  auto land = [this](int layer, double end_ns) {
    landed_ns_[layer] = std::max(landed_ns_[layer], end_ns);
  };
  computed_ns_.resize(count);
  // The next slot's parameters take the place that the slot before this one has left.
  int next = next_stage_on(device, stage, round);
  if (next >= 0) {
    double ready = std::max(lanes.compute_free_ns, gate_ns(next, iteration));
    request_parameters(next, device, lanes.slots + 1, ready);
  }
  // An input's place is free once the micro-batch before last has been computed.
  auto upload = [&](int m) {
    double place = m < 2 ? lanes.computed_ns[m] : computed_ns_[m - 2];
    double ready = std::max(arrived_ns_[m] + hop, up > 0 ? place : 0.0);
    arrived_ns_[m] = lanes.up.run_urgent(ready, up, load.in_copies, ignore);
  };
  for (int m = 0; m < std::min(2, count); ++m) upload(m);
  double free = std::max(start_ns, lanes.up.finish_bulk(lanes.slots, ignore));
  for (int m = 0; m < count; ++m) {
    double begin = std::max({free, arrived_ns_[m], lanes.sent_ns[0]});
    compute_start_ns_ = std::min(compute_start_ns_, begin);
    free = computed_ns_[m] = begin + time;
    if (m + 2 < count) upload(m + 2);
    bool is_last = m + 1 == count;
    if (is_last && plan_.stages[stage].kind != ActionKind::kForward) add_gradients(stage, device);
    arrived_ns_[m] = lanes.down.run_urgent(free, down, load.out_copies, land);
    lanes.sent_ns[0] = lanes.sent_ns[1];
    lanes.sent_ns[1] = arrived_ns_[m];
    lanes.computed_ns[0] = lanes.computed_ns[1];
    lanes.computed_ns[1] = free;
  }
  charge(StepLane::kCompute, time * count);
  charge(StepLane::kActivationsUp, up * count);
  charge(StepLane::kActivationsDown, down * count);
  if (counts_) prediction_.compute_ns[device] += time * count;
  lanes.parameters_free_ns = lanes.compute_free_ns;
  lanes.compute_free_ns = free;
  compute_end_ns_ = std::max(compute_end_ns_, free);
}

/// Layers come down one after the other, the last first, as the last micro-batch completes them.
void StepSimulation::add_gradients(int stage, int device) {
  DeviceLanes& lanes = lanes_[device];
  const Stage& layers = plan_.stages[stage];
  double end = computed_ns_.back();
  double below = 0;
  for (int layer = layers.first_layer; layer <= layers.last_layer; ++layer) {
    below += costs_.layer(layer).backward_ns;
  }
  for (int layer = layers.last_layer; layer >= layers.first_layer; --layer) {
    below -= costs_.layer(layer).backward_ns;
    double length =
        transfer_ns(costs_.layer(layer).gradient_bytes, setup_.devices[device].down_bytes_per_ns);
    lanes.down.add_bulk({end - below / setup_.devices[device].speed, length, lanes.slots, layer},
                        costs_.layer(layer).copy_shares);
    charge(StepLane::kGradientsDown, length);
  }
  lanes.summing_slots.push_back(lanes.slots);
}

void StepSimulation::run_slot(int stage, int round, int iteration) {
  double gate = gate_ns(stage, iteration);
  int device = device_for(stage, gate);
  DeviceLanes& lanes = lanes_[device];
  if (is_first_) prediction_.devices.push_back(device);
  if (lanes.requested_slot < lanes.slots) {
    request_parameters(stage, device, lanes.slots, std::max(lanes.parameters_free_ns, gate));
  }
  double start = std::max(lanes.compute_free_ns, gate);
  size_t summed = lanes.summing_slots.size();
  if (plan_.stages[stage].kind != ActionKind::kForward && summed >= 2) {
    // Two places for gradients: those of the slot before last have come down.
    auto land = [this](int layer, double end_ns) {
      landed_ns_[layer] = std::max(landed_ns_[layer], end_ns);
    };
    start = std::max(start, lanes.down.finish_bulk(lanes.summing_slots[summed - 2], land));
  }
  run_micro_batches(stage, device, round, iteration, start);
  ++lanes.slots;
  last_device_ = device;
}

/// The host takes, of the layers whose gradients have landed, the one that is needed first.
void StepSimulation::update_layers() {
  updated_ns_[0] = updated_ns_[1];
  int layers = costs_.layer_count();
  std::vector<int> by_landing(layers);
  std::iota(by_landing.begin(), by_landing.end(), 0);
  std::stable_sort(by_landing.begin(), by_landing.end(),
                   [this](int left, int right) { return landed_ns_[left] < landed_ns_[right]; });
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  int landed = 0;
  for (int left = layers; left > 0; --left) {
    double now = host_free_ns_;
    if (ready.empty()) now = std::max(now, landed_ns_[by_landing[landed]]);
    while (landed < layers && landed_ns_[by_landing[landed]] <= now) {
      ready.push(by_landing[landed++]);
    }
    int next = ready.top();
    ready.pop();
    double length = costs_.layer(next).update_ns;
    // Updates that take no time keep nobody waiting.
    updated_ns_[1][next] = length > 0 ? host_free_ns_ = now + length : landed_ns_[next];
    charge(StepLane::kHostUpdate, length);
  }
}

double StepSimulation::gate_ns(int stage, int iteration) const {
  int lag = setup_.update == UpdateMode::kAsync ? 2 : 1;
  if (iteration < lag) return 0;
  const std::vector<double>& updated = updated_ns_[lag == 2 ? 0 : 1];
  const Stage& layers = plan_.stages[stage];
  return *std::max_element(updated.begin() + layers.first_layer,
                           updated.begin() + layers.last_layer + 1);
}

void StepSimulation::run_iteration(int iteration) {
  landed_ns_.assign(costs_.layer_count(), 0);
  for (int round = 0; round < setup_.rounds; ++round) {
    arrived_ns_.assign(setup_.round_size(), 0);
    last_device_ = -1;
    for (int stage = 0; stage < static_cast<int>(plan_.stages.size()); ++stage, ++slot_) {
      run_slot(stage, round, iteration);
    }
  }
  for (DeviceLanes& lanes : lanes_) {
    lanes.down.finish_bulk(lanes.slots, [this](int layer, double end_ns) {
      landed_ns_[layer] = std::max(landed_ns_[layer], end_ns);
    });
  }
  update_layers();
}

StepPrediction StepSimulation::run() {
  MeasuredIterations iterations = measured_iterations(setup_);
  double from = 0;
  for (int iteration = 0; iteration < iterations.count; ++iteration) {
    counts_ = iteration > iterations.from;
    is_first_ = iteration == 0;
    run_iteration(iteration);
    if (iteration == iterations.from) from = compute_end_ns_;
    if (iteration == 0) prediction_.makespan_ns = compute_end_ns_ - compute_start_ns_;
  }
  int counted = iterations.measured();
  bool isolated = iterations.from < 0;
  prediction_.step_ns = (compute_end_ns_ - from) / counted;
  if (isolated) {
    double updated = *std::max_element(updated_ns_[1].begin(), updated_ns_[1].end());
    prediction_.step_ns = std::max(compute_end_ns_, updated);
    prediction_.update_exposed_ns = prediction_.step_ns - compute_end_ns_;
  }
  double devices = setup_.device_count();
  double compute = busy_ns_[static_cast<int>(StepLane::kCompute)] / counted;
  double window = isolated ? prediction_.makespan_ns : prediction_.step_ns;
  // Sums of many times may exceed their whole by a rounding.
  prediction_.bubble = std::max(0.0, 1 - compute / (devices * window));
  for (int lane = 0; lane < kStepLanes; ++lane) {
    double of = lane == static_cast<int>(StepLane::kHostUpdate) ? 1 : devices;
    prediction_.busy_fraction[lane] =
        std::min(1.0, busy_ns_[lane] / counted / (of * prediction_.step_ns));
  }
  for (double& compute_ns : prediction_.compute_ns) compute_ns /= counted;
  return std::move(prediction_);
}

}  // namespace

StepPrediction predict_step(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan) {
  return StepSimulation(setup, costs, plan).run();
}

double longest_stage_ns(const CostTable& costs, const std::vector<Stage>& stages) {
  double longest = 0;
  for (const Stage& stage : stages) longest = std::max(longest, costs.time_ns(stage));
  return longest;
}

namespace {

/// What the links of all devices together and the host need for an iteration.
double transfer_bound_ns(const StepSetup& setup, const CostTable& costs,
                         const std::vector<Stage>& stages) {
  double up_rate = 0, down_rate = 0;
  for (const PlannedDevice& device : setup.devices) {
    // A link that takes no time could carry everything.
    if (device.up_bytes_per_ns <= 0 || device.down_bytes_per_ns <= 0) return costs.update_ns();
    up_rate += device.up_bytes_per_ns;
    down_rate += device.down_bytes_per_ns;
  }
  double up = 0, down = 0;
  for (const Stage& stage : stages) {
    const StageBytes& bytes = costs.bytes(stage);
    up += static_cast<double>(bytes.parameters);
    down += static_cast<double>(bytes.gradients);
  }
  return std::max(
      {setup.rounds * up / up_rate, setup.rounds * down / down_rate, costs.update_ns()});
}

}  // namespace

double step_lower_bound_ns(const StepSetup& setup, const CostTable& costs,
                           const std::vector<Stage>& stages) {
  double sum = 0, longest = 0, speeds = 0, fastest = 0;
  for (const Stage& stage : stages) {
    double time = costs.time_ns(stage);
    sum += time;
    longest = std::max(longest, time);
  }
  for (const PlannedDevice& device : setup.devices) {
    speeds += device.speed;
    fastest = std::max(fastest, device.speed);
  }
  double work =
      std::max(setup.micro_batches * sum / speeds, transfer_bound_ns(setup, costs, stages));
  if (setup.update == UpdateMode::kAsync) return work;
  double chain = (sum + (setup.round_size() - 1) * longest) / fastest;
  return std::max(work, chain);
}

}  // namespace stagecoach
