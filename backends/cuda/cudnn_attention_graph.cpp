#include "backends/cuda/cudnn_attention_graph.h"

#include <utility>

namespace stagecoach {

namespace {

using Id = CudnnAttentionId;
using Value = CudnnValue;
using Extents = std::array<int64_t, CudnnTensor::kRank>;

/// Builds both passes. Dimensions are sequences, heads, tokens, columns.
class AttentionGraph {
 public:
  AttentionGraph(CudnnGraph& graph, const GpuAttentionShape& shape, const CudnnAttentionPart& part)
      : graph_(graph),
        shape_(shape),
        batch_(part.batch),
        heads_(part.kv_heads * (shape.heads / shape.kv_heads)),
        kv_heads_(part.kv_heads),
        storage_(shape.dtype == DType::kBF16 ? Value::kBfloat16 : Value::kHalf),
        tokens_(shape.sequence),
        row_((shape.heads + 2 * shape.kv_heads) * shape.head_dim) {
    query_ = graph_.tensor(packed(Id::kQuery, heads_));
    key_ = graph_.tensor(transposed(packed(Id::kKey, kv_heads_)));
    scale_ = graph_.tensor(by_value(Id::kScale));
    masked_ = graph_.tensor(by_value(Id::kMaskedScore));
  }

  void add_forward() {
    CudnnGraph::Tensor value = graph_.tensor(packed(Id::kValue, kv_heads_));
    CudnnGraph::Tensor scores = add_mask(add_scores());
    CudnnGraph::Tensor most = graph_.tensor(inside(column()));
    graph_.reduce(Value::kReduceMax, scores, most);
    CudnnGraph::Tensor shifted = add(Value::kSub, scores, most, square());
    CudnnGraph::Tensor powers = add(Value::kExp, shifted, nullptr, square());
    CudnnGraph::Tensor sums = graph_.tensor(inside(column()));
    graph_.reduce(Value::kReduceAdd, powers, sums);
    CudnnGraph::Tensor logs = add(Value::kLog, sums, nullptr, column());
    graph_.pointwise(Value::kAdd, most, logs, nullptr, graph_.tensor(stats()));
    CudnnGraph::Tensor weights = graph_.tensor(inside(square(), storage_));
    graph_.pointwise(Value::kDiv, powers, sums, nullptr, weights);
    graph_.matmul(weights, value, graph_.tensor(head_rows(Id::kOut)));
  }

  void add_backward(bool deterministic) {
    CudnnGraph::Tensor value = graph_.tensor(transposed(packed(Id::kValue, kv_heads_)));
    CudnnGraph::Tensor out_grad = graph_.tensor(head_rows(Id::kOutGrad));
    CudnnGraph::Tensor out_sums = add_out_sums(out_grad);
    CudnnGraph::Tensor shifted = add(Value::kSub, add_scores(), graph_.tensor(stats()), square());
    CudnnGraph::Tensor weights = add(Value::kExp, add_mask(shifted), nullptr, square());
    add_key_side(weights, out_grad, Id::kValueGrad);
    CudnnGraph::Tensor products = graph_.tensor(inside(square()));
    graph_.matmul(out_grad, value, products);
    CudnnGraph::Tensor centred = add(Value::kSub, products, out_sums, square());
    CudnnGraph::Tensor score_grads = add(Value::kMul, centred, weights, square());
    CudnnGraph::Tensor scaled = add(Value::kMul, score_grads, scale_, square());
    add_key_side(scaled, query_, Id::kKeyGrad);
    add_query_grad(scaled, deterministic);
  }

 private:
  /// One of the three parts of our [rows, (heads + 2 * kv heads) * columns] matrix.
  CudnnTensor packed(int64_t id, int64_t heads) const {
    return {storage_,
            {batch_, heads, tokens_, shape_.head_dim},
            {tokens_ * row_, shape_.head_dim, row_, 1},
            id};
  }
  static CudnnTensor transposed(CudnnTensor tensor) {
    std::swap(tensor.dims[2], tensor.dims[3]);
    std::swap(tensor.strides[2], tensor.strides[3]);
    return tensor;
  }
  /// A [rows, heads * columns] matrix.
  CudnnTensor head_rows(int64_t id) const {
    int64_t columns = shape_.heads * shape_.head_dim;
    return {storage_,
            {batch_, heads_, tokens_, shape_.head_dim},
            {tokens_ * columns, shape_.head_dim, columns, 1},
            id};
  }
  /// Our [rows, heads] matrix of log sums.
  CudnnTensor stats() const {
    CudnnTensor tensor = {
        Value::kFloat, column(), {tokens_ * shape_.heads, 1, shape_.heads, 1}, Id::kStats};
    if (heads_ < shape_.heads) tensor.alignment = sizeof(float);
    return tensor;
  }
  static CudnnTensor by_value(int64_t id) {
    CudnnTensor tensor;
    tensor.id = id;
    tensor.is_by_value = true;
    return tensor;
  }
  Extents square() const { return {batch_, heads_, tokens_, tokens_}; }
  Extents column() const { return {batch_, heads_, tokens_, 1}; }
  /// A tensor without memory, or scratch with an id.
  static CudnnTensor inside(const Extents& dims, int type = Value::kFloat, int64_t id = 0) {
    return {type, dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}, id};
  }
  CudnnGraph::Tensor add(int mode, CudnnGraph::Tensor x, CudnnGraph::Tensor b,
                         const Extents& dims) {
    CudnnGraph::Tensor y = graph_.tensor(inside(dims));
    graph_.pointwise(mode, x, b, nullptr, y);
    return y;
  }

