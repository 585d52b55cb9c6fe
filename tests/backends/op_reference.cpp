#include "tests/backends/op_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace stagecoach::reference {

namespace {

using Index = size_t;

Index at(int64_t row, int64_t columns, int64_t column) {
  return static_cast<Index>(row * columns + column);
}

int64_t length(const Values& values) {
  return static_cast<int64_t>(values.size());
}

Values zeros(int64_t count) {
  return Values(static_cast<Index>(count), 0.0);
}

}  // namespace

Values embedding(const Ids& ids, const Values& table, const Values& positions, int64_t columns,
                 int64_t sequence) {
  Values out;
  for (Index row = 0; row < ids.size(); ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      double value = table[at(ids[row], columns, c)];
      if (!positions.empty()) {
        value += positions[at(static_cast<int64_t>(row) % sequence, columns, c)];
      }
      out.push_back(value);
    }
  }
  return out;
}

Values embedding_table_grad(const Values& out_grad, const Ids& ids, int64_t vocabulary,
                            int64_t columns) {
  Values grad = zeros(vocabulary * columns);
  for (Index row = 0; row < ids.size(); ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      grad[at(ids[row], columns, c)] += out_grad[at(static_cast<int64_t>(row), columns, c)];
    }
  }
  return grad;
}

Values embedding_positions_grad(const Values& out_grad, int64_t count, int64_t columns,
                                int64_t sequence) {
  Values grad = zeros(count * columns);
  for (int64_t row = 0; row < length(out_grad) / columns; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      grad[at(row % sequence, columns, c)] += out_grad[at(row, columns, c)];
    }
  }
  return grad;
}

LayerNorm layer_norm(const Values& in, const Values& weight, const Values& bias, double epsilon) {
  LayerNorm result;
  int64_t columns = length(weight);
  for (int64_t row = 0; row < length(in) / columns; ++row) {
    double mean = 0.0;
    double variance = 0.0;
    for (int64_t c = 0; c < columns; ++c) mean += in[at(row, columns, c)];
    mean /= static_cast<double>(columns);
    for (int64_t c = 0; c < columns; ++c) variance += std::pow(in[at(row, columns, c)] - mean, 2);
    variance /= static_cast<double>(columns);
    double rstd = 1.0 / std::sqrt(variance + epsilon);
    for (int64_t c = 0; c < columns; ++c) {
      double value = (in[at(row, columns, c)] - mean) * rstd * weight[static_cast<Index>(c)];
      result.out.push_back(bias.empty() ? value : value + bias[static_cast<Index>(c)]);
    }
    result.mean.push_back(mean);
    result.rstd.push_back(rstd);
  }
  return result;
}

LayerNormGrads layer_norm_grads(const Values& out_grad, const Values& in, const Values& weight,
                                double epsilon) {
  int64_t columns = length(weight);
  double count = static_cast<double>(columns);
  LayerNorm forward = layer_norm(in, weight, {}, epsilon);
  LayerNormGrads grads{zeros(length(in)), zeros(columns), zeros(columns)};
  for (int64_t row = 0; row < length(in) / columns; ++row) {
    double mean = forward.mean[static_cast<Index>(row)];
    double rstd = forward.rstd[static_cast<Index>(row)];
    // By the chain rule through the variance and then the mean.
    double variance_grad = 0.0;
    double mean_grad = 0.0;
    for (int64_t c = 0; c < columns; ++c) {
      double centered = in[at(row, columns, c)] - mean;
      double normal_grad = out_grad[at(row, columns, c)] * weight[static_cast<Index>(c)];
      variance_grad += normal_grad * centered * -0.5 * rstd * rstd * rstd;
      mean_grad -= normal_grad * rstd;
      grads.weight[static_cast<Index>(c)] += out_grad[at(row, columns, c)] * centered * rstd;
      grads.bias[static_cast<Index>(c)] += out_grad[at(row, columns, c)];
    }
    for (int64_t c = 0; c < columns; ++c) {
      double centered = in[at(row, columns, c)] - mean;
      double normal_grad = out_grad[at(row, columns, c)] * weight[static_cast<Index>(c)];
      grads.in[at(row, columns, c)] =
          normal_grad * rstd + variance_grad * 2.0 * centered / count + mean_grad / count;
    }
  }
  return grads;
}

Values matmul(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k, bool transpose_a,
              bool transpose_b) {
  Values out = zeros(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < k; ++p) {
        sum +=
            a[transpose_a ? at(p, m, i) : at(i, k, p)] * b[transpose_b ? at(j, k, p) : at(p, n, j)];
      }
      out[at(i, n, j)] = sum;
    }
  }
  return out;
}

Values column_sum(const Values& in, int64_t columns) {
  Values out = zeros(columns);
  for (Index i = 0; i < in.size(); ++i) out[i % static_cast<Index>(columns)] += in[i];
  return out;
}

