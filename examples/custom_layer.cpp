// Trains a network of the user's own layers with a loop of the user's own, on 1 to 4 devices:
//
//   custom_layer [devices]        for example: custom_layer cpu:3
//
// The network learns y = sin(3x) from samples. Its layers are chains of segments: a linear map into
// two halves, a gate (the segment defined here) that multiplies them, a linear map back, and at the
// end the squared error. The runtime derives recompute, stages and transfers from that.

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "model/segments.h"
#include "train/trainer.h"

using namespace stagecoach;

namespace {

constexpr int64_t kWidth = 16;   // columns between layers
constexpr int64_t kHidden = 64;  // columns of each half
constexpr int64_t kBatch = 32;   // sequences of kSequence samples
constexpr int64_t kSequence = 8;
constexpr int kLayers = 3;

/// out = value * gate, elementwise: what a user writes for an operation of their own.
class GateSegment final : public Segment {
 public:
  GateSegment(int value, int gate, int out) : value_(value), gate_(gate), out_(out) {
    io_.reads = {value, gate};
    io_.writes = {out};
    io_.saved_for_input = {value, gate};
  }
  std::string_view name() const override { return "gate"; }
  const SegmentIo& io() const override { return io_; }
  SegmentFlop flop(const MicroBatchShape& shape) const override {
    double elements = static_cast<double>(shape.rows() * kHidden);
    return {elements, 2 * elements, 0};
  }
  Status forward(SegmentRun& run) const override {
    STAGECOACH_RETURN_IF_FAILED(run.ops().multiply(
        run.stream(),
        {run.activation(out_), run.activation(value_), run.activation(gate_), false, "gate"}));
    return Status::ok();
  }
  Status backward_input(SegmentRun& run) const override {
    TensorView out_grad = run.gradient(out_);
    STAGECOACH_RETURN_IF_FAILED(
        run.ops().multiply(run.stream(), {run.gradient(value_), out_grad, run.activation(gate_),
                                          run.gradient_accumulates(value_), "gate.value"}));
    STAGECOACH_RETURN_IF_FAILED(
        run.ops().multiply(run.stream(), {run.gradient(gate_), out_grad, run.activation(value_),
                                          run.gradient_accumulates(gate_), "gate.gate"}));
    return Status::ok();
  }

 private:
  int value_, gate_, out_;
  SegmentIo io_;
};

/// A linear segment in -> out with its weight and bias in `block`, which it adds to.
std::unique_ptr<Segment> linear(ParameterBlock& block, const std::string& name, int in, int out,
                                int64_t in_columns, int64_t out_columns) {
  Initializer normal{Initializer::Kind::kNormal, 1.0 / std::sqrt(static_cast<double>(in_columns))};
  LinearSegment::Options options;
  options.in = in;
  options.out = out;
  options.in_columns = in_columns;
  options.out_columns = out_columns;
  options.weight = {0, block.add(name + ".weight", {in_columns, out_columns}, true, normal)};
  options.bias = {0, block.add(name + ".bias", {out_columns}, false, {})};
  return std::make_unique<LinearSegment>(name, options);
}

Result<Network> make_network() {
  Network network;
  network.name = "gated";
  network.dtype = DType::kF32;
  network.label = {DType::kF32, 1};
  for (int index = 0; index < kLayers; ++index) {
    bool first = index == 0, last = index + 1 == kLayers;
    std::string name = "layer." + std::to_string(index);
    network.blocks.push_back({name, {}, 0, 1});
    ParameterBlock& block = network.blocks.back();
    int64_t in_columns = first ? 1 : kWidth, out_columns = last ? 1 : kWidth;
    SegmentChainSpec spec;
    spec.name = name;
    spec.uses = {{index, 0}};
    spec.label = network.label;
    spec.input_has_gradient = !first;
    spec.activations = {{"in", DType::kF32, in_columns},
                        {"value", DType::kF32, kHidden},
                        {"gate", DType::kF32, kHidden},
                        {"gated", DType::kF32, kHidden},
                        {"out", DType::kF32, out_columns}};
    spec.segments.push_back(linear(block, name + ".value", 0, 1, in_columns, kHidden));
    spec.segments.push_back(linear(block, name + ".gate", 0, 2, in_columns, kHidden));
    spec.segments.push_back(std::make_unique<GateSegment>(1, 2, 3));
    spec.segments.push_back(linear(block, name + ".out", 3, 4, kHidden, out_columns));
    if (last) {
      spec.activations.push_back({"loss", DType::kF32, 1});
      spec.segments.push_back(
          std::make_unique<SquaredErrorSegment>("loss", SquaredErrorSegment::Options{4, 5, 1}));
    }
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                                make_segment_layer(std::move(spec), network.blocks));
    network.layers.push_back(std::move(layer));
  }
  return network;
}

Status train(const std::string& device_text) {
  BackendRegistry registry = built_in_backends();
  STAGECOACH_ASSIGN_OR_RETURN(auto devices, registry.open_devices(device_text));
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  STAGECOACH_ASSIGN_OR_RETURN(Network network, make_network());
  TrainerOptions options;
  options.batch = kBatch;
  options.sequence = kSequence;
  options.micro_batches = 8;
  options.max_stage_layers = 1;
  STAGECOACH_ASSIGN_OR_RETURN(auto trainer, Trainer::create(std::move(network), pointers, options));
  trainer->initialize_parameters();
  // Parameter groups: the last layer learns at half speed and does not decay.
  STAGECOACH_RETURN_IF_ERROR(
      trainer->set_parameter_group({"layer.2.out.weight", "layer.2.out.bias"}, {0.5, 0.0}));
  std::vector<float> inputs(kBatch * kSequence), labels(inputs.size());
  double first = 0, last = 0;
  for (int iteration = 0; iteration < 300; ++iteration) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      RandomKey key{1, static_cast<uint32_t>(iteration), 0, 0, 0};
      inputs[i] = static_cast<float>(2 * random_uniform(key, i) - 1);
      labels[i] = std::sin(3 * inputs[i]);
    }
    Shape shape{kBatch, kSequence};
    STAGECOACH_ASSIGN_OR_RETURN(
        StepLoss loss,
        trainer->forward_backward(HostTensor::of(inputs, shape), HostTensor::of(labels, shape)));
    STAGECOACH_RETURN_IF_ERROR(trainer->step(3e-3));
    if (iteration == 0) first = loss.loss;
    last = loss.loss;
    if (iteration % 50 == 0) std::printf("iteration %3d  loss %.5f\n", iteration, loss.loss);
  }
  STAGECOACH_RETURN_IF_ERROR(trainer->synchronize());
  std::printf("loss %.5f -> %.5f on %s, weights %s\n", first, last, device_text.c_str(),
              trainer->weights_sha256().substr(0, 16).c_str());
  if (last > 0.02) return data_loss("the network did not learn");
  return Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  Status status = train(argc > 1 ? argv[1] : "cpu:2");
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}
