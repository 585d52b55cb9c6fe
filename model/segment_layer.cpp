#include "model/segment_layer.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

namespace {

bool contains(const std::vector<int>& list, int index) {
  return std::find(list.begin(), list.end(), index) != list.end();
}

/// Which method of a segment is running: decides what it may touch.
enum class Pass : uint8_t { kForward, kInput, kWeight };

/// What segments see of one enqueue. Lives on the stack of that call.
class ChainRun final : public SegmentRun {
 public:
  ChainRun(const SegmentLayer& layer, const LayerRun& run, const std::vector<Slot>& activations,
           const std::vector<Slot>* gradients)
      : layer_(layer), run_(run), activations_(activations), gradients_(gradients) {}

  /// Runs one part of segment `index`; an undeclared access wins over what followed from it.
  Status run_segment(int index, Pass pass) {
    index_ = index;
    pass_ = pass;
    segment_ = layer_.spec().segments[index].get();
    Status status;
    switch (pass) {
      case Pass::kForward:
        status = segment_->forward(*this);
        break;
      case Pass::kInput:
        status = segment_->backward_input(*this);
        break;
      case Pass::kWeight:
        status = segment_->backward_weight(*this);
        break;
    }
    return misuse_.is_ok() ? status : misuse_;
  }

  Stream& stream() override { return *run_.stream; }
  Ops& ops() override { return *run_.ops; }
  const MicroBatchShape& shape() const override { return run_.shape; }

  TensorView activation(int index) override {
    const SegmentIo& io = segment_->io();
    bool declared = false;
    switch (pass_) {
      case Pass::kForward:
        declared = contains(io.reads, index) || contains(io.writes, index);
        break;
      case Pass::kInput:
        declared = contains(io.saved_for_input, index);
        break;
      case Pass::kWeight:
        declared = contains(io.saved_for_weight, index);
        break;
    }
    if (!declared) return undeclared(fmt::format("activation {}", index));
    return tensor(index, activations_[index]);
  }

  TensorView gradient(int index) override {
    const SegmentIo& io = segment_->io();
    bool declared =
        contains(io.writes, index) || (pass_ == Pass::kInput && contains(io.reads, index));
    if (pass_ == Pass::kForward || !declared) {
      return undeclared(fmt::format("the gradient of activation {}", index));
    }
    return tensor(index, (*gradients_)[index]);
  }

  bool gradient_accumulates(int index) override {
    return layer_.gradient_accumulates(index_, index);
  }

  bool wants_gradient(int index) override {
    if (index == 0) return layer_.spec().input_has_gradient && !run_.input_grad.is_none();
    return (*gradients_)[index].place != Place::kNone;
  }

  TensorView parameter(int use, int parameter) override {
    return block_tensor(run_.parameters, use, parameter, layer_.spec().dtype);
  }
  TensorView parameter_gradient(int use, int parameter) override {
    return block_tensor(run_.gradients, use, parameter, DType::kF32);
  }

  TensorView row_input(RowInput input) override {
    const std::vector<RowInput>& declared = segment_->io().row_inputs;
    if (std::find(declared.begin(), declared.end(), input) == declared.end()) {
      return undeclared(row_input_name(input));
    }
    BoundaryInfo info = layer_.row_input(input);
    return {run_.rows[input].slice(0, info.size_bytes(run_.shape)), info.dtype,
            Shape{run_.shape.rows(), info.columns}};
  }

  TensorView report() override {
    ByteCount size = layer_.report_bytes(run_.shape);
    if (run_.report.is_none() || size == 0) return {};
    return {run_.report.slice(0, size), DType::kF32, Shape{run_.shape.rows()}};
  }
  float loss_scale() const override { return run_.loss_scale; }
  LossTerms loss_terms() const override { return run_.loss_terms; }
  bool training() const override { return run_.training; }

  RandomKey key(uint32_t site) const override {
    RandomKey key = run_.key;
    key.site = site;
    return key;
  }

  TensorView tensor(int index, const Slot& slot) const {
    const ActivationInfo& info = layer_.spec().activations[index];
    TensorView view{{}, info.dtype, info.shape(run_.shape.rows())};
    const BufferView* memory = place(slot.place);
    if (memory == nullptr || memory->is_none()) return view;
    view.memory = memory->slice(slot.offset, view.size_bytes());
    return view;
  }