double gelu(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  double root = std::sqrt(2.0 / std::numbers::pi);
  double tanh = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

namespace {

/// Reads the parts of qkv and of its gradient by name.
struct Parts {
  explicit Parts(const Attention& s) : sizes(s) {}
  Index query(int64_t row, int64_t head, int64_t d) const {
    return at(row, sizes.qkv_columns(), head * sizes.head_dim + d);
  }
  Index key(int64_t row, int64_t head, int64_t d) const {
    return at(row, sizes.qkv_columns(), (sizes.heads + shared(head)) * sizes.head_dim + d);
  }
  Index value(int64_t row, int64_t head, int64_t d) const {
    return at(row, sizes.qkv_columns(),
              (sizes.heads + sizes.kv_heads + shared(head)) * sizes.head_dim + d);
  }
  Index out(int64_t row, int64_t head, int64_t d) const {
    return at(row, sizes.heads * sizes.head_dim, head * sizes.head_dim + d);
  }
  int64_t shared(int64_t head) const { return head / (sizes.heads / sizes.kv_heads); }
  double keep(const Values& factors, int64_t row, int64_t head, int64_t position) const {
    return factors.empty() ? 1.0 : factors[at(row * sizes.heads + head, sizes.sequence, position)];
  }
  const Attention& sizes;
};

/// Whether the query of `row` sees the key at `position` of its sequence.
bool sees(const Attention& sizes, int64_t row, int64_t position) {
  int64_t own = row % sizes.sequence;
  bool in_window = sizes.window == 0 || own - position < sizes.window;
  bool in_document = sizes.document_starts.empty() ||
                     position >= int64_t{sizes.document_starts[static_cast<Index>(row)]};
  return position <= own && in_window && in_document;
}

/// Probabilities of the keys up to a row's own, before dropout, and the log of their denominator.
Values probabilities(const Parts& parts, const Values& qkv, int64_t row, int64_t head,
                     double* lse) {
  const Attention& sizes = parts.sizes;
  int64_t first = row - row % sizes.sequence;
  Values result;
  for (int64_t key = first; key <= row; ++key) {
    double score = 0.0;
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      score += qkv[parts.query(row, head, d)] * qkv[parts.key(key, head, d)];
    }
    bool seen = sees(sizes, row, key - first);
    result.push_back(seen ? score * sizes.scale : -std::numeric_limits<double>::infinity());
  }
  // A sink is one more key, without a value.
  if (!sizes.sinks.empty()) result.push_back(sizes.sinks[static_cast<Index>(head)]);
  double maximum = *std::max_element(result.begin(), result.end());
  double sum = 0.0;
  for (double score : result) sum += std::exp(score - maximum);
  *lse = maximum + std::log(sum);
  for (double& score : result) score = std::exp(score - *lse);
  if (!sizes.sinks.empty()) result.pop_back();
  return result;
}

}  // namespace

AttentionResult attention(const Attention& sizes, const Values& qkv, const Values& keep) {
  Parts parts(sizes);
  int64_t rows = length(qkv) / sizes.qkv_columns();
  AttentionResult result{zeros(rows * sizes.heads * sizes.head_dim), {}};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t first = row - row % sizes.sequence;
    for (int64_t head = 0; head < sizes.heads; ++head) {
      double lse = 0.0;
      Values p = probabilities(parts, qkv, row, head, &lse);
      result.lse.push_back(lse);
      for (int64_t j = 0; j < length(p); ++j) {
        double weight = p[static_cast<Index>(j)] * parts.keep(keep, row, head, j);
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          result.out[parts.out(row, head, d)] += weight * qkv[parts.value(first + j, head, d)];
        }
      }
    }
  }
  return result;
}

Values attention_grad(const Attention& sizes, const Values& out_grad, const Values& qkv,
                      const Values& keep) {
  Parts parts(sizes);
  Values grad = zeros(length(qkv));
  for (int64_t row = 0; row < length(qkv) / sizes.qkv_columns(); ++row) {
    int64_t first = row - row % sizes.sequence;
    for (int64_t head = 0; head < sizes.heads; ++head) {
      double lse = 0.0;
      Values p = probabilities(parts, qkv, row, head, &lse);
      Values p_grad = zeros(length(p));
      double weighted = 0.0;
      for (int64_t j = 0; j < length(p); ++j) {
        double factor = parts.keep(keep, row, head, j);
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          double upper = out_grad[parts.out(row, head, d)];
          p_grad[static_cast<Index>(j)] += factor * upper * qkv[parts.value(first + j, head, d)];
          grad[parts.value(first + j, head, d)] += p[static_cast<Index>(j)] * factor * upper;
        }
        weighted += p[static_cast<Index>(j)] * p_grad[static_cast<Index>(j)];
      }
      for (int64_t j = 0; j < length(p); ++j) {
        Index i = static_cast<Index>(j);
        double score_grad = p[i] * (p_grad[i] - weighted) * sizes.scale;
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          grad[parts.query(row, head, d)] += score_grad * qkv[parts.key(first + j, head, d)];
          grad[parts.key(first + j, head, d)] += score_grad * qkv[parts.query(row, head, d)];
        }
      }
    }
  }
  return grad;
}

