#include "model/segment_layer.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "model/segments.h"
#include "tests/model/model_fixture.h"

namespace stagecoach {

namespace {

constexpr int64_t kColumns = 6;
constexpr int64_t kRows = 10;
const MicroBatchShape kShape{2, 5};

/// A layer on its own: in -> gelu -> linear -> add(in, gelu, linear) -> squared error. The input
/// has two readers and the GELU's output two, so that gradients add up.
struct BranchingNetwork {
  Network network;

  BranchingNetwork() {
    network.name = "branching";
    network.label = {DType::kF32, kColumns};
    ParameterBlock block{.name = "w", .parameters = {}, .element_count = 0, .site_count = 1};
    block.add("weight", Shape{kColumns, kColumns}, true, {Initializer::Kind::kNormal, 0.3});
    block.add("bias", Shape{kColumns}, false, {});
    network.blocks.push_back(block);
    SegmentChainSpec spec;
    spec.name = "branching";
    for (const char* name : {"in", "gelu", "linear", "sum", "all"}) {
      spec.activations.push_back({name, DType::kF32, kColumns});
    }
    spec.activations.push_back({"loss", DType::kF32, 1});
    LinearSegment::Options linear;
    linear.in = 1;
    linear.out = 2;
    linear.weight = {0, 0};
    linear.bias = {0, 1};
    linear.in_columns = linear.out_columns = kColumns;
    spec.segments.push_back(
        std::make_unique<GeluSegment>("gelu", GeluSegment::Options{0, 1, kColumns}));
    spec.segments.push_back(std::make_unique<LinearSegment>("linear", linear));
    spec.segments.push_back(
        std::make_unique<AddSegment>("sum", AddSegment::Options{0, 1, 3, kColumns}));
    spec.segments.push_back(
        std::make_unique<AddSegment>("all", AddSegment::Options{3, 2, 4, kColumns}));
    spec.segments.push_back(std::make_unique<SquaredErrorSegment>(
        "error", SquaredErrorSegment::Options{4, 5, kColumns}));
    spec.uses = {{0, 0}};
    spec.label = network.label;
    Result<std::unique_ptr<Layer>> layer = make_segment_layer(std::move(spec), network.blocks);
    STAGECOACH_CHECK(layer.is_ok());
    network.layers.push_back(std::move(layer).value());
    STAGECOACH_CHECK(network.validate().is_ok());
  }
};

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random_normal({seed, 0, 0, 0, 0}, i));
  }
  return values;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// The sum of the branching layer's losses, in fp64.
double branching_loss(const std::vector<double>& in, const std::vector<double>& weight,
                      const std::vector<double>& bias, const std::vector<float>& target) {
  double total = 0;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t o = 0; o < kColumns; ++o) {
      double value = in[r * kColumns + o] + gelu(in[r * kColumns + o]) + bias[o];
      for (size_t i = 0; i < kColumns; ++i) {
        value += gelu(in[r * kColumns + i]) * weight[i * kColumns + o];
      }
      double error = value - static_cast<double>(target[r * kColumns + o]);
      total += error * error / static_cast<double>(kColumns);
    }
  }
  return total;
}

std::vector<double> differences(std::vector<double>& values, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> result;
  for (double& value : values) {
    double kept = value;
    value = kept + kStep;
    double above = loss();
    value = kept - kStep;
    double below = loss();
    value = kept;
    result.push_back((above - below) / (2 * kStep));
  }
  return result;
}

std::vector<double> widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

/// The branching layer on a device, with random contents.
class BranchingLayer : public testing::Test {
 protected:
  BranchingLayer() : buffers_(rig_, branching_.network, 0, kShape) {
    block_.resize(static_cast<size_t>(branching_.network.blocks[0].element_count));
    put(block_, buffers_.parameters[0]);
    put(in_, buffers_.run.input);
    put(target_, buffers_.run.rows[RowInput::kLabels]);
    put(std::vector<float>(block_.size(), 0.0f), buffers_.gradients[0]);
    buffers_.run.loss_scale = 0.25f;
  }

  void put(const std::vector<float>& values, BufferView& view) {
    uploaded_.push_back(rig_.upload(values.data(), static_cast<ByteCount>(values.size()) * 4));
    view = uploaded_.back()->view();
  }

