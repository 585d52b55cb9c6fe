#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

using vec::kPanel;

/// Rows of a tensor as fp32, `stride` floats apart.
struct Rows {
  const float* data;
  int64_t stride;
};

/// A copy of rows x columns of `tensor` from (row, column) on. Also when fp32 already: rows of all
/// heads lie far apart, and reading them once for each use costs more than the copy.
Rows read_rows(const TensorView& tensor, int64_t row, int64_t column, int64_t rows, int64_t columns,
               ScratchFrame& frame) {
  int64_t width = tensor.shape[1];
  float* copy = frame.floats(rows * columns);
  for (int64_t i = 0; i < rows; ++i) {
    vec::load(tensor.dtype, element_address(tensor, (row + i) * width + column), columns,
              copy + i * columns);
  }
  return Rows{copy, columns};
}

/// A panel of up to kPanel queries of one head of one sequence.
struct Panel {
  int64_t first_row;  // of the sequence, in the tensors
  int64_t head;
  int64_t query;  // position of the first query in the sequence
  int64_t queries;
  int64_t first_key;  // the first that some query sees
  int64_t keys;       // so many from there on, up to the last query's own

  int64_t first_key_row() const { return first_row + first_key; }
};

/// The position of the first key that the query at `position` of a sequence sees. Never smaller for
/// later queries.
int64_t first_key_of(const OpCall& call, const int32_t* starts, int64_t first_row,
                     int64_t position) {
  int64_t first = starts == nullptr ? 0 : starts[first_row + position];
  return call.window == 0 ? first : std::max(first, position - call.window + 1);
}

Panel make_panel(const OpCall& call, const int32_t* starts, int64_t first_row, int64_t head,
                 int64_t query) {
  int64_t queries = std::min(kPanel, call.sequence - query);
  int64_t first_key = first_key_of(call, starts, first_row, query);
  return {first_row, head, query, queries, first_key, query + queries - first_key};
}

/// Documents begin at their own position and go on without a gap.
Status check_document_starts(const OpCall& call, const TensorView& tensor) {
  const int32_t* starts = typed_data<int32_t>(tensor);
  if (starts == nullptr) return Status::ok();
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    int64_t position = row % call.sequence;
    if (starts[row] == position || (position > 0 && starts[row] == starts[row - 1])) continue;
    return data_loss(fmt::format("{} '{}': document_starts[{}] is {}, expected {} or as before it",
                                 op_kind_name(call.kind), call.label.view(), row, starts[row],
                                 position));
  }
  return Status::ok();
}

/// transposed[d][i] = factor * rows[i][d], zero for lanes without a query.
void transpose_queries(const Rows& rows, int64_t queries, int64_t head_dim, float factor,
                       float* transposed) {
  for (int64_t d = 0; d < head_dim; ++d) {
    float* line = transposed + d * kPanel;
    for (int64_t i = 0; i < queries; ++i) line[i] = factor * rows.data[i * rows.stride + d];
    std::fill(line + queries, line + kPanel, 0.0f);
  }
}

/// Keys that a query does not see get minus infinity.
void mask_panel(const OpCall& call, const int32_t* starts, const Panel& panel, float* scores) {
  constexpr float kUnseen = -std::numeric_limits<float>::infinity();
  for (int64_t key = panel.query + 1; key < panel.query + panel.queries; ++key) {
    // Lanes without a query are masked like the one they would be, so each keeps some key.
    std::fill_n(scores + (key - panel.first_key) * kPanel, key - panel.query, kUnseen);
  }
  for (int64_t i = 1; i < panel.queries; ++i) {
    int64_t unseen = first_key_of(call, starts, panel.first_row, panel.query + i) - panel.first_key;
    for (int64_t key = 0; key < unseen; ++key) scores[key * kPanel + i] = kUnseen;
  }
}

