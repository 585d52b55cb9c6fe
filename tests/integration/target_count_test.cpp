// The loss is a mean over the targets of the whole step, however they are spread (field reports 34
// to 36).
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "model/decoder.h"
#include "tests/integration/training_fixture.h"
#include "train/labels.h"

namespace stagecoach::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSequences = 8;
constexpr int64_t kLength = 16;
/// Of each sequence of a batch: the first two are masked, and with them micro-batch 0 of four.
constexpr int64_t kTargets[kSequences] = {0, 0, 3, 16, 1, 0, 16, 7};

struct Batch {
  std::vector<int32_t> inputs, labels;
  int64_t targets = 0;
};

Batch batch_of(int64_t iteration) {
  Batch batch;
  for (int64_t s = 0; s < kSequences; ++s) {
    for (int64_t i = 0; i < kLength; ++i) {
      int64_t place = (iteration * kSequences + s) * kLength + i;
      batch.inputs.push_back(synthetic_token(7, place, 61));
      bool counts = i >= kLength - kTargets[s];
      batch.labels.push_back(counts ? synthetic_token(7, place + 1, 61) : kForeignIgnoredLabel);
      batch.targets += counts ? 1 : 0;
    }
  }
  return batch;
}

/// Sequences `first` to `first` + `count` - 1.
Batch part_of(const Batch& whole, int64_t first, int64_t count) {
  Batch part;
  auto copy = [&](const std::vector<int32_t>& values) {
    return std::vector<int32_t>(values.begin() + first * kLength,
                                values.begin() + (first + count) * kLength);
  };
  part.inputs = copy(whole.inputs);
  part.labels = copy(whole.labels);
  return part;
}

struct Training {
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Trainer> trainer;
};

/// A network whose rows go to two of five experts.
Network make_experts(double router_loss = 0) {
  DecoderConfig config;
  Architecture& a = config.architecture;
  a.family = ModelFamily::kQwen3Moe;
  a.vocabulary = 61;
  a.positions = kLength;
  a.hidden = 32;
  a.layers = 2;
  a.heads = 2;
  a.kv_heads = 1;
  a.head_dim = 16;
  a.intermediate = 16;
  a.experts = 5;
  a.experts_per_token = 2;
  config.initializer_range = 0.2;
  config.normalizes_choice = true;
  config.router_loss = router_loss;
  return make_decoder(config, NetworkHead::kLoss, DType::kF32, kLength).value();
}

Training begin(const TinyRun& run, bool has_experts = false, double router_loss = 0) {
  Training training;
  training.devices = built_in_backends().open_devices(run.devices).value();
  std::vector<Device*> pointers;
  for (const auto& device : training.devices) pointers.push_back(device.get());
  Result<std::unique_ptr<Trainer>> trainer =
      Trainer::create(has_experts ? make_experts(router_loss)
                                  : make_gpt2(run.model, NetworkHead::kLoss, run.dtype).value(),
                      pointers, run.options);
  EXPECT_TRUE(trainer.is_ok()) << trainer.status().to_string();
  training.trainer = std::move(trainer).value();
  training.trainer->initialize_parameters();
  return training;
}

Result<StepLoss> pass(Trainer& trainer, const Batch& batch, int64_t step_targets = 0) {
  Shape shape{static_cast<int64_t>(batch.inputs.size()) / kLength, kLength};
  return trainer.forward_backward(HostTensor::of(batch.inputs, shape),
                                  HostTensor::of(batch.labels, shape), {step_targets});
}

using Tensors = std::map<std::string, std::vector<float>>;

Tensors tensors_of(const Trainer& trainer) {
  Tensors tensors;
  const Network& network = trainer.network();
  for (size_t block = 0; block < network.blocks.size(); ++block) {
    for (const ParameterInfo& parameter : network.blocks[block].parameters) {
      std::vector<float>& values = tensors[parameter.name];
      values.resize(static_cast<size_t>(parameter.shape.element_count()));
      trainer.read_parameters(static_cast<int>(block), parameter.offset, values);
    }
  }
  return tensors;
}

