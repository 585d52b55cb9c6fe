#include "scheduler/network.h"

#include <algorithm>
#include <fmt/format.h>

#include "memory/arena.h"

namespace stagecoach {

int ParameterBlock::add(std::string parameter_name, Shape shape, bool decay,
                        Initializer initializer) {
  ParameterInfo info;
  info.name = std::move(parameter_name);
  info.shape = shape;
  info.offset = element_count;
  info.decay = decay;
  info.initializer = initializer;
  element_count = align_up(element_count + shape.element_count(), kAlignmentElements);
  parameters.push_back(std::move(info));
  return static_cast<int>(parameters.size()) - 1;
}

int64_t ParameterBlock::parameter_count() const {
  int64_t count = 0;
  for (const ParameterInfo& parameter : parameters) count += parameter.shape.element_count();
  return count;
}

bool Network::takes(RowInput input) const {
  return std::any_of(layers.begin(), layers.end(),
                     [input](const auto& layer) { return layer->needs(input); });
}

BoundaryInfo Network::row_input(RowInput input) const {
  if (input == RowInput::kLabels) return label;
  return {document.dtype, takes(input) ? document.columns : 0};
}

int64_t Network::parameter_count() const {
  int64_t count = 0;
  for (const ParameterBlock& block : blocks) count += block.parameter_count();
  return count;
}

int64_t Network::trained_parameter_count() const {
  int64_t count = 0;
  for (const ParameterBlock& block : blocks) {
    if (!block.is_frozen) count += block.parameter_count();
  }
  return count;
}

bool Network::has_adapters() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const ParameterBlock& block) { return block.is_adapter; });
}

ByteCount Network::report_bytes(const MicroBatchShape& shape, int layer) const {
  ByteCount bytes = 0;
  for (int before = 0; before < layer; ++before) {
    bytes += Arena::padded(layers[static_cast<size_t>(before)]->report_bytes(shape));
  }
  return bytes;
}

Status Network::validate() const {
  if (layers.empty()) return invalid_argument("the network has no layers");
  std::vector<int> next_site(blocks.size(), 0);
  for (size_t index = 0; index < layers.size(); ++index) {
    const Layer& layer = *layers[index];
    if (index > 0) {
      BoundaryInfo before = layers[index - 1]->output();
      BoundaryInfo after = layer.input();
      if (before.dtype != after.dtype || before.columns != after.columns) {
        return invalid_argument(
            fmt::format("layer '{}' yields {} x {} but layer '{}' takes {} x {}",
                        layers[index - 1]->name(), before.columns, dtype_name(before.dtype),
                        layer.name(), after.columns, dtype_name(after.dtype)));
      }
    }
    if (layer.needs(RowInput::kLabels) && label.columns <= 0) {
      return invalid_argument(
          fmt::format("layer '{}' takes labels but the network has none", layer.name()));
    }
    for (const BlockUse& use : layer.uses()) {
      if (use.block < 0 || use.block >= static_cast<int>(blocks.size())) {
        return invalid_argument(
            fmt::format("layer '{}' uses block {}, which does not exist", layer.name(), use.block));
      }
      if (use.site != next_site[use.block]++) {
        return invalid_argument(fmt::format("layer '{}' numbers its use of block '{}' out of order",
                                            layer.name(), blocks[use.block].name));
      }
    }
  }
  for (const ParameterBlock& block : blocks) {
    if (!block.constant || (block.is_frozen && block.parameters.empty())) continue;
    return invalid_argument(
        fmt::format("block '{}' is a constant, but it is trained or has parameters", block.name));
  }
  for (const ParameterBlock& block : blocks) {
    if (!block.is_mapped || (block.is_frozen && !block.constant)) continue;
    return invalid_argument(fmt::format(
        "block '{}' is mapped from files, but it is trained or a constant", block.name));
  }
  for (size_t index = 0; index < blocks.size(); ++index) {
    if (blocks[index].site_count != next_site[index]) {
      return invalid_argument(fmt::format("block '{}' says it has {} sites but layers use {}",
                                          blocks[index].name, blocks[index].site_count,
                                          next_site[index]));
    }
  }
  return Status::ok();
}

}  // namespace stagecoach