  CudnnGraph::Tensor add_scores() {
    CudnnGraph::Tensor products = graph_.tensor(inside(square()));
    graph_.matmul(query_, key_, products);
    return add(Value::kMul, products, scale_, square());
  }
  /// Keys behind the query's token get the masked score.
  CudnnGraph::Tensor add_mask(CudnnGraph::Tensor scores) {
    CudnnGraph::Tensor rows = graph_.tensor(inside(square(), Value::kInt32));
    graph_.pointwise(Value::kGenIndex, scores, nullptr, nullptr, rows, Value::kFloat, 2);
    CudnnGraph::Tensor columns = graph_.tensor(inside(square(), Value::kInt32));
    graph_.pointwise(Value::kGenIndex, scores, nullptr, nullptr, columns, Value::kFloat, 3);
    CudnnGraph::Tensor seen = graph_.tensor(inside(square(), Value::kBoolean));
    graph_.pointwise(Value::kCompareGe, rows, columns, nullptr, seen, Value::kBoolean);
    CudnnGraph::Tensor result = graph_.tensor(inside(square()));
    graph_.pointwise(Value::kBinarySelect, scores, masked_, seen, result);
    return result;
  }
  /// Sums over columns of out_grad * out, in scratch.
  CudnnGraph::Tensor add_out_sums(CudnnGraph::Tensor out_grad) {
    CudnnGraph::Tensor out = graph_.tensor(head_rows(Id::kOut));
    Extents heads = {batch_, heads_, tokens_, shape_.head_dim};
    CudnnGraph::Tensor products = add(Value::kMul, out_grad, out, heads);
    CudnnGraph::Tensor sums = graph_.tensor(inside(column()));
    graph_.reduce(Value::kReduceAdd, products, sums);
    CudnnGraph::Tensor kept = graph_.tensor(inside(column(), Value::kFloat, Id::kOutSums));
    graph_.pointwise(Value::kMul, sums, graph_.tensor(by_value(Id::kOne)), nullptr, kept);
    return kept;
  }
  /// grad = transposed(weights) * rows, heads that share a key added up.
  void add_key_side(CudnnGraph::Tensor weights, CudnnGraph::Tensor rows, int64_t id) {
    CudnnTensor flipped = inside(square(), storage_);
    std::swap(flipped.strides[2], flipped.strides[3]);
    CudnnGraph::Tensor transposed_weights = graph_.tensor(flipped);
    graph_.reshape(weights, transposed_weights);
    CudnnGraph::Tensor grad = graph_.tensor(packed(id, kv_heads_));
    if (heads_ == kv_heads_) {
      graph_.matmul(transposed_weights, rows, grad);
      return;
    }
    Extents heads = {batch_, heads_, tokens_, shape_.head_dim};
    CudnnGraph::Tensor all_heads = graph_.tensor(inside(heads, storage_));
    graph_.matmul(transposed_weights, rows, all_heads);
    graph_.reduce(Value::kReduceAdd, all_heads, grad);
  }
  void add_query_grad(CudnnGraph::Tensor score_grads, bool deterministic) {
    CudnnTensor key_rows = packed(0, kv_heads_);
    key_rows.type = Value::kFloat;
    CudnnGraph::Tensor key = graph_.tensor(key_rows);
    graph_.reshape(key_, key);
    CudnnGraph::Tensor grad = graph_.tensor(packed(Id::kQueryGrad, heads_));
    if (deterministic) {
      graph_.matmul(score_grads, key, grad);
      return;
    }
    Extents heads = {batch_, heads_, tokens_, shape_.head_dim};
    CudnnGraph::Tensor sums = graph_.tensor(inside(heads, Value::kFloat, Id::kQuerySums));
    graph_.matmul(score_grads, key, sums);
    graph_.pointwise(Value::kIdentity, sums, nullptr, nullptr, grad);
  }

  CudnnGraph& graph_;
  const GpuAttentionShape& shape_;
  const int64_t batch_, heads_, kv_heads_;  ///< of the part
  const int storage_;
  const int64_t tokens_;
  const int64_t row_;  ///< elements of a row of the packed matrix
  CudnnGraph::Tensor query_ = nullptr, key_ = nullptr, scale_ = nullptr, masked_ = nullptr;
};

}  // namespace

void add_cudnn_attention(CudnnGraph& graph, const GpuAttentionShape& shape,
                         const CudnnAttentionPart& part, bool deterministic) {
  AttentionGraph builder(graph, shape, part);
  if (shape.is_backward) {
    builder.add_backward(deterministic);
  } else {
    builder.add_forward();
  }
}

}  // namespace stagecoach
