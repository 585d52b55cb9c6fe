#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/multiversion.h"

namespace stagecoach {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;
/// Most Philox blocks computed side by side.
constexpr int kLanes = 64;

/// The stream's name, hashed: words 0 and 1 become the Philox key, 2 and 3 half of the counter.
std::array<uint32_t, 4> stream_name(const RandomKey& key) {
  return philox_4x32({key.iteration, key.layer, key.micro_batch, key.site},
                     {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

/// random_words for `lanes` <= kLanes blocks from `first_block` on, in order.
STAGECOACH_MULTIVERSION void philox_lanes(const std::array<uint32_t, 4>& name, uint64_t first_block,
                                          int lanes, uint32_t* words) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int lane = 0; lane < lanes; ++lane) {
    uint64_t block = first_block + static_cast<uint64_t>(lane);
    c0[lane] = static_cast<uint32_t>(block);
    c1[lane] = static_cast<uint32_t>(block >> 32);
    c2[lane] = name[2];
    c3[lane] = name[3];
  }
  uint32_t key0 = name[0];
  uint32_t key1 = name[1];
  for (int round = 0; round < kRounds; ++round) {
    for (int lane = 0; lane < lanes; ++lane) {
      uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c0[lane];
      uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * c2[lane];
      c0[lane] = static_cast<uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
      c1[lane] = static_cast<uint32_t>(product1);
      c2[lane] = static_cast<uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
      c3[lane] = static_cast<uint32_t>(product0);
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

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
  std::array<uint32_t, 4> name = stream_name(key);
  return philox_4x32(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), name[2], name[3]},
      {name[0], name[1]});
}

uint32_t random_word(const RandomKey& key, uint64_t index) {
  return random_words(key, index / 4)[index % 4];
}

void fill_random_words(const RandomKey& key, uint64_t first, int64_t count, uint32_t* words) {
  std::array<uint32_t, 4> name = stream_name(key);
  constexpr int64_t kBatch = 4 * kLanes;
  uint32_t batch[kBatch];
  int64_t done = 0;
  while (done < count) {
    uint64_t index = first + static_cast<uint64_t>(done);
    int64_t skip = static_cast<int64_t>(index % 4);
    int64_t take = std::min(kBatch - skip, count - done);
    philox_lanes(name, index / 4, static_cast<int>((skip + take + 3) / 4), batch);
    std::copy_n(batch + skip, take, words + done);
    done += take;
  }
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
