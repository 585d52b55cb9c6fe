// Damaged data files are refused or read, never more than that: seeded random damage, the same in
// every run.
#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "tests/train/data_exercise.h"
#include "tests/train/token_file_image.h"

namespace stagecoach {
namespace {

constexpr auto kMostTime = std::chrono::milliseconds(1500);
constexpr int kMostTries = 20'000;
constexpr int kLeastTries = 200;

class Damage {
 public:
  /// `text` with one to four places changed.
  std::string apply(std::string text) {
    for (size_t count = 1 + below(4); count > 0 && !text.empty(); --count) change(text);
    return text;
  }
  size_t below(size_t end) { return random_() % end; }

 private:
  void change(std::string& text) {
    static const std::string kBytes("\0\1\x7f\x80\xc3\xed\xff\"\\{}[]\n\r:,u", 19);
    size_t at = below(text.size());
    size_t length = 1 + below(std::min<size_t>(16, text.size() - at));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text[at] = kBytes[below(kBytes.size())];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        // A number of the header, or whatever is there.
        at = at / 8 * 8;
        for (size_t i = at; i < std::min(at + 8, text.size()); ++i) {
          text[i] = kBytes[below(7)];
        }
    }
  }
  std::mt19937 random_{20260101};  // NOLINT: the same in every run
};

/// Tries `read` on damaged `texts` and returns how many were read and how many refused.
template <typename Read>
std::pair<int, int> try_all(const std::vector<std::string>& texts, const Read& read) {
  Damage damage;
  auto end = std::chrono::steady_clock::now() + kMostTime;
  int good = 0, tries = 0;
  for (; tries < kMostTries; ++tries) {
    if (tries >= kLeastTries && std::chrono::steady_clock::now() > end) break;
    good += read(damage.apply(texts[damage.below(texts.size())])) ? 1 : 0;
  }
  return {good, tries - good};
}

TEST(DataMutation, TokenFiles) {
  std::vector<std::string> texts;
  for (uint32_t bits : {16u, 32u}) {
    TokenFileImage image;
    image.bits = bits;
    for (uint32_t i = 0; i < 40; ++i) image.ids.push_back(i * 7 % 1000);
    texts.push_back(image.bytes());
    for (size_t i = 0; i < 40; ++i) image.mask.push_back(i % 3 != 0);
    texts.push_back(image.bytes());
    image.documents = {0, 1, 7, 8, 30, 39};
    texts.push_back(image.bytes());
  }
  texts.push_back(std::string("\1\0\2\0\3\0\4\0", 8));
  auto [good, bad] = try_all(texts, [](const std::string& text) {
    return exercise_token_file(std::as_bytes(std::span<const char>(text.data(), text.size())));
  });
  EXPECT_GT(good, 50);
  EXPECT_GT(bad, 50);
}

TEST(DataMutation, JsonLines) {
  std::vector<std::string> texts = {
      "{\"text\": \"one\\n\xc3\xa9\"}\n{\"text\": \"two \\ud83d\\ude00\", \"n\": [1, {\"a\": "
      "null}]}\r\n",
      "{\"prompt\": \"a b\", \"completion\": \"c\"}\n\n{\"prompt\": \"\", \"completion\": \"d\"}\n",
      "\xef\xbb\xbf{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}, {\"role\": "
      "\"user\", "
      "\"content\": \"y\"}, {\"role\": \"assistant\", \"content\": \"z\"}]}\n"};
  auto [good, bad] = try_all(texts, [](const std::string& text) { return exercise_jsonl(text); });
  EXPECT_GT(good, 50);
  EXPECT_GT(bad, 50);
}

// Depth that a recursive reader would not survive.
TEST(DataMutation, DeepJsonIsRefused) {
  std::string deep(1'000'000, '[');
  EXPECT_FALSE(exercise_jsonl("{\"text\": " + deep + "}\n"));
  EXPECT_FALSE(exercise_jsonl("{\"text\": \"a\", \"b\": " + deep));
}

}  // namespace
}  // namespace stagecoach