Values attention_sinks_grad(const Attention& sizes, const Values& out_grad, const Values& qkv,
                            const Values& keep) {
  Parts parts(sizes);
  Values grad = zeros(sizes.heads);
  for (int64_t row = 0; row < length(qkv) / sizes.qkv_columns(); ++row) {
    int64_t first = row - row % sizes.sequence;
    for (int64_t head = 0; head < sizes.heads; ++head) {
      double lse = 0.0;
      Values p = probabilities(parts, qkv, row, head, &lse);
      double left = 1.0;  // the sink's own probability: what the others leave
      for (double probability : p) left -= probability;
      // Each probability falls by its own share of the sink's.
      for (int64_t j = 0; j < length(p); ++j) {
        double slope = -p[static_cast<Index>(j)] * left * parts.keep(keep, row, head, j);
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          grad[static_cast<Index>(head)] +=
              slope * out_grad[parts.out(row, head, d)] * qkv[parts.value(first + j, head, d)];
        }
      }
    }
  }
  return grad;
}

Values dropout_factors(const RandomKey& key, float drop_probability, int64_t count) {
  Values factors;
  for (int64_t i = 0; i < count; ++i) {
    bool kept = random_word(key, static_cast<uint64_t>(i)) >= dropout_threshold(drop_probability);
    factors.push_back(kept ? 1.0 / (1.0 - static_cast<double>(drop_probability)) : 0.0);
  }
  return factors;
}

CrossEntropy cross_entropy(const Values& hidden, const Values& weight, const Ids& labels,
                           const LossTerms& terms) {
  double smoothing = terms.label_smoothing;
  CrossEntropy result;
  int64_t rows = static_cast<int64_t>(labels.size());
  int64_t columns = length(hidden) / rows;
  int64_t vocabulary = length(weight) / columns;
  Values logits = matmul(hidden, weight, rows, vocabulary, columns, false, true);
  for (int64_t row = 0; row < rows; ++row) {
    auto first = logits.begin() + row * vocabulary;
    double maximum = *std::max_element(first, first + vocabulary);
    double sum = 0.0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(first[v] - maximum);
    double lse = maximum + std::log(sum);
    int32_t label = labels[static_cast<Index>(row)];
    result.lse.push_back(lse);
    double mean = std::accumulate(first, first + vocabulary, 0.0) / static_cast<double>(vocabulary);
    double at_label = label < 0 ? 0.0 : lse - first[label];
    double loss = (1.0 - smoothing) * at_label + smoothing * (lse - mean) +
                  static_cast<double>(terms.z_loss) * lse * lse;
    result.loss.push_back(label < 0 ? 0.0 : loss);
  }
  return result;
}

CrossEntropyGrads cross_entropy_grads(const Values& hidden, const Values& weight, const Ids& labels,
                                      double scale, const LossTerms& terms) {
  int64_t rows = static_cast<int64_t>(labels.size());
  int64_t columns = length(hidden) / rows;
  int64_t vocabulary = length(weight) / columns;
  double smoothing = terms.label_smoothing;
  CrossEntropy forward = cross_entropy(hidden, weight, labels);
  Values logits = matmul(hidden, weight, rows, vocabulary, columns, false, true);
  for (int64_t row = 0; row < rows; ++row) {
    int32_t label = labels[static_cast<Index>(row)];
    for (int64_t v = 0; v < vocabulary; ++v) {
      double& logit = logits[at(row, vocabulary, v)];
      double lse = forward.lse[static_cast<Index>(row)];
      double probability = std::exp(logit - lse);
      double wanted =
          (v == label ? 1.0 - smoothing : 0.0) + smoothing / static_cast<double>(vocabulary);
      double slope =
          probability - wanted + 2.0 * static_cast<double>(terms.z_loss) * lse * probability;
      logit = label < 0 ? 0.0 : scale * slope;
    }
  }
  return {matmul(logits, weight, rows, columns, vocabulary, false, false),
          matmul(logits, hidden, vocabulary, columns, rows, true, false)};
}

Values squared_error(const Values& prediction, const Values& target, int64_t columns) {
  Values loss = zeros(length(prediction) / columns);
  for (Index i = 0; i < prediction.size(); ++i) {
    loss[i / static_cast<Index>(columns)] +=
        std::pow(prediction[i] - target[i], 2) / static_cast<double>(columns);
  }
  return loss;
}

Values squared_error_grad(const Values& prediction, const Values& target, int64_t columns,
                          double scale) {
  Values grad;
  for (Index i = 0; i < prediction.size(); ++i) {
    grad.push_back(scale * 2.0 * (prediction[i] - target[i]) / static_cast<double>(columns));
  }
  return grad;
}

double sum_of_squares(const Values& in) {
  double total = 0.0;
  for (double value : in) total += value * value;
  return total;
}

uint64_t checksum(const std::vector<uint32_t>& words) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint32_t word : words) hash = (hash * 0x100000001b3u) ^ word;
  return hash;
}

}  // namespace stagecoach::reference