  const Layer& layer() const { return *branching_.network.layers[0]; }

  BranchingNetwork branching_;
  DeviceRig rig_;
  LayerBuffers buffers_;
  std::vector<float> block_ = random_values(64 + 32, 1);
  std::vector<float> in_ = random_values(kRows * kColumns, 2);
  std::vector<float> target_ = random_values(kRows * kColumns, 3);
  std::vector<BufferHandle> uploaded_;
};

TEST_F(BranchingLayer, gradients_of_shared_activations_add_up) {
  ASSERT_TRUE(layer().forward_saving(buffers_.run).is_ok());
  rig_.poison(buffers_.run.workspace);
  ASSERT_TRUE(layer().backward(buffers_.run, BackwardPart::kBoth).is_ok());
  std::vector<double> in = widen(in_);
  std::vector<float> weight_f(block_.begin(), block_.begin() + kColumns * kColumns);
  int64_t bias_offset = branching_.network.blocks[0].parameters[1].offset;
  std::vector<float> bias_f(block_.begin() + bias_offset, block_.begin() + bias_offset + kColumns);
  std::vector<double> weight = widen(weight_f);
  std::vector<double> bias = widen(bias_f);
  auto loss = [&] { return 0.25 * branching_loss(in, weight, bias, target_); };
  std::vector<float> losses = rig_.download_f32(buffers_.run.output);
  double total = 0;
  for (float value : losses) total += 0.25 * static_cast<double>(value);
  EXPECT_NEAR(total, loss(), 1e-5 * loss());
  std::vector<float> gradients = rig_.download_f32(buffers_.gradients[0]);
  std::vector<float> weight_grad(gradients.begin(), gradients.begin() + kColumns * kColumns);
  std::vector<float> bias_grad(gradients.begin() + bias_offset,
                               gradients.begin() + bias_offset + kColumns);
  std::vector<float> in_grad = rig_.download_f32(buffers_.run.input_grad);
  EXPECT_LT(relative_difference(widen(in_grad), differences(in, loss)), 1e-5);
  EXPECT_LT(relative_difference(widen(weight_grad), differences(weight, loss)), 1e-5);
  EXPECT_LT(relative_difference(widen(bias_grad), differences(bias, loss)), 1e-5);
}

TEST_F(BranchingLayer, weight_gradients_add_to_what_is_there) {
  ASSERT_TRUE(layer().forward_saving(buffers_.run).is_ok());
  ASSERT_TRUE(layer().backward(buffers_.run, BackwardPart::kBoth).is_ok());
  std::vector<float> once = rig_.download_f32(buffers_.gradients[0]);
  ASSERT_TRUE(layer().backward(buffers_.run, BackwardPart::kBoth).is_ok());
  std::vector<float> twice = rig_.download_f32(buffers_.gradients[0]);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-5) << i;
}

TEST_F(BranchingLayer, input_gradient_is_computed_only_where_wanted) {
  ASSERT_TRUE(layer().forward_saving(buffers_.run).is_ok());
  ASSERT_TRUE(layer().backward(buffers_.run, BackwardPart::kBoth).is_ok());
  std::vector<float> expected = rig_.download_f32(buffers_.gradients[0]);
  put(std::vector<float>(block_.size(), 0.0f), buffers_.gradients[0]);
  OpTape ops;
  LayerRun run = buffers_.run;
  run.input_grad = {};
  ASSERT_TRUE(layer().backward(run, BackwardPart::kBoth).is_ok());
  EXPECT_EQ(rig_.download_f32(buffers_.gradients[0]), expected);
  run.ops = &ops;
  ASSERT_TRUE(layer().backward(run, BackwardPart::kInput).is_ok());
  EXPECT_EQ(count_calls(ops, "gelu."), 0);
}

TEST_F(BranchingLayer, flop_is_the_sum_of_what_is_enqueued) {
  OpTape ops;
  buffers_.run.ops = &ops;
  LayerFlop flop = layer().flop(kShape);
  ASSERT_TRUE(layer().forward(buffers_.run).is_ok());
  EXPECT_EQ(flop_of(ops), flop.forward);
  ops.clear();
  ASSERT_TRUE(layer().backward(buffers_.run, BackwardPart::kInput).is_ok());
  EXPECT_EQ(flop_of(ops), flop.backward_input);
}

