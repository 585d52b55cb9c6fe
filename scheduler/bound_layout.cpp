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

/// What one range of layers keeps of a micro-batch, whichever of its actions runs.
void place_kept(const Network& network, const Stage& stage, bool is_split,
                const MicroBatchShape& shape, StageLayout& layout) {
  RegionSizer in(Region::kIn), saved(Region::kSaved), gradient(Region::kGradient);
  RegionSizer half(Region::kHalf);
  layout.layers.resize(stage.layer_count());
  layout.input = in.take(network.layers[stage.first_layer]->input().size_bytes(shape));
  if (network.layers[stage.last_layer]->needs_labels()) {
    layout.labels = in.take(network.label.size_bytes(shape));
  }
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    StageLayout::LayerPlaces& places = layout.layers[layer - stage.first_layer];
    LayerMemory memory = network.layers[layer]->memory(shape);
    ByteCount size = network.layers[layer]->output().size_bytes(shape);
    bool inner = layer < stage.last_layer;
    places.saved = saved.take(memory.saved_bytes);
    if (inner) places.output = saved.take(size);
    bool ends_in_loss = layer + 1 == static_cast<int>(network.layers.size());
    if (!inner && !ends_in_loss) places.output_grad = gradient.take(size);
    if (!is_split) continue;
    if (inner) places.output_grad = half.take(size);
    places.workspace = half.take(memory.split_workspace_bytes);
  }
  layout.in_bytes = in.used();
  layout.saved_bytes = saved.used();
  layout.output_grad_bytes = gradient.used();
  layout.half_bytes = half.used();
}

/// What only the action itself needs: a forward's or whole backward's workspace, and what leaves.
void place_passing(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                   StageLayout& layout) {
  RegionSizer out(Region::kOut), work(Region::kWork);
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
  if (is_forward || stage.kind == ActionKind::kBackward) {
    ByteCount most = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      most = std::max(most, network.layers[layer]->memory(shape).backward_workspace_bytes);
    }
    Place workspace = work.take(most);
    for (StageLayout::LayerPlaces& places : layout.layers) places.workspace = workspace;
  }
  layout.out_bytes = out.used();
  layout.work_bytes = work.used();
}

void set_passes(ActionKind kind, StageLayout& layout) {
  layout.takes_input = kind == ActionKind::kForward;
  layout.takes_gradient =
      makes_input_gradient(kind) && layout.layers.back().output_grad.region != Region::kNone;
  layout.forward = kind == ActionKind::kForward ? ForwardPass::kSaving : ForwardPass::kNone;
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
                                             const MicroBatchShape& shape) {
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<int> devices = stage_devices(plan);
  std::vector<bool> is_split(plan.stages.size(), false);
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    if (plan.stages[index].kind == ActionKind::kInputGradient) is_split[numbers[index]] = true;
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
      place_kept(network, stage, is_split[number], shape, *common);
    }
    StageLayout layout = *common;
    if (!makes_weight_gradient(stage.kind)) layout.gradients.clear();
    set_passes(stage.kind, layout);
    place_passing(network, stage, shape, layout);
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace stagecoach
