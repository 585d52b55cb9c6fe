#include "core/random.h"

#include <cmath>
#include <numbers>

namespace stagecoach {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> philox_4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 4> random_words(const RandomKey& key, uint64_t block) {
  // The stream's name is hashed into the Philox key; the position is the counter.
  std::array<uint32_t, 4> name =
      philox_4x32({key.iteration, key.layer, key.micro_batch, key.site},
                  {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return philox_4x32(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), name[2], name[3]},
      {name[0], name[1]});
}

uint32_t random_word(const RandomKey& key, uint64_t index) {
  return random_words(key, index / 4)[index % 4];
}

uint32_t dropout_threshold(float drop_probability) {
  return static_cast<uint32_t>(static_cast<double>(drop_probability) * 4294967296.0);
}

double random_uniform(const RandomKey& key, uint64_t index) {
  std::array<uint32_t, 4> words = random_words(key, index);
  uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

double random_normal(const RandomKey& key, uint64_t index) {
  std::array<uint32_t, 4> words = random_words(key, index);
  uint64_t first = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  uint64_t second = (static_cast<uint64_t>(words[2]) << 32 | words[3]) >> 11;
  double radius_uniform = (static_cast<double>(first) + 1.0) * 0x1.0p-53;
  double angle = 2.0 * std::numbers::pi * static_cast<double>(second) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(radius_uniform)) * std::cos(angle);
}

}  // namespace stagecoach
