#include <algorithm>
#include <bit>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 16;

/// Orders as numbers do: both zeros are one, and NaN is less than all.
uint32_t rank_of(float logit) {
  if (logit != logit) return 0;
  uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The experts with the largest logits, falling, equal ones by number.
void choose(const float* logits, int64_t experts, int64_t count, int32_t* choices) {
  ScratchFrame frame;
  uint32_t* ranks = frame.words(experts);
  uint32_t* is_free = frame.words(experts);
  for (int64_t e = 0; e < experts; ++e) ranks[e] = rank_of(logits[e]);
  std::fill_n(is_free, experts, 1u);
  for (int64_t k = 0; k < count; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (is_free[e] != 0 && (best < 0 || ranks[e] > ranks[best])) best = e;
    }
    is_free[best] = 0;
    choices[k] = static_cast<int32_t>(best);
  }
}

/// What a row's softmax is made of.
struct Softmax {
  float maximum;
  float sum;
};

/// Over all experts.
Softmax softmax_of(const float* logits, int64_t experts) {
  float maximum = vec::max(logits, experts);
  return {maximum, vec::sum_exp_shifted(logits, maximum, experts)};
}

/// body(row, logits as fp32) for all rows of [R, E].
template <typename Body>
void for_logit_rows(TaskPool& pool, const TensorView& logits, const Body& body) {
  int64_t experts = logits.shape[1];
  for_tiles(pool, logits.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* scratch = frame.floats(experts);
    for (int64_t row = first; row < end; ++row) {
      body(row, read_floats(logits, row * experts, experts, scratch));
    }
  });
}

}  // namespace

Status cpu_route_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& logits = call.inputs[0];
  int64_t experts = logits.shape[1];
  int64_t count = call.outputs[0].shape[1];
  for_logit_rows(pool, logits, [&](int64_t row, const float* values) {
    ScratchFrame frame;
    int32_t* choices = typed_data<int32_t>(call.outputs[0]) + row * count;
    float* weights = typed_data<float>(call.outputs[1]) + row * count;
    float* chosen = frame.floats(count);
    choose(values, experts, count, choices);
    for (int64_t k = 0; k < count; ++k) chosen[k] = values[choices[k]];
    Softmax softmax = call.over_chosen ? softmax_of(chosen, count) : softmax_of(values, experts);
    vec::exp_shifted(weights, chosen, softmax.maximum, 1.0f, count);
    for (int64_t k = 0; k < count; ++k) weights[k] /= softmax.sum;
  });
  return Status::ok();
}

Status cpu_route_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  int64_t experts = out.shape[1];
  int64_t count = call.inputs[2].shape[1];
  const int32_t* all_choices = typed_data<int32_t>(call.inputs[2]);
  STAGECOACH_RETURN_IF_ERROR(
      check_ids(call, "choices", all_choices, out.shape[0] * count, 0, experts));
  for_logit_rows(pool, call.inputs[1], [&](int64_t row, const float* values) {
    ScratchFrame frame;
    const float* upper = typed_data<float>(call.inputs[0]) + row * count;
    const int32_t* choices = all_choices + row * count;
    const float* weights = typed_data<float>(call.inputs[3]) + row * count;
    float* grad = frame.floats(experts);
    float mean = vec::dot(upper, weights, count);
    if (call.over_chosen) {
      std::fill_n(grad, experts, 0.0f);
      for (int64_t k = 0; k < count; ++k) grad[choices[k]] = weights[k] * (upper[k] - mean);
    } else {
      Softmax softmax = softmax_of(values, experts);
      vec::exp_shifted(grad, values, softmax.maximum, -mean / softmax.sum, experts);
      for (int64_t k = 0; k < count; ++k) grad[choices[k]] += weights[k] * upper[k];
    }
    write_floats(out, row * experts, experts, grad, false);
  });
  return Status::ok();
}