TEST_F(BranchingLayer, refuses_runs_with_too_little_memory) {
  auto expect_refused = [&](LayerRun run, const std::string& words) {
    Status status = layer().forward_saving(run);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  LayerRun run = buffers_.run;
  run.saved.size -= 1;
  expect_refused(run, "layer 'branching' needs 512 bytes of saved, got 511");
  run = buffers_.run;
  run.workspace = {};
  expect_refused(run, "bytes of workspace, got 0");
  run = buffers_.run;
  run.input.size = 8;
  expect_refused(run, "needs 240 bytes of input, got 8");
  run = buffers_.run;
  run.rows[RowInput::kLabels] = {};
  expect_refused(run, "of labels, got 0");
  run = buffers_.run;
  run.output.size = 4;
  expect_refused(run, "needs 40 bytes of output, got 4");
  run = buffers_.run;
  run.parameters = {};
  expect_refused(run, "uses 1 blocks, got 0 of parameters");
  run = buffers_.run;
  run.shape.sequences = 0;
  expect_refused(run, "0 sequences of 5 tokens");
  run = buffers_.run;
  run.stream = nullptr;
  expect_refused(run, "without a stream");
  std::vector<BufferView> half = {buffers_.parameters[0]};
  half[0].size /= 2;
  run = buffers_.run;
  run.parameters = half;
  expect_refused(run, "of block 'w' in fp32");
  run = buffers_.run;
  run.gradients = {};
  EXPECT_TRUE(layer().backward(run, BackwardPart::kInput).is_ok());
  EXPECT_EQ(layer().backward(run, BackwardPart::kBoth).code(), StatusCode::kInvalidArgument);
}

/// A segment that copies, and whose backward pass does what a test wants.
class ProbeSegment final : public Segment {
 public:
  using Body = std::function<Status(SegmentRun&)>;
  ProbeSegment(SegmentIo io, Body input, Body weight)
      : io_(std::move(io)), input_(std::move(input)), weight_(std::move(weight)) {}
  std::string_view name() const override { return "probe"; }
  const SegmentIo& io() const override { return io_; }
  SegmentFlop flop(const MicroBatchShape& shape) const override { return {}; }
  Status forward(SegmentRun& run) const override {
    return run.ops()
        .convert(run.stream(),
                 {run.activation(io_.writes[0]), run.activation(io_.reads[0]), "probe"})
        .status();
  }
  Status backward_input(SegmentRun& run) const override { return input_(run); }
  Status backward_weight(SegmentRun& run) const override { return weight_(run); }

 private:
  SegmentIo io_;
  Body input_, weight_;
};

/// in -> probe -> middle -> gelu -> out.
Result<std::unique_ptr<Layer>> probe_layer(SegmentIo io, ProbeSegment::Body input,
                                           ProbeSegment::Body weight) {
  SegmentChainSpec spec;
  spec.name = "probed";
  for (const char* name : {"in", "middle", "out"}) {
    spec.activations.push_back({name, DType::kF32, kColumns});
  }
  spec.segments.push_back(
      std::make_unique<ProbeSegment>(std::move(io), std::move(input), std::move(weight)));
  spec.segments.push_back(
      std::make_unique<GeluSegment>("gelu", GeluSegment::Options{1, 2, kColumns}));
  return make_segment_layer(std::move(spec), {});
}

SegmentIo probe_io() {
  SegmentIo io;
  io.reads = {0};
  io.writes = {1};
  return io;
}

TEST(SegmentLayer, names_a_segment_that_touches_what_it_does_not_declare) {
  auto nothing = [](SegmentRun&) { return Status::ok(); };
  auto touch_activation = [](SegmentRun& run) {
    EXPECT_TRUE(run.activation(1).is_none());
    return Status::ok();
  };
  auto touch_gradient = [](SegmentRun& run) {
    EXPECT_TRUE(run.gradient(0).is_none());
    return Status::ok();
  };
  Network network;
  network.layers.push_back(probe_layer(probe_io(), touch_activation, nothing).value());
  network.layers.push_back(probe_layer(probe_io(), nothing, touch_gradient).value());
  DeviceRig rig;
  for (int i = 0; i < 2; ++i) {
    LayerBuffers buffers(rig, network, i, kShape);
    ASSERT_TRUE(network.layers[i]->forward_saving(buffers.run).is_ok());
    Status status = network.layers[i]->backward(buffers.run, BackwardPart::kBoth);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("segment 'probe' asks for"), std::string::npos)
        << status.to_string();
  }
}

