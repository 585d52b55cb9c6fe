#include "scheduler/device_lane.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

const char* lane_name(LaneKind lane) {
  switch (lane) {
    case LaneKind::kCompute:
      return "compute";
    case LaneKind::kActivationUp:
      return "activation_up";
    case LaneKind::kActivationDown:
      return "activation_down";
    case LaneKind::kParameterUp:
      return "parameter_up";
    case LaneKind::kGradientDown:
      return "gradient_down";
  }
  return "?";
}

Result<std::unique_ptr<DeviceLane>> DeviceLane::create(Device& device, ByteCount arena_bytes) {
  std::unique_ptr<DeviceLane> lane(new DeviceLane(device));
  for (int kind = 0; kind < kLaneCount; ++kind) {
    STAGECOACH_ASSIGN_OR_RETURN(lane->streams_[kind],
                                device.create_stream({lane_name(static_cast<LaneKind>(kind))}));
  }
  STAGECOACH_ASSIGN_OR_RETURN(lane->arena_,
                              Arena::create_on_device(device, arena_bytes, "stage memory"));
  return lane;
}

Status DeviceLane::begin_pass(const PlanContext& context, const DeviceMemoryNeed& need,
                              int device_index) {
  context_ = &context;
  device_index_ = device_index;
  rounds_gradients_ = need.rounds_gradients;
  arena_->reset();
  for (int parity = 0; parity < 2; ++parity) {
    parameters_[parity] = arena_->take(need.parameter_bytes);
    rounded_[parity] = arena_->take(need.rounded_bytes);
    in_[parity] = arena_->take(need.in_bytes);
    out_[parity] = arena_->take(need.out_bytes);
  }
  gradients_[0] = arena_->take(need.gradient_bytes);
  gradients_[1] = need.gradient_buffers() == 2 ? arena_->take(need.gradient_bytes) : gradients_[0];
  work_ = arena_->take(need.work_bytes);
  // The previous pass has ended, so every buffer is free.
  for (auto* free :
       {&parameters_free_, &gradients_free_, &in_free_, &out_free_, &parameters_ready_}) {
    *free = {};
  }
  gradient_slots_ = 0;
  events_used_ = 0;
  spans_.clear();
  bytes_up_ = bytes_down_ = 0;

  slots_.clear();
  const std::vector<Action>& actions = context.plan->device_actions[device_index];
  for (size_t index = 0; index < actions.size(); ++index) {
    int round = context.plan->round_of(actions[index].micro_batch);
    if (slots_.empty() || slots_.back().stage != actions[index].stage ||
        slots_.back().round != round) {
      slots_.push_back(Slot{actions[index].stage, round, static_cast<int>(index), 0});
    }
    ++slots_.back().action_count;
  }
  for (const auto& layer : context.network->layers) {
    if (layer->uses().size() > kMaxBlockUses) {
      return invalid_argument(fmt::format("layer '{}' uses {} blocks; at most {} are supported",
                                          layer->name(), layer->uses().size(), kMaxBlockUses));
    }
  }
  return Status::ok();
}

const Action& DeviceLane::action_at(int index) const {
  return context_->plan->device_actions[device_index_][index];
}

BufferView DeviceLane::view(const Place& place, int parity) const {
  switch (place.region) {
    case Region::kNone:
      return {};
    case Region::kIn:
      return in_[parity].slice(place.offset, place.size);
    case Region::kOut:
      return out_[parity].slice(place.offset, place.size);
    case Region::kWork:
      return work_.slice(place.offset, place.size);
  }
  return {};
}

Result<int> DeviceLane::stamp(LaneKind lane) {
  if (events_used_ == static_cast<int>(events_.size())) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                                device_.create_event({.timing = true}));
    events_.push_back(std::move(event));
  }
  STAGECOACH_RETURN_IF_FAILED(stream(lane).record(*events_[events_used_]));
  return events_used_++;
}

void DeviceLane::add_span(LaneKind lane, int action, int slot, ByteCount bytes, int start,
                          int end) {
  LaneSpan span;
  span.lane = lane;
  span.kind = stage_of(slot).kind;
  span.stage = slots_[slot].stage;
  span.micro_batch = action < 0 ? -1 : action_at(action).micro_batch;
  span.bytes = bytes;
  span.start_event = start;
  span.end_event = end;
  span.action = action;
  spans_.push_back(span);
}

