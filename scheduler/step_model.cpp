#include "scheduler/step_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "scheduler/bulk_chunk.h"
#include "scheduler/copy_engine.h"
#include "scheduler/step_limits.h"

namespace stagecoach {

namespace {

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
  /// Per layer: its parameters have landed, for slots of even number, then for those of odd.
  std::vector<double> loaded_ns;
  int place_of(int slot, int layer) const {
    return slot % 2 * static_cast<int>(loaded_ns.size()) / 2 + layer;
  }
};

/// Simulates iterations in slot order: a slot depends on earlier slots only.
class StepSimulation {
 public:
  StepSimulation(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan,
                 std::vector<ComputedInterval>* timeline)
      : setup_(setup),
        costs_(costs),
        plan_(plan),
        loads_(costs.loads(plan.stages)),
        limits_(setup, costs),
        timeline_(timeline),
        lanes_(setup.devices.size()),
        updated_ns_(2, std::vector<double>(costs.layer_count(), 0)) {
    prediction_.compute_ns.assign(setup.devices.size(), 0);
    if (plan.dispatch == SlotDispatch::kEarliestFinish) {
      fits_ = stages_that_fit(costs, plan.stages, setup.devices);
    }
    for (size_t device = 0; device < lanes_.size(); ++device) {
      const PlannedDevice& info = setup.devices[device];
      lanes_[device].loaded_ns.assign(2 * costs.layer_count(), 0);
      lanes_[device].up.share(limits_.of_uploads(info), info.up_bytes_per_ns);
      lanes_[device].down.share(limits_.of_downloads(info), info.down_bytes_per_ns);
      lanes_[device].up.cut_bulk(chunk_ns(info.up_bytes_per_ns));
      lanes_[device].down.cut_bulk(chunk_ns(info.down_bytes_per_ns));
    }
  }

  StepPrediction run();

 private:
  void run_iteration(int iteration);
  void run_chain(int round, int iteration);
  void run_chains(int round, int iteration);
  void run_slot(int stage, int round, int iteration);
  int device_for(int stage, double gate_ns) const;
  int next_slot_on(int device, int stage, int round) const;
  void request_parameters(int slot, int device, int device_slot, double ready_ns);
  void run_micro_batches(int stage, int device, int round, int iteration, double start_ns);
  double end_of_first_ns(int stage, int device, double begin_ns) const;
  void add_gradients(int stage, int device);
  void send_burst(int stage, int device);
  void update_layers();
  double gate_ns(int stage, int iteration) const;
  double parts_of(StepLane lane) const;
  void charge(StepLane lane, double time_ns) {
    if (counts_) busy_ns_[static_cast<int>(lane)] += time_ns;
  }
  void charge_up(StepLane lane, int device, double time_ns);
  void charge_down(StepLane lane, int device, double time_ns);
  void charge_shared(StepLane lane, double rate, double bytes) {
    if (rate > 0) charge(lane, bytes / rate);
  }
  double chunk_ns(double bytes_per_ns) const {
    constexpr double kSecondNs = 1e9;
    ByteCount chunk = setup_.bulk.chunk_bytes;
    if (chunk == BulkHandling::kByLink) chunk = bulk_chunk_bytes(bytes_per_ns * kSecondNs);
    return transfer_ns(chunk, bytes_per_ns);
  }
  static double transfer_ns(ByteCount bytes, double bytes_per_ns) {
    return bytes_per_ns > 0 ? static_cast<double>(bytes) / bytes_per_ns : 0;
  }

