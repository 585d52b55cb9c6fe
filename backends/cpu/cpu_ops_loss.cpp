#include <cmath>

#include "backends/cpu/cpu_matmul.h"
#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int32_t kIgnored = -1;
/// Rows and vocabulary entries whose logits exist at one time on one thread: 1 MiB.
constexpr int64_t kRowTile = 128;
constexpr int64_t kVocabularyTile = 2048;

/// Operands of the three passes, in the order they share.
struct CrossEntropy {
  explicit CrossEntropy(const OpCall& call)
      : hidden{tensor_data(call.inputs[0]), call.inputs[0].dtype, call.inputs[0].shape[1], false},
        weight{tensor_data(call.inputs[1]), call.inputs[1].dtype, call.inputs[1].shape[1], false},
        labels(typed_data<int32_t>(call.inputs[2])),
        terms(call.loss_terms),
        rows(call.inputs[0].shape[0]),
        columns(call.inputs[0].shape[1]),
        vocabulary(call.inputs[1].shape[0]) {}

  /// logits[count, entries] of rows from `row` and vocabulary entries from `entry` on.
  void compute_logits(int64_t row, int64_t count, int64_t entry, int64_t entries,
                      float* logits) const {
    Matrix transposed_weight = weight.at(entry, 0);
    transposed_weight.transposed = true;
    block_product(count, entries, columns, hidden.at(row, 0), transposed_weight, logits, entries,
                  false);
  }

  /// The loss of a row with a label, from what all tiles of the vocabulary had of it.
  float row_loss(float lse, float label_logit, float logit_sum) const {
    float loss = lse - label_logit;
    if (terms.label_smoothing > 0.0f) {
      float smooth = lse - logit_sum / static_cast<float>(vocabulary);
      loss += terms.label_smoothing * (smooth - loss);
    }
    if (terms.z_loss > 0.0f) loss += terms.z_loss * lse * lse;
    return loss;
  }

  /// grad[count, entries] = scale * d loss / d logits; zero in rows without a label.
  void compute_logit_grads(const float* lse, float scale, int64_t row, int64_t count, int64_t entry,
                           int64_t entries, float* grad) const {
    ScratchFrame frame;
    float* logits = frame.floats(count * entries);
    compute_logits(row, count, entry, entries, logits);
    float other = scale * terms.other_share(vocabulary);
    float at_label = scale * (1.0f - terms.label_smoothing);
    for (int64_t i = 0; i < count; ++i) {
      float* line = grad + i * entries;
      int32_t label = labels[row + i];
      if (label == kIgnored) {
        std::fill_n(line, entries, 0.0f);
        continue;
      }
      float factor = scale * (1.0f + 2.0f * terms.z_loss * lse[row + i]);
      vec::exp_shifted(line, logits + i * entries, lse[row + i], factor, entries);
      if (other != 0.0f) {
        for (int64_t k = 0; k < entries; ++k) line[k] -= other;
      }
      if (label >= entry && label < entry + entries) line[label - entry] -= at_label;
    }
  }

  Matrix hidden;
  Matrix weight;
  const int32_t* labels;
  LossTerms terms;
  int64_t rows;
  int64_t columns;
  int64_t vocabulary;
};

Status check_labels(const OpCall& call, const CrossEntropy& loss) {
  return check_ids(call, "labels", loss.labels, loss.rows, kIgnored, loss.vocabulary);
}

/// What a tile of the vocabulary contributes to a row's loss.
struct Partial {
  float maximum;
  float sum;        // of exp(logit - maximum)
  float logit_sum;  // only where labels are smoothed
};

}  // namespace

Status cpu_linear_cross_entropy_forward(const OpCall& call, TaskPool& pool) {
  CrossEntropy loss(call);
  STAGECOACH_RETURN_IF_ERROR(check_labels(call, loss));
  float* losses = typed_data<float>(call.outputs[0]);
  float* lse = typed_data<float>(call.outputs[1]);
  int64_t tiles = divide_up(loss.vocabulary, kVocabularyTile);
  ScratchFrame shared;
  auto* partials =
      static_cast<Partial*>(shared.bytes(loss.rows * tiles * ByteCount{sizeof(Partial)}));
  float* label_logits = shared.floats(loss.rows);
  for_tiles(pool, divide_up(loss.rows, kRowTile) * tiles, 1, [&](int64_t index, int64_t) {
    int64_t row = index / tiles * kRowTile;
    int64_t tile = index % tiles;
    int64_t entry = tile * kVocabularyTile;
    int64_t count = std::min(kRowTile, loss.rows - row);
    int64_t entries = std::min(kVocabularyTile, loss.vocabulary - entry);
    ScratchFrame frame;
    float* logits = frame.floats(count * entries);
    loss.compute_logits(row, count, entry, entries, logits);
    for (int64_t i = 0; i < count; ++i) {
      const float* line = logits + i * entries;
      float maximum = vec::max(line, entries);
      bool smooths = loss.terms.label_smoothing > 0.0f;
      partials[(row + i) * tiles + tile] = {maximum, vec::sum_exp_shifted(line, maximum, entries),
                                            smooths ? vec::sum(line, entries) : 0.0f};
      int64_t label = loss.labels[row + i];
      if (label >= entry && label < entry + entries) label_logits[row + i] = line[label - entry];
    }
  });
  for (int64_t row = 0; row < loss.rows; ++row) {
    const Partial* parts = partials + row * tiles;
    float maximum = parts[0].maximum;
    for (int64_t tile = 1; tile < tiles; ++tile) maximum = std::max(maximum, parts[tile].maximum);
    float sum = 0.0f;
    float logit_sum = 0.0f;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      sum += parts[tile].sum * std::exp(parts[tile].maximum - maximum);
      logit_sum += parts[tile].logit_sum;
    }
    lse[row] = maximum + std::log(sum);
    bool counts = loss.labels[row] != kIgnored;
    losses[row] = counts ? loss.row_loss(lse[row], label_logits[row], logit_sum) : 0.0f;
  }
  return Status::ok();
}

