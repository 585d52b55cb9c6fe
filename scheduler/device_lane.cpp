#include "scheduler/device_lane.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

namespace {

LayerPhase phase_of(BackwardPart part) {
  switch (part) {
    case BackwardPart::kBoth:
      return LayerPhase::kBackward;
    case BackwardPart::kInput:
      return LayerPhase::kInput;
    case BackwardPart::kWeight:
      return LayerPhase::kWeight;
  }
  return LayerPhase::kBackward;
}

}  // namespace

Result<std::unique_ptr<DeviceLane>> DeviceLane::create(Device& device, ByteCount arena_bytes,
                                                       const BulkSetup& bulk) {
  std::unique_ptr<DeviceLane> lane(new DeviceLane(device));
  for (LaneKind kind : {LaneKind::kCompute, LaneKind::kActivationUp, LaneKind::kActivationDown}) {
    STAGECOACH_ASSIGN_OR_RETURN(lane->streams_[static_cast<int>(kind)],
                                device.create_stream({lane_name(kind)}));
  }
  STAGECOACH_ASSIGN_OR_RETURN(lane->parameters_up_,
                              create_bulk_lane(device, LaneKind::kParameterUp, bulk,
                                               lane->stream(LaneKind::kActivationUp)));
  STAGECOACH_ASSIGN_OR_RETURN(lane->gradients_down_,
                              create_bulk_lane(device, LaneKind::kGradientDown, bulk,
                                               lane->stream(LaneKind::kActivationDown)));
  STAGECOACH_ASSIGN_OR_RETURN(lane->arena_,
                              Arena::create_on_device(device, arena_bytes, "stage memory"));
  return lane;
}

std::vector<Stream*> DeviceLane::streams() const {
  std::vector<Stream*> all;
  for (const auto& stream : streams_) {
    if (stream) all.push_back(stream.get());
  }
  for (const BulkLane* bulk : {parameters_up_.get(), gradients_down_.get()}) {
    for (Stream* stream : bulk->streams()) all.push_back(stream);
  }
  return all;
}

ByteCount DeviceLane::ring_bytes() const {
  return parameters_up_->ring_bytes() + gradients_down_->ring_bytes();
}

void DeviceLane::abandon(const Status& status) {
  for (Stream* stream : streams()) stream->abandon(status);
  for (BulkLane* bulk : {parameters_up_.get(), gradients_down_.get()}) bulk->abandon(status);
}

Status DeviceLane::begin_pass(const PlanContext& context, int device_index) {
  context_ = &context;
  device_index_ = device_index;
  arena_->reset();
  memory_ = arena_->take(memory().need.total());
  for (const auto& layer : context.network->layers) {
    if (layer->uses().size() > kMaxBlockUses) {
      return invalid_argument(fmt::format("layer '{}' uses {} blocks; at most {} are supported",
                                          layer->name(), layer->uses().size(), kMaxBlockUses));
    }
  }
  STAGECOACH_RETURN_IF_ERROR(take_over_arena());
  // The first slot takes the buffer that the last one of the pass before does not use.
  first_turn_ = (first_turn_ + static_cast<int>(slots_.size())) % 2;
  slots_ = slots_of_device(*context.plan, device_index, first_turn_);
  assign_roles();
  is_loaded_.assign(context.network->blocks.size(), false);
  record().clear();
  return Status::ok();
}

Status DeviceLane::take_over_arena() {
  size_t buffers = std::max<size_t>(2, context_->plan->stages.size());
  const DeviceMemoryNeed& need = memory().need;
  if (need_ == need && parameters_free_.size() == buffers) {
    // The same regions: each is free when it would be for the next slot or action. What a bound
    // device keeps lies where its list says, which begins anew.
    if (need.bound) {
      in_free_.fill(compute_done_);
      // Stages may share a block, which is loaded with the first of them.
      parameters_free_.assign(buffers, compute_done_);
    }
    return Status::ok();
  }
  // Other regions: all of them are free when everything so far is done.
  Timepoint end;
  if (need_.has_value()) {
    Stream& compute = stream(LaneKind::kCompute);
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<Timepoint> ends, submit_end());
    for (Timepoint of_lane : ends) {
      STAGECOACH_RETURN_IF_ERROR(BulkLane::hold(compute, of_lane));
    }
    STAGECOACH_ASSIGN_OR_RETURN(end, compute.mark());
  }
  need_ = need;
  parameters_ready_.assign(buffers, std::vector<Timepoint>{});
  for (auto* timepoints : {&parameters_free_, &sums_free_}) timepoints->assign(buffers, end);
  for (auto* free : {&rounded_free_, &in_free_, &out_free_}) free->fill(end);
  resident_.restart(need.resident_bytes, end);
  first_turn_ = 0;
  return Status::ok();
}

void DeviceLane::assign_roles() {
  const Plan& plan = *context_->plan;
  const DeviceMemoryNeed& need = memory().need;
  const std::vector<Action>& actions = plan.device_actions[device_index_];
  roles_.assign(actions.size(), SumsRole{});
  // Per stage and round: the last action so far that adds to its sums.
  std::vector<int> latest(plan.stages.size() * plan.rounds, -1);
  for (size_t index = 0; index < actions.size(); ++index) {
    const Action& action = actions[index];
    if (context_->layouts[action.stage].gradients.empty()) continue;
    int& before = latest[action.stage * plan.rounds + plan.round_of(action.micro_batch)];
    roles_[index].opens = before < 0;
    roles_[index].closes = true;
    if (before >= 0) roles_[before].closes = false;
    before = static_cast<int>(index);
  }
  // Streamed sums lie in two buffers in turn; bound ones have their own place.
  int opened = 0, closed = 0;
  for (size_t index = 0; index < actions.size(); ++index) {
    SumsRole& role = roles_[index];
    if (role.opens) ++opened;
    int turn = (opened + 1) % 2;
    role.guard = need.bound ? actions[index].stage : turn;
    role.sums = need.bound || need.rounds_gradients ? 0 : turn;
    role.rounded = closed % 2;
    if (role.closes) ++closed;
  }
}

const Action& DeviceLane::action_at(int index) const {
  return context_->plan->device_actions[device_index_][index];
}

BufferView DeviceLane::view(const Place& place, int action) const {
  if (place.region == Region::kNone) return {};
  return memory_.slice(memory().actions[action].of(place.region) + place.offset, place.size);
}

BufferView DeviceLane::sum_view(const StageLayout::GradientPlace& gradient,
                                const SumsRole& role) const {
  return memory_.slice(memory().gradients[role.sums] + gradient.offset, gradient.size);
}

BufferView DeviceLane::rounded_view(const StageLayout::GradientPlace& gradient,
                                    const SumsRole& role) const {
  return memory_.slice(memory().rounded[role.rounded] + gradient.rounded_offset,
                       gradient.rounded_size);
}

Result<int> DeviceLane::stamp(LaneKind lane) {
  LaneRecord& to = record();
  if (to.events_used == static_cast<int>(to.events.size())) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                                device_.create_event({.timing = true}));
    to.events.push_back(std::move(event));
  }
  Event& event = *to.events[static_cast<size_t>(to.events_used)];
  if (lane == LaneKind::kParameterUp) {
    STAGECOACH_RETURN_IF_ERROR(parameters_up_->record(event));
  } else if (lane == LaneKind::kGradientDown) {
    STAGECOACH_RETURN_IF_ERROR(gradients_down_->record(event));
  } else {
    STAGECOACH_RETURN_IF_FAILED(stream(lane).record(event));
  }
  return to.events_used++;
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
  record().spans.push_back(span);
}

Status DeviceLane::wait_for(LaneKind lane, const Landing& landing) {
  // A landing on another backend's device has been awaited by the controller already.
  if (landing.device == nullptr || landing.device->info().backend != device_.info().backend) {
    return Status::ok();
  }
  STAGECOACH_RETURN_IF_FAILED(stream(lane).wait(landing.timepoint));
  return Status::ok();
}

Status DeviceLane::upload_block(int slot, size_t index, ByteCount& bytes) {
  const StageLayout::BlockPlace& block = layout_of(slot).blocks[index];
  BlockCopy where = memory().copy(static_cast<size_t>(slot), index);
  bool is_there = memory().need.bound && is_loaded_[block.block];
  if (is_there || !where.uploads) return Status::ok();
  is_loaded_[block.block] = true;
  BufferView target;
  if (where.is_kept) {
    target = memory_.slice(memory().resident + where.offset, block.size);
    STAGECOACH_RETURN_IF_ERROR(parameters_up_->wait(resident_.free_at(where.offset, block.size)));
  } else {
    ByteCount start = memory().parameters[slots_[slot].buffer % 2];
    target = memory_.slice(start + block.offset, block.size);
  }
  bytes += block.size;
  const HostState& state = *context_->host_state;
  const Label label(context_->network->blocks[block.block].name);
  if (!state.is_mapped(block.block)) {
    return parameters_up_->copy(
        {target, state.compute_copy(block.block, context_->version), label});
  }
  for (const MappedPart& part : state.mapped_parts(block.block)) {
    STAGECOACH_RETURN_IF_ERROR(
        parameters_up_->copy({target.slice(part.offset, part.source.size), part.source, label}));
  }
  return Status::ok();
}

void DeviceLane::free_resident_copies(int slot) {
  const StageLayout& layout = layout_of(slot);
  for (size_t index = 0; index < layout.blocks.size(); ++index) {
    BlockCopy copy = memory().copy(static_cast<size_t>(slot), index);
    if (!copy.is_kept || !copy.is_last) continue;
    resident_.free(copy.offset, Arena::padded(layout.blocks[index].size), compute_done_);
  }
}

Status DeviceLane::submit_parameters(int slot) {
  BulkLane& up = *parameters_up_;
  int buffer = slots_[slot].buffer;
  const StageLayout& layout = layout_of(slot);
  // Blocks that a bound stage shares with one loaded before are there already, or on their way on
  // the same lane.
  if (!slots_[slot].uploads) return Status::ok();
  std::vector<Timepoint>& ready = parameters_ready_[buffer];
  ready.clear();
  STAGECOACH_RETURN_IF_ERROR(up.wait(parameters_free_[buffer]));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kParameterUp));
  ByteCount bytes = 0;
  // Blocks come in order of first use, so each layer's are there when the layer is marked.
  size_t next = 0;
  const Stage& stage = stage_of(slot);
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    for (const BlockUse& use : context_->network->layers[layer]->uses()) {
      if (next == layout.blocks.size() || layout.blocks[next].block != use.block) continue;
      STAGECOACH_RETURN_IF_ERROR(upload_block(slot, next++, bytes));
    }
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint landed, up.mark());
    ready.push_back(landed);
  }
  STAGECOACH_CHECK(next == layout.blocks.size());
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kParameterUp));
  if (bytes > 0) add_span(LaneKind::kParameterUp, -1, slot, bytes, start, end);
  record().bytes_up += bytes;
  return Status::ok();
}

Status DeviceLane::upload_inputs(int slot, int action, const Landing& input,
                                 const Landing& output_grad) {
  Stream& up = stream(LaneKind::kActivationUp);
  int m = action_at(action).micro_batch;
  const Stage& stage = stage_of(slot);
  const StageLayout& layout = layout_of(slot);
  inputs_ready_ = {};
  if (!layout.takes_input && !layout.takes_gradient) return Status::ok();
  STAGECOACH_RETURN_IF_FAILED(up.wait(in_free_[action % 2]));
  STAGECOACH_RETURN_IF_ERROR(wait_for(LaneKind::kActivationUp, input));
  STAGECOACH_RETURN_IF_ERROR(wait_for(LaneKind::kActivationUp, output_grad));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kActivationUp));
  ByteCount bytes = 0;
  auto upload = [&](const Place& place, const BufferView& source, const char* label) -> Status {
    if (place.region == Region::kNone) return Status::ok();
    bytes += place.size;
    STAGECOACH_RETURN_IF_FAILED(up.copy({view(place, action), source, label}));
    return Status::ok();
  };
  if (layout.takes_input) {
    BufferView source = stage.first_layer == 0 ? context_->input->inputs[m]
                                               : context_->store->piece(stage.first_layer, m);
    STAGECOACH_RETURN_IF_ERROR(upload(layout.input, source, "stage input"));
    for (RowInput rows : kRowInputs) {
      if (layout.rows[rows].region == Region::kNone) continue;
      STAGECOACH_RETURN_IF_ERROR(
          upload(layout.rows[rows], context_->input->rows[rows][m], row_input_name(rows)));
    }
  }
  if (layout.takes_gradient) {
    STAGECOACH_RETURN_IF_ERROR(upload(layout.layers.back().output_grad,
                                      context_->store->piece(stage.last_layer + 1, m),
                                      "output gradient"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kActivationUp));
  STAGECOACH_ASSIGN_OR_RETURN(inputs_ready_, up.mark());
  add_span(LaneKind::kActivationUp, action, slot, bytes, start, end);
  record().bytes_up += bytes;
  return Status::ok();
}

