#include "train/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "backends/register_backends.h"
#include "core/flush_denormals.h"
#include "hal/adamw_element.h"
#include "model/gpt2.h"
#include "tests/train/step_to_end.h"
#include "train/gradient_sources.h"
#include "train/trainer.h"

namespace stagecoach {
namespace {

TEST(LossScale, FollowsTorch) {
  LossScale scale;
  EXPECT_EQ(scale.value, 65536);
  for (int i = 0; i < 1999; ++i) scale = next_loss_scale(scale, true);
  EXPECT_EQ(scale.value, 65536);
  scale = next_loss_scale(scale, true);  // the 2000th in a row
  EXPECT_EQ(scale.value, 131072);
  EXPECT_EQ(scale.good_steps, 0);
  for (int i = 0; i < 1999; ++i) scale = next_loss_scale(scale, true);
  scale = next_loss_scale(scale, false);
  EXPECT_EQ(scale.value, 65536);
  EXPECT_EQ(scale.good_steps, 0);  // counting begins anew
  for (int i = 0; i < 1999; ++i) scale = next_loss_scale(scale, true);
  EXPECT_EQ(scale.value, 65536);
  EXPECT_EQ(scale.skipped_steps, 1);
}

TEST(LossScale, StaysBetweenOneAndWhatFloatsHold) {
  LossScale scale{3, 0, 0};
  for (int i = 0; i < 5; ++i) scale = next_loss_scale(scale, false);
  EXPECT_EQ(scale.value, 1);
  EXPECT_EQ(scale.skipped_steps, 5);
  scale = {0x1p127, kLossScaleGrowthInterval - 1, 0};
  scale = next_loss_scale(scale, true);
  EXPECT_EQ(scale.value, 0x1p127);
  EXPECT_EQ(scale.good_steps, 0);
}

TEST(LossScale, TheVerdictIsOnGradientsWithoutIt) {
  double square = std::pow(1024.0 * 3, 2);
  GradientVerdict verdict = judge_gradients(square, 1024, 0);
  EXPECT_TRUE(verdict.is_finite);
  EXPECT_EQ(verdict.norm, 3);
  EXPECT_EQ(verdict.gradient_scale, 1.0f / 1024);
  EXPECT_EQ(judge_gradients(square, 1024, 1).gradient_scale, static_cast<float>(1.0 / 3 / 1024));
  EXPECT_EQ(judge_gradients(square, 1024, 4).gradient_scale, 1.0f / 1024);
  EXPECT_EQ(judge_gradients(9, 1, 0).gradient_scale, 1.0f);
  EXPECT_FALSE(judge_gradients(INFINITY, 1024, 1).is_finite);
  EXPECT_FALSE(judge_gradients(NAN, 1024, 1).is_finite);
}

/// fp16 training of a tiny model.
struct LossScaledTraining : ::testing::Test {
  static TrainerOptions options_of(double loss_scale, double clip_norm) {
    TrainerOptions options;
    options.batch = 4;
    options.sequence = 8;
    options.micro_batches = 2;
    options.loss_scale = loss_scale;
    options.clip_norm = clip_norm;
    return options;
  }
  std::unique_ptr<Trainer> make(const TrainerOptions& options) {
    Gpt2Config model;
    model.vocab_size = 65;
    model.n_positions = 8;
    model.n_embd = 16;
    model.n_layer = 2;
    model.n_head = 2;
    model.n_inner = 32;
    Result<std::unique_ptr<Trainer>> made =
        Trainer::create(make_gpt2(model, NetworkHead::kLoss, DType::kF16).value(),
                        {devices[0].get(), devices[1].get()}, options);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(made).value();
  }
  static void pass(Trainer& trainer) {
    std::vector<int32_t> inputs(32), labels(32);
    for (int i = 0; i < 32; ++i) {
      inputs[i] = static_cast<int32_t>((trainer.iteration() * 7 + i) % 65);
      labels[i] = (inputs[i] * 3 + 1) % 65;
    }
    Result<StepLoss> loss =
        trainer.forward_backward(HostTensor::of(inputs, {4, 8}), HostTensor::of(labels, {4, 8}));
    ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
  }
  std::vector<std::unique_ptr<Device>> devices = built_in_backends().open_devices("cpu:2").value();
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
};

/// The loop as one would write it down: fp32 arrays, one element after the other. Gradients are the
/// only thing it asks a trainer for.
class PlainLoop {
 public:
  PlainLoop(LossScaledTraining& test, const Trainer& start, const TrainerOptions& options)
      : test_(test), options_(options), scale_(options.loss_scale) {
    for (size_t b = 0; b < start.network().blocks.size(); ++b) {
      std::vector<float> values(start.network().blocks[b].element_count);
      start.read_parameters(static_cast<int>(b), 0, values);
      first_.emplace_back(values.size());
      second_.emplace_back(values.size());
      parameters_.push_back(std::move(values));
    }
  }
  double scale() const { return scale_; }
  int64_t updates() const { return updates_; }
  const std::vector<std::vector<float>>& parameters() const { return parameters_; }
  const std::vector<std::vector<float>>& first() const { return first_; }