/// Largest relative Frobenius distance of a tensor, and its name, `left_out` apart.
std::pair<double, std::string> distance(const Tensors& one, const Tensors& other,
                                        const std::string& left_out = "none") {
  std::pair<double, std::string> most;
  for (const auto& [name, values] : one) {
    if (name.ends_with(left_out)) continue;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(double{values[i]} - double{other.at(name)[i]}, 2);
      norm += std::pow(double{values[i]}, 2);
    }
    most = std::max(most, {norm > 0 ? std::sqrt(difference / norm) : difference, name});
  }
  return most;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> router_losses;  ///< where there are any
  Tensors tensors;
};

constexpr int kSteps = 3;

TinyRun run_of(int micro_batches, int64_t rounds, const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.options.batch = kSequences;
  run.options.micro_batches = micro_batches;
  run.options.rounds = rounds;
  run.options.optimizer = "sgd";
  // Dropout draws by micro-batch.
  run.model.resid_pdrop = run.model.embd_pdrop = run.model.attn_pdrop = 0;
  return run;
}

Outcome train(const TinyRun& run, double learning_rate = 0.1, bool has_experts = false,
              double router_loss = 0) {
  Training training = begin(run, has_experts, router_loss);
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    Batch batch = batch_of(i);
    Batch before = batch;
    Result<StepLoss> loss = pass(*training.trainer, batch);
    EXPECT_TRUE(loss.is_ok()) << loss.status().to_string();
    EXPECT_EQ(loss->targets, batch.targets);
    EXPECT_TRUE(training.trainer->step(learning_rate).is_ok());
    outcome.losses.push_back(loss->loss);
    if (loss->router_loss) outcome.router_losses.push_back(*loss->router_loss);
    // Field report 36: what the caller owns stays as it is.
    EXPECT_EQ(batch.labels, before.labels);
    EXPECT_EQ(batch.inputs, before.inputs);
  }
  EXPECT_TRUE(training.trainer->synchronize().is_ok());
  outcome.tensors = tensors_of(*training.trainer);
  return outcome;
}

void expect_close(const Outcome& one, const Outcome& other, const std::string& what,
                  const std::string& left_out = "none") {
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], other.losses[i], 1e-6 * one.losses[i]) << what;
  }
  ASSERT_EQ(one.router_losses.size(), other.router_losses.size()) << what;
  for (size_t i = 0; i < one.router_losses.size(); ++i) {
    EXPECT_NEAR(one.router_losses[i], other.router_losses[i], 1e-6 * one.router_losses[i]) << what;
  }
  auto [most, name] = distance(one.tensors, other.tensors, left_out);
  EXPECT_LE(most, 1e-6) << what << ": " << name;
}

TEST(TargetCount, MicroBatchesRoundsAndDevicesChangeNothing) {
  Outcome one = train(run_of(1, 1, "cpu:1"));
  EXPECT_GT(distance(one.tensors, tensors_of(*begin(run_of(1, 1, "cpu:1")).trainer)).first, 1e-3);
  for (int micro_batches : {1, 2, 4}) {
    for (int64_t rounds : {1, 2}) {
      if (micro_batches % rounds != 0) continue;
      for (const char* devices : {"cpu:1", "cpu:2", "cpu:3"}) {
        expect_close(
            one, train(run_of(micro_batches, rounds, devices)),
            fmt::format("{} micro-batches, {} rounds, {}", micro_batches, rounds, devices));
      }
    }
  }
}

// Loss terms weigh by target as well, however unequal micro-batches are.
TEST(TargetCount, MicroBatchesRoundsAndDevicesChangeNothingWithLossTerms) {
  auto trained = [](TinyRun run) {
    run.options.z_loss = 0.01;
    run.options.label_smoothing = 0.1;
    return train(run);
  };
  Outcome one = trained(run_of(1, 1, "cpu:1"));
  EXPECT_GT(distance(one.tensors, train(run_of(1, 1, "cpu:1")).tensors).first, 1e-3);
  expect_close(one, trained(run_of(2, 1, "cpu:2")), "2 micro-batches, cpu:2");
  expect_close(one, trained(run_of(4, 1, "cpu:3")), "4 micro-batches, cpu:3");
  expect_close(one, trained(run_of(4, 2, "cpu:2")), "2 rounds, cpu:2");
}