Status DeviceLane::wait_for(LaneKind lane, const Landing& landing) {
  // A landing on another backend's device has been awaited by the controller already.
  if (landing.device == nullptr || landing.device->info().backend != device_.info().backend) {
    return Status::ok();
  }
  STAGECOACH_RETURN_IF_FAILED(stream(lane).wait(landing.timepoint));
  return Status::ok();
}

Status DeviceLane::submit_parameters(int slot) {
  Stream& up = stream(LaneKind::kParameterUp);
  int parity = slot % 2;
  const StageLayout& layout = layout_of(slot);
  STAGECOACH_RETURN_IF_FAILED(up.wait(parameters_free_[parity]));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kParameterUp));
  ByteCount bytes = 0;
  for (const StageLayout::BlockPlace& block : layout.blocks) {
    CopyRequest copy;
    copy.source = context_->host_state->compute_copy(block.block);
    copy.target = parameters_[parity].slice(block.offset, block.size);
    copy.label = context_->network->blocks[block.block].name;
    STAGECOACH_RETURN_IF_FAILED(up.copy(copy));
    bytes += block.size;
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kParameterUp));
  STAGECOACH_ASSIGN_OR_RETURN(parameters_ready_[parity], up.mark());
  if (bytes > 0) add_span(LaneKind::kParameterUp, -1, slot, bytes, start, end);
  bytes_up_ += bytes;
  return Status::ok();
}

Status DeviceLane::upload_inputs(int slot, int action, const Landing& input,
                                 const Landing& output_grad) {
  Stream& up = stream(LaneKind::kActivationUp);
  int parity = action % 2;
  int m = action_at(action).micro_batch;
  const Stage& stage = stage_of(slot);
  const StageLayout& layout = layout_of(slot);
  STAGECOACH_RETURN_IF_FAILED(up.wait(in_free_[parity]));
  STAGECOACH_RETURN_IF_ERROR(wait_for(LaneKind::kActivationUp, input));
  STAGECOACH_RETURN_IF_ERROR(wait_for(LaneKind::kActivationUp, output_grad));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kActivationUp));
  ByteCount bytes = 0;
  auto upload = [&](const Place& place, const BufferView& source, const char* label) -> Status {
    if (place.region == Region::kNone) return Status::ok();
    bytes += place.size;
    STAGECOACH_RETURN_IF_FAILED(up.copy({view(place, parity), source, label}));
    return Status::ok();
  };
  BufferView source = stage.first_layer == 0 ? context_->input->inputs[m]
                                             : context_->store->activation(stage.first_layer, m);
  STAGECOACH_RETURN_IF_ERROR(upload(layout.input, source, "stage input"));
  if (layout.labels.region != Region::kNone) {
    STAGECOACH_RETURN_IF_ERROR(upload(layout.labels, context_->input->labels[m], "labels"));
  }
  if (stage.kind == ActionKind::kBackward) {
    STAGECOACH_RETURN_IF_ERROR(upload(layout.layers.back().output_grad,
                                      context_->store->gradient(stage.last_layer + 1, m),
                                      "output gradient"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kActivationUp));
  STAGECOACH_ASSIGN_OR_RETURN(inputs_ready_, up.mark());
  add_span(LaneKind::kActivationUp, action, slot, bytes, start, end);
  bytes_up_ += bytes;
  return Status::ok();
}

void DeviceLane::bind_layer(const StageLayout& layout, int layer_offset, int slot, int parity,
                            LayerRun& run) {
  const Stage& stage = stage_of(slot);
  int index = stage.first_layer + layer_offset;
  const Layer& layer = *context_->network->layers[index];
  const StageLayout::LayerPlaces& places = layout.layers[layer_offset];
  run.input = layer_offset == 0 ? view(layout.input, parity)
                                : view(layout.layers[layer_offset - 1].output, parity);
  run.output = view(places.output, parity);
  run.output_grad = view(places.output_grad, parity);
  run.input_grad = layer_offset == 0 ? view(layout.input_grad, parity)
                                     : view(layout.layers[layer_offset - 1].output_grad, parity);
  run.saved = view(places.saved, parity);
  run.workspace = view(layout.workspace, parity);
  run.labels = layer.needs_labels() ? view(layout.labels, parity) : BufferView{};
  run.key.layer = static_cast<uint32_t>(index);
  std::span<const BlockUse> uses = layer.uses();
  for (size_t use = 0; use < uses.size(); ++use) {
    for (const StageLayout::BlockPlace& block : layout.blocks) {
      if (block.block != uses[use].block) continue;
      parameter_views_[use] = parameters_[slot % 2].slice(block.offset, block.size);
    }
  }
  for (const StageLayout::GradientPlace& gradient : layout.gradients) {
    if (gradient.layer != index) continue;
    gradient_views_[gradient.use] =
        gradients_[gradient_parity_].slice(gradient.offset, gradient.size);
  }
  run.parameters = std::span<const BufferView>(parameter_views_.data(), uses.size());
  run.gradients = std::span<const BufferView>(gradient_views_.data(), uses.size());
}

