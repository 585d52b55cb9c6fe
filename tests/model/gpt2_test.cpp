#include "model/gpt2.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <ostream>

#include "tests/model/model_fixture.h"

namespace stagecoach {

namespace {

constexpr uint64_t kSeed = 17;

Network make_network(const Gpt2Config& config, NetworkHead head, DType dtype) {
  Result<Network> network = make_gpt2(config, head, dtype);
  STAGECOACH_CHECK(network.is_ok());
  return std::move(network).value();
}

std::vector<double> parameter_gradient(const PassResult& result, size_t block,
                                       const ParameterInfo& parameter) {
  auto first = result.gradients[block].begin() + parameter.offset;
  return {first, first + parameter.shape.element_count()};
}

/// Compares losses and every parameter's gradient with the fp64 reference.
void expect_agrees(const Network& network, const PassResult& result,
                   const reference::Gpt2Result& expected, double loss_bound,
                   double gradient_bound) {
  std::vector<double> losses(result.losses.begin(), result.losses.end());
  EXPECT_LT(relative_difference(losses, expected.losses), loss_bound);
  for (size_t b = 0; b < network.blocks.size(); ++b) {
    for (const ParameterInfo& parameter : network.blocks[b].parameters) {
      double difference = relative_difference(parameter_gradient(result, b, parameter),
                                              expected.gradients.at(parameter.name));
      EXPECT_LT(difference, gradient_bound) << parameter.name;
    }
  }
}

void expect_same_bits(const PassResult& a, const PassResult& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  EXPECT_EQ(std::memcmp(a.losses.data(), b.losses.data(), a.losses.size() * 4), 0);
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_EQ(std::memcmp(a.gradients[i].data(), b.gradients[i].data(), a.gradients[i].size() * 4),
              0)
        << "block " << i;
  }
}

struct Case {
  double dropout;
  bool training;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << "dropout " << value.dropout << (value.training ? ", training" : ", evaluation");
}

class Gpt2Agreement : public testing::TestWithParam<Case> {
 protected:
  DeviceRig rig_;
};

TEST_P(Gpt2Agreement, loss_and_gradients_agree_with_the_reference) {
  Gpt2Config config = small_gpt2(GetParam().dropout);
  Network network = make_network(config, NetworkHead::kLoss, DType::kF32);
  std::vector<std::vector<float>> parameters = random_parameters(network, kSeed);
  reference::Gpt2Batch batch = random_batch(3, 13, config.vocab_size, kSeed);
  batch.training = GetParam().training;
  PassOptions options;
  options.training = GetParam().training;
  PassResult result = run_network(rig_, network, parameters, batch, options);
  expect_agrees(network, result,
                reference::run_gpt2(config, named_parameters(network, parameters), batch), 1e-5,
                1e-5);
}

/// bf16 keeps 8 bits: a rounding is 2^-9, and some tens of them follow one another in 3 layers.
TEST_P(Gpt2Agreement, bf16_agrees_with_the_reference_within_its_rounding) {
  Gpt2Config config = small_gpt2(GetParam().dropout);
  Network network = make_network(config, NetworkHead::kLoss, DType::kBF16);
  std::vector<std::vector<float>> parameters = random_parameters(network, kSeed);
  for (std::vector<float>& block : parameters) {
    for (float& value : block) value = to_float(to_bfloat16(value));
  }
  reference::Gpt2Batch batch = random_batch(3, 13, config.vocab_size, kSeed);
  batch.training = GetParam().training;
  PassOptions options;
  options.training = GetParam().training;
  PassResult result = run_network(rig_, network, parameters, batch, options);
  expect_agrees(network, result,
                reference::run_gpt2(config, named_parameters(network, parameters), batch), 1e-2,
                3e-2);
}

TEST_P(Gpt2Agreement, recompute_and_split_give_the_bits_of_the_plain_pass) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Gpt2Config config = small_gpt2(GetParam().dropout);
    Network network = make_network(config, NetworkHead::kLoss, dtype);
    std::vector<std::vector<float>> parameters = random_parameters(network, kSeed);
    reference::Gpt2Batch batch = random_batch(2, 9, config.vocab_size, kSeed);
    PassOptions plain;
    plain.training = GetParam().training;
    PassResult expected = run_network(rig_, network, parameters, batch, plain);
    for (bool recompute : {false, true}) {
      for (bool split : {false, true}) {
        PassOptions options = plain;
        options.recompute = recompute;
        options.split = split;
        expect_same_bits(expected, run_network(rig_, network, parameters, batch, options));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(dropout, Gpt2Agreement,
                         testing::Values(Case{0.0, true}, Case{0.3, true}, Case{0.3, false}));

TEST(Gpt2, logits_are_those_the_loss_is_made_of) {
  DeviceRig rig;
  Gpt2Config config = small_gpt2(0.3);
  Network network = make_network(config, NetworkHead::kLogits, DType::kF32);
  std::vector<std::vector<float>> parameters = random_parameters(network, kSeed);
  reference::Gpt2Batch batch = random_batch(2, 7, config.vocab_size, kSeed);
  MicroBatchShape shape{2, 7};
  BufferHandle boundary =
      rig.upload(batch.ids.data(), static_cast<ByteCount>(batch.ids.size()) * 4);
  for (size_t i = 0; i < network.layers.size(); ++i) {
    LayerBuffers buffers(rig, network, static_cast<int>(i), shape);
    std::vector<BufferHandle> uploaded;
    for (size_t use = 0; use < buffers.parameters.size(); ++use) {
      const std::vector<float>& block = parameters[network.layers[i]->uses()[use].block];
      uploaded.push_back(rig.upload(block.data(), static_cast<ByteCount>(block.size()) * 4));
      buffers.parameters[use] = uploaded.back()->view();
    }
    buffers.run.input = boundary->view();
    BufferHandle output = rig.poisoned(network.layers[i]->output().size_bytes(shape));
    buffers.run.output = output->view();
    ASSERT_TRUE(network.layers[i]->forward(buffers.run).is_ok());
    ASSERT_TRUE(rig.stream().synchronize().is_ok());
    boundary = std::move(output);
  }
  std::vector<float> logits = rig.download_f32(boundary->view());
  batch.training = false;
  reference::Gpt2Result expected =
      reference::run_gpt2(config, named_parameters(network, parameters), batch);
  for (size_t r = 0; r < batch.labels.size(); ++r) {
    if (batch.labels[r] < 0) continue;
    double total = 0;
    const float* row = logits.data() + r * static_cast<size_t>(config.vocab_size);
    for (int64_t v = 0; v < config.vocab_size; ++v) total += std::exp(static_cast<double>(row[v]));
    double loss = std::log(total) - static_cast<double>(row[batch.labels[r]]);
    EXPECT_NEAR(loss, expected.losses[r], 1e-4 * std::abs(expected.losses[r]) + 1e-5);
  }
  LayerBuffers head(rig, network, static_cast<int>(network.layers.size()) - 1, shape);
  EXPECT_EQ(network.layers.back()->backward(head.run, BackwardPart::kBoth).code(),
            StatusCode::kUnimplemented);
}

TEST(Gpt2, has_the_blocks_names_and_counts_of_the_published_model) {
  Result<Gpt2Config> config = gpt2_preset("gpt2");
  ASSERT_TRUE(config.is_ok());
  Network network = make_network(*config, NetworkHead::kLoss, DType::kBF16);
  EXPECT_EQ(network.parameter_count(), 124439808);
  ASSERT_EQ(network.blocks.size(), 15u);
  ASSERT_EQ(network.layers.size(), 14u);
  EXPECT_EQ(network.blocks[0].site_count, 2);
  EXPECT_EQ(network.layers[1]->name(), "h.0");
  const ParameterInfo& attention = network.blocks[2].parameters[2];
  EXPECT_EQ(attention.name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(attention.shape, (Shape{768, 2304}));
  EXPECT_TRUE(attention.decay);
  const ParameterInfo& projection = network.blocks[2].parameters[4];
  EXPECT_EQ(projection.name, "transformer.h.0.attn.c_proj.weight");
  EXPECT_NEAR(projection.initializer.standard_deviation, 0.02 / std::sqrt(24.0), 1e-12);
  for (const ParameterBlock& block : network.blocks) {
    for (const ParameterInfo& parameter : block.parameters) {
      bool plain =
          parameter.name.ends_with(".bias") || parameter.name.find("ln_") != std::string::npos;
      EXPECT_EQ(parameter.decay, !plain) << parameter.name;
    }
  }
}

/// LayerRuns of every pass of every layer, asked of ops that only note what they are asked.
TEST(Gpt2, flop_is_the_sum_of_what_is_enqueued) {
  DeviceRig rig;
  MicroBatchShape shape{2, 9};
  for (double dropout : {0.0, 0.1}) {
    for (NetworkHead head : {NetworkHead::kLoss, NetworkHead::kLogits}) {
      Network network = make_network(small_gpt2(dropout), head, DType::kF32);
      for (size_t i = 0; i < network.layers.size(); ++i) {
        const Layer& layer = *network.layers[i];
        SCOPED_TRACE(layer.name());
        LayerFlop flop = layer.flop(shape);
        LayerBuffers buffers(rig, network, static_cast<int>(i), shape);
        OpTape ops;
        auto price = [&](auto&& pass) {
          ops.clear();
          Status status = pass();
          EXPECT_TRUE(status.is_ok()) << status.to_string();
          return flop_of(ops);
        };
        buffers.run.ops = &ops;
        EXPECT_EQ(price([&] { return layer.forward(buffers.run); }), flop.forward);
        EXPECT_EQ(price([&] { return layer.forward_saving(buffers.run); }), flop.forward);
        if (i == 0) buffers.run.input_grad = {};
        if (!layer.needs(RowInput::kLabels) && head == NetworkHead::kLogits &&
            i + 1 == network.layers.size()) {
          continue;
        }
        EXPECT_EQ(price([&] { return layer.backward(buffers.run, BackwardPart::kInput); }),
                  flop.backward_input);
        EXPECT_EQ(price([&] { return layer.backward(buffers.run, BackwardPart::kWeight); }),
                  flop.backward_weight);
        EXPECT_EQ(price([&] { return layer.backward(buffers.run, BackwardPart::kBoth); }),
                  flop.backward_input + flop.backward_weight);
        buffers.run.output = {};
        EXPECT_EQ(price([&] { return layer.forward_saving(buffers.run); }), flop.recompute);
      }
    }
  }
}

TEST(Gpt2, recompute_stops_before_the_last_product) {
  DeviceRig rig;
  MicroBatchShape shape{2, 9};
  for (double dropout : {0.0, 0.1}) {
    Network network = make_network(small_gpt2(dropout), NetworkHead::kLoss, DType::kF32);
    const Layer& layer = *network.layers[1];
    LayerBuffers buffers(rig, network, 1, shape);
    OpTape ops;
    buffers.run.ops = &ops;
    ASSERT_TRUE(layer.forward_saving(buffers.run).is_ok());
    size_t whole = ops.calls().size();
    EXPECT_EQ(count_calls(ops, "h.0.mlp.c_proj"),
              2);  // the product, and the copy or dropout beside it
    ops.clear();
    buffers.run.output = {};
    ASSERT_TRUE(layer.forward_saving(buffers.run).is_ok());
    EXPECT_EQ(count_calls(ops, "h.0.mlp.c_proj"), 0);
    EXPECT_EQ(ops.calls().size(), whole - 2);
    LayerFlop flop = layer.flop(shape);
    double product = 2.0 * 18 * 40 * 24;
    EXPECT_LE(flop.recompute, flop.forward - product);
  }
}

TEST(Gpt2, refuses_bad_configurations) {
  Gpt2Config config = small_gpt2(0);
  config.n_head = 5;
  Result<Network> network = make_gpt2(config, NetworkHead::kLoss, DType::kF32);
  ASSERT_FALSE(network.is_ok());
  EXPECT_NE(network.status().message().find("n_embd is 24, expected a multiple of n_head, 5"),
            std::string::npos);
  EXPECT_FALSE(make_gpt2(small_gpt2(0), NetworkHead::kLoss, DType::kI32).is_ok());
}

}  // namespace

}  // namespace stagecoach