  /// One iteration; whether there was an update.
  bool step(int64_t iteration, double rate) {
    std::unique_ptr<Trainer> probe = gradients_at(iteration);
    if (!probe) {
      scale_ = std::max(1.0, scale_ / 2);
      return false;
    }
    double sum = 0;
    std::vector<std::vector<float>> gradients = read_gradients(*probe);
    for (const std::vector<float>& block : gradients) {
      const void* source = block.data();
      sum += sum_of_squares({DType::kF32, {&source, 1}}, static_cast<int64_t>(block.size()),
                            *test_.pool);
    }
    double norm = std::sqrt(sum), clip = options_.clip_norm;
    float factor = clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
    ++updates_;
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (const ParameterInfo& parameter : probe->network().blocks[b].parameters) {
        update(b, parameter, gradients[b], factor, rate);
      }
    }
    return true;
  }

 private:
  /// With beta1 = 0 the first moment is the gradient, and a power of two changes no bit of it.
  std::unique_ptr<Trainer> gradients_at(int64_t iteration) {
    TrainerOptions options = options_;
    options.beta1 = 0;
    options.clip_norm = 0;
    options.loss_scale = scale_;
    std::unique_ptr<Trainer> probe = test_.make(options);
    for (size_t b = 0; b < parameters_.size(); ++b) {
      EXPECT_TRUE(probe->write_parameters(static_cast<int>(b), 0, parameters_[b]).is_ok());
    }
    probe->set_iteration(iteration);
    LossScaledTraining::pass(*probe);
    Result<StepUpdate> update = step_to_end(*probe, 0);
    EXPECT_TRUE(update.is_ok()) << update.status().to_string();
    return update->skipped ? nullptr : std::move(probe);
  }
  std::vector<std::vector<float>> read_gradients(const Trainer& probe) const {
    std::vector<std::vector<float>> gradients;
    for (size_t b = 0; b < parameters_.size(); ++b) {
      std::vector<float> read(parameters_[b].size());
      probe.read_moment(Moment::kFirst, static_cast<int>(b), 0, read);
      gradients.push_back(std::move(read));
    }
    return gradients;
  }
  void update(size_t b, const ParameterInfo& parameter, const std::vector<float>& gradient,
              float factor, double rate) {
    OpCall call;
    double decay = parameter.decay ? options_.weight_decay : 0;
    call.adamw = {static_cast<float>(rate), static_cast<float>(options_.beta1),
                  static_cast<float>(options_.beta2), static_cast<float>(decay), updates_};
    call.epsilon = static_cast<float>(options_.epsilon);
    call.scale = factor;
    AdamWFactors factors = adamw_factors(call);
    FlushDenormals flush;
    int64_t end = parameter.offset + parameter.shape.element_count();
    for (int64_t i = parameter.offset; i < end; ++i) {
      update_adamw_element(factors, gradient[i], parameters_[b][i], first_[b][i], second_[b][i]);
    }
  }

