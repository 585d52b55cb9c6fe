#pragma once

#include <array>
#include <cstdint>

namespace stagecoach {

/// Names one random stream. Equal keys give equal numbers on every device and in every order, which
/// is what lets a recomputed forward pass replay its dropout.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t iteration = 0;
  uint32_t layer = 0;
  uint32_t micro_batch = 0;
  uint32_t site = 0;  ///< which use inside the layer
};

/// Four 32-bit words for `counter` under `key`: Philox-4x32 with 10 rounds (Salmon et al., SC
/// 2011). Pure; the same on every machine.
std::array<uint32_t, 4> philox_4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Random word number `index` of the stream named by `key`.
uint32_t random_word(const RandomKey& key, uint64_t index);

/// Four consecutive words, numbers 4 * `block` to 4 * `block` + 3; `random_word` reads from these.
std::array<uint32_t, 4> random_words(const RandomKey& key, uint64_t block);

/// Writes words number `first` to `first` + `count` - 1 to `words`: what `random_word` gives for
/// each, many at a time.
void fill_random_words(const RandomKey& key, uint64_t first, int64_t count, uint32_t* words);

/// A word keeps an element with probability 1 - `drop_probability` when it is >= this threshold.
uint32_t dropout_threshold(float drop_probability);

/// Standard normal number `index` of the stream (Box-Muller in double precision).
double random_normal(const RandomKey& key, uint64_t index);

/// Uniform number in [0, 1) with 53 bits, number `index` of the stream.
double random_uniform(const RandomKey& key, uint64_t index);

}  // namespace stagecoach