 private:
  const BufferView* place(Place place) const {
    switch (place) {
      case Place::kNone:
        return nullptr;
      case Place::kInput:
        return &run_.input;
      case Place::kOutput:
        return &run_.output;
      case Place::kSaved:
        return &run_.saved;
      case Place::kWorkspace:
        return &run_.workspace;
      case Place::kInputGradient:
        return &run_.input_grad;
      case Place::kOutputGradient:
        return &run_.output_grad;
    }
    return nullptr;
  }

  TensorView block_tensor(std::span<const BufferView> blocks, int use, int parameter,
                          DType dtype) const {
    STAGECOACH_CHECK(use >= 0 && use < static_cast<int>(blocks.size()));
    const ParameterBlock& block = layer_.use_block(use);
    if (block.parameters.empty()) return {blocks[use], dtype, Shape{block.element_count}};
    STAGECOACH_CHECK(parameter >= 0 && parameter < static_cast<int>(block.parameters.size()));
    const ParameterInfo& info = block.parameters[parameter];
    TensorView view{{}, dtype, info.shape};
    if (blocks[use].is_none()) return view;
    view.memory = blocks[use].slice(info.offset * dtype_size_bytes(dtype), view.size_bytes());
    return view;
  }

  TensorView undeclared(std::string_view what) {
    if (misuse_.is_ok()) {
      misuse_ = invalid_argument(fmt::format(
          "layer '{}': segment '{}' asks for {} in a pass for which it does not declare it",
          layer_.name(), segment_->name(), what));
    }
    return {};
  }

  const SegmentLayer& layer_;
  const LayerRun& run_;
  const std::vector<Slot>& activations_;
  const std::vector<Slot>* gradients_;
  const Segment* segment_ = nullptr;
  int index_ = 0;
  Pass pass_ = Pass::kForward;
  Status misuse_;
};

std::vector<const SegmentIo*> io_pointers(const std::vector<SegmentIo>& ios) {
  std::vector<const SegmentIo*> pointers;
  pointers.reserve(ios.size());
  for (const SegmentIo& io : ios) pointers.push_back(&io);
  return pointers;
}

Status check_size(const std::string& layer, std::string_view what, const BufferView& view,
                  ByteCount needed) {
  if (needed == 0 || (!view.is_none() && view.size >= needed)) return Status::ok();
  return invalid_argument(fmt::format("layer '{}' needs {} bytes of {}, got {}", layer, needed,
                                      what, view.is_none() ? 0 : view.size));
}

Status check_optional_size(const std::string& layer, std::string_view what, const BufferView& view,
                           ByteCount needed) {
  return view.is_none() ? Status::ok() : check_size(layer, what, view, needed);
}

}  // namespace

SegmentLayer::SegmentLayer(SegmentChainSpec spec, std::vector<ParameterBlock> use_blocks)
    : spec_(std::move(spec)), use_blocks_(std::move(use_blocks)) {
  last_readers_.assign(spec_.activations.size(), -1);
  for (size_t s = 0; s < spec_.segments.size(); ++s) {
    ios_.push_back(spec_.segments[s]->io());
    for (int r : ios_.back().reads) last_readers_[r] = static_cast<int>(s);
    for (RowInput input : ios_.back().row_inputs) needs_[input] = true;
    drop_frozen_weight_part(ios_.back());
  }
}

/// What is frozen needs no gradient, and nothing is kept for one.
void SegmentLayer::drop_frozen_weight_part(SegmentIo& io) const {
  bool is_frozen = !io.weight_uses.empty() &&
                   std::all_of(io.weight_uses.begin(), io.weight_uses.end(), [this](int use) {
                     return use_blocks_[static_cast<size_t>(use)].is_frozen;
                   });
  if (!is_frozen) return;
  io.weightless = true;
  io.saved_for_weight.clear();
}

BoundaryInfo SegmentLayer::input() const {
  return {spec_.activations.front().dtype, spec_.activations.front().columns};
}

BoundaryInfo SegmentLayer::output() const {
  return {spec_.activations.back().dtype, spec_.activations.back().columns};
}

BoundaryInfo SegmentLayer::row_input(RowInput input) const {
  return input == RowInput::kLabels ? spec_.label : BoundaryInfo{DType::kI32, 1};
}

const ChainLayout& SegmentLayer::layout(const MicroBatchShape& shape) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<const ChainLayout>& entry = layouts_[shape.rows()];
  if (entry == nullptr) {
    entry = std::make_unique<const ChainLayout>(
        plan_chain(spec_.activations, io_pointers(ios_), shape.rows()));
  }
  return *entry;
}

