#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "hal/device.h"
#include "memory/host_state.h"
#include "scheduler/bulk_lane.h"
#include "scheduler/device_planner.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "train/host_tensor.h"

namespace stagecoach {

/// A set of parameters with settings of its own.
struct ParameterGroup {
  double learning_rate_scale = 1.0;  ///< times the step's learning rate
  double weight_decay = 0.1;
};

/// Schedules this version trains by, the default first. roundpipe and single stream their stages;
/// the others bind them to devices.
const std::vector<std::string_view>& trained_schedules();
/// Whether stages of `schedule` stay on their devices.
bool binds_stages(std::string_view schedule);

/// How to train. Plain data; `Trainer::create` checks it.
struct TrainerOptions {
  std::string schedule = "roundpipe";  ///< one of trained_schedules()
  std::string dispatch = "rotation";   ///< "rotation" or "static", where stages are streamed
  std::string update = "barrier";
  int64_t batch = 16;                ///< sequences of one forward_backward
  int64_t sequence = 1024;           ///< tokens of one sequence
  int64_t micro_batches = 4;         ///< divides batch
  int64_t rounds = 1;                ///< divides micro_batches
  std::string activations = "auto";  ///< "auto", "recompute" or, where stages are bound, "keep"
  int64_t max_stage_layers = 0;      ///< where stages are streamed; 0: the partitioner decides
  uint64_t seed = 1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;            ///< of parameters with `decay`
  double clip_norm = 1.0;               ///< 0 = off
  int64_t timeout_ns = 60'000'000'000;  ///< no progress for this long ends the run
  int host_threads = 0;                 ///< 0: all usable
  bool trace = false;
  /// How parameters and gradients travel beside activations; changes no bit.
  BulkMethod bulk = BulkMethod::kAlternating;
};

/// How the loss of one pass counts.
struct LossOptions {
  /// Targets of the whole step when it is made of several passes, so that each target weighs the
  /// same whatever the batching; 0: this pass is the whole step.
  int64_t step_targets = 0;
};

/// Result of one forward and backward pass.
struct StepLoss {
  double loss = 0;      ///< mean over targets, nats
  int64_t targets = 0;  ///< labels that counted
  double bubble = 0;    ///< idle share of the compute lanes
};

/// Result of one optimizer step.
struct StepUpdate {
  double gradient_norm = 0;  ///< before clipping
};

/// Totals since creation, for summaries.
struct TrainerReport {
  std::string schedule, update;
  std::string activations;  ///< "recompute" or "keep": what backward does
  std::vector<std::string> devices;
  double controller_fraction = 0;  ///< median over iterations
  double overrun = 0;              ///< overrun time / compute time
  double update_exposed_fraction =
      0;                        ///< share of the iteration in which devices waited for updates
  double bubble_simulated = 0;  ///< event simulation of the plan with the measured slot times
  std::vector<ByteCount> device_peak_bytes;
  ByteCount state_bytes = 0;    ///< parameters, one gradient and moments, on the host
  ByteCount landing_bytes = 0;  ///< where more gradients land, of further sites and of rounds
  double host_state_bytes_per_parameter = 0;  ///< of state_bytes
  int64_t bytes_up = 0, bytes_down = 0;
  std::vector<DeviceShare> shares;              ///< per device, of the streamed plan in use
  std::vector<ByteCount> device_planned_bytes;  ///< per device: the most with any plan so far
  /// A step as planned from measured times and as it was, in the median since that plan; 0 while
  /// nothing was measured or where stages are bound.
  double step_predicted_ns = 0, step_ns = 0;
};

/// Trains a network whose state lives in host memory, on any number of devices. The loop is the
/// caller's:
///
///   auto trainer = Trainer::create(std::move(network), devices, options);
///   for (…) { trainer->forward_backward(inputs, labels); trainer->step(learning_rate); }
///
/// Thread rule: one thread at a time. After a failure only destruction is allowed.
class Trainer {
 public:
  /// `devices` must outlive the trainer. Checks options, memory on every device (naming layer,
  /// bytes and what to set when it does not fit) and allocates everything.
  static Result<std::unique_ptr<Trainer>> create(Network network, std::vector<Device*> devices,
                                                 TrainerOptions options);
  ~Trainer();

  const Network& network() const;
  /// Draws every parameter from its initializer, keyed by (seed, parameter name).
  void initialize_parameters();
  /// Copies fp32 parameters of a block from element `offset` on; call synchronize() first.
  void read_parameters(int block, int64_t offset, std::span<float> out) const;
  /// Sets them and what devices read. Invalid argument when one is not finite.
  Status write_parameters(int block, int64_t offset, std::span<const float> values);
  /// The same with moments of a block that is not frozen.
  void read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const;
  void write_moment(Moment moment, int block, int64_t offset, std::span<const float> values);

  /// Groups override decay and learning rate: `matches` are suffixes of parameter names.
  Status set_parameter_group(const std::vector<std::string>& name_suffixes, ParameterGroup group);

  /// Forward and backward of one batch, split into micro-batches along the first dimension;
  /// gradients add up until `step`. inputs [batch, sequence, …], labels likewise; label -1 is
  /// ignored. The loss is the sum over targets divided by their number (see LossOptions). Errors:
  /// invalid argument for shapes; whatever a device reports, naming device, verb and label.
  Result<StepLoss> forward_backward(const HostTensor& inputs, const HostTensor& labels,
                                    const LossOptions& loss = {});
  /// One optimizer update with the gathered gradients. Data loss when their norm is not finite,
  /// with nothing updated, or when a parameter or moment would not be.
  Result<StepUpdate> step(double learning_rate);
  /// Returns when parameters and moments on the host are final.
  Status synchronize();

  /// Loss without gradients or dropout. A batch of fewer sequences than options.batch is allowed
  /// for integer labels.
  Result<StepLoss> evaluate(const HostTensor& inputs, const HostTensor& labels);
  /// Output of the last layer, rows x columns fp32 (for networks that end in logits).
  Result<std::vector<float>> forward(const HostTensor& inputs);

  /// Updates done so far; keys the random numbers, so a resumed run sets it.
  int64_t iteration() const;
  void set_iteration(int64_t iteration);

  const Plan& plan() const;
  TrainerReport report() const;
  /// Layers and devices as the first iterations measured them; null before their end.
  const MeasuredRun* measured() const;
  /// Lines for people about plans made and devices left out since the last call.
  std::vector<std::string> take_notes();
  /// Slices recorded so far; empty unless options.trace. Where steps are predicted, processes
  /// called "predicted DEVICE" show the last pass as it was predicted.
  const Trace& trace();
  /// sha256 of the fp32 optimizer copies in block order, without alignment gaps.
  std::string weights_sha256() const;

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecoach
