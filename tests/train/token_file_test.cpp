#include "train/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/token_file_image.h"
#include "train/token_scan.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TokenFileImage small() {
  TokenFileImage image;
  image.ids = {5, 6, 7, 8, 9, 10, 11, 12, 13, 999};
  image.mask = {false, true, true, false, true, true, true, true, false, true};
  image.documents = {0, 4, 9};
  return image;
}

std::string refusal(const std::string& bytes, int64_t vocabulary = 2000) {
  Result<TokenSource> source = open_token_file(source_of("t.bin", bytes), vocabulary);
  if (!source.is_ok()) return source.status().message();
  Result<std::string> scanned = scan_tokens({*source}, vocabulary);
  return scanned.is_ok() ? "accepted" : scanned.status().message();
}

TEST(TokenFile, HoldsWhatItsHeaderSays) {
  for (uint32_t bits : {16u, 32u}) {
    TokenFileImage image = small();
    image.bits = bits;
    Result<TokenSource> source = open_token_file(source_of("t.bin", image.bytes()), 2000);
    ASSERT_TRUE(source.is_ok()) << source.status().to_string();
    EXPECT_EQ(source->count, 10);
    EXPECT_EQ(source->width_bytes, static_cast<int>(bits / 8));
    EXPECT_EQ(source->vocabulary, 1000);
    EXPECT_EQ(source->tokenizer, "bytes");
    EXPECT_TRUE(source->has_documents);
    EXPECT_EQ(source->documents, image.documents);
    std::vector<int32_t> ids(10);
    std::vector<uint8_t> targets(10);
    ASSERT_TRUE(source->read_ids(0, 10, ids.data()).is_ok());
    ASSERT_TRUE(source->read_targets(0, 10, targets.data()).is_ok());
    EXPECT_EQ(ids, (std::vector<int32_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 999}));
    // As the mask, but for tokens 4 and 9, which begin documents.
    EXPECT_EQ(targets, (std::vector<uint8_t>{0, 1, 1, 0, 0, 1, 1, 1, 0, 0}));
    for (int64_t first = 0; first < 10; ++first) {
      std::vector<uint8_t> part(static_cast<size_t>(10 - first));
      ASSERT_TRUE(source->read_targets(first, 10 - first, part.data()).is_ok());
      EXPECT_EQ(part, (std::vector<uint8_t>(targets.begin() + first, targets.end())));
    }
  }
}

TEST(TokenFile, BareIdsAreTakenAsNanoGptWritesThem) {
  Result<TokenSource> source =
      open_token_file(source_of("n.bin", std::string("\1\0\xff\1\0\xc0", 6)), 65536);
  ASSERT_TRUE(source.is_ok()) << source.status().to_string();
  std::vector<int32_t> ids(3);
  ASSERT_TRUE(source->read_ids(0, 3, ids.data()).is_ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 511, 49152}));
  EXPECT_FALSE(source->has_documents);
  EXPECT_EQ(source->tokenizer, "");
}

// Field report 33.
TEST(TokenFile, RefusesOtherVersionsWidthsAndByteOrders) {
  TokenFileImage image = small();
  image.version = 2;
  EXPECT_THAT(refusal(image.bytes()),
              AllOf(HasSubstr("t.bin"), HasSubstr("version 2"), HasSubstr("reads version 1"),
                    HasSubstr("make it again with stagecoach-prepare")));
  image.version = 1u << 24;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("big endian"));
  image = small();
  image.bits = 8;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("ids of 8 bits; expected 16 or 32"));
  image = small();
  image.vocabulary = 128'256;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("16 bits and a vocabulary of 128256"));
  image.vocabulary = 0;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("vocabulary of 0"));
  EXPECT_THAT(refusal(std::string("\1\0\2\0", 4), 128'256),
              AllOf(HasSubstr("no header"), HasSubstr("128256"), HasSubstr("65535")));
}

TEST(TokenFile, RefusesCutAndLengthenedFiles) {
  std::string whole = small().bytes();
  EXPECT_EQ(refusal(whole), "accepted");
  for (size_t size = 8; size < whole.size(); ++size) {
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("incomplete")) << size;
  }
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("something was added"));
  EXPECT_THAT(refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(refusal("abc"), AllOf(HasSubstr("no header"), HasSubstr("3 bytes is odd")));
  TokenFileImage none;
  EXPECT_THAT(refusal(none.bytes()), HasSubstr("holds no tokens"));
}

TEST(TokenFile, RefusesFieldsThatContradict) {
  std::string bytes = small().bytes();
  std::string claims = bytes;
  claims[31] = '\x7f';  // 2^62 tokens and more
  EXPECT_THAT(refusal(claims), HasSubstr("claims"));
  claims = bytes;
  claims[33] = '\1';  // more documents than tokens
  EXPECT_THAT(refusal(claims), HasSubstr("documents in 10 tokens"));
  for (size_t at : {40u, 44u, 80u, 127u}) {
    claims = bytes;
    claims[at] = '\x4';
    EXPECT_THAT(refusal(claims), HasSubstr("version 1 has not")) << at;
  }
  TokenFileImage image = small();
  image.documents = {1, 4};
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("document 1 of 2 at token 1; expected 0"));
  image.documents = {0, 4, 4};
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("document 3 of 3 at token 4; expected 5 to 9"));
  image.documents = {0, 10};
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("document 2 of 2 at token 10"));
  image.documents = {0, -1};
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("at token -1"));
}

TEST(TokenFile, RefusesOtherFormatsByName) {
  EXPECT_THAT(refusal(std::string("\x93NUMPY\1\0", 8)), HasSubstr("NumPy"));
  EXPECT_THAT(refusal(std::string("\x88\xd8\x34\1\1\0\0\0", 8)), HasSubstr("llm.c"));
  EXPECT_THAT(refusal(std::string("PK\3\4\0\0\0\0", 8)), HasSubstr("ZIP"));
}

// Field report 32: on the host, with file, position, id and vocabulary.
TEST(TokenFile, RefusesIdsBeyondTheVocabulary) {
  TokenFileImage image = small();
  EXPECT_THAT(refusal(image.bytes(), 999), AllOf(HasSubstr("t.bin"), HasSubstr("id 999 at token 9"),
                                                 HasSubstr("vocabulary is 999")));
  image.vocabulary = 999;
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("its own vocabulary is 999"));
  image = small();
  image.bits = 32;
  image.ids[3] = 0xffff'ff9c;  // -100: masks are bits, never ids
  EXPECT_THAT(refusal(image.bytes()), HasSubstr("id 4294967196 at token 3"));
  std::string late(8'000'006, '\0');  // in another chunk than the first
  late[8'000'005] = '\7';
  EXPECT_THAT(refusal(late, 1000),
              AllOf(HasSubstr("id 1792 at token 4000002"), HasSubstr("no header")));
}

}  // namespace
}  // namespace stagecoach
