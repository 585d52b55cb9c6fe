#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

/// A random stream as core/random.h names it: two words of key, two of counter, hashed on the host.
struct RandomStream {
  uint64_t key;
  uint64_t counter;
};

/// Four random words, drawn together.
struct RandomWords {
  uint32_t words[4];
};

/// Words number 4 * block to 4 * block + 3.
__device__ inline RandomWords random_words(RandomStream stream, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block);
  uint32_t c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream.counter);
  uint32_t c3 = static_cast<uint32_t>(stream.counter >> 32);
  uint32_t key0 = static_cast<uint32_t>(stream.key);
  uint32_t key1 = static_cast<uint32_t>(stream.key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    uint64_t product1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return RandomWords{{c0, c1, c2, c3}};
}

/// Word number `place` of a block.
__device__ inline uint32_t word_of(const RandomWords& block, int index) {
  // No run-time index into an array: it would move to memory.
  uint32_t low = index & 1 ? block.words[1] : block.words[0];
  uint32_t high = index & 1 ? block.words[3] : block.words[2];
  return index & 2 ? high : low;
}

}  // namespace stagecoach