void DeviceLane::bind_layer(const StageLayout& layout, int layer_offset, int slot, int action,
                            LayerRun& run) {
  const Stage& stage = stage_of(slot);
  int index = stage.first_layer + layer_offset;
  const Layer& layer = *context_->network->layers[index];
  const StageLayout::LayerPlaces& places = layout.layers[layer_offset];
  run.input = layer_offset == 0 ? view(layout.input, action)
                                : view(layout.layers[layer_offset - 1].output, action);
  run.output = view(places.output, action);
  run.output_grad = view(places.output_grad, action);
  run.input_grad = layer_offset == 0 ? view(layout.input_grad, action)
                                     : view(layout.layers[layer_offset - 1].output_grad, action);
  run.saved = view(places.saved, action);
  run.workspace = view(places.workspace, action);
  for (RowInput rows : kRowInputs) {
    run.rows[rows] = layer.needs(rows) ? view(layout.rows[rows], action) : BufferView{};
  }
  bool wants_report = !context_->input->reports.empty();
  run.report = wants_report ? view(places.report, action) : BufferView{};
  run.key.layer = static_cast<uint32_t>(index);
  std::span<const BlockUse> uses = layer.uses();
  ByteCount base = memory().parameters[slots_[slot].buffer % 2];
  for (size_t use = 0; use < uses.size(); ++use) {
    gradient_views_[use] = {};
    for (size_t of = 0; of < layout.blocks.size(); ++of) {
      const StageLayout::BlockPlace& block = layout.blocks[of];
      if (block.block != uses[use].block) continue;
      BlockCopy copy = memory().copy(static_cast<size_t>(slot), of);
      ByteCount start = copy.is_kept ? memory().resident + copy.offset : base + block.offset;
      parameter_views_[use] = memory_.slice(start, block.size);
    }
  }
  for (const StageLayout::GradientPlace& gradient : layout.gradients) {
    if (gradient.layer != index) continue;
    gradient_views_[gradient.use] = sum_view(gradient, roles_[action]);
  }
  run.parameters = std::span<const BufferView>(parameter_views_.data(), uses.size());
  run.gradients = std::span<const BufferView>(gradient_views_.data(), uses.size());
}

/// Of the first action of a slot, which has begun with the stage's first layer: waits for the
/// parameters of a later one.
Status DeviceLane::wait_for_layer(int slot, int action, int layer_offset) {
  if (action != slots_[slot].first_action || layer_offset == 0) return Status::ok();
  Stream& compute = stream(LaneKind::kCompute);
  Timepoint landed = parameters_ready_[slots_[slot].buffer][layer_offset];
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kCompute));
  STAGECOACH_RETURN_IF_ERROR(BulkLane::hold(compute, landed));
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kCompute));
  record().stalls.push_back({action, start, end});
  return Status::ok();
}

template <typename Work>
Status DeviceLane::run_layer(int layer, LayerPhase phase, Work work) {
  if (!context_->input->times_layers) return work();
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kCompute));
  STAGECOACH_RETURN_IF_ERROR(work());
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kCompute));
  record().layer_spans.push_back({layer, phase, start, end});
  return Status::ok();
}

Status DeviceLane::run_forward(const StageLayout& layout, LayerRun& run, int slot, int action) {
  const Stage& stage = stage_of(slot);
  for (int offset = 0; offset < stage.layer_count(); ++offset) {
    bind_layer(layout, offset, slot, action, run);
    STAGECOACH_RETURN_IF_ERROR(wait_for_layer(slot, action, offset));
    int index = stage.first_layer + offset;
    const Layer& layer = *context_->network->layers[index];
    bool plain = layout.forward == ForwardPass::kPlain;
    LayerPhase phase = plain                  ? LayerPhase::kForward
                       : run.output.is_none() ? LayerPhase::kEarlyStop
                                              : LayerPhase::kSavingForward;
    STAGECOACH_RETURN_IF_ERROR(run_layer(
        index, phase, [&] { return plain ? layer.forward(run) : layer.forward_saving(run); }));
  }
  return Status::ok();
}

