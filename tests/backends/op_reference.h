#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "hal/op_call.h"

namespace stagecoach::reference {

/// Every operation of ops.h again in fp64 by the shortest loops that can be read, to compare
/// backends with. Shares nothing with them but the random words. Layouts, words and shapes as in
/// ops.h; an empty vector is an operand that is none.
using Values = std::vector<double>;
using Ids = std::vector<int32_t>;

Values embedding(const Ids& ids, const Values& table, const Values& positions, int64_t columns,
                 int64_t sequence);
/// [vocabulary, columns].
Values embedding_table_grad(const Values& out_grad, const Ids& ids, int64_t vocabulary,
                            int64_t columns);
/// [count, columns].
Values embedding_positions_grad(const Values& out_grad, int64_t count, int64_t columns,
                                int64_t sequence);

struct LayerNorm {
  Values out, mean, rstd;
};
LayerNorm layer_norm(const Values& in, const Values& weight, const Values& bias, double epsilon);
struct LayerNormGrads {
  Values in, weight, bias;
};
LayerNormGrads layer_norm_grads(const Values& out_grad, const Values& in, const Values& weight,
                                double epsilon);

/// op(a)[m,k] * op(b)[k,n].
Values matmul(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k, bool transpose_a,
              bool transpose_b);
Values column_sum(const Values& in, int64_t columns);

double gelu(double x);
double gelu_slope(double x);

/// Sizes of an attention call.
struct Attention {
  int64_t sequence, heads, kv_heads, head_dim;
  double scale;
  int64_t window = 0;
  Values sinks = {};
  Ids document_starts = {};

  int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};
struct AttentionResult {
  Values out, lse;
};
/// `keep` holds the factor of each probability, [R, H, T], or is empty for no dropout.
AttentionResult attention(const Attention& sizes, const Values& qkv, const Values& keep);
Values attention_grad(const Attention& sizes, const Values& out_grad, const Values& qkv,
                      const Values& keep);
/// [heads].
Values attention_sinks_grad(const Attention& sizes, const Values& out_grad, const Values& qkv,
                            const Values& keep);

/// Factors of dropout: 0 or 1 / (1 - p) for each of `count` elements.
Values dropout_factors(const RandomKey& key, float drop_probability, int64_t count);

struct CrossEntropy {
  Values loss, lse;
};
CrossEntropy cross_entropy(const Values& hidden, const Values& weight, const Ids& labels,
                           const LossTerms& terms = {});
struct CrossEntropyGrads {
  Values hidden, weight;
};
CrossEntropyGrads cross_entropy_grads(const Values& hidden, const Values& weight, const Ids& labels,
                                      double scale, const LossTerms& terms = {});

/// [R]: mean over columns of the squared difference.
Values squared_error(const Values& prediction, const Values& target, int64_t columns);
Values squared_error_grad(const Values& prediction, const Values& target, int64_t columns,
                          double scale);

double sum_of_squares(const Values& in);
uint64_t checksum(const std::vector<uint32_t>& words);

}  // namespace stagecoach::reference
