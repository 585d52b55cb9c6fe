#include "tests/model/model_reference.h"

#include <gtest/gtest.h>

#include "tests/model/model_fixture.h"

namespace stagecoach {

namespace {

/// The yardstick itself: its gradients against central differences of its loss.
class ModelReference : public testing::TestWithParam<double> {};

TEST_P(ModelReference, gradients_agree_with_central_differences) {
  Gpt2Config config = small_gpt2(GetParam());
  config.vocab_size = 11;
  config.n_positions = 6;
  config.n_embd = 8;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_inner = 12;
  Result<Network> network = make_gpt2(config, NetworkHead::kLoss, DType::kF32);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  reference::NamedValues parameters = named_parameters(*network, random_parameters(*network, 5));
  reference::Gpt2Batch batch = random_batch(2, 5, config.vocab_size, 9);
  batch.loss_scale = 1;
  reference::Gpt2Result result = reference::run_gpt2(config, parameters, batch);
  constexpr double kStep = 1e-5;
  for (auto& [name, values] : parameters) {
    std::vector<double> differences;
    for (double& value : values) {
      double kept = value;
      value = kept + kStep;
      double above = reference::gpt2_loss(config, parameters, batch);
      value = kept - kStep;
      double below = reference::gpt2_loss(config, parameters, batch);
      value = kept;
      differences.push_back((above - below) / (2 * kStep));
    }
    EXPECT_LT(relative_difference(result.gradients[name], differences), 1e-7) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(dropout, ModelReference, testing::Values(0.0, 0.2));

}  // namespace

}  // namespace stagecoach
