#pragma once

#include <fmt/format.h>
#include <memory>
#include <string>
#include <utility>

#include "core/status.h"
#include "model/gpt2_config.h"
#include "model/segments.h"
#include "scheduler/network.h"

namespace stagecoach::testing {

/// A chain of linear layers between an embedding and a head of its own: like a GPT-2 of that
/// configuration, but every block is used at one site.
inline Result<Network> make_untied_chain(const Gpt2Config& config, DType dtype) {
  int64_t width = config.n_embd;
  Network network;
  network.name = "untied";
  network.dtype = dtype;
  network.label = {DType::kI32, 1};
  Initializer normal{Initializer::Kind::kNormal, 0.1};
  auto add_block = [&](const std::string& name, Shape shape) {
    ParameterBlock block{.name = name, .parameters = {}, .element_count = 0, .site_count = 1};
    block.add(name + ".weight", std::move(shape), true, normal);
    network.blocks.push_back(std::move(block));
    return static_cast<int>(network.blocks.size()) - 1;
  };
  auto add_layer = [&](SegmentChainSpec spec) -> Status {
    spec.dtype = dtype;
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                                make_segment_layer(std::move(spec), network.blocks));
    network.layers.push_back(std::move(layer));
    return Status::ok();
  };
  SegmentChainSpec embedding;
  embedding.name = "embedding";
  embedding.input_has_gradient = false;
  embedding.uses = {{add_block("table", Shape{config.vocab_size, width}), 0}};
  embedding.activations = {{"ids", DType::kI32, 1}, {"out", dtype, width}};
  EmbeddingSegment::Options lookup;
  lookup.table = {0, 0};
  lookup.columns = width;
  embedding.segments.push_back(std::make_unique<EmbeddingSegment>("embedding.lookup", lookup));
  STAGECOACH_RETURN_IF_ERROR(add_layer(std::move(embedding)));
  for (int64_t index = 0; index < config.n_layer; ++index) {
    SegmentChainSpec linear;
    linear.name = fmt::format("linear.{}", index);
    linear.uses = {{add_block(linear.name, Shape{width, width}), 0}};
    linear.activations = {{"in", dtype, width}, {"out", dtype, width}};
    LinearSegment::Options product;
    product.weight = {0, 0};
    product.in_columns = product.out_columns = width;
    linear.segments.push_back(std::make_unique<LinearSegment>(linear.name + ".product", product));
    STAGECOACH_RETURN_IF_ERROR(add_layer(std::move(linear)));
  }
  SegmentChainSpec head;
  head.name = "head";
  head.uses = {{add_block("head", Shape{config.vocab_size, width}), 0}};
  head.activations = {{"in", dtype, width}, {"lse", DType::kF32, 1}, {"loss", DType::kF32, 1}};
  LinearCrossEntropySegment::Options loss;
  loss.weight = {0, 0};
  loss.columns = width;
  loss.vocabulary = config.vocab_size;
  head.segments.push_back(std::make_unique<LinearCrossEntropySegment>("head.loss", loss));
  STAGECOACH_RETURN_IF_ERROR(add_layer(std::move(head)));
  STAGECOACH_RETURN_IF_ERROR(network.validate());
  return network;
}

}  // namespace stagecoach::testing
