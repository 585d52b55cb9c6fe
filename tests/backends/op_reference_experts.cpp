#include "tests/backends/op_reference_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stagecoach::reference {

namespace {

Values row_of(const Values& values, size_t row, size_t columns) {
  auto first = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
  return {first, first + static_cast<std::ptrdiff_t>(columns)};
}

/// Probabilities of the experts in `among`; of the others 0.
Values softmax(const Values& logits, const Ids& among) {
  Values result(logits.size());
  double sum = 0;
  for (int32_t e : among) sum += std::exp(logits[static_cast<size_t>(e)]);
  for (int32_t e : among) {
    result[static_cast<size_t>(e)] = std::exp(logits[static_cast<size_t>(e)]) / sum;
  }
  return result;
}

Ids all_experts(int64_t experts) {
  Ids all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Ids chosen_by(const Ids& choices, size_t row, int64_t count) {
  auto first = choices.begin() + static_cast<std::ptrdiff_t>(row) * count;
  return {first, first + count};
}

}  // namespace

Routing route(const Values& logits, int64_t experts, int64_t count, bool over_chosen) {
  Routing result;
  auto width = static_cast<size_t>(experts);
  for (size_t row = 0; row < logits.size() / width; ++row) {
    Values line = row_of(logits, row, width);
    Ids sorted = all_experts(experts);
    std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
      return line[static_cast<size_t>(a)] > line[static_cast<size_t>(b)];
    });
    Ids chosen(sorted.begin(), sorted.begin() + count);
    Values shares = softmax(line, over_chosen ? chosen : sorted);
    for (int32_t e : chosen) {
      result.choices.push_back(e);
      result.weights.push_back(shares[static_cast<size_t>(e)]);
    }
  }
  return result;
}

Values route_grad(const Values& weights_grad, const Values& logits, const Ids& choices,
                  int64_t experts, int64_t count, bool over_chosen) {
  Values result;
  auto width = static_cast<size_t>(experts);
  for (size_t row = 0; row < logits.size() / width; ++row) {
    Ids chosen = chosen_by(choices, row, count);
    Values shares =
        softmax(row_of(logits, row, width), over_chosen ? chosen : all_experts(experts));
    Values grad(width);
    for (size_t k = 0; k < chosen.size(); ++k) {
      auto mine = static_cast<size_t>(chosen[k]);
      for (size_t e = 0; e < width; ++e) {
        double slope = shares[mine] * ((e == mine ? 1.0 : 0.0) - shares[e]);
        grad[e] += weights_grad[row * chosen.size() + k] * slope;
      }
    }
    result.insert(result.end(), grad.begin(), grad.end());
  }
  return result;
}

namespace {

/// body(row, softmax of its logits, what its loss is the product of that with).
template <typename Body>
void for_balanced_rows(const Values& logits, const Ids& choices, const Ids& labels, int64_t experts,
                       int64_t count, int64_t sequence, const Body& body) {
  auto width = static_cast<size_t>(experts), length = static_cast<size_t>(sequence);
  for (size_t first = 0; first < labels.size(); first += length) {
    size_t rows = 0;
    double targets = 0;
    for (size_t t = 0; t < length; ++t) {
      if (labels[first + t] < 0) continue;
      rows = t + 1;
      ++targets;
    }
    Values chosen(width);
    for (size_t row = first; row < first + rows; ++row) {
      for (int32_t e : chosen_by(choices, row, count)) chosen[static_cast<size_t>(e)] += 1;
    }
    auto n = static_cast<double>(rows);
    for (double& value : chosen) value *= targets / n * static_cast<double>(experts) / n;
    for (size_t row = first; row < first + rows; ++row) {
      body(row, softmax(row_of(logits, row, width), all_experts(experts)), chosen);
    }
  }
}

}  // namespace

Values balance(const Values& logits, const Ids& choices, const Ids& labels, int64_t experts,
               int64_t count, int64_t sequence) {
  Values losses(labels.size());
  for_balanced_rows(logits, choices, labels, experts, count, sequence,
                    [&](size_t row, const Values& shares, const Values& pulls) {
                      for (size_t e = 0; e < pulls.size(); ++e) losses[row] += shares[e] * pulls[e];
                    });
  return losses;
}

Values balance_grad(const Values& logits, const Ids& choices, const Ids& labels, int64_t experts,
                    int64_t count, int64_t sequence) {
  Values grad(logits.size());
  for_balanced_rows(logits, choices, labels, experts, count, sequence,
                    [&](size_t row, const Values& shares, const Values& pulls) {
                      for (size_t e = 0; e < pulls.size(); ++e) {
                        for (size_t j = 0; j < pulls.size(); ++j) {
                          double slope = shares[e] * ((e == j ? 1.0 : 0.0) - shares[j]);
                          grad[row * pulls.size() + j] += pulls[e] * slope;
                        }
                      }
                    });
  return grad;
}

Grouping group(const Ids& choices, int64_t experts) {
  Grouping result;
  result.places.resize(choices.size());
  for (int32_t e = 0; e < experts; ++e) {
    result.offsets.push_back(static_cast<int32_t>(result.order.size()));
    for (size_t s = 0; s < choices.size(); ++s) {
      if (choices[s] != e) continue;
      result.places[s] = static_cast<int32_t>(result.order.size());
      result.order.push_back(static_cast<int32_t>(s));
      result.experts.push_back(e);
    }
  }
  result.offsets.push_back(static_cast<int32_t>(result.order.size()));
  return result;
}

Values gather(const Values& in, const Ids& order, const Values& weights, int64_t columns,
              int64_t count) {
  Values result;
  for (int32_t s : order) {
    double weight = weights.empty() ? 1.0 : weights[static_cast<size_t>(s)];
    for (int64_t c = 0; c < columns; ++c) {
      result.push_back(weight * in[static_cast<size_t>(s / count * columns + c)]);
    }
  }
  return result;
}

Values combine(const Values& in, const Ids& places, const Values& weights, const Values& residual,
               int64_t columns, int64_t count) {
  Values result(places.size() / static_cast<size_t>(count) * static_cast<size_t>(columns));
  if (!residual.empty()) result = residual;
  for (size_t s = 0; s < places.size(); ++s) {
    double weight = weights.empty() ? 1.0 : weights[s];
    auto row = static_cast<int64_t>(s) / count;
    for (int64_t c = 0; c < columns; ++c) {
      result[static_cast<size_t>(row * columns + c)] +=
          weight * in[static_cast<size_t>(places[s] * columns + c)];
    }
  }
  return result;
}

Values grouped_matmul(const Values& a, const Values& b, const Values& bias, const Ids& experts,
                      int64_t in_columns, int64_t out_columns, bool transpose_b) {
  Values result;
  for (size_t row = 0; row < experts.size(); ++row) {
    int64_t expert = experts[row];
    for (int64_t o = 0; o < out_columns; ++o) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(expert * out_columns + o)];
      for (int64_t c = 0; c < in_columns; ++c) {
        int64_t inside = transpose_b ? o * in_columns + c : c * out_columns + o;
        sum += a[row * static_cast<size_t>(in_columns) + static_cast<size_t>(c)] *
               b[static_cast<size_t>(expert * in_columns * out_columns + inside)];
      }
      result.push_back(sum);
    }
  }
  return result;
}

Values grouped_outer(const Values& a, const Values& b, const Ids& experts, int64_t expert_count,
                     int64_t a_columns, int64_t b_columns) {
  Values result(static_cast<size_t>(expert_count * a_columns * b_columns));
  for (size_t row = 0; row < experts.size(); ++row) {
    for (int64_t i = 0; i < a_columns; ++i) {
      for (int64_t j = 0; j < b_columns; ++j) {
        result[static_cast<size_t>((experts[row] * a_columns + i) * b_columns + j)] +=
            a[row * static_cast<size_t>(a_columns) + static_cast<size_t>(i)] *
            b[row * static_cast<size_t>(b_columns) + static_cast<size_t>(j)];
      }
    }
  }
  return result;
}

}  // namespace stagecoach::reference
