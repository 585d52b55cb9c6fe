#include <cmath>
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
  int64_t keys;  // positions 0 to keys - 1 are seen by some query
};

/// transposed[d][i] = factor * rows[i][d], zero for lanes without a query.
void transpose_queries(const Rows& rows, int64_t queries, int64_t head_dim, float factor,
                       float* transposed) {
  for (int64_t d = 0; d < head_dim; ++d) {
    float* line = transposed + d * kPanel;
    for (int64_t i = 0; i < queries; ++i) line[i] = factor * rows.data[i * rows.stride + d];
    std::fill(line + queries, line + kPanel, 0.0f);
  }
}

/// Later keys than the query itself get minus infinity.
void mask_panel(const Panel& panel, float* scores) {
  for (int64_t key = panel.query + 1; key < panel.keys; ++key) {
    // Lanes without a query are masked like the one they would be, so each keeps some key.
    std::fill_n(scores + key * kPanel, key - panel.query, -std::numeric_limits<float>::infinity());
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
    int64_t drawn = i < panel.queries ? panel.query + i + 1 : 0;
    int64_t row = panel.first_row + panel.query + i;
    int64_t element = (row * call.heads + panel.head) * call.sequence;
    fill_random_words(call.key, static_cast<uint64_t>(element), drawn, words + i * stride);
    std::fill(words + i * stride + drawn, words + i * stride + panel.keys, 0u);
  }
  vec::keep_columns(words, stride, panel.keys, dropout_threshold(call.drop_probability),
                    1.0f / (1.0f - call.drop_probability), keep);
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
  Rows k = read_rows(qkv, panel.first_row, (call.heads + kv_head) * dim, panel.keys, dim, frame);
  Rows v = read_rows(qkv, panel.first_row, (call.heads + call.kv_heads + kv_head) * dim, panel.keys,
                     dim, frame);
  float* q_lanes = frame.floats(dim * kPanel);
  float* scores = frame.floats(panel.keys * kPanel);
  float maximum[kPanel];
  float sum[kPanel];
  transpose_queries(q, panel.queries, dim, call.scale, q_lanes);
  vec::block_matmul(panel.keys, kPanel, dim, k.data, k.stride, 1, q_lanes, kPanel, scores, kPanel,
                    false);
  mask_panel(panel, scores);
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
  for (int64_t i = 0; i < panel.queries; ++i) {
    vec::scale(scaled, result + i * dim, 1.0f / sum[i], dim);
    write_floats(out, (row + i) * out.shape[1] + panel.head * dim, dim, scaled, false);
    lse[(row + i) * call.heads + panel.head] = maximum[i] + std::log(sum[i]);
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
        int64_t queries = std::min(kPanel, length_ - query);
        run_panel(Panel{first_row_, head, query, queries, query + queries});
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
  transpose_queries(q, panel.queries, dim_, call_.scale, lanes);
  vec::block_matmul(panel.keys, kPanel, dim_, k_.data, k_.stride, 1, lanes, kPanel, probability,
                    kPanel, false);
  mask_panel(panel, probability);
  vec::exp_columns(probability, panel.keys, lse);
  transpose_queries(out_grad, panel.queries, dim_, 1.0f, lanes);
  vec::block_matmul(panel.keys, kPanel, dim_, v_.data, v_.stride, 1, lanes, kPanel, grad, kPanel,
                    false);
  float* dropped = probability;
  if (call_.drop_probability > 0.0f) {
    float* keep = frame.floats(size);
    dropped = frame.floats(size);
    draw_keep(call_, panel, keep);
    vec::multiply_into(grad, keep, size);
    vec::multiply(dropped, probability, keep, size);
  }
  vec::block_matmul(panel.keys, dim_, panel.queries, dropped, kPanel, 1, out_grad.data,
                    out_grad.stride, v_grad_, dim_, true);
  vec::softmax_backward_columns(grad, probability, panel.keys, delta, call_.scale);
  vec::block_matmul(panel.keys, dim_, panel.queries, grad, kPanel, 1, q.data, q.stride, k_grad_,
                    dim_, true);
  vec::block_matmul(panel.queries, dim_, panel.keys, grad, 1, kPanel, k_.data, k_.stride, q_grad,
                    dim_, false);
  write_head(column, q_grad, panel.query, panel.queries);
}

}  // namespace

Status cpu_attention_forward(const OpCall& call, TaskPool& pool) {
  int64_t sequences = call.inputs[0].shape[0] / call.sequence;
  int64_t panels = divide_up(call.sequence, kPanel);
  for_tiles(pool, sequences * call.heads * panels, 1, [&](int64_t index, int64_t) {
    // The longest panels, those of the last queries, start first.
    int64_t query = (panels - 1 - index / (sequences * call.heads)) * kPanel;
    int64_t queries = std::min(kPanel, call.sequence - query);
    int64_t rest = index % (sequences * call.heads);
    forward_panel(call, Panel{rest / call.heads * call.sequence, rest % call.heads, query, queries,
                              query + queries});
  });
  return Status::ok();
}

Status cpu_attention_backward(const OpCall& call, TaskPool& pool) {
  int64_t sequences = call.inputs[1].shape[0] / call.sequence;
  for_tiles(pool, sequences * call.kv_heads, 1, [&](int64_t index, int64_t) {
    BackwardHead(call, index / call.kv_heads, index % call.kv_heads).run();
  });
  return Status::ok();
}

}  // namespace stagecoach