/// keep[key][i] = the factor dropout gives to that probability: 0 or 1 / (1 - p). Anything finite
/// where the probability is zero.
void draw_keep(const OpCall& call, const Panel& panel, float* keep) {
  ScratchFrame frame;
  // The padding keeps words of one key, read together, out of one set of the cache.
  int64_t stride = align_up(panel.keys, 16) + 16;
  uint32_t* words = frame.words(kPanel * stride);
  for (int64_t i = 0; i < kPanel; ++i) {
    int64_t drawn = i < panel.queries ? panel.query + i + 1 - panel.first_key : 0;
    int64_t row = panel.first_row + panel.query + i;
    int64_t element = (row * call.heads + panel.head) * call.sequence + panel.first_key;
    fill_random_words(call.key, static_cast<uint64_t>(element), drawn, words + i * stride);
    std::fill(words + i * stride + drawn, words + i * stride + panel.keys, 0u);
  }
  vec::keep_columns(words, stride, panel.keys, dropout_threshold(call.drop_probability),
                    1.0f / (1.0f - call.drop_probability), keep);
}

/// What a head's sink makes of a query's softmax.
struct Denominator {
  float factor;  // of what was summed
  float lse;
};

Denominator close_softmax(float maximum, float sum, const float* sink) {
  if (sink == nullptr) return {1.0f / sum, maximum + std::log(sum)};
  float top = std::max(maximum, *sink);
  float share = std::exp(maximum - top);
  float total = sum * share + std::exp(*sink - top);
  return {share / total, top + std::log(total)};
}

/// A head's sink as fp32; null where there is none.
const float* read_sink(const TensorView& sinks, int64_t head, float* scratch) {
  return sinks.is_none() ? nullptr : read_floats(sinks, head, 1, scratch);
}

void forward_panel(const OpCall& call, const Panel& panel) {
  const TensorView& out = call.outputs[0];
  const TensorView& qkv = call.inputs[0];
  float* lse = typed_data<float>(call.outputs[1]);
  int64_t dim = call.head_dim;
  int64_t kv_head = panel.head / (call.heads / call.kv_heads);
  ScratchFrame frame;
  int64_t row = panel.first_row + panel.query;
  Rows q = read_rows(qkv, row, panel.head * dim, panel.queries, dim, frame);
  Rows k =
      read_rows(qkv, panel.first_key_row(), (call.heads + kv_head) * dim, panel.keys, dim, frame);
  Rows v = read_rows(qkv, panel.first_key_row(), (call.heads + call.kv_heads + kv_head) * dim,
                     panel.keys, dim, frame);
  float* q_lanes = frame.floats(dim * kPanel);
  float* scores = frame.floats(panel.keys * kPanel);
  float maximum[kPanel];
  float sum[kPanel];
  transpose_queries(q, panel.queries, dim, call.scale, q_lanes);
  vec::block_matmul(panel.keys, kPanel, dim, k.data, k.stride, 1, q_lanes, kPanel, scores, kPanel,
                    false);
  mask_panel(call, typed_data<int32_t>(call.inputs[2]), panel, scores);
  vec::softmax_columns(scores, panel.keys, maximum, sum);
  if (call.drop_probability > 0.0f) {
    float* keep = frame.floats(panel.keys * kPanel);
    draw_keep(call, panel, keep);
    vec::multiply_into(scores, keep, panel.keys * kPanel);
  }
  float* result = frame.floats(panel.queries * dim);
  float* scaled = frame.floats(dim);
  vec::block_matmul(panel.queries, dim, panel.keys, scores, 1, kPanel, v.data, v.stride, result,
                    dim, false);
  float scratch = 0.0f;
  const float* sink = read_sink(call.inputs[1], panel.head, &scratch);
  for (int64_t i = 0; i < panel.queries; ++i) {
    Denominator denominator = close_softmax(maximum[i], sum[i], sink);
    vec::scale(scaled, result + i * dim, denominator.factor, dim);
    write_floats(out, (row + i) * out.shape[1] + panel.head * dim, dim, scaled, false);
    lse[(row + i) * call.heads + panel.head] = denominator.lse;
  }
}

