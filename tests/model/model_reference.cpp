#include "tests/model/model_reference.h"

#include <cmath>
#include <numbers>

namespace stagecoach::reference {

namespace {

using Index = size_t;

/// y[r, out] = x[r, in] w[in, out] + b.
Values linear(const Values& x, const Values& w, const Values& b) {
  Index out = b.size();
  Index in = w.size() / out;
  Index rows = x.size() / in;
  Values y(rows * out);
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < out; ++o) {
      double sum = b[o];
      for (Index i = 0; i < in; ++i) sum += x[r * in + i] * w[i * out + o];
      y[r * out + o] = sum;
    }
  }
  return y;
}

/// Adds to dw and db; returns dx.
Values linear_gradient(const Values& dy, const Values& x, const Values& w, Values& dw, Values& db) {
  Index out = db.size();
  Index in = w.size() / out;
  Index rows = dy.size() / out;
  Values dx(rows * in, 0.0);
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < out; ++o) {
      double d = dy[r * out + o];
      db[o] += d;
      for (Index i = 0; i < in; ++i) {
        dx[r * in + i] += d * w[i * out + o];
        dw[i * out + o] += d * x[r * in + i];
      }
    }
  }
  return dx;
}

struct NormState {
  Values normal;  // (x - mean) / sigma
  Values rstd;
};

Values norm(const Values& x, const Values& w, const Values& b, double epsilon, NormState& state) {
  Index columns = w.size();
  Index rows = x.size() / columns;
  state.normal.assign(x.size(), 0.0);
  state.rstd.assign(rows, 0.0);
  Values y(x.size());
  for (Index r = 0; r < rows; ++r) {
    double mean = 0;
    for (Index c = 0; c < columns; ++c) mean += x[r * columns + c];
    mean /= static_cast<double>(columns);
    double variance = 0;
    for (Index c = 0; c < columns; ++c) variance += std::pow(x[r * columns + c] - mean, 2);
    variance /= static_cast<double>(columns);
    state.rstd[r] = 1.0 / std::sqrt(variance + epsilon);
    for (Index c = 0; c < columns; ++c) {
      Index at = r * columns + c;
      state.normal[at] = (x[at] - mean) * state.rstd[r];
      y[at] = state.normal[at] * w[c] + b[c];
    }
  }
  return y;
}

Values norm_gradient(const Values& dy, const Values& w, const NormState& state, Values& dw,
                     Values& db) {
  Index columns = w.size();
  Index rows = dy.size() / columns;
  Values dx(dy.size());
  for (Index r = 0; r < rows; ++r) {
    double sum = 0;
    double sum_normal = 0;
    for (Index c = 0; c < columns; ++c) {
      Index at = r * columns + c;
      dw[c] += dy[at] * state.normal[at];
      db[c] += dy[at];
      sum += dy[at] * w[c];
      sum_normal += dy[at] * w[c] * state.normal[at];
    }
    double n = static_cast<double>(columns);
    for (Index c = 0; c < columns; ++c) {
      Index at = r * columns + c;
      dx[at] = state.rstd[r] * (dy[at] * w[c] - sum / n - state.normal[at] * sum_normal / n);
    }
  }
  return dx;
}

