#include "scheduler/stage_memory.h"

#include <algorithm>

#include "memory/arena.h"
#include "scheduler/stage_places.h"

namespace stagecoach {

Place RegionSizer::take(ByteCount size) {
  Place place{region_, used_, size};
  used_ += Arena::padded(size);
  return place;
}

void place_parameters(const Network& network, const Stage& stage, RegionSizer& region,
                      std::vector<StageLayout::BlockPlace>& held, StageLayout& layout) {
  auto find = [](const std::vector<StageLayout::BlockPlace>& places, int block) {
    return std::find_if(places.begin(), places.end(),
                        [&](const auto& place) { return place.block == block; });
  };
  ByteCount before = region.used();
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    for (const BlockUse& use : network.layers[layer]->uses()) {
      if (find(layout.blocks, use.block) != layout.blocks.end()) continue;
      auto there = find(held, use.block);
      if (there == held.end()) {
        Place place = region.take(network.block_bytes(use.block, network.dtype));
        there = held.insert(there, {use.block, place.offset, place.size});
      }
      layout.blocks.push_back(*there);
    }
  }
  layout.parameter_bytes = region.used() - before;
}

void place_gradients(const Network& network, const Stage& stage, RegionSizer& sums,
                     StageLayout& layout) {
  RegionSizer rounded(Region::kNone);
  bool rounds = network.dtype != DType::kF32;
  layout.gradient_offset = sums.used();
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    std::span<const BlockUse> uses = network.layers[layer]->uses();
    for (size_t use = 0; use < uses.size(); ++use) {
      if (network.blocks[uses[use].block].is_frozen) continue;
      StageLayout::GradientPlace gradient;
      gradient.layer = layer;
      gradient.use = static_cast<int>(use);
      gradient.block = uses[use].block;
      gradient.site = uses[use].site;
      Place sum = sums.take(network.block_bytes(uses[use].block, DType::kF32));
      gradient.offset = sum.offset;
      gradient.size = sum.size;
      if (rounds) {
        Place copy = rounded.take(network.block_bytes(uses[use].block, network.dtype));
        gradient.rounded_offset = copy.offset;
        gradient.rounded_size = copy.size;
      }
      layout.gradients.push_back(gradient);
    }
  }
  layout.gradient_bytes = sums.used() - layout.gradient_offset;
  layout.rounded_bytes = rounded.used();
}

namespace {

ByteCount largest_inner_boundary(const Network& network, const Stage& stage,
                                 const MicroBatchShape& shape) {
  ByteCount largest = 0;
  for (int layer = stage.first_layer; layer < stage.last_layer; ++layer) {
    largest = std::max(largest, network.layers[layer]->output().size_bytes(shape));
  }
  return largest;
}

}  // namespace

void place_inner_gradients(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                           RegionSizer& work, StageLayout& layout) {
  ByteCount inner = largest_inner_boundary(network, stage, shape);
  Place turns[2] = {work.take(inner), work.take(inner)};
  for (int layer = stage.first_layer; layer < stage.last_layer; ++layer) {
    Place& place = layout.layers[layer - stage.first_layer].output_grad;
    place = turns[layer % 2];
    place.size = network.layers[layer]->output().size_bytes(shape);
  }
}

namespace {

void place_workspace(StageLayout& layout, const Place& workspace) {
  for (StageLayout::LayerPlaces& places : layout.layers) places.workspace = workspace;
}

}  // namespace

void place_forward(const Network& network, const Stage& stage, const std::vector<bool>& starts,
                   const MicroBatchShape& shape, RegionSizer& out, RegionSizer& work,
                   StageLayout& layout) {
  ByteCount inner = largest_inner_boundary(network, stage, shape);
  Place turns[2] = {work.take(inner), work.take(inner)};
  ByteCount workspace = 0;
  int layer_count = static_cast<int>(network.layers.size());
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    StageLayout::LayerPlaces places;
    ByteCount size = network.layers[layer]->output().size_bytes(shape);
    int boundary = layer + 1;
    if (boundary == layer_count) {
      places.output = layout.loss = out.take(size);
    } else if (starts[boundary]) {
      places.output = out.take(size);
      layout.downloads.push_back({boundary, places.output});
    } else {
      places.output = turns[layer % 2];
      places.output.size = size;
    }
    workspace = std::max(workspace, network.layers[layer]->memory(shape).forward_workspace_bytes);
    layout.layers.push_back(places);
  }
  place_workspace(layout, work.take(workspace));
}

void place_row_inputs(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                      RegionSizer& in, StageLayout& layout) {
  for (RowInput input : kRowInputs) {
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      if (!network.layers[layer]->needs(input)) continue;
      layout.rows[input] = in.take(network.row_input(input).size_bytes(shape));
      break;
    }
  }
}

