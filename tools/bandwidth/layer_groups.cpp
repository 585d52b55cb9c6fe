#include "tools/bandwidth/layer_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "model/computed_model.h"
#include "tools/bandwidth/layer_measurement.h"

namespace stagecoach {

namespace {

/// A model of one block, whose layers stand for those of models as wide, and a micro-batch.
struct SampledModel {
  std::string name;
  ComputedModel model;
  MicroBatchShape shape;
  bool is_in_quick = false;
};

Gpt2Config gpt2_of(int64_t width, int64_t heads, int64_t vocabulary) {
  Gpt2Config config;
  config.vocab_size = vocabulary;
  config.n_positions = 4096;
  config.n_embd = width;
  config.n_layer = 1;
  config.n_head = heads;
  config.n_inner = 4 * width;
  return config;
}

DecoderConfig qwen3_of(int64_t width, int64_t heads, int64_t intermediate, int64_t vocabulary) {
  DecoderConfig config;
  Architecture& shape = config.architecture;
  shape.family = ModelFamily::kQwen3;
  shape.vocabulary = vocabulary;
  shape.positions = 8192;
  shape.hidden = width;
  shape.layers = 1;
  shape.heads = heads;
  shape.kv_heads = std::min<int64_t>(heads, 8);
  shape.head_dim = width / heads;
  shape.intermediate = intermediate;
  return config;
}

DecoderConfig qwen3_moe_of(int64_t width, int64_t heads, int64_t intermediate, int64_t vocabulary) {
  DecoderConfig config = qwen3_of(width, heads, intermediate, vocabulary);
  config.architecture.family = ModelFamily::kQwen3Moe;
  config.architecture.experts = 32;
  config.architecture.experts_per_token = 8;
  config.normalizes_choice = true;
  return config;
}

/// Widths from the smallest to the largest models that are trained on one machine, between which
/// and beyond which rates are estimated.
std::vector<SampledModel> card_models() {
  return {{"gpt2-768", gpt2_of(768, 12, 50257), {8, 1024}, true},
          {"gpt2-768", gpt2_of(768, 12, 50257), {4, 512}},
          {"gpt2-1280", gpt2_of(1280, 20, 50257), {4, 1024}},
          {"qwen3-1024", qwen3_of(1024, 16, 3072, 65536), {4, 1024}},
          {"qwen3-2048", qwen3_of(2048, 16, 6144, 65536), {2, 2048}, true},
          {"qwen3-2048", qwen3_of(2048, 16, 6144, 65536), {2, 4096}},
          {"qwen3-4096", qwen3_of(4096, 32, 12288, 65536), {2, 2048}, true},
          {"qwen3-4096", qwen3_of(4096, 32, 12288, 65536), {1, 1024}},
          {"qwen3-moe-2048", qwen3_moe_of(2048, 32, 768, 65536), {2, 2048}}};
}

std::vector<SampledModel> mock_models() {
  return {{"gpt2-32", gpt2_of(32, 2, 61), {2, 32}, true},
          {"qwen3-32", qwen3_of(32, 2, 64, 61), {2, 32}, true}};
}

int64_t vocabulary_of(const ComputedModel& model) {
  return architecture_of(model).vocabulary;
}

constexpr struct {
  LayerPhase phase;
  const char* name;
} kPhases[] = {{LayerPhase::kForward, "forward"}, {LayerPhase::kBackward, "backward"}};

/// A group a layer: its memory is freed before the next.
void add_layer(GroupBuilder& builder, Device& device, const SampledModel& sampled,
               const LayerSubject& subject) {
  BandwidthGroup group = builder.start("layers");
  const std::string& layer = subject.network->layers[static_cast<size_t>(subject.layer)]->name();
  for (const auto& [phase, phase_name] : kPhases) {
    MeasurementInfo info;
    info.id = fmt::format("layers/{}/{}/{}x{}/{}/{}", device.id(), sampled.name,
                          sampled.shape.sequences, sampled.shape.sequence, layer, phase_name);
    info.group = "layers";
    info.params["device"] = device.id();
    info.params["model"] = sampled.name;
    info.params["layer"] = layer;
    info.params["phase"] = phase_name;
    info.params["dtype"] = dtype_name(subject.network->dtype);
    info.params["sequences"] = sampled.shape.sequences;
    info.params["sequence"] = sampled.shape.sequence;
    group.measurements.push_back(
        std::make_unique<LayerMeasurement>(std::move(info), device, subject, phase));
  }
  group.sampling.min_time_ns = std::min<int64_t>(group.sampling.min_time_ns, 50'000'000);
  group.sampling.batch_time_ns = std::min<int64_t>(group.sampling.batch_time_ns, 10'000'000);
  group.sampling.warm_up_limit_ns = std::min<int64_t>(group.sampling.warm_up_limit_ns, 500'000'000);
  builder.push(std::move(group));
}

void add_model(GroupBuilder& builder, Device& device, const SampledModel& sampled) {
  DType dtype = device.info().is_real_hardware ? DType::kBF16 : DType::kF32;
  Result<Network> network =
      make_network(sampled.model, NetworkHead::kLoss, dtype, sampled.shape.sequence);
  if (!network.is_ok()) {
    builder.note(fmt::format("{} is not timed: {}", sampled.name, network.status().message()));
    return;
  }
  LayerSubject subject;
  subject.network = std::make_shared<Network>(std::move(*network));
  subject.shape = sampled.shape;
  subject.vocabulary = vocabulary_of(sampled.model);
  for (int layer = 0; layer < std::ssize(subject.network->layers); ++layer) {
    subject.layer = layer;
    add_layer(builder, device, sampled, subject);
  }
}

}  // namespace

void add_layers(GroupBuilder& builder) {
  bool is_asked_for = builder.options().suite == "layers";
  for (const MeasuredDevice& one : builder.devices()) {
    Device& device = *one.device;
    bool is_mock = !device.info().is_real_hardware;
    if (device.virtual_time() != nullptr || (is_mock && !is_asked_for)) continue;
    for (const SampledModel& sampled : is_mock ? mock_models() : card_models()) {
      if (builder.is_full() || sampled.is_in_quick) add_model(builder, device, sampled);
    }
  }
}

}  // namespace stagecoach
