#include "scheduler/bound_layout.h"

#include <algorithm>

#include "scheduler/stage_places.h"

namespace stagecoach {

namespace {

/// What a device holds of all its stages.
struct DeviceHoldings {
  RegionSizer parameters{Region::kNone};
  RegionSizer sums{Region::kNone};
  std::vector<StageLayout::BlockPlace> blocks;
};

/// Where stages of one range find what they share.
struct RangeTraits {
  bool is_split = false;    ///< its backward runs as I and W
  bool recomputes = false;  ///< its forward keeps the input only
};

/// Tensors of a range whose actions hand activations, or the halves of a backward, to each other.
void place_kept(const Network& network, const Stage& stage, const RangeTraits& traits,
                const MicroBatchShape& shape, StageLayout& layout) {
  RegionSizer kept(Region::kSaved), gradient(Region::kGradient), half(Region::kHalf);
  RegionSizer& saved = traits.recomputes ? half : kept;
  layout.layers.resize(stage.layer_count());
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    StageLayout::LayerPlaces& places = layout.layers[layer - stage.first_layer];
    LayerMemory memory = network.layers[layer]->memory(shape);
    ByteCount size = network.layers[layer]->output().size_bytes(shape);
    bool inner = layer < stage.last_layer;
    places.saved = saved.take(memory.saved_bytes);
    if (inner) places.output = saved.take(size);
    bool ends_in_loss = layer + 1 == static_cast<int>(network.layers.size());
    if (!inner && !ends_in_loss) places.output_grad = gradient.take(size);
    if (!traits.is_split) continue;
    if (inner) places.output_grad = half.take(size);
    places.workspace = half.take(memory.split_workspace_bytes);
  }
  layout.saved_bytes = kept.used();
  layout.output_grad_bytes = gradient.used();
  layout.half_bytes = half.used();
}

/// What only the action itself needs: a forward's or whole backward's workspace, and what leaves.
void place_passing(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                   RegionSizer& out, RegionSizer& work, StageLayout& layout) {
  bool is_forward = stage.kind == ActionKind::kForward;
  if (is_forward) {
    Place output = out.take(network.layers[stage.last_layer]->output().size_bytes(shape));
    layout.layers.back().output = output;
    int boundary = stage.last_layer + 1;
    if (boundary == static_cast<int>(network.layers.size())) {
      layout.loss = output;
    } else {
      layout.downloads.push_back({boundary, output});
    }
  } else if (makes_input_gradient(stage.kind) && stage.first_layer > 0) {
    layout.input_grad = out.take(network.layers[stage.first_layer]->input().size_bytes(shape));
  }
  if (stage.kind == ActionKind::kBackward) {
    place_inner_gradients(network, stage, shape, work, layout);
  }
  if (!is_forward && stage.kind != ActionKind::kBackward) return;
  ByteCount most = 0;
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    most = std::max(most, network.layers[layer]->memory(shape).backward_workspace_bytes);
  }
  Place workspace = work.take(most);
  for (StageLayout::LayerPlaces& places : layout.layers) places.workspace = workspace;
}

void place_tensors(const Network& network, const Stage& stage, const RangeTraits& traits,
                   const MicroBatchShape& shape, StageLayout& layout) {
  RegionSizer in(Region::kIn), out(Region::kOut), work(Region::kWork);
  layout.input = in.take(network.layers[stage.first_layer]->input().size_bytes(shape));
  place_row_inputs(network, stage, shape, in, layout);
  if (traits.recomputes && stage.kind == ActionKind::kForward) {
    // The stage's end is the next one's start.
    std::vector<bool> starts(network.layers.size() + 1, false);
    starts[stage.last_layer + 1] = true;
    place_forward(network, stage, starts, shape, out, work, layout);
  } else if (traits.recomputes && stage.kind == ActionKind::kBackward) {
    RegionSizer gradient(Region::kGradient);
    place_backward(network, stage, shape, gradient, out, work, layout);
    layout.output_grad_bytes = gradient.used();
  } else {
    place_kept(network, stage, traits, shape, layout);
    place_passing(network, stage, shape, out, work, layout);
  }
  if (stage.kind == ActionKind::kForward) place_reports(network, stage, shape, out, layout);
  layout.in_bytes = in.used();
  layout.out_bytes = out.used();
  layout.work_bytes = work.used();
}

void set_passes(ActionKind kind, bool recomputes, StageLayout& layout) {
  bool is_forward = kind == ActionKind::kForward;
  layout.takes_input = is_forward;
  layout.takes_gradient =
      makes_input_gradient(kind) && layout.layers.back().output_grad.region != Region::kNone;
  bool saves = is_forward ? !recomputes : recomputes && makes_input_gradient(kind);
  layout.forward = saves        ? ForwardPass::kSaving
                   : is_forward ? ForwardPass::kPlain
                                : ForwardPass::kNone;
  if (kind == ActionKind::kBackward) layout.backward = BackwardPart::kBoth;
  if (kind == ActionKind::kInputGradient) layout.backward = BackwardPart::kInput;
  if (kind == ActionKind::kWeightGradient) layout.backward = BackwardPart::kWeight;
}

}  // namespace

std::vector<int> stage_devices(const Plan& plan) {
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<int> devices(plan.stages.size(), 0);
  for (int device = 0; device < plan.device_count(); ++device) {
    for (const Action& action : plan.device_actions[device]) {
      devices[numbers[action.stage]] = device;
    }
  }
  return devices;
}

std::vector<StageLayout> layout_bound_stages(const Network& network, const Plan& plan,
                                             const MicroBatchShape& shape, bool recomputes) {
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<int> devices = stage_devices(plan);
  std::vector<RangeTraits> traits(plan.stages.size(), RangeTraits{false, recomputes});
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    if (plan.stages[index].kind == ActionKind::kInputGradient) {
      traits[numbers[index]].is_split = true;
    }
  }
  std::vector<DeviceHoldings> holdings(plan.device_count());
  std::vector<std::optional<StageLayout>> of_number(plan.stages.size());
  std::vector<StageLayout> layouts;
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    const Stage& stage = plan.stages[index];
    int number = numbers[index];
    std::optional<StageLayout>& common = of_number[number];
    if (!common.has_value()) {
      common.emplace();
      DeviceHoldings& held = holdings[devices[number]];
      place_parameters(network, stage, held.parameters, held.blocks, *common);
      place_gradients(network, stage, held.sums, *common);
    }
    StageLayout layout = *common;
    if (!makes_weight_gradient(stage.kind)) layout.gradients.clear();
    place_tensors(network, stage, traits[number], shape, layout);
    set_passes(stage.kind, recomputes, layout);
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace stagecoach