void place_backward(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                    RegionSizer& in, RegionSizer& out, RegionSizer& work, StageLayout& layout) {
  layout.layers.resize(stage.layer_count());
  place_inner_gradients(network, stage, shape, work, layout);
  ByteCount workspace = 0;
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    StageLayout::LayerPlaces& places = layout.layers[layer - stage.first_layer];
    LayerMemory memory = network.layers[layer]->memory(shape);
    ByteCount size = network.layers[layer]->output().size_bytes(shape);
    if (layer < stage.last_layer) {
      places.output = work.take(size);
    } else if (stage.kind == ActionKind::kForwardBackward) {
      places.output = layout.loss = out.take(size);
    } else if (layer + 1 < static_cast<int>(network.layers.size())) {
      places.output_grad = in.take(size);
    }
    places.saved = work.take(memory.saved_bytes);
    workspace = std::max(workspace, memory.backward_workspace_bytes);
  }
  place_workspace(layout, work.take(workspace));
  if (stage.first_layer > 0) {
    layout.input_grad = out.take(network.layers[stage.first_layer]->input().size_bytes(shape));
  }
}

void place_reports(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                   RegionSizer& out, StageLayout& layout) {
  ByteCount before = out.used();
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    ByteCount size = network.layers[layer]->report_bytes(shape);
    if (size > 0) layout.layers[layer - stage.first_layer].report = out.take(size);
  }
  if (out.used() == before) return;
  layout.reports = {Region::kOut, before, out.used() - before};
  layout.reports_offset = network.report_bytes(shape, stage.first_layer);
}

void grow_need(DeviceMemoryNeed& need, const StageLayout& layout) {
  need.parameter_bytes = std::max(need.parameter_bytes, layout.parameter_bytes);
  need.gradient_bytes = std::max(need.gradient_bytes, layout.gradient_bytes);
  need.rounded_bytes = std::max(need.rounded_bytes, layout.rounded_bytes);
  need.in_bytes = std::max(need.in_bytes, layout.in_bytes);
  need.out_bytes = std::max(need.out_bytes, layout.out_bytes);
  need.work_bytes = std::max(need.work_bytes, layout.work_bytes);
}

ByteCount DeviceMemoryNeed::total() const {
  auto padded = [](ByteCount size) { return Arena::padded(size); };
  return 2 * (padded(rounded_bytes) + padded(in_bytes) + padded(out_bytes)) +
         parameter_buffers() * padded(parameter_bytes) +
         gradient_buffers() * padded(gradient_bytes) + padded(work_bytes) + padded(kept_bytes) +
         padded(resident_bytes);
}

std::vector<Stage> narrowest_stages(int layer_count) {
  std::vector<Stage> stages;
  for (int layer = 0; layer + 1 < layer_count; ++layer) {
    stages.push_back({ActionKind::kForward, layer, layer});
  }
  stages.push_back({ActionKind::kForwardBackward, layer_count - 1, layer_count - 1});
  for (int layer = layer_count - 2; layer >= 0; --layer) {
    stages.push_back({ActionKind::kBackward, layer, layer});
  }
  return stages;
}

std::vector<bool> stage_starts(const std::vector<Stage>& stages, int layer_count) {
  std::vector<bool> starts(layer_count + 1, false);
  for (const Stage& stage : stages) starts[stage.first_layer] = true;
  return starts;
}

StageLayout layout_stage(const Network& network, const Stage& stage,
                         const std::vector<bool>& starts, const MicroBatchShape& shape) {
  StageLayout layout;
  RegionSizer in(Region::kIn), out(Region::kOut), work(Region::kWork);
  RegionSizer parameters(Region::kNone), sums(Region::kNone);
  std::vector<StageLayout::BlockPlace> held;
  place_parameters(network, stage, parameters, held, layout);
  if (stage.kind != ActionKind::kForward) place_gradients(network, stage, sums, layout);
  layout.input = in.take(network.layers[stage.first_layer]->input().size_bytes(shape));
  place_row_inputs(network, stage, shape, in, layout);
  bool ends_in_loss = stage.last_layer + 1 == static_cast<int>(network.layers.size());
  layout.takes_gradient = stage.kind == ActionKind::kBackward && !ends_in_loss;
  if (stage.kind == ActionKind::kForward) {
    place_forward(network, stage, starts, shape, out, work, layout);
  } else {
    layout.forward = ForwardPass::kSaving;
    layout.backward = BackwardPart::kBoth;
    place_backward(network, stage, shape, in, out, work, layout);
  }
  if (stage.kind != ActionKind::kBackward) place_reports(network, stage, shape, out, layout);
  layout.in_bytes = in.used();
  layout.out_bytes = out.used();
  layout.work_bytes = work.used();
  return layout;
}

DeviceMemoryNeed device_memory_need(const Network& network, const std::vector<Stage>& stages,
                                    const MicroBatchShape& shape) {
  DeviceMemoryNeed need;
  need.rounds_gradients = network.dtype != DType::kF32;
  std::vector<bool> starts = stage_starts(stages, static_cast<int>(network.layers.size()));
  for (const Stage& stage : stages) grow_need(need, layout_stage(network, stage, starts, shape));
  return need;
}

DeviceMemoryNeed stage_memory_need(const Network& network, const StageLayout& layout) {
  DeviceMemoryNeed need;
  need.rounds_gradients = network.dtype != DType::kF32;
  grow_need(need, layout);
  return need;
}

}  // namespace stagecoach