Status DeviceLane::run_forward(const StageLayout& layout, LayerRun& run, int slot, int action) {
  const Stage& stage = stage_of(slot);
  for (int offset = 0; offset <= stage.last_layer - stage.first_layer; ++offset) {
    bind_layer(layout, offset, slot, action % 2, run);
    const Layer& layer = *context_->network->layers[stage.first_layer + offset];
    STAGECOACH_RETURN_IF_ERROR(stage.kind == ActionKind::kForward ? layer.forward(run)
                                                                  : layer.forward_saving(run));
  }
  return Status::ok();
}

Status DeviceLane::run_backward(const StageLayout& layout, LayerRun& run, int slot, int action) {
  const Stage& stage = stage_of(slot);
  const Slot& where = slots_[slot];
  bool last = action + 1 == where.first_action + where.action_count;
  for (int offset = stage.last_layer - stage.first_layer; offset >= 0; --offset) {
    bind_layer(layout, offset, slot, action % 2, run);
    int index = stage.first_layer + offset;
    STAGECOACH_RETURN_IF_ERROR(
        context_->network->layers[index]->backward(run, BackwardPart::kBoth));
    // Gradients go home layer by layer as they become final, not as a burst at the end.
    if (last) STAGECOACH_RETURN_IF_ERROR(finish_layer_gradients(layout, slot, index));
  }
  return Status::ok();
}

Status DeviceLane::finish_layer_gradients(const StageLayout& layout, int slot, int layer) {
  Stream& compute = stream(LaneKind::kCompute);
  Stream& down = stream(LaneKind::kGradientDown);
  const HostState& state = *context_->host_state;
  int sum_parity = gradient_parity_;
  int parity = (gradient_slots_ - 1) % 2;
  ByteCount bytes = 0;
  if (rounds_gradients_) {
    for (const StageLayout::GradientPlace& gradient : layout.gradients) {
      if (gradient.layer != layer) continue;
      int64_t count = gradient.size / dtype_size_bytes(DType::kF32);
      TensorView sum{
          gradients_[sum_parity].slice(gradient.offset, gradient.size), DType::kF32, {count}};
      TensorView rounded{rounded_[parity].slice(gradient.rounded_offset, gradient.rounded_size),
                         state.gradient_dtype(),
                         {count}};
      STAGECOACH_RETURN_IF_FAILED(device_.ops().convert(compute, {rounded, sum, "round gradient"}));
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint final, compute.mark());
  STAGECOACH_RETURN_IF_FAILED(down.wait(final));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kGradientDown));
  for (const StageLayout::GradientPlace& gradient : layout.gradients) {
    if (gradient.layer != layer) continue;
    CopyRequest copy;
    copy.source = rounds_gradients_
                      ? rounded_[parity].slice(gradient.rounded_offset, gradient.rounded_size)
                      : gradients_[sum_parity].slice(gradient.offset, gradient.size);
    copy.target = state.gradient_slot(gradient.block, gradient.site, slots_[slot].round);
    copy.label = context_->network->blocks[gradient.block].name;
    STAGECOACH_RETURN_IF_FAILED(down.copy(copy));
    bytes += copy.source.size;
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kGradientDown));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint landed, down.mark());
  if (bytes > 0) add_span(LaneKind::kGradientDown, -1, slot, bytes, start, end);
  bytes_down_ += bytes;
  for (size_t index = 0; index < layout.gradients.size(); ++index) {
    if (layout.gradients[index].layer == layer)
      gradient_landings_[index] = Landing{landed, &device_};
  }
  gradients_free_[parity] = landed;
  return Status::ok();
}

