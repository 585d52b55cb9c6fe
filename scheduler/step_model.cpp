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

struct Span {
  double start_ns = 0;
  double end_ns = 0;
};

/// End of work of `length_ns` from `start_ns` that gives way to `busy`, spans in time order.
double end_beside(double start_ns, double length_ns, const std::vector<Span>& busy) {
  double at = start_ns;
  for (const Span& span : busy) {
    if (span.end_ns <= at) continue;
    double room = std::max(0.0, span.start_ns - at);
    if (room >= length_ns) break;
    length_ns -= room;
    at = std::max(at, span.end_ns);
  }
  return at + length_ns;
}

/// One device's lanes.
struct DeviceLanes {
  double compute_free_ns = 0, before_that_ns = 0;  ///< ends of its last two slots
  double up_free_ns = 0, down_free_ns = 0, parameters_free_ns = 0, gradients_free_ns = 0;
  std::vector<Span> uploads, downloads;  ///< of activations, of its last slot
  /// Gradients that come down once the next slot's outputs are known.
  int pending_stage = -1;
  double pending_from_ns = 0;
  double gradient_places_ns[2] = {0, 0};  ///< ends of the last two gradient downloads
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
  void run_slot(int stage, double gate_ns);
  int device_for(int stage, double gate_ns) const;
  double upload_parameters(int stage, int device, double gate_ns);
  void run_micro_batches(int stage, int device, double start_ns);
  void send_gradients(int device);
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

double StepSimulation::upload_parameters(int stage, int device, double gate_ns) {
  DeviceLanes& lanes = lanes_[device];
  double length =
      transfer_ns(loads_[stage].parameter_bytes, setup_.devices[device].up_bytes_per_ns);
  double start = std::max({lanes.parameters_free_ns, lanes.before_that_ns, gate_ns});
  lanes.parameters_free_ns = length > 0 ? end_beside(start, length, lanes.uploads) : start;
  charge(StepLane::kParametersUp, length);
  return lanes.parameters_free_ns;
}

void StepSimulation::run_micro_batches(int stage, int device, double start_ns) {
  DeviceLanes& lanes = lanes_[device];
  const PlannedDevice& info = setup_.devices[device];
  const StageLoad& load = loads_[stage];
  double time = load.time_ns / info.speed;
  double up = transfer_ns(load.in_bytes, info.up_bytes_per_ns);
  double down = transfer_ns(load.out_bytes, info.down_bytes_per_ns);
  double hop = last_device_ == device || last_device_ < 0 ? 0 : setup_.hop_ns;
  lanes.uploads.clear();
  lanes.downloads.clear();
  double free = start_ns;
  auto count = static_cast<int>(arrived_ns_.size());
  computed_ns_.resize(count);
  for (int m = 0; m < count; ++m) {
    double place = m >= 2 ? computed_ns_[m - 2] : lanes.before_that_ns;
    double input = arrived_ns_[m] + hop;
    if (up > 0) {
      double begin = std::max({input, lanes.up_free_ns, place});
      lanes.up_free_ns = input = begin + up;
      lanes.uploads.push_back({begin, input});
    }
    double begin = std::max(free, input);
    // The output's place is free once the micro-batch before last has come down.
    if (m >= 2 && down > 0) begin = std::max(begin, lanes.downloads[m - 2].end_ns);
    if (m == 0) compute_start_ns_ = std::min(compute_start_ns_, begin);
    free = computed_ns_[m] = begin + time;
    arrived_ns_[m] = free;
    if (down > 0) {
      double first = std::max(free, lanes.down_free_ns);
      lanes.down_free_ns = arrived_ns_[m] = first + down;
      lanes.downloads.push_back({first, first + down});
    }
  }
  charge(StepLane::kCompute, time * count);
  charge(StepLane::kActivationsUp, up * count);
  charge(StepLane::kActivationsDown, down * count);
  if (counts_) prediction_.compute_ns[device] += time * count;
  lanes.before_that_ns = lanes.compute_free_ns;
  lanes.compute_free_ns = free;
  compute_end_ns_ = std::max(compute_end_ns_, free);
}

void StepSimulation::send_gradients(int device) {
  DeviceLanes& lanes = lanes_[device];
  if (lanes.pending_stage < 0) return;
  const Stage& stage = plan_.stages[lanes.pending_stage];
  double at = std::max(lanes.pending_from_ns, lanes.gradients_free_ns);
  // Layers come down one after the other, the last first, as their sums become final.
  for (int layer = stage.last_layer; layer >= stage.first_layer; --layer) {
    double length =
        transfer_ns(costs_.layer(layer).gradient_bytes, setup_.devices[device].down_bytes_per_ns);
    if (length > 0) at = end_beside(at, length, lanes.downloads);
    charge(StepLane::kGradientsDown, length);
    landed_ns_[layer] = std::max(landed_ns_[layer], at);
  }
  lanes.gradients_free_ns = at;
  lanes.gradient_places_ns[0] = lanes.gradient_places_ns[1];
  lanes.gradient_places_ns[1] = at;
  lanes.pending_stage = -1;
}

void StepSimulation::run_slot(int stage, double gate_ns) {
  int device = device_for(stage, gate_ns);
  DeviceLanes& lanes = lanes_[device];
  if (is_first_) prediction_.devices.push_back(device);
  double start = std::max(lanes.compute_free_ns, upload_parameters(stage, device, gate_ns));
  bool sums = plan_.stages[stage].kind != ActionKind::kForward;
  // Two places for gradients: the one before last has come down.
  if (sums) start = std::max(start, lanes.gradient_places_ns[0]);
  run_micro_batches(stage, device, start);
  send_gradients(device);
  if (sums) {
    lanes.pending_stage = stage;
    lanes.pending_from_ns = lanes.compute_free_ns;
  }
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
      run_slot(stage, gate_ns(stage, iteration));
    }
  }
  for (int device = 0; device < setup_.device_count(); ++device) {
    lanes_[device].downloads.clear();
    send_gradients(device);
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
  prediction_.bubble = 1 - compute / (devices * window);
  for (int lane = 0; lane < kStepLanes; ++lane) {
    double of = lane == static_cast<int>(StepLane::kHostUpdate) ? 1 : devices;
    prediction_.busy_fraction[lane] = busy_ns_[lane] / counted / (of * prediction_.step_ns);
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