// The experts' balance is one of sequences, which micro-batches never cut.
TEST(TargetCount, MicroBatchesRoundsAndDevicesChangeNothingWithARouterLoss) {
  auto trained = [](const TinyRun& run) { return train(run, 0.1, true, 0.2); };
  Outcome one = trained(run_of(1, 1, "cpu:1"));
  ASSERT_EQ(one.router_losses.size(), kSteps);
  // Two experts a token: 2 where they are balanced.
  for (double loss : one.router_losses) EXPECT_GT(loss, 1.9);
  Outcome without = train(run_of(1, 1, "cpu:1"), 0.1, true);
  EXPECT_TRUE(without.router_losses.empty());
  EXPECT_EQ(without.losses.front(), one.losses.front());
  EXPECT_GT(distance(one.tensors, without.tensors).first, 1e-3);
  expect_close(one, trained(run_of(2, 1, "cpu:2")), "2 micro-batches, cpu:2");
  expect_close(one, trained(run_of(4, 1, "cpu:3")), "4 micro-batches, cpu:3");
  expect_close(one, trained(run_of(4, 2, "cpu:2")), "2 rounds, cpu:2");
  // Bit for bit where micro-batches are the same: bound stages, split and recomputed backwards.
  Outcome streamed = trained(run_of(4, 1, "cpu:2"));
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const char* activations : {"keep", "recompute"}) {
      TinyRun run = run_of(4, 1, "cpu:2");
      run.options.schedule = schedule;
      run.options.activations = activations;
      Outcome bound = trained(run);
      EXPECT_EQ(bound.losses, streamed.losses) << schedule << activations;
      EXPECT_EQ(bound.router_losses, streamed.router_losses) << schedule << activations;
      EXPECT_EQ(bound.tensors, streamed.tensors) << schedule << activations;
    }
  }
}

// Evaluation has the bits that it has without, and tells nothing of it.
TEST(TargetCount, ARouterLossIsPartOfTrainingAndNotOfEvaluation) {
  Batch batch = batch_of(0);
  Shape shape{kSequences, kLength};
  auto evaluate = [&](Trainer& trainer) {
    Result<StepLoss> loss =
        trainer.evaluate(HostTensor::of(batch.inputs, shape), HostTensor::of(batch.labels, shape));
    EXPECT_FALSE(loss->router_loss.has_value());
    return loss->loss;
  };
  Training plain = begin(run_of(2, 1, "cpu:1"), true);
  Training balanced = begin(run_of(2, 1, "cpu:1"), true, 0.5);
  EXPECT_EQ(evaluate(*plain.trainer), evaluate(*balanced.trainer));
  EXPECT_FALSE(pass(*plain.trainer, batch)->router_loss.has_value());
  EXPECT_TRUE(pass(*balanced.trainer, batch)->router_loss.has_value());
}

// Of the same weights: evaluation has the bits that it has without, training another loss.
TEST(TargetCount, LossTermsArePartOfTrainingAndNotOfEvaluation) {
  Batch batch = batch_of(0);
  Shape shape{kSequences, kLength};
  auto losses = [&](double z_loss, double label_smoothing) {
    TinyRun run = run_of(2, 1, "cpu:1");
    run.options.z_loss = z_loss;
    run.options.label_smoothing = label_smoothing;
    Training training = begin(run);
    Result<StepLoss> evaluated = training.trainer->evaluate(HostTensor::of(batch.inputs, shape),
                                                            HostTensor::of(batch.labels, shape));
    Result<StepLoss> trained = pass(*training.trainer, batch);
    Result<StepLoss> after = training.trainer->evaluate(HostTensor::of(batch.inputs, shape),
                                                        HostTensor::of(batch.labels, shape));
    EXPECT_EQ(evaluated->loss, after->loss);
    return std::pair(evaluated->loss, trained->loss);
  };
  auto [plain, plain_trained] = losses(0, 0);
  EXPECT_EQ(plain, plain_trained);
  for (auto [z_loss, label_smoothing] : {std::pair(0.01, 0.0), {0.0, 0.1}, {0.01, 0.1}}) {
    auto [evaluated, trained] = losses(z_loss, label_smoothing);
    EXPECT_EQ(evaluated, plain);
    EXPECT_NE(trained, plain);
    // The log of the denominator is near that of 61 words where weights are small.
    EXPECT_NEAR(trained, plain + z_loss * std::pow(std::log(61.0), 2), 0.05);
  }
}