/// Gradients of one kv head of one sequence: its keys and values, gathered over the query heads
/// that share it and their panels in order, and those query heads.
class BackwardHead {
 public:
  BackwardHead(const OpCall& call, int64_t sequence_index, int64_t kv_head)
      : call_(call),
        dim_(call.head_dim),
        length_(call.sequence),
        first_row_(sequence_index * call.sequence),
        kv_head_(kv_head),
        starts_(typed_data<int32_t>(call.inputs[5])),
        k_(read_rows(call.inputs[1], first_row_, key_column(), length_, dim_, frame_)),
        v_(read_rows(call.inputs[1], first_row_, value_column(), length_, dim_, frame_)),
        k_grad_(frame_.floats(length_ * dim_)),
        v_grad_(frame_.floats(length_ * dim_)) {}

  void run() {
    std::fill_n(k_grad_, length_ * dim_, 0.0f);
    std::fill_n(v_grad_, length_ * dim_, 0.0f);
    int64_t group = call_.heads / call_.kv_heads;
    for (int64_t head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) {
      for (int64_t query = 0; query < length_; query += kPanel) {
        run_panel(make_panel(call_, starts_, first_row_, head, query));
      }
    }
    write_head(key_column(), k_grad_, 0, length_);
    write_head(value_column(), v_grad_, 0, length_);
  }

 private:
  int64_t key_column() const { return (call_.heads + kv_head_) * dim_; }
  int64_t value_column() const { return (call_.heads + call_.kv_heads + kv_head_) * dim_; }

  void write_head(int64_t column, float* grad, int64_t position, int64_t rows) {
    const TensorView& qkv_grad = call_.outputs[0];
    for (int64_t i = 0; i < rows; ++i) {
      int64_t index = (first_row_ + position + i) * qkv_grad.shape[1] + column;
      write_floats(qkv_grad, index, dim_, grad + i * dim_, false);
    }
  }

  void run_panel(const Panel& panel);

  const OpCall& call_;
  int64_t dim_;
  int64_t length_;
  int64_t first_row_;
  int64_t kv_head_;
  const int32_t* starts_;
  ScratchFrame frame_;
  Rows k_;
  Rows v_;
  float* k_grad_;
  float* v_grad_;
};

void BackwardHead::run_panel(const Panel& panel) {
  ScratchFrame frame;
  const float* all_lse = typed_data<float>(call_.inputs[3]);
  int64_t row = first_row_ + panel.query;
  int64_t column = panel.head * dim_;
  int64_t size = panel.keys * kPanel;
  Rows q = read_rows(call_.inputs[1], row, column, panel.queries, dim_, frame);
  Rows out_grad = read_rows(call_.inputs[0], row, column, panel.queries, dim_, frame);
  Rows out = read_rows(call_.inputs[2], row, column, panel.queries, dim_, frame);
  float* lanes = frame.floats(dim_ * kPanel);
  float* probability = frame.floats(size);
  float* grad = frame.floats(size);
  float* q_grad = frame.floats(panel.queries * dim_);
  float lse[kPanel] = {};
  float delta[kPanel] = {};
  for (int64_t i = 0; i < panel.queries; ++i) {
    lse[i] = all_lse[(row + i) * call_.heads + panel.head];
    delta[i] = vec::dot(out.data + i * out.stride, out_grad.data + i * out_grad.stride, dim_);
  }
  const float* k = k_.data + panel.first_key * k_.stride;
  const float* v = v_.data + panel.first_key * v_.stride;
  transpose_queries(q, panel.queries, dim_, call_.scale, lanes);
  vec::block_matmul(panel.keys, kPanel, dim_, k, k_.stride, 1, lanes, kPanel, probability, kPanel,
                    false);
  mask_panel(call_, starts_, panel, probability);
  vec::exp_columns(probability, panel.keys, lse);
  transpose_queries(out_grad, panel.queries, dim_, 1.0f, lanes);
  vec::block_matmul(panel.keys, kPanel, dim_, v, v_.stride, 1, lanes, kPanel, grad, kPanel, false);
  float* dropped = probability;
  if (call_.drop_probability > 0.0f) {
    float* keep = frame.floats(size);
    dropped = frame.floats(size);
    draw_keep(call_, panel, keep);
    vec::multiply_into(grad, keep, size);
    vec::multiply(dropped, probability, keep, size);
  }
  vec::block_matmul(panel.keys, dim_, panel.queries, dropped, kPanel, 1, out_grad.data,
                    out_grad.stride, v_grad_ + panel.first_key * dim_, dim_, true);
  vec::softmax_backward_columns(grad, probability, panel.keys, delta, call_.scale);
  vec::block_matmul(panel.keys, dim_, panel.queries, grad, kPanel, 1, q.data, q.stride,
                    k_grad_ + panel.first_key * dim_, dim_, true);
  vec::block_matmul(panel.queries, dim_, panel.keys, grad, 1, kPanel, k, k_.stride, q_grad, dim_,
                    false);
  write_head(column, q_grad, panel.query, panel.queries);
}

}  // namespace

