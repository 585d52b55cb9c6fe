#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "hal/device.h"
#include "memory/host_state.h"
#include "model/mapped_weights.h"
#include "scheduler/block_reader.h"
#include "scheduler/device_planner.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "train/host_tensor.h"
#include "train/loss_scale.h"
#include "train/step_optimizer.h"
#include "train/trainer_options.h"
#include "train/trainer_report.h"

namespace stagecoach {

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
  /// Of networks whose layers report a loss of their own, that of a target in their mean, without
  /// its coefficient: no part of `loss`.
  std::optional<double> router_loss = {};
};

/// One optimizer step that has ended.
struct StepUpdate {
  int64_t iteration = 0;     ///< from 1
  double gradient_norm = 0;  ///< before clipping
  double bubble = 0;         ///< idle share of the compute lanes in its passes
  double loss_scale = 1;     ///< that this step computed with
  bool skipped = false;      ///< gradients were not finite at that scale: nothing is updated
};

/// Trains a network whose state lives in host memory, on any number of devices. The loop is the
/// caller's:
///
///   auto trainer = Trainer::create(std::move(network), devices, options);
///   for (…) { trainer->forward_backward(inputs, labels); trainer->step(learning_rate); }
///   trainer->synchronize();
///
/// With `barrier` a step has ended when `step` returns. With `overlap`, the default, updates run
/// beside the rest of the backward and the next forward, of which every layer waits for its own:
/// the same losses and weights, bit for bit. With `async` iteration T + 1 computes with what
/// iteration T - 1 made, and nothing waits (RoundPipe, arXiv 2604.27085).
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
  /// Draws every parameter from its initializer, keyed by (seed, parameter name); mapped ones are
  /// left alone.
  void initialize_parameters();
  /// The same of adapters alone.
  void initialize_adapters();
  /// Makes devices read the network's mapped blocks from `base`, which has all of them; before the
  /// first pass. Errors: those of HostState::map.
  Status map_base(std::shared_ptr<const MappedWeights> base);
  /// Copies fp32 parameters of a block that is not mapped from element `offset` on; call
  /// synchronize() before this and what follows up to write_moment.
  void read_parameters(int block, int64_t offset, std::span<float> out) const;
  /// Sets them and what devices read. Invalid argument when one is not finite. Any thread.
  Status write_parameters(int block, int64_t offset, std::span<const float> values);
  /// What is kept of moments.
  const MomentOptions& moments() const;
  /// Copies one that is kept of a block that is not frozen, likewise.
  void read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const;
  /// `count` elements of it as they are kept, to be read or written.
  MomentView moment(Moment moment, int block, int64_t offset, int64_t count);
  /// Whether the next pass computes with weights before the newest, which are kept too: `async`.
  bool keeps_previous() const;
  /// What devices read of those of a block that is not frozen, in the network's dtype: `count`
  /// elements from `offset` on. As the newest until a step has been made or they are set.
  std::span<const std::byte> previous_copy(int block, int64_t offset, int64_t count) const;
  void write_previous_copy(int block, int64_t offset, std::span<const std::byte> values);

  /// Groups override decay and learning rate: `matches` are suffixes of parameter names.
  Status set_parameter_group(const std::vector<std::string>& name_suffixes, ParameterGroup group);

  /// Forward and backward of one batch, split into micro-batches along the first dimension;
  /// gradients add up until `step`. inputs [batch, sequence, …], labels likewise; labels -1 and
  /// -100 are ignored. The loss is the sum over targets divided by their number (see LossOptions),
  /// with z-loss and label smoothing, as it is minimised; without any, nothing is computed and both
  /// are 0. `document_starts` int32 [batch, sequence], for networks that keep documents apart: the
  /// position in its sequence where a token's document begins; none: each sequence is one. Returns
  /// when the loss is known; unless updates are `barrier`, backward may still be running. Errors:
  /// invalid argument for shapes; whatever a device reports, naming device, verb and label, in this
  /// pass or in what was still running of earlier ones.
  Result<StepLoss> forward_backward(const HostTensor& inputs, const HostTensor& labels,
                                    const LossOptions& loss = {},
                                    const HostTensor& document_starts = {});
  /// One optimizer update with the gathered gradients: made before this returns with `barrier`,
  /// else begun. Data loss, here or in a later call, when their norm is not finite, with nothing
  /// updated where clipping waits for it, or when a parameter or moment would not be. In fp16
  /// gradients that are not finite are skipped while the loss scale can become smaller: `iteration`
  /// goes on, the optimizer's own count of updates, its parameters and its moments do not. A pass
  /// computes with the scale that the step before it left, with `async` the one before that. Where
  /// no pass had a target, the step is skipped: parameters, moments and `iteration` stay,
  /// take_notes tells how many were, take_updates does not.
  Status step(double learning_rate);
  /// Returns when everything has ended: parameters and moments on the host are final.
  Status synchronize();
  /// Begins to read all blocks as the last step leaves them, while this trains on: the next update
  /// of a block waits until it has been read. An earlier reader is awaited first, in fp16 the last
  /// step's verdict too, so that loss_scale() is its. What is read is host_state(), on the reader's
  /// queue.
  Status begin_reading(std::shared_ptr<BlockReader> reader);
  bool is_reading() const;
  /// Returns when all has been read; the reader's queue may still be at its end. After a failure
  /// too, unless the step whose state is read had not ended.
  Status finish_reading();
  /// For how long updates have waited for readers so far.
  int64_t reading_wait_ns() const;
  const HostState& host_state() const;
  /// Steps that have ended since the last call, in order.
  std::vector<StepUpdate> take_updates();

  /// Loss without gradients or dropout: plain cross-entropy, without z-loss and label smoothing. A
  /// batch of fewer sequences than options.batch is allowed
  /// for integer labels; one without targets has loss 0. `document_starts` as above.
  Result<StepLoss> evaluate(const HostTensor& inputs, const HostTensor& labels,
                            const HostTensor& document_starts = {});
  /// Output of the last layer, rows x columns fp32 (for networks that end in logits); each sequence
  /// is one document.
  Result<std::vector<float>> forward(const HostTensor& inputs);

  /// Steps done so far, skipped ones among them; keys the random numbers, so a resumed run sets it.
  int64_t iteration() const;
  void set_iteration(int64_t iteration);

  /// Of fp16; a resumed run sets it.
  const LossScale& loss_scale() const;
  /// The factor before the last step, which `async` computes the next pass with.
  double previous_loss_scale() const;
  void set_loss_scale(const LossScale& scale, double previous_value);

  const Plan& plan() const;
  TrainerReport report() const;
  /// Layers and devices as the first iterations measured them; null before their end.
  const MeasuredRun* measured() const;
  /// Lines for people about plans made and devices left out since the last call.
  std::vector<std::string> take_notes();
  /// Slices recorded so far; empty unless options.trace. Where steps are predicted, processes
  /// called "predicted DEVICE" show the last pass as it was predicted.
  const Trace& trace();
  /// sha256 of the fp32 optimizer copies in block order, without alignment gaps; what is frozen has
  /// none.
  std::string weights_sha256() const;

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecoach
