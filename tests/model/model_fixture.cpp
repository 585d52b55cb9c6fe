#include "tests/model/model_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "tests/model/test_devices.h"

namespace stagecoach {

namespace {

/// A NaN seen as fp32 and as two bf16 or fp16.
constexpr uint32_t kPoison = 0x7fff7fff;

template <typename T>
T must(Result<T> result) {
  STAGECOACH_CHECK(result.is_ok());
  return std::move(result).value();
}

void must(const Status& status) {
  if (!status.is_ok()) ADD_FAILURE() << status.to_string();
}

std::vector<std::byte> to_storage(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_size_bytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + i * 4, &values[i], 4);
    } else {
      uint16_t bits =
          dtype == DType::kBF16 ? to_bfloat16(values[i]).bits : to_float16(values[i]).bits;
      std::memcpy(bytes.data() + i * 2, &bits, 2);
    }
  }
  return bytes;
}

/// One micro-batch on its way through a network.
class NetworkPass {
 public:
  NetworkPass(DeviceRig& rig, const Network& network, const reference::Gpt2Batch& batch,
              const PassOptions& options)
      : rig_(rig), network_(network), batch_(batch), options_(options) {
    shape_ = {batch.sequences, batch.sequence};
    ids_ = rig.upload(batch.ids.data(), static_cast<ByteCount>(batch.ids.size()) * 4);
    labels_ = rig.upload(batch.labels.data(), static_cast<ByteCount>(batch.labels.size()) * 4);
  }

  /// What the last layer yields.
  std::vector<float> run_forward(const std::vector<std::vector<float>>& parameters) {
    for (const std::vector<float>& block : parameters) {
      std::vector<std::byte> bytes = to_storage(block, network_.dtype);
      parameters_.push_back(rig_.upload(bytes.data(), static_cast<ByteCount>(bytes.size())));
    }
    for (size_t i = 0; i < network_.layers.size(); ++i) forward(i);
    return rig_.download_f32(outputs_.back()->view());
  }

  PassResult run(const std::vector<std::vector<float>>& parameters) {
    PassResult result;
    result.losses = run_forward(parameters);
    for (const BufferHandle& report : reports_) {
      result.reports.push_back(rig_.download_f32(report->view()));
    }
    for (const ParameterBlock& block : network_.blocks) {
      result.gradients.emplace_back(static_cast<size_t>(block.element_count), 0.0f);
    }
    for (size_t i = network_.layers.size(); i-- > 0;) backward(i, result);
    return result;
  }

 private:
  LayerRun layer_run(size_t index, size_t& use_count) {
    const Layer& layer = *network_.layers[index];
    uses_.clear();
    for (const BlockUse& use : layer.uses()) uses_.push_back(parameters_[use.block]->view());
    use_count = uses_.size();
    LayerRun run;
    run.stream = &rig_.stream();
    run.ops = &rig_.device().ops();
    run.shape = shape_;
    run.input = index == 0 ? ids_->view() : outputs_[index - 1]->view();
    if (layer.needs(RowInput::kLabels)) run.rows[RowInput::kLabels] = labels_->view();
    run.parameters = uses_;
    run.key = batch_.key;
    run.key.layer = static_cast<uint32_t>(index);
    run.loss_scale = static_cast<float>(batch_.loss_scale);
    run.training = options_.training;
    run.loss_terms = options_.loss_terms;
    return run;
  }

  void forward(size_t index) {
    const Layer& layer = *network_.layers[index];
    LayerMemory memory = layer.memory(shape_);
    size_t use_count = 0;
    LayerRun run = layer_run(index, use_count);
    outputs_.push_back(rig_.poisoned(layer.output().size_bytes(shape_)));
    run.output = outputs_.back()->view();
    BufferHandle workspace = rig_.poisoned(options_.recompute ? memory.forward_workspace_bytes
                                                              : memory.backward_workspace_bytes);
    if (workspace != nullptr) run.workspace = workspace->view();
    BufferHandle report = rig_.poisoned(layer.report_bytes(shape_));
    if (report != nullptr && options_.training) {
      run.report = report->view();
      reports_.push_back(std::move(report));
    }
    if (options_.recompute) {
      must(layer.forward(run));
      return;
    }
    saved_.push_back(rig_.poisoned(memory.saved_bytes));
    if (saved_.back() != nullptr) run.saved = saved_.back()->view();
    must(layer.forward_saving(run));
  }

  void backward(size_t index, PassResult& result) {
    const Layer& layer = *network_.layers[index];
    LayerMemory memory = layer.memory(shape_);
    size_t use_count = 0;
    LayerRun run = layer_run(index, use_count);
    BufferHandle workspace = rig_.poisoned(options_.split ? memory.split_workspace_bytes
                                                          : memory.backward_workspace_bytes);
    if (workspace != nullptr) run.workspace = workspace->view();
    BufferHandle saved;
    if (options_.recompute) {
      saved = rig_.poisoned(memory.saved_bytes);
      if (saved != nullptr) run.saved = saved->view();
      must(layer.forward_saving(run));
      if (workspace != nullptr) rig_.poison(workspace->view());
    } else if (saved_[index] != nullptr) {
      run.saved = saved_[index]->view();
    }
    std::vector<BufferHandle> gradients;
    std::vector<BufferView> views;
    for (const BlockUse& use : layer.uses()) {
      const ParameterBlock& block = network_.blocks[use.block];
      gradients.push_back(block.is_frozen ? nullptr : rig_.zeros(block.element_count * 4));
      views.push_back(block.is_frozen ? BufferView{} : gradients.back()->view());
    }
    run.gradients = views;
    if (output_grad_ != nullptr) run.output_grad = output_grad_->view();
    BufferHandle input_grad;
    if (index > 0) {
      input_grad = rig_.poisoned(layer.input().size_bytes(shape_));
      run.input_grad = input_grad->view();
    }
    if (options_.split) {
      must(layer.backward(run, BackwardPart::kInput));
      must(layer.backward(run, BackwardPart::kWeight));
    } else {
      must(layer.backward(run, BackwardPart::kBoth));
    }
    for (size_t use = 0; use < use_count; ++use) {
      if (gradients[use] == nullptr) continue;
      std::vector<float> part = rig_.download_f32(gradients[use]->view());
      std::vector<float>& total = result.gradients[layer.uses()[use].block];
      for (size_t i = 0; i < part.size(); ++i) total[i] += part[i];
    }
    output_grad_ = std::move(input_grad);
  }

  DeviceRig& rig_;
  const Network& network_;
  const reference::Gpt2Batch& batch_;
  PassOptions options_;
  MicroBatchShape shape_;
  BufferHandle ids_, labels_, output_grad_;
  std::vector<BufferHandle> parameters_, outputs_, saved_, reports_;
  std::vector<BufferView> uses_;
};

}  // namespace

DeviceRig::DeviceRig() {
  devices_ = must(built_in_backends().open_devices(test_devices("cpu:1")));
  device_ = devices_[0].get();
  stream_ = must(device_->create_stream({"compute"}));
}

BufferHandle DeviceRig::filled(ByteCount size, uint32_t pattern) {
  if (size == 0) return nullptr;
  BufferHandle buffer =
      must(require_buffer(device_->allocate(size, "test"), *device_, size, "test"));
  must(stream_->fill({buffer->view(), pattern, size % 4 == 0 ? 4 : 2, "fill"}).status());
  return buffer;
}

BufferHandle DeviceRig::poisoned(ByteCount size) {
  return filled(size, kPoison);
}

BufferHandle DeviceRig::zeros(ByteCount size) {
  return filled(size, 0);
}

void DeviceRig::poison(const BufferView& view) {
  must(stream_->fill({view, kPoison, 2, "poison"}).status());
}

BufferHandle DeviceRig::upload(const void* data, ByteCount size) {
  BufferHandle buffer =
      must(require_buffer(device_->allocate(size, "test"), *device_, size, "test"));
  BufferHandle staging =
      must(require_buffer(device_->allocate_pinned(size, "staging"), *device_, size, "staging"));
  std::memcpy(staging->host_data(), data, static_cast<size_t>(size));
  must(stream_->copy({buffer->view(), staging->view(), "upload"}).status());
  must(stream_->synchronize());
  return buffer;
}

std::vector<std::byte> DeviceRig::download(const BufferView& view) {
  BufferHandle staging = must(require_buffer(device_->allocate_pinned(view.size, "staging"),
                                             *device_, view.size, "staging"));
  must(stream_->copy({staging->view(), view, "download"}).status());
  must(stream_->synchronize());
  return {staging->host_data(), staging->host_data() + view.size};
}

std::vector<float> DeviceRig::download_f32(const BufferView& view) {
  std::vector<std::byte> bytes = download(view);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

double flop_of(const OpTape& tape) {
  double total = 0;
  for (const OpCall& call : tape.calls()) total += op_flop(call);
  return total;
}

int count_calls(const OpTape& tape, std::string_view prefix) {
  const std::vector<OpCall>& calls = tape.calls();
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), [&](const OpCall& call) {
    return call.label.view().starts_with(prefix);
  }));
}

PassResult run_network(DeviceRig& rig, const Network& network,
                       const std::vector<std::vector<float>>& parameters,
                       const reference::Gpt2Batch& batch, const PassOptions& options) {
  return NetworkPass(rig, network, batch, options).run(parameters);
}

std::vector<float> run_forward(DeviceRig& rig, const Network& network,
                               const std::vector<std::vector<float>>& parameters,
                               const reference::Gpt2Batch& batch) {
  PassOptions options;
  options.recompute = true;
  options.training = false;
  return NetworkPass(rig, network, batch, options).run_forward(parameters);
}

std::vector<std::vector<float>> random_parameters(const Network& network, uint64_t seed) {
  std::vector<std::vector<float>> blocks;
  for (const ParameterBlock& block : network.blocks) {
    std::vector<float> values(static_cast<size_t>(block.element_count), 0.0f);
    for (const ParameterInfo& parameter : block.parameters) {
      RandomKey key{seed, 0, static_cast<uint32_t>(blocks.size()),
                    static_cast<uint32_t>(parameter.offset), 0};
      double center = parameter.initializer.kind == Initializer::Kind::kOnes ? 1.0 : 0.0;
      for (int64_t i = 0; i < parameter.shape.element_count(); ++i) {
        double value = center + 0.2 * random_normal(key, static_cast<uint64_t>(i));
        values[static_cast<size_t>(parameter.offset + i)] = static_cast<float>(value);
      }
    }
    blocks.push_back(std::move(values));
  }
  return blocks;
}

reference::NamedValues named_parameters(const Network& network,
                                        const std::vector<std::vector<float>>& parameters) {
  reference::NamedValues named;
  for (size_t b = 0; b < network.blocks.size(); ++b) {
    for (const ParameterInfo& parameter : network.blocks[b].parameters) {
      auto first = parameters[b].begin() + parameter.offset;
      named[parameter.name] = {first, first + parameter.shape.element_count()};
    }
  }
  return named;
}

reference::Gpt2Batch random_batch(int64_t sequences, int64_t sequence, int64_t vocabulary,
                                  uint64_t seed) {
  reference::Gpt2Batch batch;
  batch.sequences = sequences;
  batch.sequence = sequence;
  batch.key = {seed, 3, 0, 2, 0};
  RandomKey key{seed, 0, 0, 0, 7};
  for (int64_t i = 0; i < batch.rows(); ++i) {
    uint64_t at = static_cast<uint64_t>(2 * i);
    batch.ids.push_back(static_cast<int32_t>(random_word(key, at) % vocabulary));
    uint32_t word = random_word(key, at + 1);
    batch.labels.push_back(word % 7 == 0 ? -1 : static_cast<int32_t>(word % vocabulary));
  }
  batch.loss_scale = 1.0 / 16;
  return batch;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

Gpt2Config small_gpt2(double dropout) {
  Gpt2Config config;
  config.vocab_size = 61;
  config.n_positions = 20;
  config.n_embd = 24;
  config.n_layer = 3;
  config.n_head = 4;
  config.n_inner = 40;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  return config;
}

LayerBuffers::LayerBuffers(DeviceRig& rig, const Network& network, int layer,
                           const MicroBatchShape& shape) {
  const Layer& subject = *network.layers[static_cast<size_t>(layer)];
  LayerMemory memory = subject.memory(shape);
  auto view = [&](ByteCount size) {
    owned.push_back(rig.poisoned(size));
    return size == 0 ? BufferView{} : owned.back()->view();
  };
  for (const BlockUse& use : subject.uses()) {
    parameters.push_back(view(network.block_bytes(use.block, network.dtype)));
    gradients.push_back(view(network.block_bytes(use.block, DType::kF32)));
  }
  run.stream = &rig.stream();
  run.ops = &rig.device().ops();
  run.shape = shape;
  run.input = view(subject.input().size_bytes(shape));
  run.output = view(subject.output().size_bytes(shape));
  if (!subject.needs(RowInput::kLabels)) run.output_grad = view(subject.output().size_bytes(shape));
  run.input_grad = view(subject.input().size_bytes(shape));
  run.saved = view(memory.saved_bytes);
  run.workspace = view(std::max({memory.forward_workspace_bytes, memory.backward_workspace_bytes,
                                 memory.split_workspace_bytes}));
  if (subject.needs(RowInput::kLabels))
    run.rows[RowInput::kLabels] = view(network.label.size_bytes(shape));
  run.parameters = parameters;
  run.gradients = gradients;
}

}  // namespace stagecoach
