// Every kind of optimizer, by the trainer, against its paper's formula in fp64.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "model/gpt2.h"
#include "tests/train/step_to_end.h"
#include "train/trainer.h"

namespace stagecoach {
namespace {

constexpr double kRate = 1e-2;
constexpr double kDecay = 0.1;

Gpt2Config tiny() {
  Gpt2Config config;
  config.vocab_size = 65;
  config.n_positions = 8;
  config.n_embd = 16;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_inner = 32;
  return config;
}

TrainerOptions options_of(const std::string& kind, double momentum) {
  TrainerOptions options;
  options.batch = 4;
  options.sequence = 8;
  options.micro_batches = 2;
  options.optimizer = kind;
  options.momentum = momentum;
  options.beta2 = 0.99;
  options.epsilon = 1e-3;  // gradients near zero would make Adam's quotient one of rounding errors
  options.weight_decay = kDecay;
  options.clip_norm = 0;
  return options;
}

/// One parameter as the papers have it.
struct Reference {
  double parameter = 0, first = 0, second = 0;

  void apply(const TrainerOptions& options, double decay, double gradient, int step) {
    double beta1 = options.beta1, beta2 = options.beta2;
    if (options.optimizer == "sgd") {
      first = options.momentum * first + gradient + decay * parameter;
      parameter -= kRate * first;
      return;
    }
    if (options.optimizer == "lion") {
      double mean = beta1 * first + (1 - beta1) * gradient;
      parameter -= kRate * decay * parameter;
      parameter -= kRate * ((mean > 0) - (mean < 0));
      first = beta2 * first + (1 - beta2) * gradient;
      return;
    }
    if (options.optimizer == "adam") gradient += decay * parameter;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    if (options.optimizer == "adamw") parameter -= kRate * decay * parameter;
    double first_hat = first / (1 - std::pow(beta1, step));
    double second_hat = second / (1 - std::pow(beta2, step));
    parameter -= kRate * first_hat / (std::sqrt(second_hat) + options.epsilon);
  }
};

struct OptimizerKind : ::testing::Test {
  std::unique_ptr<Trainer> make(const TrainerOptions& options) {
    Result<std::unique_ptr<Trainer>> made = Trainer::create(
        make_gpt2(tiny(), NetworkHead::kLoss, DType::kF32).value(), {devices[0].get()}, options);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(made).value();
  }
  static void pass(Trainer& trainer, int step) {
    std::vector<int32_t> inputs(32), labels(32);
    for (int i = 0; i < 32; ++i) {
      inputs[i] = (step * 7 + i) % 65;
      labels[i] = (inputs[i] * 3 + 1) % 65;
    }
    ASSERT_TRUE(
        trainer.forward_backward(HostTensor::of(inputs, {4, 8}), HostTensor::of(labels, {4, 8}))
            .is_ok());
  }
  static std::vector<float> values(const Trainer& trainer, int block) {
    std::vector<float> read(trainer.network().blocks[block].element_count);
    trainer.read_parameters(block, 0, read);
    return read;
  }
  /// The gradient at the parameters of `trainer`, as the way that one step of plain SGD goes.
  std::vector<std::vector<double>> gradients_at(const Trainer& trainer, int step) {
    constexpr double kFar = 1024;  // so far that rounding the parameters does not matter
    TrainerOptions plain = options_of("sgd", 0);
    plain.weight_decay = 0;
    std::unique_ptr<Trainer> probe = make(plain);
    std::vector<std::vector<double>> gradients;
    int blocks = static_cast<int>(trainer.network().blocks.size());
    for (int block = 0; block < blocks; ++block) {
      EXPECT_TRUE(probe->write_parameters(block, 0, values(trainer, block)).is_ok());
    }
    probe->set_iteration(trainer.iteration());  // keys dropout
    pass(*probe, step);
    EXPECT_TRUE(probe->step(kFar).is_ok());
    for (int block = 0; block < blocks; ++block) {
      std::vector<float> before = values(trainer, block), after = values(*probe, block);
      std::vector<double>& gradient = gradients.emplace_back();
      for (size_t i = 0; i < before.size(); ++i) {
        gradient.push_back((double{before[i]} - double{after[i]}) / kFar);
      }
    }
    return gradients;
  }
  void expect_formula(const TrainerOptions& options);

  std::vector<std::unique_ptr<Device>> devices = built_in_backends().open_devices("cpu:1").value();
};

void OptimizerKind::expect_formula(const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer = make(options);
  trainer->initialize_parameters();
  const std::vector<ParameterBlock>& blocks = trainer->network().blocks;
  std::vector<std::vector<Reference>> expected(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (float value : values(*trainer, static_cast<int>(b))) expected[b].push_back({value});
  }
  for (int step = 1; step <= 3; ++step) {
    std::vector<std::vector<double>> gradients = gradients_at(*trainer, step);
    pass(*trainer, step);
    ASSERT_TRUE(step_to_end(*trainer, kRate).is_ok());
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::vector<float> found = values(*trainer, static_cast<int>(b));
      for (const ParameterInfo& parameter : blocks[b].parameters) {
        double decay = parameter.decay ? kDecay : 0;
        int64_t end = parameter.offset + parameter.shape.element_count();
        for (int64_t i = parameter.offset; i < end; ++i) {
          // The sign of a mean that is zero but for rounding is anyone's.
          double mean =
              options.beta1 * expected[b][i].first + (1 - options.beta1) * gradients[b][i];
          bool tie = options.optimizer == "lion" && std::abs(mean) < 1e-9;
          expected[b][i].apply(options, decay, gradients[b][i], step);
          if (tie) expected[b][i].parameter = found[i];
          ASSERT_NEAR(found[i], expected[b][i].parameter, 3e-6)
              << parameter.name << " element " << i - parameter.offset << " step " << step;
        }
      }
    }
  }
}

TEST_F(OptimizerKind, FollowsItsFormulaThroughTheTrainer) {
  for (const std::string kind : {"adamw", "adam", "sgd", "lion"}) {
    SCOPED_TRACE(kind);
    expect_formula(options_of(kind, 0.8));
  }
  SCOPED_TRACE("sgd without momentum");
  expect_formula(options_of("sgd", 0));
}

TEST_F(OptimizerKind, KeepsTheMomentsItNeeds) {
  auto bytes = [&](const std::string& kind, double momentum) {
    return make(options_of(kind, momentum))->report().state_bytes;
  };
  double parameters = 0;
  std::unique_ptr<Trainer> plain = make(options_of("sgd", 0));
  for (const ParameterBlock& block : plain->network().blocks) {
    parameters += static_cast<double>(block.element_count);
  }
  auto each = [&](ByteCount more, ByteCount less) {
    return static_cast<double>(more - less) / parameters;
  };
  EXPECT_EQ(bytes("adam", 0), bytes("adamw", 0));
  EXPECT_EQ(bytes("lion", 0), bytes("sgd", 0.5));
  EXPECT_NEAR(each(bytes("adamw", 0), bytes("lion", 0)), 4, 0.1);
  EXPECT_NEAR(each(bytes("lion", 0), bytes("sgd", 0)), 4, 0.1);
}

TEST_F(OptimizerKind, UnknownOnesAreRefusedWithWhatWasMeant) {
  Result<std::unique_ptr<Trainer>> made =
      Trainer::create(make_gpt2(tiny(), NetworkHead::kLoss, DType::kF32).value(),
                      {devices[0].get()}, options_of("adanw", 0));
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(made.status().message(), testing::HasSubstr("did you mean 'adamw'?"));
}

}  // namespace
}  // namespace stagecoach
