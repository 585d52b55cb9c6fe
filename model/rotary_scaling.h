#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// How fast the pairs of a head turn with the position. Pair i of P turns by theta^(-i/P) a
/// position; scalings slow some of the pairs down, so that longer texts look like those the model
/// was trained on. Formulas are those of transformers' modeling_rope_utils.py. Plain data.
struct RotaryScaling {
  enum class Kind : uint8_t {
    kNone,
    kLinear,  ///< all pairs
    kLlama3,  ///< pairs whose wave is long, by wavelength
    kYarn     ///< pairs whose wave is long, by number; and cosines and sines grow
  } kind = Kind::kNone;

  double theta = 10000;
  double factor = 1;                 ///< by how much slowed pairs are slowed
  double low_frequency_factor = 1;   ///< llama3: below, waves a text, pairs are slowed wholly
  double high_frequency_factor = 4;  ///< llama3: above they are left alone
  double original_positions = 0;     ///< llama3, yarn: longest text before scaling
  double beta_fast = 32;             ///< yarn: turns a text above which pairs are left alone
  double beta_slow = 1;              ///< yarn: below which they are slowed wholly
  bool truncates = true;             ///< yarn: whether the range of pairs is rounded outwards
  double magnitude = 1;              ///< of cosines and sines

  bool operator==(const RotaryScaling&) const = default;
};

/// "default", "linear", "llama3" or "yarn", as config.json has it.
std::string_view rotary_kind_name(RotaryScaling::Kind kind);

/// "theta 500000, llama3 scaling by 8 of 8192 positions": for people.
std::string describe_rotary(const RotaryScaling& scaling);

/// Angle by which each of the head_dim / 2 pairs turns a position.
std::vector<double> rotary_frequencies(const RotaryScaling& scaling, int64_t head_dim);

/// Cosines [positions, head_dim / 2], then as many sines, of exact angles, rounded once.
std::vector<float> rotary_table(const RotaryScaling& scaling, int64_t head_dim, int64_t positions);

}  // namespace stagecoach