Status DeviceLane::run_backward(const StageLayout& layout, LayerRun& run, int slot, int action) {
  const Stage& stage = stage_of(slot);
  const SumsRole& role = roles_[action];
  if (role.closes) {
    gradient_landings_.assign(layout.gradients.size(), Landing{});
    if (memory().need.rounds_gradients) {
      STAGECOACH_RETURN_IF_ERROR(BulkLane::hold(*run.stream, rounded_free_[role.rounded]));
    }
  }
  for (int offset = stage.layer_count() - 1; offset >= 0; --offset) {
    bind_layer(layout, offset, slot, action, run);
    int index = stage.first_layer + offset;
    const Layer& layer = *context_->network->layers[index];
    STAGECOACH_RETURN_IF_ERROR(run_layer(index, phase_of(*layout.backward),
                                         [&] { return layer.backward(run, *layout.backward); }));
    // Gradients go home layer by layer as they become final, not as a burst at the end.
    if (role.closes) {
      STAGECOACH_RETURN_IF_ERROR(finish_layer_gradients(layout, slot, action, index));
    }
  }
  return Status::ok();
}

Status DeviceLane::finish_layer_gradients(const StageLayout& layout, int slot, int action,
                                          int layer) {
  Stream& compute = stream(LaneKind::kCompute);
  BulkLane& down = *gradients_down_;
  const HostState& state = *context_->host_state;
  const SumsRole& role = roles_[action];
  bool rounds = memory().need.rounds_gradients;
  ByteCount bytes = 0;
  if (rounds) {
    for (const StageLayout::GradientPlace& gradient : layout.gradients) {
      if (gradient.layer != layer) continue;
      int64_t count = gradient.size / dtype_size_bytes(DType::kF32);
      TensorView sum{sum_view(gradient, role), DType::kF32, {count}};
      TensorView rounded{rounded_view(gradient, role), state.gradient_dtype(), {count}};
      STAGECOACH_RETURN_IF_FAILED(device_.ops().convert(compute, {rounded, sum, "round gradient"}));
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint final, compute.mark());
  STAGECOACH_RETURN_IF_ERROR(down.wait(final));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kGradientDown));
  for (const StageLayout::GradientPlace& gradient : layout.gradients) {
    if (gradient.layer != layer) continue;
    CopyRequest copy;
    copy.source = rounds ? rounded_view(gradient, role) : sum_view(gradient, role);
    copy.target = state.gradient_slot(gradient.block, gradient.site, slots_[slot].round);
    copy.label = context_->network->blocks[gradient.block].name;
    STAGECOACH_RETURN_IF_ERROR(down.copy(copy));
    bytes += copy.source.size;
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kGradientDown));
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint landed, down.mark());
  if (bytes > 0) add_span(LaneKind::kGradientDown, -1, slot, bytes, start, end);
  record().bytes_down += bytes;
  for (size_t index = 0; index < layout.gradients.size(); ++index) {
    if (layout.gradients[index].layer == layer)
      gradient_landings_[index] = Landing{landed, &device_};
  }
  (rounds ? rounded_free_[role.rounded] : sums_free_[role.guard]) = landed;
  return Status::ok();
}

Status DeviceLane::open_gradients(const StageLayout& layout, const SumsRole& role) {
  if (layout.gradient_bytes == 0) return Status::ok();
  BufferView sums =
      memory_.slice(memory().gradients[role.sums] + layout.gradient_offset, layout.gradient_bytes);
  STAGECOACH_RETURN_IF_FAILED(stream(LaneKind::kCompute).fill({sums, 0, 4, "clear gradients"}));
  return Status::ok();
}