double gelu(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  double root = std::sqrt(2.0 / std::numbers::pi);
  double t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

/// 0 or 1 / (1 - p) for each element.
Values keep_factors(RandomKey key, double probability, bool training, Index count) {
  Values factors(count, 1.0);
  float p = static_cast<float>(probability);
  if (!training || p == 0.0f) return factors;
  for (Index i = 0; i < count; ++i) {
    bool kept = random_word(key, i) >= dropout_threshold(p);
    factors[i] = kept ? 1.0 / (1.0 - static_cast<double>(p)) : 0.0;
  }
  return factors;
}

Values multiply(Values a, const Values& b) {
  for (Index i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

void add_to(Values& a, const Values& b) {
  for (Index i = 0; i < a.size(); ++i) a[i] += b[i];
}

/// Causal attention of one micro-batch.
class Attention {
 public:
  Attention(Index sequence, Index heads, Index width, Values keep)
      : sequence_(sequence), heads_(heads), width_(width), keep_(std::move(keep)) {}

  Values forward(const Values& qkv) {
    Index rows = qkv.size() / (3 * width_);
    probabilities_.assign(rows * heads_ * sequence_, 0.0);
    Values out(rows * width_, 0.0);
    for_each_query(rows, [&](Index row, Index head, Index first) {
      double total = 0;
      for (Index j = first; j <= row; ++j) {
        probability(row, head, j - first) = std::exp(score(qkv, row, j, head));
        total += probability(row, head, j - first);
      }
      for (Index j = first; j <= row; ++j) {
        probability(row, head, j - first) /= total;
        double weight = probability(row, head, j - first) * keep(row, head, j - first);
        for (Index d = 0; d < dim(); ++d) {
          out[row * width_ + head * dim() + d] += weight * qkv[at(j, 2, head, d)];
        }
      }
    });
    return out;
  }

  Values gradient(const Values& dout, const Values& qkv) {
    Values dqkv(qkv.size(), 0.0);
    double scale = 1.0 / std::sqrt(static_cast<double>(dim()));
    for_each_query(qkv.size() / (3 * width_), [&](Index row, Index head, Index first) {
      Values dp(row - first + 1, 0.0);
      double inner = 0;
      for (Index j = first; j <= row; ++j) {
        double factor = keep(row, head, j - first);
        double p = probability(row, head, j - first);
        for (Index d = 0; d < dim(); ++d) {
          double g = dout[row * width_ + head * dim() + d];
          dqkv[at(j, 2, head, d)] += p * factor * g;
          dp[j - first] += factor * g * qkv[at(j, 2, head, d)];
        }
        inner += p * dp[j - first];
      }
      for (Index j = first; j <= row; ++j) {
        double ds = probability(row, head, j - first) * (dp[j - first] - inner) * scale;
        for (Index d = 0; d < dim(); ++d) {
          dqkv[at(row, 0, head, d)] += ds * qkv[at(j, 1, head, d)];
          dqkv[at(j, 1, head, d)] += ds * qkv[at(row, 0, head, d)];
        }
      }
    });
    return dqkv;
  }

 private:
  Index dim() const { return width_ / heads_; }
  /// Part 0 is queries, 1 keys, 2 values.
  Index at(Index row, Index part, Index head, Index d) const {
    return row * 3 * width_ + part * width_ + head * dim() + d;
  }
  double& probability(Index row, Index head, Index j) {
    return probabilities_[(row * heads_ + head) * sequence_ + j];
  }
  double keep(Index row, Index head, Index j) const {
    return keep_[(row * heads_ + head) * sequence_ + j];
  }
  double score(const Values& qkv, Index row, Index j, Index head) const {
    double sum = 0;
    for (Index d = 0; d < dim(); ++d) sum += qkv[at(row, 0, head, d)] * qkv[at(j, 1, head, d)];
    return sum / std::sqrt(static_cast<double>(dim()));
  }
  template <typename Body>
  void for_each_query(Index rows, Body&& body) {
    for (Index row = 0; row < rows; ++row) {
      for (Index head = 0; head < heads_; ++head) body(row, head, row - row % sequence_);
    }
  }

  Index sequence_, heads_, width_;
  Values keep_;
  Values probabilities_;
};

/// One decoder block, with what its backward pass needs.
class Block {
 public:
  Block(const Gpt2Config& config, const NamedValues& parameters, const Gpt2Batch& batch,
        int64_t index)
      : config_(config),
        parameters_(parameters),
        prefix_("transformer.h." + std::to_string(index) + "."),
        attention_(static_cast<Index>(batch.sequence), static_cast<Index>(config.n_head),
                   static_cast<Index>(config.n_embd),
                   keep_factors(key(batch, index, 0), config.attn_pdrop, batch.training,
                                static_cast<Index>(batch.rows() * config.n_head * batch.sequence))),
        keep_middle_(keep_factors(key(batch, index, 1), config.resid_pdrop, batch.training,
                                  static_cast<Index>(batch.rows() * config.n_embd))),
        keep_out_(keep_factors(key(batch, index, 2), config.resid_pdrop, batch.training,
                               static_cast<Index>(batch.rows() * config.n_embd))) {}

  Values forward(const Values& x) {
    double epsilon = config_.layer_norm_epsilon;
    norm1_ = norm(x, weight("ln_1"), bias("ln_1"), epsilon, state1_);
    qkv_ = linear(norm1_, weight("attn.c_attn"), bias("attn.c_attn"));
    attended_ = attention_.forward(qkv_);
    Values middle = x;
    add_to(middle,
           multiply(linear(attended_, weight("attn.c_proj"), bias("attn.c_proj")), keep_middle_));
    norm2_ = norm(middle, weight("ln_2"), bias("ln_2"), epsilon, state2_);
    up_ = linear(norm2_, weight("mlp.c_fc"), bias("mlp.c_fc"));
    gelu_ = up_;
    for (double& value : gelu_) value = gelu(value);
    Values out = middle;
    add_to(out, multiply(linear(gelu_, weight("mlp.c_proj"), bias("mlp.c_proj")), keep_out_));
    return out;
  }

  Values gradient(const Values& dout, NamedValues& gradients) {
    auto back = [&](const std::string& name, const Values& dy, const Values& x) {
      return linear_gradient(dy, x, weight(name), gradients[prefix_ + name + ".weight"],
                             gradients[prefix_ + name + ".bias"]);
    };
    auto norm_back = [&](const std::string& name, const Values& dy, const NormState& state) {
      return norm_gradient(dy, weight(name), state, gradients[prefix_ + name + ".weight"],
                           gradients[prefix_ + name + ".bias"]);
    };
    Values dgelu = back("mlp.c_proj", multiply(dout, keep_out_), gelu_);
    for (Index i = 0; i < dgelu.size(); ++i) dgelu[i] *= gelu_slope(up_[i]);
    Values dmiddle = dout;
    add_to(dmiddle, norm_back("ln_2", back("mlp.c_fc", dgelu, norm2_), state2_));
    Values dattended = back("attn.c_proj", multiply(dmiddle, keep_middle_), attended_);
    Values dqkv = attention_.gradient(dattended, qkv_);
    Values dx = dmiddle;
    add_to(dx, norm_back("ln_1", back("attn.c_attn", dqkv, norm1_), state1_));
    return dx;
  }

 private:
  static RandomKey key(const Gpt2Batch& batch, int64_t index, uint32_t site) {
    RandomKey key = batch.key;
    key.layer = static_cast<uint32_t>(index) + 1;
    key.site = site;
    return key;
  }
  const Values& weight(const std::string& name) const {
    return parameters_.at(prefix_ + name + ".weight");
  }
  const Values& bias(const std::string& name) const {
    return parameters_.at(prefix_ + name + ".bias");
  }

  const Gpt2Config& config_;
  const NamedValues& parameters_;
  std::string prefix_;
  Attention attention_;
  Values keep_middle_, keep_out_;
  NormState state1_, state2_;
  Values norm1_, qkv_, attended_, norm2_, up_, gelu_;
};

/// Loss of each row over hidden[rows, width] and table[vocabulary, width], and, scaled, its
/// gradient.
Values cross_entropy(const Values& hidden, const Values& table, const Gpt2Batch& batch, Index width,
                     Values& dhidden, Values& dtable) {
  Index vocabulary = table.size() / width;
  Values losses(batch.labels.size(), 0.0);
  dhidden.assign(hidden.size(), 0.0);
  for (Index r = 0; r < losses.size(); ++r) {
    if (batch.labels[r] < 0) continue;
    Values exps(vocabulary, 0.0);
    double total = 0;
    double label_logit = 0;
    for (Index v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (Index c = 0; c < width; ++c) logit += hidden[r * width + c] * table[v * width + c];
      if (static_cast<Index>(batch.labels[r]) == v) label_logit = logit;
      exps[v] = std::exp(logit);
      total += exps[v];
    }
    losses[r] = std::log(total) - label_logit;
    for (Index v = 0; v < vocabulary; ++v) {
      double is_label = static_cast<Index>(batch.labels[r]) == v ? 1.0 : 0.0;
      double d = batch.loss_scale * (exps[v] / total - is_label);
      for (Index c = 0; c < width; ++c) {
        dhidden[r * width + c] += d * table[v * width + c];
        dtable[v * width + c] += d * hidden[r * width + c];
      }
    }
  }
  return losses;
}

}  // namespace

Gpt2Result run_gpt2(const Gpt2Config& config, const NamedValues& parameters,
                    const Gpt2Batch& batch) {
  Gpt2Result result;
  for (const auto& [name, values] : parameters) result.gradients[name].assign(values.size(), 0.0);
  Index width = static_cast<Index>(config.n_embd);
  Index sequence = static_cast<Index>(batch.sequence);
  const Values& table = parameters.at("transformer.wte.weight");
  const Values& positions = parameters.at("transformer.wpe.weight");
  Values x(batch.ids.size() * width);
  for (Index i = 0; i < x.size(); ++i) {
    Index row = i / width;
    x[i] = table[static_cast<Index>(batch.ids[row]) * width + i % width] +
           positions[row % sequence * width + i % width];
  }
  Values keep = keep_factors(batch.key, config.embd_pdrop, batch.training, x.size());
  x = multiply(x, keep);
  std::vector<Block> blocks;
  for (int64_t i = 0; i < config.n_layer; ++i) {
    blocks.emplace_back(config, parameters, batch, i);
    x = blocks.back().forward(x);
  }
  NormState state;
  const Values& norm_weight = parameters.at("transformer.ln_f.weight");
  Values hidden = norm(x, norm_weight, parameters.at("transformer.ln_f.bias"),
                       config.layer_norm_epsilon, state);
  Values dhidden;
  Values& dtable = result.gradients["transformer.wte.weight"];
  result.losses = cross_entropy(hidden, table, batch, width, dhidden, dtable);
  for (double loss : result.losses) result.total += batch.loss_scale * loss;

  Values dx =
      norm_gradient(dhidden, norm_weight, state, result.gradients["transformer.ln_f.weight"],
                    result.gradients["transformer.ln_f.bias"]);
  for (Index i = blocks.size(); i-- > 0;) dx = blocks[i].gradient(dx, result.gradients);
  dx = multiply(dx, keep);
  Values& dpositions = result.gradients["transformer.wpe.weight"];
  for (Index i = 0; i < dx.size(); ++i) {
    Index row = i / width;
    dtable[static_cast<Index>(batch.ids[row]) * width + i % width] += dx[i];
    dpositions[row % sequence * width + i % width] += dx[i];
  }
  return result;
}

double gpt2_loss(const Gpt2Config& config, const NamedValues& parameters, const Gpt2Batch& batch) {
  return run_gpt2(config, parameters, batch).total;
}

}  // namespace stagecoach::reference