  LossScaledTraining& test_;
  TrainerOptions options_;
  double scale_;
  int64_t updates_ = 0;
  std::vector<std::vector<float>> parameters_, first_, second_;
};

/// Trains beside a plain loop until several updates are made. Returns how many steps were skipped.
int64_t expect_the_bits_of_a_plain_loop(LossScaledTraining& test, const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer = test.make(options);
  trainer->initialize_parameters();
  PlainLoop plain(test, *trainer, options);
  constexpr double kRate = 1e-2;
  for (int64_t iteration = 0; plain.updates() < 4 && iteration < 40; ++iteration) {
    std::string before = trainer->weights_sha256();
    LossScaledTraining::pass(*trainer);
    double scale = plain.scale();
    Result<StepUpdate> update = step_to_end(*trainer, kRate);
    EXPECT_TRUE(update.is_ok()) << update.status().to_string();
    if (!update.is_ok()) break;
    bool updated = plain.step(iteration, kRate);
    EXPECT_EQ(update->skipped, !updated) << iteration;
    EXPECT_EQ(update->loss_scale, scale) << iteration;
    EXPECT_EQ(std::isfinite(update->gradient_norm), updated);
    EXPECT_EQ(trainer->iteration(), iteration + 1);
    EXPECT_EQ(trainer->weights_sha256() == before, update->skipped);
    for (size_t b = 0; b < plain.parameters().size(); ++b) {
      std::vector<float> read(plain.parameters()[b].size());
      trainer->read_parameters(static_cast<int>(b), 0, read);
      EXPECT_EQ(read, plain.parameters()[b]) << iteration << " block " << b;
      trainer->read_moment(Moment::kFirst, static_cast<int>(b), 0, read);
      EXPECT_EQ(read, plain.first()[b]) << iteration << " block " << b;
    }
  }
  EXPECT_EQ(plain.updates(), 4);
  EXPECT_EQ(trainer->loss_scale().value, plain.scale());
  return trainer->loss_scale().skipped_steps;
}

TEST_F(LossScaledTraining, OverflowSkipsHalvesAndGoesOnAsAPlainLoopDoes) {
  for (double clip_norm : {0.0, 0.25}) {
    SCOPED_TRACE(clip_norm);
    int64_t skipped = expect_the_bits_of_a_plain_loop(*this, options_of(0x1p26, clip_norm));
    EXPECT_GE(skipped, 2);
    EXPECT_EQ(expect_the_bits_of_a_plain_loop(*this, options_of(64, clip_norm)), 0);
  }
}

TEST_F(LossScaledTraining, GoodStepsInARowDoubleTheFactor) {
  std::unique_ptr<Trainer> trainer = make(options_of(64, 1));
  trainer->initialize_parameters();
  trainer->set_iteration(kLossScaleGrowthInterval + 5);
  trainer->set_loss_scale({64, kLossScaleGrowthInterval - 2, 5}, 64);
  for (double expected : {64.0, 64.0, 128.0}) {
    pass(*trainer);
    EXPECT_EQ(step_to_end(*trainer, 1e-3).value().loss_scale, expected);
  }
  EXPECT_EQ(trainer->loss_scale().skipped_steps, 5);
}

TEST_F(LossScaledTraining, AtOneThereIsNothingToMakeSmaller) {
  std::unique_ptr<Trainer> trainer = make(options_of(1, 1));
  trainer->initialize_parameters();
  for (size_t b = 0; b < trainer->network().blocks.size(); ++b) {
    for (const ParameterInfo& parameter : trainer->network().blocks[b].parameters) {
      // The loss is finite; the gradients of h.1.mlp.c_fc.weight are past what fp16 holds.
      float value = 0;
      if (parameter.name.ends_with("h.1.ln_2.bias")) value = 6e4f;
      if (parameter.name.ends_with("h.1.mlp.c_proj.weight")) value = 1e4f;
      bool chosen = value > 0 || parameter.name.ends_with("h.1.mlp.c_fc.weight");
      std::vector<float> values(static_cast<size_t>(parameter.shape.element_count()), value);
      if (!chosen) continue;
      ASSERT_TRUE(trainer->write_parameters(static_cast<int>(b), parameter.offset, values).is_ok());
    }
  }
  std::string before = trainer->weights_sha256();
  pass(*trainer);
  Result<StepUpdate> update = step_to_end(*trainer, 1e-2);
  ASSERT_FALSE(update.is_ok());
  EXPECT_EQ(update.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(trainer->weights_sha256(), before);
}

}  // namespace
}  // namespace stagecoach