  const StepSetup& setup_;
  const CostTable& costs_;
  const SlotPlan& plan_;
  std::vector<StageLoad> loads_;
  StepLimits limits_;
  std::vector<ComputedInterval>* timeline_;
  std::vector<DeviceLanes> lanes_;
  std::vector<bool> fits_;
  std::vector<double> arrived_ns_;   ///< per micro-batch of the round: the chain's last output
  std::vector<double> computed_ns_;  ///< per micro-batch: ends of the slot that runs
  std::vector<double> landed_ns_;    ///< per layer: its last gradient of this iteration
  std::vector<std::vector<double>> updated_ns_;  ///< per layer, after this and the last iteration
  double host_free_ns_ = 0, compute_end_ns_ = 0;
  double compute_start_ns_ = std::numeric_limits<double>::infinity();
  int last_device_ = -1;
  int first_micro_batch_ = 0;  ///< of `arrived_ns_`, in the round
  int64_t slot_ = 0;
  bool counts_ = false;
  bool is_first_ = true;
  double busy_ns_[kStepLanes] = {};
  StepPrediction prediction_;
};

int StepSimulation::device_for(int stage, double gate_ns) const {
  int devices = setup_.device_count();
  if (plan_.dispatch == SlotDispatch::kEveryDevice) return last_device_;
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

void StepSimulation::charge_up(StepLane lane, int device, double time_ns) {
  charge(lane, time_ns);
  const PlannedDevice& info = setup_.devices[device];
  double bytes = time_ns * info.up_bytes_per_ns;
  charge_shared(StepLane::kHostMemory, setup_.host_bytes_per_ns, bytes);
  if (info.uplink < 0) return;
  charge_shared(StepLane::kUplinksUp, setup_.uplinks[info.uplink].up_bytes_per_ns, bytes);
}

void StepSimulation::charge_down(StepLane lane, int device, double time_ns) {
  charge(lane, time_ns);
  const PlannedDevice& info = setup_.devices[device];
  double bytes = time_ns * info.down_bytes_per_ns;
  charge_shared(StepLane::kHostMemory, setup_.host_bytes_per_ns, bytes);
  if (info.uplink < 0) return;
  charge_shared(StepLane::kUplinksDown, setup_.uplinks[info.uplink].down_bytes_per_ns, bytes);
}

/// The device's next slot in this iteration (round * stages + stage); -1 when it has none or that
/// is not known.
int StepSimulation::next_slot_on(int device, int stage, int round) const {
  auto count = static_cast<int>(plan_.stages.size());
  int last = count * setup_.rounds;
  int next = round * count + stage;
  if (plan_.dispatch == SlotDispatch::kEarliestFinish) return -1;
  if (plan_.dispatch == SlotDispatch::kEveryDevice) return next + 1 < last ? next + 1 : -1;
  if (plan_.dispatch == SlotDispatch::kRotation) {
    next += setup_.device_count();
    return next < last ? next : -1;
  }
  for (++next; next < last; ++next) {
    if (plan_.device_of_stage[next % count] == device) return next;
  }
  return -1;
}

void StepSimulation::request_parameters(int slot, int device, int device_slot, double ready_ns) {
  auto count = static_cast<int>(plan_.stages.size());
  const Stage& layers = plan_.stages[slot % count];
  DeviceLanes& lanes = lanes_[device];
  double up_bytes_per_ns = setup_.devices[device].up_bytes_per_ns;
  bool sums =
      setup_.bulk.gradients_summed_on_device && slot >= count && makes_weight_gradient(layers.kind);
  for (int layer = layers.first_layer; layer <= layers.last_layer; ++layer) {
    const LayerProfile& profile = costs_.layer(layer);
    double length = transfer_ns(profile.parameter_bytes, up_bytes_per_ns);
    std::vector<double> shares = profile.copy_shares;
    for (size_t copy = 0; copy < profile.shared_layers.size(); ++copy) {
      if (profile.shared_layers[copy] >= layers.first_layer) shares[copy] = 0;
    }
    int place = lanes.place_of(device_slot, layer);
    lanes.up.add_bulk({ready_ns, length, device_slot, place}, shares);
    double sent = std::accumulate(shares.begin(), shares.end(), 0.0);
    charge_up(StepLane::kParametersUp, device, shares.empty() ? length : length * sent);
    if (!sums) continue;
    double summed = transfer_ns(profile.gradient_bytes, up_bytes_per_ns);
    lanes.up.add_bulk({ready_ns, summed, device_slot, place}, {});
    charge_up(StepLane::kParametersUp, device, summed);
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
  auto load_layer = [&lanes](int place, double end_ns) { lanes.loaded_ns[place] = end_ns; };
  auto land = [this](int layer, double end_ns) {
    landed_ns_[layer] = std::max(landed_ns_[layer], end_ns);
  };
  computed_ns_.resize(count);
  // The next slot's parameters take the place that the slot before this one has left.
  int next = next_slot_on(device, stage, round);
  if (next >= 0) {
    int next_stage = next % static_cast<int>(plan_.stages.size());
    double ready = std::max(lanes.compute_free_ns, gate_ns(next_stage, iteration));
    request_parameters(next, device, lanes.slots + 1, ready);
  }
  // An input's place is free once the micro-batch before last has been computed.
  auto upload = [&](int m) {
    double place = m < 2 ? lanes.computed_ns[m] : computed_ns_[m - 2];
    double ready = std::max(arrived_ns_[m] + hop, up > 0 ? place : 0.0);
    arrived_ns_[m] = lanes.up.run_urgent(ready, up, load_layer);
  };
  for (int m = 0; m < std::min(2, count); ++m) upload(m);
  lanes.up.finish_bulk(lanes.slots, load_layer);
  int first_place = lanes.place_of(lanes.slots, plan_.stages[stage].first_layer);
  double free = std::max(start_ns, lanes.loaded_ns[first_place]);
  for (int m = 0; m < count; ++m) {
    double begin = std::max({free, arrived_ns_[m], lanes.sent_ns[0]});
    compute_start_ns_ = std::min(compute_start_ns_, begin);
    free = computed_ns_[m] = m == 0 ? end_of_first_ns(stage, device, begin) : begin + time;
    if (timeline_ != nullptr) {
      int micro_batch = round * setup_.round_size() + first_micro_batch_ + m;
      timeline_->push_back({iteration, device, stage, micro_batch, begin, free});
    }
    if (m + 2 < count) upload(m + 2);
    bool sends = m + 1 == count && plan_.stages[stage].kind != ActionKind::kForward;
    if (sends && !setup_.bulk.gradients_in_a_burst) add_gradients(stage, device);
    arrived_ns_[m] = lanes.down.run_urgent(free, down, land);
    if (sends && setup_.bulk.gradients_in_a_burst) send_burst(stage, device);
    lanes.sent_ns[0] = lanes.sent_ns[1];
    lanes.sent_ns[1] = arrived_ns_[m];
    lanes.computed_ns[0] = lanes.computed_ns[1];
    lanes.computed_ns[1] = free;
  }
  charge(StepLane::kCompute, time * count);
  charge_up(StepLane::kActivationsUp, device, up * count);
  charge_down(StepLane::kActivationsDown, device, down * count);
  if (counts_) prediction_.compute_ns[device] += time * count;
  lanes.parameters_free_ns = lanes.compute_free_ns;
  lanes.compute_free_ns = free;
  compute_end_ns_ = std::max(compute_end_ns_, free);
}

/// The first micro-batch of a slot waits for the parameters of each layer.
double StepSimulation::end_of_first_ns(int stage, int device, double begin_ns) const {
  const Stage& layers = plan_.stages[stage];
  const DeviceLanes& lanes = lanes_[device];
  double speed = setup_.devices[device].speed;
  double end_ns = begin_ns + loads_[stage].time_ns / speed;
  double left_ns = loads_[stage].time_ns;
  for (int layer = layers.first_layer; layer <= layers.last_layer; ++layer) {
    double loaded_ns = lanes.loaded_ns[lanes.place_of(lanes.slots, layer)];
    end_ns = std::max(end_ns, loaded_ns + left_ns / speed);
    const LayerProfile& profile = costs_.layer(layer);
    bool recomputes = layers.kind == ActionKind::kBackward;
    left_ns -= recomputes ? profile.recompute_ns : profile.forward_ns;
  }
  return end_ns;
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
    charge_down(StepLane::kGradientsDown, device, length);
  }
  lanes.summing_slots.push_back(lanes.slots);
}

/// All layers come down as one, before anything that is computed later.
void StepSimulation::send_burst(int stage, int device) {
  DeviceLanes& lanes = lanes_[device];
  const Stage& layers = plan_.stages[stage];
  for (int layer = layers.last_layer; layer >= layers.first_layer; --layer) {
    double length =
        transfer_ns(costs_.layer(layer).gradient_bytes, setup_.devices[device].down_bytes_per_ns);
    lanes.down.run_in_order({computed_ns_.back(), length, lanes.slots, layer},
                            [this](int landed, double end_ns) {
                              landed_ns_[landed] = std::max(landed_ns_[landed], end_ns);
                            });
    charge_down(StepLane::kGradientsDown, device, length);
  }
  lanes.summing_slots.push_back(lanes.slots);
}

void StepSimulation::run_slot(int stage, int round, int iteration) {
  double gate = gate_ns(stage, iteration);
  int device = device_for(stage, gate);
  DeviceLanes& lanes = lanes_[device];
  if (is_first_) prediction_.devices.push_back(device);
  if (lanes.requested_slot < lanes.slots) {
    int slot = round * static_cast<int>(plan_.stages.size()) + stage;
    request_parameters(slot, device, lanes.slots, std::max(lanes.parameters_free_ns, gate));
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
  bool waits_for_all = setup_.gated || setup_.update == UpdateMode::kBarrier;
  if (waits_for_all) host_free_ns_ = std::max(host_free_ns_, landed_ns_[by_landing.back()]);
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
    auto bytes = static_cast<double>(costs_.layer(next).update_bytes);
    double end = end_of_transfer_ns(limits_.of_host_work(), now, length, bytes);
    // Updates that take no time keep nobody waiting.
    updated_ns_[1][next] = length > 0 ? host_free_ns_ = end : landed_ns_[next];
    charge(StepLane::kHostUpdate, length);
    charge_shared(StepLane::kHostMemory, setup_.host_bytes_per_ns, bytes);
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

void StepSimulation::run_chain(int round, int iteration) {
  arrived_ns_.assign(setup_.round_size(), 0);
  last_device_ = -1;
  for (int stage = 0; stage < static_cast<int>(plan_.stages.size()); ++stage, ++slot_) {
    run_slot(stage, round, iteration);
  }
}

/// Every device runs the chain on its share; stage by stage, so that what they share is served in
/// about the order of time.
void StepSimulation::run_chains(int round, int iteration) {
  std::vector<int> firsts = micro_batch_shares(setup_);
  std::vector<std::vector<double>> arrived_ns(lanes_.size());
  for (size_t device = 0; device < lanes_.size(); ++device) {
    arrived_ns[device].assign(firsts[device + 1] - firsts[device], 0);
  }
  for (int stage = 0; stage < static_cast<int>(plan_.stages.size()); ++stage) {
    for (size_t device = 0; device < lanes_.size(); ++device) {
      if (arrived_ns[device].empty()) continue;
      first_micro_batch_ = firsts[device];
      last_device_ = static_cast<int>(device);
      std::swap(arrived_ns_, arrived_ns[device]);
      run_slot(stage, round, iteration);
      std::swap(arrived_ns_, arrived_ns[device]);
    }
  }
}

void StepSimulation::run_iteration(int iteration) {
  landed_ns_.assign(costs_.layer_count(), 0);
  for (int round = 0; round < setup_.rounds; ++round) {
    if (plan_.dispatch == SlotDispatch::kEveryDevice) {
      run_chains(round, iteration);
    } else {
      run_chain(round, iteration);
    }
  }
  for (DeviceLanes& lanes : lanes_) {
    lanes.down.finish_bulk(lanes.slots, [this](int layer, double end_ns) {
      landed_ns_[layer] = std::max(landed_ns_[layer], end_ns);
    });
  }
  update_layers();
}

/// How many of a lane there are.
double StepSimulation::parts_of(StepLane lane) const {
  if (lane == StepLane::kHostUpdate || lane == StepLane::kHostMemory) return 1;
  bool of_uplinks = lane == StepLane::kUplinksUp || lane == StepLane::kUplinksDown;
  return of_uplinks ? std::max(1, limits_.uplinks_in_use()) : setup_.device_count();
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
    double of = parts_of(static_cast<StepLane>(lane));
    prediction_.busy_fraction[lane] =
        std::min(1.0, busy_ns_[lane] / counted / (of * prediction_.step_ns));
  }
  for (double& compute_ns : prediction_.compute_ns) compute_ns /= counted;
  return std::move(prediction_);
}

}  // namespace

StepPrediction predict_step(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan,
                            std::vector<ComputedInterval>* timeline) {
  return StepSimulation(setup, costs, plan, timeline).run();
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
