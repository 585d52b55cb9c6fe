#include "core/digest.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Digest, KnownAnswers) {
  // FIPS 180-4 examples.
  EXPECT_EQ(sha256_hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, PiecesDoNotMatter) {
  std::string text(100'000, 'a');
  Sha256 digest;
  for (size_t at = 0; at < text.size(); at += 77) {
    digest.update(text.data() + at, static_cast<ByteCount>(std::min<size_t>(77, text.size() - at)));
  }
  Sha256 moved = std::move(digest);
  EXPECT_EQ(moved.hex(), sha256_hex(text.data(), static_cast<ByteCount>(text.size())));
}

TEST(DigestDeathTest, EndsOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Sha256 digest;
  (void)digest.hex();
  EXPECT_DEATH((void)digest.hex(), "does not hold");
}

}  // namespace
}  // namespace stagecoach
