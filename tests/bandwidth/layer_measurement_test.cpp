#include "tools/bandwidth/layer_measurement.h"

#include <gtest/gtest.h>

#include "model/computed_model.h"
#include "scheduler/op_rates_json.h"
#include "tests/bandwidth/bandwidth_fixture.h"
#include "tools/bandwidth/sampler.h"

namespace stagecoach {
namespace {

Gpt2Config small_gpt2() {
  Gpt2Config config;
  config.vocab_size = 61;
  config.n_positions = 16;
  config.n_embd = 16;
  config.n_layer = 1;
  config.n_head = 2;
  config.n_inner = 32;
  return config;
}

/// What a paced device takes for a layer is its arithmetic, by its pace: the sum of its operations.
TEST(PacedLayers, TakeTheirArithmeticAndSoDoTheirOperations) {
  constexpr double kFlopPerS = 20e6;
  std::vector<std::unique_ptr<Device>> devices = open_devices("cpu:1[flops=20M]");
  LayerSubject subject;
  Result<Network> network = make_network(small_gpt2(), NetworkHead::kLoss, DType::kF32, 16);
  ASSERT_TRUE(network.is_ok()) << network.status().message();
  subject.network = std::make_shared<Network>(std::move(*network));
  subject.layer = 1;
  subject.shape = {1, 16};
  subject.vocabulary = 61;
  MeasurementInfo info;
  info.id = "layers/h.0/backward";
  MeasurementGroup group;
  group.push_back(
      std::make_unique<LayerMeasurement>(info, *devices[0], subject, LayerPhase::kBackward));
  RepetitionOptions options;
  options.repetitions = 3;
  options.min_time_ns = 0;
  options.warm_up_limit_ns = 100'000'000;
  MeasurementRecord record = run_group(group, options).front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  Result<std::vector<TimedOp>> ops = read_timed_ops(*record.info.params.find("ops"), "ops");
  ASSERT_TRUE(ops.is_ok()) << ops.status().message();
  double sum_ms = 0;
  for (const TimedOp& op : *ops) sum_ms += op.time_ns / 1e6;
  // Medians of three batches each: their sum is about the median of the sums.
  EXPECT_NEAR(sum_ms / record.median(), 1, 0.1);
  if (record.has_flag(SampleFlag::kOverrun)) GTEST_SKIP() << "the host is too busy for the pace";
  LayerFlop flop = subject.network->layers[1]->flop(subject.shape);
  double expected_ms = (flop.backward_input + flop.backward_weight) / kFlopPerS * 1e3;
  EXPECT_NEAR(record.median() / expected_ms, 1, 0.1);
}

}  // namespace
}  // namespace stagecoach