bool SegmentLayer::gradient_accumulates(int segment, int activation) const {
  return last_readers_[activation] > segment;
}

LayerMemory SegmentLayer::memory(const MicroBatchShape& shape) const {
  const ChainLayout& plan = layout(shape);
  ByteCount forward = std::max(plan.saving.workspace_bytes, plan.recomputing.workspace_bytes);
  LayerMemory memory;
  memory.saved_bytes = plan.saved_bytes;
  memory.forward_workspace_bytes = plan.plain.workspace_bytes;
  memory.backward_workspace_bytes = std::max(forward, plan.whole.workspace_bytes);
  memory.split_workspace_bytes = std::max(forward, plan.split.workspace_bytes);
  return memory;
}

LayerFlop SegmentLayer::flop(const MicroBatchShape& shape) const {
  const ChainLayout& plan = layout(shape);
  LayerFlop total;
  for (size_t s = 0; s < spec_.segments.size(); ++s) {
    SegmentFlop flop = spec_.segments[s]->flop(shape);
    total.forward += flop.forward;
    if (plan.recomputing.runs[s]) total.recompute += flop.forward;
    total.backward_input += flop.backward_input;
    if (!ios_[s].weightless) total.backward_weight += flop.backward_weight;
  }
  return total;
}

Status SegmentLayer::check_run(const LayerRun& run, ByteCount workspace_bytes) const {
  if (run.stream == nullptr || run.ops == nullptr) {
    return invalid_argument(fmt::format("layer '{}' is run without a stream", name()));
  }
  if (run.shape.sequences <= 0 || run.shape.sequence <= 0) {
    return invalid_argument(fmt::format("layer '{}' is run on {} sequences of {} tokens", name(),
                                        run.shape.sequences, run.shape.sequence));
  }
  STAGECOACH_RETURN_IF_ERROR(check_size(name(), "input", run.input, input().size_bytes(run.shape)));
  STAGECOACH_RETURN_IF_ERROR(check_size(name(), "workspace", run.workspace, workspace_bytes));
  for (RowInput rows : kRowInputs) {
    if (!needs(rows)) continue;
    STAGECOACH_RETURN_IF_ERROR(check_size(name(), row_input_name(rows), run.rows[rows],
                                          row_input(rows).size_bytes(run.shape)));
  }
  return check_parameters(run, false);
}

Status SegmentLayer::check_parameters(const LayerRun& run, bool gradients) const {
  std::span<const BufferView> views = gradients ? run.gradients : run.parameters;
  DType dtype = gradients ? DType::kF32 : spec_.dtype;
  if (views.size() != spec_.uses.size()) {
    return invalid_argument(fmt::format("layer '{}' uses {} blocks, got {} of {}", name(),
                                        spec_.uses.size(), views.size(),
                                        gradients ? "gradients" : "parameters"));
  }
  for (size_t use = 0; use < views.size(); ++use) {
    if (gradients && use_blocks_[use].is_frozen) continue;
    ByteCount needed = use_blocks_[use].element_count * dtype_size_bytes(dtype);
    if (!views[use].is_none() && views[use].size == needed) continue;
    return invalid_argument(fmt::format("layer '{}' needs {} bytes of block '{}' in {}, got {}",
                                        name(), needed, use_blocks_[use].name, dtype_name(dtype),
                                        views[use].is_none() ? 0 : views[use].size));
  }
  return Status::ok();
}

Status SegmentLayer::forward(const LayerRun& run) const {
  const ForwardLayout& plan = layout(run.shape).plain;
  STAGECOACH_RETURN_IF_ERROR(check_run(run, plan.workspace_bytes));
  STAGECOACH_RETURN_IF_ERROR(
      check_size(name(), "output", run.output, output().size_bytes(run.shape)));
  return run_forward(run, plan);
}

Status SegmentLayer::forward_saving(const LayerRun& run) const {
  const ChainLayout& chain = layout(run.shape);
  const ForwardLayout& plan = run.output.is_none() ? chain.recomputing : chain.saving;
  STAGECOACH_RETURN_IF_ERROR(check_run(run, plan.workspace_bytes));
  STAGECOACH_RETURN_IF_ERROR(check_size(name(), "saved", run.saved, chain.saved_bytes));
  STAGECOACH_RETURN_IF_ERROR(
      check_optional_size(name(), "output", run.output, output().size_bytes(run.shape)));
  return run_forward(run, plan);
}

