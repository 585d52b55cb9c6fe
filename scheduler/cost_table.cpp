#include "scheduler/cost_table.h"

#include <algorithm>

namespace stagecoach {

namespace {

/// What `layer` adds to the row inputs of a stage, which go up once for all of its layers.
ByteCount added_rows(const LayerProfile& layer, PerRowInput<ByteCount>& rows) {
  ByteCount added = 0;
  for (RowInput input : kRowInputs) {
    ByteCount more = std::max<ByteCount>(layer.row_bytes[input] - rows[input], 0);
    rows[input] += more;
    added += more;
  }
  return added;
}

}  // namespace

void StageBytes::cover(const StageBytes& other) {
  parameters = std::max(parameters, other.parameters);
  gradients = std::max(gradients, other.gradients);
  gradient_sums = std::max(gradient_sums, other.gradient_sums);
  in = std::max(in, other.in);
  out = std::max(out, other.out);
  work = std::max(work, other.work);
}

CostTable::CostTable(const std::vector<LayerProfile>& layers) : layers_(layers) {
  forward_.push_back(0);
  backward_.push_back(0);
  fused_.push_back(0);
  for (const LayerProfile& layer : layers) {
    forward_.push_back(forward_.back() + layer.forward_ns);
    backward_.push_back(backward_.back() + layer.recompute_ns + layer.backward_ns);
    fused_.push_back(fused_.back() + layer.forward_ns + layer.backward_ns);
    update_ns_ += layer.update_ns;
  }
  for (ActionKind kind :
       {ActionKind::kForward, ActionKind::kBackward, ActionKind::kForwardBackward}) {
    fill_bytes(kind);
  }
}

const std::vector<double>& CostTable::sums_of(ActionKind kind) const {
  if (kind == ActionKind::kForward) return forward_;
  return kind == ActionKind::kBackward ? backward_ : fused_;
}

std::vector<StageLoad> CostTable::loads(const std::vector<Stage>& stages) const {
  std::vector<bool> starts(layers_.size() + 1, false);
  for (const Stage& stage : stages) starts[stage.first_layer] = true;
  std::vector<StageLoad> loads;
  for (const Stage& stage : stages) {
    StageLoad load;
    load.time_ns = time_ns(stage);
    const LayerProfile& last = layers_[stage.last_layer];
    load.in_bytes = boundary(stage.first_layer);
    if (stage.kind == ActionKind::kBackward) load.in_bytes += last.boundary_bytes;
    if (stage.kind == ActionKind::kForwardBackward) {
      load.out_bytes += last.boundary_bytes;  // the loss
    }
    if (stage.kind != ActionKind::kForward && stage.first_layer > 0) {
      load.out_bytes += boundary(stage.first_layer);
    }
    PerRowInput<ByteCount> rows;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      load.in_bytes += added_rows(layers_[layer], rows);
      load.parameter_bytes += layers_[layer].parameter_bytes;
      if (stage.kind != ActionKind::kBackward) load.out_bytes += layers_[layer].report_bytes;
      if (stage.kind != ActionKind::kForward) {
        load.gradient_bytes += layers_[layer].gradient_bytes;
      } else if (starts[layer + 1]) {
        load.out_bytes += layers_[layer].boundary_bytes;
      }
    }
    loads.push_back(load);
  }
  return loads;
}

void CostTable::fill_bytes(ActionKind kind) {
  std::vector<StageBytes>& table = tables_[kind_index(kind)];
  table.resize(layers_.size() * layers_.size());
  bool forward = kind == ActionKind::kForward;
  for (int first = 0; first < layer_count(); ++first) {
    StageBytes sums;
    ByteCount outputs = 0, saved = 0, largest = 0, workspace = 0, reports = 0;
    ByteCount in = boundary(first);
    PerRowInput<ByteCount> rows;
    for (int last = first; last < layer_count(); ++last) {
      const LayerProfile& layer = layers_[last];
      sums.parameters += layer.parameter_bytes;
      if (!forward) sums.gradients += layer.gradient_bytes;
      if (!forward) sums.gradient_sums += layer.gradient_sum_bytes;
      saved += layer.saved_bytes;
      workspace = std::max(
          workspace, forward ? layer.forward_workspace_bytes : layer.backward_workspace_bytes);
      StageBytes stage = sums;
      in += added_rows(layer, rows);
      if (kind != ActionKind::kBackward) reports += layer.report_bytes;
      stage.in = in;
      stage.work = 2 * largest + workspace;
      if (forward) {
        stage.out = outputs + layer.boundary_bytes;  // a backward may start behind each of them
      } else {
        // The last output is a loss, or stays away and its gradient arrives instead.
        stage.out = first > 0 ? boundary(first) : 0;
        (kind == ActionKind::kBackward ? stage.in : stage.out) += layer.boundary_bytes;
        stage.work += outputs + saved;
      }
      stage.out += reports;
      table[range({kind, first, last})] = stage;
      outputs += layer.boundary_bytes;
      largest = std::max(largest, layer.boundary_bytes);
    }
  }
}

StageBytes CostTable::bytes(const std::vector<Stage>& stages) const {
  StageBytes all;
  for (const Stage& stage : stages) all.cover(bytes(stage));
  return all;
}

}  // namespace stagecoach
