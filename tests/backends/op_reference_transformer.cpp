#include "tests/backends/op_reference_transformer.h"

#include <algorithm>
#include <cmath>
#include <complex>

namespace stagecoach::reference {

RmsNorm rms_norm(const Values& in, const Values& weight, double epsilon) {
  RmsNorm result;
  size_t columns = weight.size();
  for (size_t first = 0; first < in.size(); first += columns) {
    double squares = 0.0;
    for (size_t c = 0; c < columns; ++c) squares += in[first + c] * in[first + c];
    double rstd = 1.0 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (size_t c = 0; c < columns; ++c) result.out.push_back(in[first + c] * rstd * weight[c]);
    result.rstd.push_back(rstd);
  }
  return result;
}

RmsNormGrads rms_norm_grads(const Values& out_grad, const Values& in, const Values& weight,
                            double epsilon) {
  size_t columns = weight.size();
  RmsNorm forward = rms_norm(in, weight, epsilon);
  RmsNormGrads grads{Values(in.size()), Values(columns)};
  for (size_t row = 0; row < forward.rstd.size(); ++row) {
    double rstd = forward.rstd[row];
    size_t first = row * columns;
    // d rstd / d x = -x * rstd^3 / columns, by the chain rule.
    double rstd_grad = 0.0;
    for (size_t c = 0; c < columns; ++c) {
      rstd_grad += out_grad[first + c] * weight[c] * in[first + c];
      grads.weight[c] += out_grad[first + c] * in[first + c] * rstd;
    }
    for (size_t c = 0; c < columns; ++c) {
      double through_rstd =
          -in[first + c] * rstd * rstd * rstd / static_cast<double>(columns) * rstd_grad;
      grads.in[first + c] = out_grad[first + c] * weight[c] * rstd + through_rstd;
    }
  }
  return grads;
}

Values rotary(const PackedHeads& sizes, const Values& qkv, const Values& cosines,
              const Values& sines, int64_t sequence, bool inverse) {
  Values result = qkv;
  size_t half = static_cast<size_t>(sizes.dim) / 2;
  size_t width = static_cast<size_t>(sizes.all() * sizes.dim);
  for (size_t row = 0; row < qkv.size() / width; ++row) {
    size_t position = row % static_cast<size_t>(sequence);
    for (size_t head = 0; head < static_cast<size_t>(sizes.normed()); ++head) {
      for (size_t i = 0; i < half; ++i) {
        size_t low = row * width + head * 2 * half + i;
        std::complex<double> turn(cosines[position * half + i], sines[position * half + i]);
        if (inverse) turn = std::conj(turn);
        std::complex<double> turned = std::complex<double>(qkv[low], qkv[low + half]) * turn;
        result[low] = turned.real();
        result[low + half] = turned.imag();
      }
    }
  }
  return result;
}

Values take_heads(const PackedHeads& sizes, const Values& qkv, int64_t first, int64_t end) {
  Values result;
  int64_t width = sizes.all() * sizes.dim;
  for (int64_t i = 0; i < static_cast<int64_t>(qkv.size()); ++i) {
    int64_t head = i % width / sizes.dim;
    if (head >= first && head < end) result.push_back(qkv[static_cast<size_t>(i)]);
  }
  return result;
}

void put_heads(const PackedHeads& sizes, Values& qkv, int64_t first, int64_t end,
               const Values& heads) {
  int64_t width = sizes.all() * sizes.dim;
  size_t next = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(qkv.size()); ++i) {
    int64_t head = i % width / sizes.dim;
    if (head >= first && head < end) qkv[static_cast<size_t>(i)] = heads[next++];
  }
}

Values gated_silu(const Values& gate, const Values& up, const Gated& numbers) {
  Values result;
  for (size_t i = 0; i < gate.size(); ++i) {
    double g = std::min(gate[i], numbers.limit);
    double u = std::clamp(up[i], -numbers.limit, numbers.limit);
    result.push_back(g / (1.0 + std::exp(-numbers.alpha * g)) * (u + numbers.up_offset));
  }
  return result;
}

GatedSiluGrads gated_silu_grads(const Values& out_grad, const Values& gate, const Values& up,
                                const Gated& numbers) {
  GatedSiluGrads grads;
  for (size_t i = 0; i < gate.size(); ++i) {
    double g = std::min(gate[i], numbers.limit);
    double u = std::clamp(up[i], -numbers.limit, numbers.limit);
    double sigmoid = 1.0 / (1.0 + std::exp(-numbers.alpha * g));
    double slope = sigmoid + numbers.alpha * g * sigmoid * (1.0 - sigmoid);
    double gate_moves = gate[i] <= numbers.limit ? 1.0 : 0.0;
    double up_moves = std::abs(up[i]) <= numbers.limit ? 1.0 : 0.0;
    grads.gate.push_back(gate_moves * out_grad[i] * (u + numbers.up_offset) * slope);
    grads.up.push_back(up_moves * out_grad[i] * g * sigmoid);
  }
  return grads;
}

AdamWState adamw(AdamWState state, const Values& gradient, const AdamWRates& rates) {
  double step = static_cast<double>(rates.step);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double g = gradient[i] * rates.gradient_scale;
    state.first[i] = rates.beta1 * state.first[i] + (1.0 - rates.beta1) * g;
    state.second[i] = rates.beta2 * state.second[i] + (1.0 - rates.beta2) * g * g;
    double first = state.first[i] / (1.0 - std::pow(rates.beta1, step));
    double second = state.second[i] / (1.0 - std::pow(rates.beta2, step));
    state.parameters[i] -= rates.learning_rate * (first / (std::sqrt(second) + rates.epsilon) +
                                                  rates.weight_decay * state.parameters[i]);
  }
  return state;
}

}  // namespace stagecoach::reference