Status DeviceLane::compute(int slot, int action) {
  Stream& compute = stream(LaneKind::kCompute);
  const Slot& where = slots_[slot];
  const StageLayout& layout = layout_of(slot);
  const SumsRole& role = roles_[action];
  STAGECOACH_RETURN_IF_FAILED(compute.wait(inputs_ready_));
  STAGECOACH_RETURN_IF_FAILED(compute.wait(out_free_[action % 2]));
  if (action == where.first_action) {
    // A backward pass without a forward begins with the last layer, which lands last.
    const std::vector<Timepoint>& ready = parameters_ready_[where.buffer];
    bool goes_forward = layout.forward != ForwardPass::kNone;
    STAGECOACH_RETURN_IF_ERROR(
        BulkLane::hold(compute, goes_forward ? ready.front() : ready.back()));
  }
  if (role.opens) STAGECOACH_RETURN_IF_ERROR(BulkLane::hold(compute, sums_free_[role.guard]));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kCompute));
  if (role.opens) STAGECOACH_RETURN_IF_ERROR(open_gradients(layout, role));
  LayerRun run;
  run.stream = &compute;
  run.ops = &device_.ops();
  run.shape = context_->shape;
  run.loss_scale = context_->input->loss_scale;
  run.loss_terms = context_->input->loss_terms;
  run.training = !context_->input->inference;
  run.key.seed = context_->input->seed;
  run.key.iteration = context_->input->iteration;
  run.key.micro_batch = static_cast<uint32_t>(action_at(action).micro_batch);
  if (layout.forward != ForwardPass::kNone) {
    STAGECOACH_RETURN_IF_ERROR(run_forward(layout, run, slot, action));
  }
  if (layout.backward.has_value())
    STAGECOACH_RETURN_IF_ERROR(run_backward(layout, run, slot, action));
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kCompute));
  STAGECOACH_ASSIGN_OR_RETURN(compute_done_, compute.mark());
  add_span(LaneKind::kCompute, action, slot, 0, start, end);
  in_free_[action % 2] = compute_done_;
  parameters_free_[where.buffer] = compute_done_;
  if (action + 1 == where.first_action + where.action_count) free_resident_copies(slot);
  return Status::ok();
}

Status DeviceLane::download_outputs(int slot, int action, std::span<const Landing> freed) {
  Stream& down = stream(LaneKind::kActivationDown);
  int parity = action % 2;
  int m = action_at(action).micro_batch;
  const StageLayout& layout = layout_of(slot);
  for (const Landing& read : freed) {
    STAGECOACH_RETURN_IF_ERROR(wait_for(LaneKind::kActivationDown, read));
  }
  STAGECOACH_RETURN_IF_FAILED(down.wait(compute_done_));
  STAGECOACH_ASSIGN_OR_RETURN(int start, stamp(LaneKind::kActivationDown));
  ByteCount bytes = 0;
  auto download = [&](const Place& place, const BufferView& target, const char* label) -> Status {
    if (place.region == Region::kNone) return Status::ok();
    bytes += place.size;
    STAGECOACH_RETURN_IF_FAILED(down.copy({target, view(place, action), label}));
    return Status::ok();
  };
  for (const StageLayout::Download& item : layout.downloads) {
    STAGECOACH_RETURN_IF_ERROR(
        download(item.place, context_->store->piece(item.boundary, m), "stage output"));
  }
  if (layout.input_grad.region != Region::kNone) {
    STAGECOACH_RETURN_IF_ERROR(download(layout.input_grad,
                                        context_->store->piece(stage_of(slot).first_layer, m),
                                        "input gradient"));
  }
  if (layout.loss.region != Region::kNone) {
    STAGECOACH_RETURN_IF_ERROR(download(layout.loss, context_->input->losses[m], "loss"));
  }
  if (layout.reports.region != Region::kNone && !context_->input->reports.empty()) {
    BufferView target =
        context_->input->reports[m].slice(layout.reports_offset, layout.reports.size);
    STAGECOACH_RETURN_IF_ERROR(download(layout.reports, target, "reports"));
  }
  STAGECOACH_ASSIGN_OR_RETURN(int end, stamp(LaneKind::kActivationDown));
  STAGECOACH_ASSIGN_OR_RETURN(out_free_[parity], down.mark());
  if (bytes > 0) add_span(LaneKind::kActivationDown, action, slot, bytes, start, end);
  record().bytes_down += bytes;
  outputs_landing_ = Landing{out_free_[parity], &device_};
  return Status::ok();
}

Status DeviceLane::submit_action(int slot, int action, const Landing& input,
                                 const Landing& output_grad, std::span<const Landing> freed) {
  STAGECOACH_RETURN_IF_ERROR(upload_inputs(slot, action, input, output_grad));
  STAGECOACH_RETURN_IF_ERROR(compute(slot, action));
  return download_outputs(slot, action, freed);
}

Result<std::vector<Timepoint>> DeviceLane::submit_end() {
  std::vector<Timepoint> ends;
  for (const auto& stream : streams_) {
    if (!stream) continue;
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream->mark());
    ends.push_back(end);
  }
  for (BulkLane* bulk : {parameters_up_.get(), gradients_down_.get()}) {
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, bulk->mark());
    ends.push_back(end);
  }
  return ends;
}

}  // namespace stagecoach