TEST(TargetCount, BadLossTermsAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  auto refusal = [](double z_loss, double label_smoothing) {
    TrainerOptions options;
    options.z_loss = z_loss;
    options.label_smoothing = label_smoothing;
    return check_trainer_options(options, 1).message();
  };
  EXPECT_EQ(refusal(1, 0.999), "");
  for (double bad : {-0.1, 1.5, kNan}) EXPECT_THAT(refusal(bad, 0), HasSubstr("z_loss is"));
  // The last one rounds to 1 in fp32.
  for (double bad : {-0.1, 1.0, kNan, 1 - 1e-12}) {
    EXPECT_THAT(refusal(0, bad), HasSubstr("label_smoothing is"));
  }
}

// Rows are grouped by expert within a micro-batch; which micro-batch a row is in changes nothing.
TEST(TargetCount, MicroBatchesRoundsAndDevicesChangeNothingForExperts) {
  Outcome one = train(run_of(1, 1, "cpu:1"), 0.1, true);
  EXPECT_GT(distance(one.tensors, tensors_of(*begin(run_of(1, 1, "cpu:1"), true).trainer)).first,
            1e-3);
  expect_close(one, train(run_of(2, 1, "cpu:2"), 0.1, true), "2 micro-batches, cpu:2");
  expect_close(one, train(run_of(4, 2, "cpu:2"), 0.1, true), "2 rounds, cpu:2");
  expect_close(one, train(run_of(8, 1, "cpu:3"), 0.1, true), "8 micro-batches, cpu:3");
}

// At the default learning rate. Biases of keys have no gradient but rounding, which AdamW makes
// whole steps of: they are left out.
TEST(TargetCount, MicroBatchesAndDevicesChangeNothingWithAdamW) {
  auto trained = [](int micro_batches, int64_t rounds, const std::string& devices) {
    TinyRun run = run_of(micro_batches, rounds, devices);
    run.options.optimizer = "adamw";
    return train(run, 3e-4);
  };
  Outcome one = trained(1, 1, "cpu:1");
  expect_close(one, trained(4, 1, "cpu:3"), "4 micro-batches, cpu:3", "attn.c_attn.bias");
  expect_close(one, trained(4, 2, "cpu:2"), "2 rounds, cpu:2", "attn.c_attn.bias");
}

// The step as passes of unequal numbers of targets, some of them without any.
TEST(TargetCount, PassesWeighByTheTargetsOfTheWholeStep) {
  struct Case {
    const char* devices;
    bool has_experts;
  };
  for (auto [devices, has_experts] : {Case{"cpu:1", false}, {"cpu:3", false}, {"cpu:2", true}}) {
    double router_loss = has_experts ? 0.2 : 0;
    Outcome one = train(run_of(1, 1, "cpu:1"), 0.1, has_experts, router_loss);
    TinyRun run = run_of(1, 1, devices);
    run.options.batch = 2;
    Training training = begin(run, has_experts, router_loss);
    Outcome outcome;
    for (int i = 0; i < kSteps; ++i) {
      Batch whole = batch_of(i);
      double sum = 0, router_sum = 0;
      for (int64_t first = 0; first < kSequences; first += 2) {
        Result<StepLoss> loss = pass(*training.trainer, part_of(whole, first, 2), whole.targets);
        ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
        EXPECT_EQ(loss->targets == 0, first == 0);
        sum += loss->loss * static_cast<double>(loss->targets);
        router_sum += loss->router_loss.value_or(0) * static_cast<double>(loss->targets);
      }
      outcome.losses.push_back(sum / static_cast<double>(whole.targets));
      double router_mean = router_sum / static_cast<double>(whole.targets);
      if (has_experts) outcome.router_losses.push_back(router_mean);
      ASSERT_TRUE(training.trainer->step(0.1).is_ok());
    }
    ASSERT_TRUE(training.trainer->synchronize().is_ok());
    outcome.tensors = tensors_of(*training.trainer);
    expect_close(one, outcome, devices);
  }
}

