#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "core/file.h"
#include "tests/fuzz/fuzz_targets.h"

namespace stagecoach {
namespace {

/// Inputs of a target: every file of its corpus, those that once failed among them.
std::vector<std::string> corpus_of(const FuzzTarget& target) {
  std::vector<std::string> inputs;
  std::string folder = std::string(STAGECOACH_SOURCE_DIR "/tests/fuzz/corpus/") + target.name;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) inputs.push_back(read_file(path).value());
  return inputs;
}

void feed(const FuzzTarget& target, const std::string& input) {
  target.run({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
}

class FuzzRegression : public testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzRegression, HoldsForTheWholeCorpus) {
  std::vector<std::string> inputs = corpus_of(GetParam());
  EXPECT_GE(inputs.size(), 5u);
  for (const std::string& input : inputs) feed(GetParam(), input);
}

/// Without libFuzzer there is no guidance, but every build gets some damage to look at.
TEST_P(FuzzRegression, HoldsForDamagedInputs) {
  std::mt19937_64 random(7);
  auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::vector<std::string> inputs = corpus_of(GetParam());
  for (int round = 0; round < 4000; ++round) {
    std::string input = inputs[pick(inputs.size())];
    for (size_t edits = 1 + pick(5); edits > 0 && !input.empty(); --edits) {
      size_t at = pick(input.size());
      const std::string& other = inputs[pick(inputs.size())];
      switch (pick(5)) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input.erase(at, 1 + pick(8));
          break;
        case 2:
          input.resize(at);
          break;
        case 3:
          if (!other.empty()) input.insert(at, other, pick(other.size()), 1 + pick(16));
          break;
        default:
          input[at] = "0123456789-.eE[]{}\",: \\"[pick(23)];
          break;
      }
    }
    feed(GetParam(), input);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzRegression,
                         testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace stagecoach