Status SegmentLayer::backward(const LayerRun& run, BackwardPart part) const {
  const ChainLayout& chain = layout(run.shape);
  const BackwardLayout& plan = part == BackwardPart::kBoth ? chain.whole : chain.split;
  STAGECOACH_RETURN_IF_ERROR(check_run(run, plan.workspace_bytes));
  STAGECOACH_RETURN_IF_ERROR(check_size(name(), "saved", run.saved, chain.saved_bytes));
  STAGECOACH_RETURN_IF_ERROR(
      check_optional_size(name(), "output_grad", run.output_grad, output().size_bytes(run.shape)));
  if (spec_.input_has_gradient) {
    STAGECOACH_RETURN_IF_ERROR(
        check_optional_size(name(), "input_grad", run.input_grad, input().size_bytes(run.shape)));
  }
  if (part != BackwardPart::kInput) STAGECOACH_RETURN_IF_ERROR(check_parameters(run, true));
  return run_backward(run, chain, part);
}

Status SegmentLayer::run_forward(const LayerRun& run, const ForwardLayout& plan) const {
  ChainRun chain(*this, run, plan.activations, nullptr);
  for (size_t s = 0; s < spec_.segments.size(); ++s) {
    if (!plan.runs[s]) continue;
    STAGECOACH_RETURN_IF_ERROR(chain.run_segment(static_cast<int>(s), Pass::kForward));
  }
  if (!plan.copies_output) return Status::ok();
  int last = static_cast<int>(spec_.activations.size()) - 1;
  TensorView kept = chain.tensor(last, plan.activations[last]);
  TensorView out = chain.tensor(last, Slot{Place::kOutput, 0});
  return run.ops->convert(*run.stream, {out, kept, Label(name())}).status();
}

Status SegmentLayer::run_backward(const LayerRun& run, const ChainLayout& layout,
                                  BackwardPart part) const {
  const BackwardLayout& plan = part == BackwardPart::kBoth ? layout.whole : layout.split;
  ChainRun chain(*this, run, layout.kept, &plan.gradients);
  for (int s = static_cast<int>(spec_.segments.size()) - 1; s >= 0; --s) {
    if (part != BackwardPart::kWeight) {
      STAGECOACH_RETURN_IF_ERROR(chain.run_segment(s, Pass::kInput));
    }
    if (part != BackwardPart::kInput && !ios_[s].weightless) {
      STAGECOACH_RETURN_IF_ERROR(chain.run_segment(s, Pass::kWeight));
    }
  }
  return Status::ok();
}

Result<std::unique_ptr<Layer>> make_segment_layer(SegmentChainSpec spec,
                                                  const std::vector<ParameterBlock>& blocks) {
  std::vector<const SegmentIo*> ios;
  for (const std::unique_ptr<Segment>& segment : spec.segments) {
    if (segment == nullptr) return invalid_argument("layer '" + spec.name + "' has a null segment");
    ios.push_back(&segment->io());
  }
  if (Status status = validate_chain(spec.activations, ios); !status.is_ok()) {
    return status.with_context("layer '" + spec.name + "'");
  }
  bool takes_labels = std::any_of(ios.begin(), ios.end(), [](const SegmentIo* io) {
    const std::vector<RowInput>& inputs = io->row_inputs;
    return std::find(inputs.begin(), inputs.end(), RowInput::kLabels) != inputs.end();
  });
  if (takes_labels && spec.label.columns <= 0) {
    return invalid_argument(
        fmt::format("layer '{}' takes labels of {} columns", spec.name, spec.label.columns));
  }
  std::vector<ParameterBlock> use_blocks;
  for (const BlockUse& use : spec.uses) {
    if (use.block < 0 || use.block >= static_cast<int>(blocks.size())) {
      return invalid_argument(
          fmt::format("layer '{}' uses block {}, which does not exist", spec.name, use.block));
    }
    use_blocks.push_back(blocks[use.block]);
  }
  for (const std::unique_ptr<Segment>& segment : spec.segments) {
    for (int use : segment->io().weight_uses) {
      if (use >= 0 && use < static_cast<int>(use_blocks.size())) continue;
      return invalid_argument(
          fmt::format("layer '{}': segment '{}' fills gradients of use {}, "
                      "which does not exist",
                      spec.name, segment->name(), use));
    }
  }
  return std::unique_ptr<Layer>(
      std::make_unique<SegmentLayer>(std::move(spec), std::move(use_blocks)));
}

}  // namespace stagecoach
