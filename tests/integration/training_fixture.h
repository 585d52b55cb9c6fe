#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "model/gpt2.h"
#include "train/trainer.h"

namespace stagecoach::testing {

/// A GPT-2 small enough to train in milliseconds and large enough for several stages.
inline Gpt2Config tiny_gpt2() {
  Gpt2Config config;
  config.vocab_size = 61;
  config.n_positions = 16;
  config.n_embd = 32;
  config.n_layer = 4;
  config.n_head = 2;
  config.n_inner = 64;
  return config;
}

inline Result<Network> make_gpt2_with_loss(const Gpt2Config& config, DType dtype) {
  return make_gpt2(config, NetworkHead::kLoss, dtype);
}

/// One training run on synthetic tokens, for comparing runs.
struct TinyRun {
  std::function<Result<Network>(const Gpt2Config&, DType)> make_network = make_gpt2_with_loss;
  std::string devices = "cpu:1";
  Gpt2Config model = tiny_gpt2();
  DType dtype = DType::kF32;
  TrainerOptions options;
  int iterations = 3;
  int64_t passes_per_step = 1;
  uint64_t data_seed = 7;
  /// Of the step of an iteration, from 0.
  std::function<double(int)> learning_rate = [](int) { return 3e-3; };

  TinyRun() {
    options.batch = 8;
    options.sequence = 16;
    options.micro_batches = 4;
    options.timeout_ns = 30'000'000'000;
  }
};

/// What came of it.
struct TinyResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> bubbles;
  std::string weights_sha256;
  TrainerReport report;
  Plan plan;
};

/// Token `index` of the synthetic data: a fixed pattern that a model can learn.
inline int32_t synthetic_token(uint64_t seed, int64_t index, int64_t vocabulary) {
  RandomKey key{seed, 1, 2, 3, 4};
  uint32_t noise = random_word(key, static_cast<uint64_t>(index));
  return static_cast<int32_t>(noise % 4 == 0 ? noise / 4 % vocabulary : index * 7 % vocabulary);
}

/// The batches of a run, one after the other.
class TinyBatches {
 public:
  explicit TinyBatches(const TinyRun& run)
      : vocabulary_(run.model.vocab_size),
        seed_(run.data_seed),
        shape_{run.options.batch, run.options.sequence},
        inputs_(static_cast<size_t>(shape_.element_count())),
        labels_(inputs_.size()) {}

  void next() {
    for (size_t i = 0; i < inputs_.size(); ++i, ++position_) {
      inputs_[i] = synthetic_token(seed_, position_, vocabulary_);
      labels_[i] = synthetic_token(seed_, position_ + 1, vocabulary_);
    }
  }
  HostTensor inputs() const { return HostTensor::of(inputs_, shape_); }
  HostTensor labels() const { return HostTensor::of(labels_, shape_); }

 private:
  int64_t vocabulary_;
  uint64_t seed_;
  Shape shape_;
  int64_t position_ = 0;
  std::vector<int32_t> inputs_, labels_;
};

/// Opens devices of `registry`, trains, and reports. Devices outlive the trainer.
inline Result<TinyResult> train_tiny(const TinyRun& run, const BackendRegistry& registry) {
  STAGECOACH_ASSIGN_OR_RETURN(auto devices, registry.open_devices(run.devices));
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  STAGECOACH_ASSIGN_OR_RETURN(Network network, run.make_network(run.model, run.dtype));
  STAGECOACH_ASSIGN_OR_RETURN(auto trainer,
                              Trainer::create(std::move(network), pointers, run.options));
  trainer->initialize_parameters();
  TinyResult result;
  TinyBatches batches(run);
  for (int iteration = 0; iteration < run.iterations; ++iteration) {
    for (int64_t pass = 0; pass < run.passes_per_step; ++pass) {
      batches.next();
      STAGECOACH_ASSIGN_OR_RETURN(StepLoss loss,
                                  trainer->forward_backward(batches.inputs(), batches.labels()));
      result.losses.push_back(loss.loss);
    }
    STAGECOACH_RETURN_IF_ERROR(trainer->step(run.learning_rate(iteration)));
  }
  STAGECOACH_RETURN_IF_ERROR(trainer->synchronize());
  for (const StepUpdate& update : trainer->take_updates()) {
    result.bubbles.push_back(update.bubble);
    result.norms.push_back(update.gradient_norm);
  }
  result.weights_sha256 = trainer->weights_sha256();
  result.report = trainer->report();
  result.plan = trainer->plan();
  return result;
}

/// The same on this program's own backends.
inline Result<TinyResult> train_tiny(const TinyRun& run) {
  return train_tiny(run, built_in_backends());
}

/// What a sweep over data types goes through: under ThreadSanitizer the last of them, as threads
/// share out work alike whatever they compute with.
inline std::vector<DType> swept_dtypes(std::vector<DType> dtypes) {
#ifdef __SANITIZE_THREAD__
  dtypes.erase(dtypes.begin(), dtypes.end() - 1);
#endif
  return dtypes;
}

/// Runs are measured on the devices' nominal timeline; what the host cannot keep up with shows as
/// overrun, and above this share a measurement says nothing.
inline constexpr double kMaxOverrun = 0.01;

/// Trains on paced devices. A busy host invalidates a measurement, which is then taken again; it
/// never changes one.
inline Result<TinyResult> train_paced(const TinyRun& run) {
  constexpr int kAttempts = 6;
  Result<TinyResult> result = train_tiny(run);
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    if (!result.is_ok() || result->report.overrun <= kMaxOverrun) break;
    result = train_tiny(run);
  }
  return result;
}

}  // namespace stagecoach::testing