// Field report 35: weights, moments and step count stay, and a note counts.
TEST(TargetCount, StepWithoutTargetsIsSkipped) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    auto trained = [&](bool with_masked, std::vector<std::string>& notes) {
      TinyRun run = run_of(2, 1, "cpu:2");
      run.options.update = update;
      run.options.optimizer = "adamw";
      run.options.times_layers = false;
      Training training = begin(run);
      Batch masked = batch_of(0);
      std::fill(masked.labels.begin(), masked.labels.end(), kIgnoredLabel);
      for (int i = 0; i < 4; ++i) {
        for (int skipped = 0; with_masked && skipped < (i == 0 ? 2 : 1); ++skipped) {
          Result<StepLoss> loss = pass(*training.trainer, masked);
          EXPECT_TRUE(loss.is_ok()) << loss.status().to_string();
          EXPECT_EQ(loss->targets, 0);
          EXPECT_EQ(loss->loss, 0);
          EXPECT_TRUE(training.trainer->step(3e-3).is_ok());
          EXPECT_EQ(training.trainer->iteration(), i);
        }
        EXPECT_TRUE(pass(*training.trainer, batch_of(i)).is_ok());
        EXPECT_TRUE(training.trainer->step(3e-3).is_ok());
      }
      EXPECT_TRUE(training.trainer->synchronize().is_ok());
      EXPECT_EQ(training.trainer->take_updates().size(), 4u);
      notes = training.trainer->take_notes();
      return training.trainer->weights_sha256();
    };
    std::vector<std::string> notes, none;
    EXPECT_EQ(trained(true, notes), trained(false, none)) << update;
    EXPECT_EQ(notes.size(), none.size() + 5);
    EXPECT_THAT(notes.back(), HasSubstr("every label of its batches is ignored: 5 of 8 so far"));
  }
}

TEST(TargetCount, StepNeedsAPassAndEvaluationCountsTargetsAlone) {
  Training training = begin(run_of(2, 1, "cpu:1"));
  EXPECT_FALSE(training.trainer->step(0.1).is_ok());
  Batch batch = batch_of(0);
  Shape shape{kSequences, kLength};
  Result<StepLoss> some = training.trainer->evaluate(HostTensor::of(batch.inputs, shape),
                                                     HostTensor::of(batch.labels, shape));
  ASSERT_TRUE(some.is_ok());
  EXPECT_EQ(some->targets, batch.targets);
  EXPECT_NEAR(some->loss, std::log(61.0), 0.3);
  std::fill(batch.labels.begin(), batch.labels.end(), kForeignIgnoredLabel);
  Result<StepLoss> none = training.trainer->evaluate(HostTensor::of(batch.inputs, shape),
                                                     HostTensor::of(batch.labels, shape));
  ASSERT_TRUE(none.is_ok());
  EXPECT_EQ(none->targets, 0);
  EXPECT_EQ(none->loss, 0);
}

// Field report 32: labels that are neither ids nor ignored, refused on the host by their place.
TEST(TargetCount, OtherNegativeLabelsAreRefused) {
  Training training = begin(run_of(2, 1, "cpu:1"));
  Batch batch = batch_of(0);
  batch.labels[3 * kLength + 5] = -5;
  Result<StepLoss> loss = pass(*training.trainer, batch);
  ASSERT_FALSE(loss.is_ok());
  EXPECT_THAT(loss.status().message(), HasSubstr("label of sequence 3, position 5 is -5"));
}

}  // namespace
}  // namespace stagecoach::testing