Status cpu_attention_forward(const OpCall& call, TaskPool& pool) {
  STAGECOACH_RETURN_IF_ERROR(check_document_starts(call, call.inputs[2]));
  int64_t sequences = call.inputs[0].shape[0] / call.sequence;
  int64_t panels = divide_up(call.sequence, kPanel);
  for_tiles(pool, sequences * call.heads * panels, 1, [&](int64_t index, int64_t) {
    // The longest panels, those of the last queries, start first.
    int64_t query = (panels - 1 - index / (sequences * call.heads)) * kPanel;
    int64_t rest = index % (sequences * call.heads);
    forward_panel(call, make_panel(call, typed_data<int32_t>(call.inputs[2]),
                                   rest / call.heads * call.sequence, rest % call.heads, query));
  });
  return Status::ok();
}

Status cpu_attention_backward(const OpCall& call, TaskPool& pool) {
  STAGECOACH_RETURN_IF_ERROR(check_document_starts(call, call.inputs[5]));
  int64_t sequences = call.inputs[1].shape[0] / call.sequence;
  for_tiles(pool, sequences * call.kv_heads, 1, [&](int64_t index, int64_t) {
    BackwardHead(call, index / call.kv_heads, index % call.kv_heads).run();
  });
  return Status::ok();
}

Status cpu_attention_sink_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& out_grad = call.inputs[0];
  const TensorView& out = call.inputs[1];
  const float* lse = typed_data<float>(call.inputs[2]);
  float* sinks_grad = typed_data<float>(call.outputs[0]);
  for_tiles(pool, call.heads, 1, [&](int64_t head, int64_t) {
    ScratchFrame frame;
    float* scratch[2] = {frame.floats(call.head_dim), frame.floats(call.head_dim)};
    float sink_scratch = 0.0f;
    float sink = *read_sink(call.inputs[3], head, &sink_scratch);
    double sum = 0.0;
    for (int64_t row = 0; row < out.shape[0]; ++row) {
      int64_t element = (row * call.heads + head) * call.head_dim;
      const float* upper = read_floats(out_grad, element, call.head_dim, scratch[0]);
      const float* result = read_floats(out, element, call.head_dim, scratch[1]);
      float share = std::exp(sink - lse[row * call.heads + head]);
      sum += double{share} * double{vec::dot(result, upper, call.head_dim)};
    }
    sinks_grad[head] -= static_cast<float>(sum);
  });
  return Status::ok();
}

}  // namespace stagecoach