Status cpu_linear_cross_entropy_backward_input(const OpCall& call, TaskPool& pool) {
  CrossEntropy loss(call);
  STAGECOACH_RETURN_IF_ERROR(check_labels(call, loss));
  const TensorView& hidden_grad = call.outputs[0];
  const float* lse = typed_data<float>(call.inputs[3]);
  for_tiles(pool, loss.rows, kRowTile, [&](int64_t row, int64_t end) {
    int64_t count = end - row;
    ScratchFrame frame;
    float* sums = frame.floats(count * loss.columns);
    float* grad = frame.floats(count * std::min(kVocabularyTile, loss.vocabulary));
    // Tiles of the vocabulary follow each other on one thread, so their order is fixed.
    for (int64_t entry = 0; entry < loss.vocabulary; entry += kVocabularyTile) {
      int64_t entries = std::min(kVocabularyTile, loss.vocabulary - entry);
      loss.compute_logit_grads(lse, call.scale, row, count, entry, entries, grad);
      block_product(count, loss.columns, entries, Matrix{grad, DType::kF32, entries, false},
                    loss.weight.at(entry, 0), sums, loss.columns, entry > 0);
    }
    write_floats(hidden_grad, row * loss.columns, count * loss.columns, sums, call.accumulate);
  });
  return Status::ok();
}

Status cpu_linear_cross_entropy_backward_weight(const OpCall& call, TaskPool& pool) {
  // Vocabulary entries of one task: enough tasks for several threads where the vocabulary is small.
  constexpr int64_t kLeastEntries = 64;
  constexpr int64_t kWantedTasks = 16;
  CrossEntropy loss(call);
  STAGECOACH_RETURN_IF_ERROR(check_labels(call, loss));
  float* weight_grad = typed_data<float>(call.outputs[0]);
  const float* lse = typed_data<float>(call.inputs[3]);
  int64_t tasks = std::clamp(loss.vocabulary / kLeastEntries, int64_t{1}, kWantedTasks);
  int64_t tile = std::min(divide_up(loss.vocabulary, tasks), kVocabularyTile);
  for_tiles(pool, loss.vocabulary, tile, [&](int64_t entry, int64_t end) {
    int64_t entries = end - entry;
    ScratchFrame frame;
    float* grad = frame.floats(kRowTile * entries);
    for (int64_t row = 0; row < loss.rows; row += kRowTile) {
      int64_t count = std::min(kRowTile, loss.rows - row);
      loss.compute_logit_grads(lse, call.scale, row, count, entry, entries, grad);
      block_product(entries, loss.columns, count, Matrix{grad, DType::kF32, entries, true},
                    loss.hidden.at(row, 0), weight_grad + entry * loss.columns, loss.columns, true);
    }
  });
  return Status::ok();
}

Status cpu_squared_error_forward(const OpCall& call, TaskPool& pool) {
  constexpr int64_t kRows = 32;
  const TensorView& prediction = call.inputs[0];
  const float* target = typed_data<float>(call.inputs[1]);
  float* losses = typed_data<float>(call.outputs[0]);
  int64_t columns = prediction.shape[1];
  for_tiles(pool, prediction.shape[0], kRows, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* converted = frame.floats(columns);
    float* difference = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      const float* values = read_floats(prediction, row * columns, columns, converted);
      vec::scaled_difference(difference, values, target + row * columns, 1.0f, columns);
      losses[row] = vec::dot(difference, difference, columns) / static_cast<float>(columns);
    }
  });
  return Status::ok();
}

Status cpu_squared_error_backward(const OpCall& call, TaskPool& pool) {
  constexpr int64_t kRows = 32;
  const TensorView& prediction = call.inputs[0];
  const float* target = typed_data<float>(call.inputs[1]);
  int64_t columns = prediction.shape[1];
  float factor = call.scale * 2.0f / static_cast<float>(columns);
  for_tiles(pool, prediction.shape[0], kRows, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* converted = frame.floats(columns);
    float* grad = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      const float* values = read_floats(prediction, row * columns, columns, converted);
      vec::scaled_difference(grad, values, target + row * columns, factor, columns);
      write_floats(call.outputs[0], row * columns, columns, grad, call.accumulate);
    }
  });
  return Status::ok();
}

}  // namespace stagecoach
