#include "model/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace stagecoach {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Number of the pair that turns `turns` times over the original positions, not whole.
double pair_that_turns(const RotaryScaling& scaling, int64_t head_dim, double turns) {
  return static_cast<double>(head_dim) * std::log(scaling.original_positions / (turns * kTurn)) /
         (2 * std::log(scaling.theta));
}

/// How far each pair is slowed: 0 not at all, 1 by the whole factor.
double slowed_share(const RotaryScaling& scaling, int64_t head_dim, int64_t pair,
                    double frequency) {
  switch (scaling.kind) {
    case RotaryScaling::Kind::kNone:
      return 0;
    case RotaryScaling::Kind::kLinear:
      return 1;
    case RotaryScaling::Kind::kLlama3: {
      double waves = scaling.original_positions * frequency / kTurn;
      double kept = (waves - scaling.low_frequency_factor) /
                    (scaling.high_frequency_factor - scaling.low_frequency_factor);
      return 1 - std::clamp(kept, 0.0, 1.0);
    }
    case RotaryScaling::Kind::kYarn: {
      double first = pair_that_turns(scaling, head_dim, scaling.beta_fast);
      double last = pair_that_turns(scaling, head_dim, scaling.beta_slow);
      if (scaling.truncates) {
        first = std::floor(first);
        last = std::ceil(last);
      }
      first = std::max(first, 0.0);
      last = std::min(last, static_cast<double>(head_dim - 1));
      constexpr double kLeastRange = 0.001;
      if (first == last) last += kLeastRange;
      return std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
    }
  }
  return 0;
}

}  // namespace

std::string_view rotary_kind_name(RotaryScaling::Kind kind) {
  switch (kind) {
    case RotaryScaling::Kind::kNone:
      return "default";
    case RotaryScaling::Kind::kLinear:
      return "linear";
    case RotaryScaling::Kind::kLlama3:
      return "llama3";
    case RotaryScaling::Kind::kYarn:
      return "yarn";
  }
  return "";
}

std::string describe_rotary(const RotaryScaling& scaling) {
  std::string text = fmt::format("theta {}", scaling.theta);
  if (scaling.kind == RotaryScaling::Kind::kNone) return text;
  text += fmt::format(", {} scaling by {}", rotary_kind_name(scaling.kind), scaling.factor);
  if (scaling.kind == RotaryScaling::Kind::kLinear) return text;
  return text + fmt::format(" of {} positions", scaling.original_positions);
}

std::vector<double> rotary_frequencies(const RotaryScaling& scaling, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    double exponent = 2 * static_cast<double>(pair) / static_cast<double>(head_dim);
    double plain = std::pow(scaling.theta, -exponent);
    double share = slowed_share(scaling, head_dim, pair, plain);
    frequencies.push_back(plain * (1 - share) + plain / scaling.factor * share);
  }
  return frequencies;
}

std::vector<float> rotary_table(const RotaryScaling& scaling, int64_t head_dim, int64_t positions) {
  std::vector<double> frequencies = rotary_frequencies(scaling, head_dim);
  size_t half = static_cast<size_t>(positions) * frequencies.size();
  std::vector<float> table(2 * half);
  for (size_t i = 0; i < half; ++i) {
    size_t position = i / frequencies.size();
    double angle = static_cast<double>(position) * frequencies[i % frequencies.size()];
    table[i] = static_cast<float>(scaling.magnitude * std::cos(angle));
    table[half + i] = static_cast<float>(scaling.magnitude * std::sin(angle));
  }
  return table;
}

}  // namespace stagecoach