TEST(SegmentLayer, keeps_the_output_for_a_backward_pass_that_reads_it) {
  SegmentIo io;
  io.reads = {0};
  io.writes = {1};
  io.saved_for_input = {1};
  std::vector<float> seen;
  DeviceRig rig;
  auto look = [&](SegmentRun& run) {
    seen = rig.download_f32(run.activation(1).memory);
    return Status::ok();
  };
  SegmentChainSpec spec;
  spec.name = "kept";
  for (const char* name : {"in", "out"}) spec.activations.push_back({name, DType::kF32, kColumns});
  spec.segments.push_back(
      std::make_unique<ProbeSegment>(io, look, [](SegmentRun&) { return Status::ok(); }));
  Network network;
  network.layers.push_back(make_segment_layer(std::move(spec), {}).value());
  std::vector<float> in = random_values(kRows * kColumns, 4);
  BufferHandle input = rig.upload(in.data(), static_cast<ByteCount>(in.size()) * 4);
  for (bool with_output : {true, false}) {
    LayerBuffers buffers(rig, network, 0, kShape);
    buffers.run.input = input->view();
    BufferView output = buffers.run.output;
    if (!with_output) buffers.run.output = {};
    ASSERT_TRUE(network.layers[0]->forward_saving(buffers.run).is_ok());
    if (with_output) {
      EXPECT_EQ(rig.download_f32(output), in);
    }
    buffers.run.output = {};
    seen.clear();
    ASSERT_TRUE(network.layers[0]->backward(buffers.run, BackwardPart::kBoth).is_ok());
    EXPECT_EQ(seen, in);
  }
}

TEST(SegmentLayer, refuses_chains_with_the_layers_name) {
  SegmentIo io = probe_io();
  io.reads = {2};
  auto nothing = [](SegmentRun&) { return Status::ok(); };
  Result<std::unique_ptr<Layer>> layer = probe_layer(io, nothing, nothing);
  ASSERT_FALSE(layer.is_ok());
  EXPECT_NE(layer.status().message().find("layer 'probed'"), std::string::npos);
  SegmentChainSpec spec;
  spec.name = "blocks";
  spec.activations = {{"in", DType::kF32, 1}, {"out", DType::kF32, 1}};
  spec.segments.push_back(std::make_unique<GeluSegment>("gelu", GeluSegment::Options{0, 1, 1}));
  spec.uses = {{3, 0}};
  layer = make_segment_layer(std::move(spec), {});
  ASSERT_FALSE(layer.is_ok());
  EXPECT_NE(layer.status().message().find("uses block 3, which does not exist"), std::string::npos);
}

TEST(SegmentLayer, split_passes_need_no_less_memory_than_one_pass) {
  Result<Network> network = make_gpt2(small_gpt2(0.1), NetworkHead::kLoss, DType::kBF16);
  ASSERT_TRUE(network.is_ok());
  for (const std::unique_ptr<Layer>& layer : network->layers) {
    LayerMemory memory = layer->memory(kShape);
    EXPECT_GE(memory.split_workspace_bytes, memory.backward_workspace_bytes) << layer->name();
  }
  // Kept by a block: two norms and their statistics, qkv, attention and its lse, the middle, and
  // the two sides of the GELU.
  int64_t rows = kShape.rows();
  ByteCount expected = 0;
  for (int64_t bytes : {24 * 2, 72 * 2, 24 * 2, 24 * 2, 24 * 2, 40 * 2, 40 * 2, 4, 4, 4, 4, 16}) {
    expected += align_up(rows * bytes, kTensorAlignmentBytes);
  }
  EXPECT_EQ(network->layers[1]->memory(kShape).saved_bytes, expected);
}

}  // namespace

}  // namespace stagecoach