Status DeviceLane::compute(int slot, int action) {
  Stream& compute = stream(LaneKind::kCompute);
  const Slot& where = slots_[slot];
  const StageLayout& layout = layout_of(slot);
  bool first = action == where.first_action;
  bool backward = stage_of(slot).kind != ActionKind::kForward;
  STAGECOACH_RETURN_IF_FAILED(compute.wait(inputs_ready_));
  STAGECOACH_RETURN_IF_FAILED(compute.wait(out_free_[action % 2]));
  if (first) STAGECOACH_RETURN_IF_FAILED(compute.wait(parameters_ready_[slot % 2]));
  if (first && backward) {
    int parity = gradient_slots_++ % 2;
    gradient_parity_ = rounds_gradients_ ? 0 : parity;
    gradient_landings_.assign(layout.gradients.size(), Landing{});
    STAGECOACH_RETURN_IF_FAILED(compute.wait(gradients_free_[parity]));
  }
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kCompute));
  if (first && backward && layout.gradient_bytes > 0) {
    BufferView sums = gradients_[gradient_parity_].slice(0, layout.gradient_bytes);
    STAGECOACH_RETURN_IF_FAILED(compute.fill({sums, 0, 4, "clear gradients"}));
  }
  LayerRun run;
  run.stream = &compute;
  run.ops = &device_.ops();
  run.shape = context_->shape;
  run.loss_scale = context_->input->loss_scale;
  run.training = !context_->input->inference;
  run.key.seed = context_->input->seed;
  run.key.iteration = context_->input->iteration;
  run.key.micro_batch = static_cast<uint32_t>(action_at(action).micro_batch);
  STAGECOACH_RETURN_IF_ERROR(run_forward(layout, run, slot, action));
  if (backward) STAGECOACH_RETURN_IF_ERROR(run_backward(layout, run, slot, action));
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kCompute));
  STAGECOACH_ASSIGN_OR_RETURN(compute_done_, compute.mark());
  add_span(LaneKind::kCompute, action, slot, 0, start, end);
  in_free_[action % 2] = compute_done_;
  parameters_free_[slot % 2] = compute_done_;
  return Status::ok();
}

Status DeviceLane::download_outputs(int slot, int action) {
  Stream& down = stream(LaneKind::kActivationDown);
  int parity = action % 2;
  int m = action_at(action).micro_batch;
  const StageLayout& layout = layout_of(slot);
  STAGECOACH_RETURN_IF_FAILED(down.wait(compute_done_));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kActivationDown));
  ByteCount bytes = 0;
  auto download = [&](const Place& place, const BufferView& target, const char* label) -> Status {
    if (place.region == Region::kNone) return Status::ok();
    bytes += place.size;
    STAGECOACH_RETURN_IF_FAILED(down.copy({target, view(place, parity), label}));
    return Status::ok();
  };
  for (const StageLayout::Download& item : layout.downloads) {
    STAGECOACH_RETURN_IF_ERROR(
        download(item.place, context_->store->activation(item.boundary, m), "stage output"));
  }
  if (layout.input_grad.region != Region::kNone) {
    STAGECOACH_RETURN_IF_ERROR(download(layout.input_grad,
                                        context_->store->gradient(stage_of(slot).first_layer, m),
                                        "input gradient"));
  }
  if (layout.loss.region != Region::kNone) {
    STAGECOACH_RETURN_IF_ERROR(download(layout.loss, context_->input->losses[m], "loss"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kActivationDown));
  STAGECOACH_ASSIGN_OR_RETURN(out_free_[parity], down.mark());
  if (bytes > 0) add_span(LaneKind::kActivationDown, action, slot, bytes, start, end);
  bytes_down_ += bytes;
  outputs_landing_ = Landing{out_free_[parity], &device_};
  return Status::ok();
}

Status DeviceLane::submit_action(int slot, int action, const Landing& input,
                                 const Landing& output_grad) {
  STAGECOACH_RETURN_IF_ERROR(upload_inputs(slot, action, input, output_grad));
  STAGECOACH_RETURN_IF_ERROR(compute(slot, action));
  return download_outputs(slot, action);
}

Result<std::vector<Timepoint>> DeviceLane::submit_end() {
  std::vector<Timepoint> ends;
  for (const auto& stream : streams_) {
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream->mark());
    ends.push_back(end);
  }
  return ends;
}

}  // namespace stagecoach