namespace {

/// What pulls a sequence's rows away from experts: the gradient of its losses' sum by their shares
/// of a row's softmax, the same for all rows that count.
struct SequencePulls {
  const float* pulls;       ///< [S, E]
  const uint32_t* counted;  ///< [S]: rows that count, which come first
};

/// Choices of an expert among those numbered below `end`; `first` and `last` are its places.
int64_t choices_below(const int32_t* first, const int32_t* last, int64_t end) {
  return std::lower_bound(first, last, end) - first;
}

void find_pulls(const OpCall& call, int64_t sequence, float* pulls, uint32_t& counted) {
  int64_t experts = call.inputs[0].shape[1];
  int64_t choices = call.inputs[1].shape[0] / call.inputs[0].shape[0];
  const auto* order = typed_data<int32_t>(call.inputs[1]);
  const auto* offsets = typed_data<int32_t>(call.inputs[2]);
  const int32_t* labels = typed_data<int32_t>(call.inputs[3]) + sequence * call.sequence;
  int64_t targets = std::count_if(labels, labels + call.sequence, [](int32_t l) { return l >= 0; });
  int64_t rows = call.sequence;
  while (rows > 0 && labels[rows - 1] < 0) --rows;
  counted = static_cast<uint32_t>(rows);
  if (rows == 0) return;
  int64_t first_choice = sequence * call.sequence * choices;
  auto length = static_cast<float>(rows);
  float pull = static_cast<float>(targets) / length * (static_cast<float>(experts) / length);
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t* first = order + offsets[e];
    const int32_t* last = order + offsets[e + 1];
    int64_t chosen = choices_below(first, last, first_choice + rows * choices) -
                     choices_below(first, last, first_choice);
    pulls[e] = pull * static_cast<float>(chosen);
  }
}

/// body(row, logits as fp32, pulls) for all rows; pulls are null for rows that do not count.
template <typename Body>
void for_balanced_rows(const OpCall& call, TaskPool& pool, const Body& body) {
  const TensorView& logits = call.inputs[0];
  int64_t experts = logits.shape[1];
  int64_t sequences = logits.shape[0] / call.sequence;
  ScratchFrame frame;
  float* pulls = frame.floats(sequences * experts);
  uint32_t* counted = frame.words(sequences);
  for_tiles(pool, sequences, 1, [&](int64_t first, int64_t end) {
    for (int64_t s = first; s < end; ++s) find_pulls(call, s, pulls + s * experts, counted[s]);
  });
  for_logit_rows(pool, logits, [&](int64_t row, const float* values) {
    int64_t s = row / call.sequence;
    bool counts = row % call.sequence < static_cast<int64_t>(counted[s]);
    body(row, values, counts ? pulls + s * experts : nullptr);
  });
}

}  // namespace

Status cpu_balance_forward(const OpCall& call, TaskPool& pool) {
  int64_t experts = call.inputs[0].shape[1];
  auto* losses = typed_data<float>(call.outputs[0]);
  for_balanced_rows(call, pool, [&](int64_t row, const float* values, const float* pulls) {
    losses[row] = 0.0f;
    if (pulls == nullptr) return;
    ScratchFrame frame;
    float* shares = frame.floats(experts);
    Softmax softmax = softmax_of(values, experts);
    vec::exp_shifted(shares, values, softmax.maximum, 1.0f, experts);
    losses[row] = vec::dot(pulls, shares, experts) / softmax.sum;
  });
  return Status::ok();
}

Status cpu_balance_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  int64_t experts = out.shape[1];
  for_balanced_rows(call, pool, [&](int64_t row, const float* values, const float* pulls) {
    if (pulls == nullptr) return;
    ScratchFrame frame;
    float* grad = frame.floats(experts);
    Softmax softmax = softmax_of(values, experts);
    vec::exp_shifted(grad, values, softmax.maximum, 1.0f, experts);
    float loss = vec::dot(pulls, grad, experts) / softmax.sum;
    float scale = call.scale / softmax.sum;
    for (int64_t e = 0; e < experts; ++e) grad[e] *= scale * (pulls[e] - loss);
    write_floats(out, row * experts, experts, grad, true);
  });
  return Status::ok();
}

Status cpu_group_rows(const OpCall& call, TaskPool&) {
  const TensorView& choices = call.inputs[0];
  const int32_t* experts = typed_data<int32_t>(choices);
  auto* order = typed_data<int32_t>(call.outputs[0]);
  auto* places = typed_data<int32_t>(call.outputs[1]);
  auto* offsets = typed_data<int32_t>(call.outputs[2]);
  int64_t count = choices.element_count();
  int64_t expert_count = call.outputs[2].shape[0] - 1;
  STAGECOACH_RETURN_IF_ERROR(check_ids(call, "choices", experts, count, 0, expert_count));
  // A counting sort: offsets[e + 1] counts, then says where the next choice of e goes.
  std::fill_n(offsets, expert_count + 1, 0);
  for (int64_t s = 0; s < count; ++s) ++offsets[experts[s] + 1];
  for (int64_t e = 0; e < expert_count; ++e) offsets[e + 1] += offsets[e];
  ScratchFrame frame;
  uint32_t* next = frame.words(expert_count);
  std::copy_n(offsets, expert_count, next);
  for (int64_t s = 0; s < count; ++s) {
    uint32_t place = next[experts[s]]++;
    places[s] = static_cast<int32_t>(place);
    order[place] = static_cast<int32_t>(s);
  }
  return Status::ok();
}

}  // namespace stagecoach
