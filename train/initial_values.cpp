#include "train/initial_values.h"

#include <algorithm>
#include <string_view>

#include "core/random.h"

namespace stagecoach {

namespace {

/// Random numbers of initial weights never meet those of dropout.
constexpr uint32_t kInitializerIteration = 0xffffffffu;

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace

void fill_initial(const ParameterInfo& parameter, uint64_t seed, int64_t first,
                  std::span<float> out, TaskPool& pool) {
  auto count = static_cast<int64_t>(out.size());
  float* data = out.data();
  const Initializer& initializer = parameter.initializer;
  bool is_random = initializer.kind == Initializer::Kind::kNormal ||
                   initializer.kind == Initializer::Kind::kUniform;
  if (!is_random) {
    std::fill_n(data, count, initializer.kind == Initializer::Kind::kOnes ? 1.0f : 0.0f);
    return;
  }
  uint64_t hash = name_hash(parameter.name);
  RandomKey key{seed, kInitializerIteration, static_cast<uint32_t>(hash),
                static_cast<uint32_t>(hash >> 32), 0};
  constexpr int64_t kTile = 4096;
  pool.parallel_for((count + kTile - 1) / kTile, [&](int64_t tile) {
    for (int64_t i = tile * kTile; i < std::min(count, (tile + 1) * kTile); ++i) {
      auto index = static_cast<uint64_t>(first + i);
      double value = initializer.kind == Initializer::Kind::kNormal
                         ? initializer.standard_deviation * random_normal(key, index)
                         : initializer.bound * (2 * random_uniform(key, index) - 1);
      data[i] = static_cast<float>(value);
    }
  });
}

}  // namespace stagecoach
