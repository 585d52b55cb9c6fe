#include "train/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/train/token_file_image.h"
#include "train/token_builder.h"
#include "train/token_windows.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Data : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    std::string path = folder_.file(name);
    Status status = write_file_atomically(path, content);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return path;
  }
  static Result<TokenData> read(const std::vector<std::string>& files, int64_t vocabulary = 257,
                                const std::string& tokenizer = "bytes") {
    return read_token_data({files, vocabulary, tokenizer, Packing::kAuto});
  }
  static std::vector<int32_t> ids_of(const TokenData& data) {
    std::vector<int32_t> ids;
    for (const TokenSource& source : data.sources) {
      std::vector<int32_t> here(static_cast<size_t>(source.count));
      EXPECT_TRUE(source.read_ids(0, source.count, here.data()).is_ok());
      ids.insert(ids.end(), here.begin(), here.end());
    }
    EXPECT_EQ(data.count, static_cast<int64_t>(ids.size()));
    return ids;
  }
  std::vector<int32_t> tokens(const std::string& content) {
    Result<TokenData> data = read({file("t.txt", content)});
    EXPECT_TRUE(data.is_ok()) << data.status().to_string();
    return data.is_ok() ? ids_of(*data) : std::vector<int32_t>{};
  }
  static std::string refusal(const std::vector<std::string>& files, int64_t vocabulary = 257,
                             const std::string& tokenizer = "bytes") {
    Result<TokenData> data = read(files, vocabulary, tokenizer);
    return data.is_ok() ? "accepted" : data.status().message();
  }
  TemporaryFolder folder_;
};

TEST_F(Data, BytesAreIdsAndFilesAreSeparated) {
  std::string first = file("a", std::string("a\xff\0z", 4));
  std::string second = file("b", "bc");
  Result<TokenData> with = read({first, second});
  ASSERT_TRUE(with.is_ok());
  EXPECT_EQ(ids_of(*with), (std::vector<int32_t>{'a', 255, 0, 'z', kByteSeparator, 'b', 'c'}));
  EXPECT_EQ(with->digest.size(), 64u);
  EXPECT_EQ(with->packing, Packing::kStream);
  EXPECT_EQ(with->tokenizer, "bytes");
  Result<TokenData> without = read({first, second}, 256);
  ASSERT_TRUE(without.is_ok());
  EXPECT_EQ(ids_of(*without), (std::vector<int32_t>{'a', 255, 0, 'z', 'b', 'c'}));
  EXPECT_NE(without->digest, with->digest);
}

// Field report 79: what is before a document does not tell its first token.
TEST_F(Data, FirstTokenOfAFileIsNoTarget) {
  Result<TokenData> data = read({file("a", "abc"), file("b", "xyz")});
  ASSERT_TRUE(data.is_ok());
  std::vector<int32_t> inputs(6), labels(6);
  ASSERT_TRUE(data->read(0, 6, inputs.data(), labels.data()).is_ok());
  EXPECT_EQ(inputs, (std::vector<int32_t>{'a', 'b', 'c', kByteSeparator, 'x', 'y'}));
  EXPECT_EQ(labels, (std::vector<int32_t>{'b', 'c', kByteSeparator, -1, 'y', 'z'}));
}

// Field report 73: what an editor adds is not learned.
TEST_F(Data, ByteOrderMarkAndCarriageReturnsLeaveTheSameTokens) {
  std::vector<int32_t> plain = tokens("one\ntwo\nthree\n");
  EXPECT_EQ(tokens("one\r\ntwo\r\nthree\r\n"), plain);
  EXPECT_EQ(tokens("\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"), plain);
  EXPECT_EQ(tokens("a\rb\r"), (std::vector<int32_t>{'a', '\r', 'b', '\r'}));
  EXPECT_EQ(tokens("a\r\r\nb"), (std::vector<int32_t>{'a', '\r', '\n', 'b'}));
}

// A CR at the end of one piece of the file and its LF at the beginning of the next.
TEST_F(Data, LineEndsAreFoundAcrossPieces) {
  std::string text;
  std::vector<int32_t> expected;
  for (int64_t i = 0; i < 3 * kMiB / 3; ++i) {
    text += "a\r\n";
    expected.push_back('a');
    expected.push_back('\n');
  }
  EXPECT_EQ(tokens(text), expected);
}

TEST_F(Data, RefusesSixteenBitTextByName) {
  std::string little("\xff\xfeh\0i\0", 6), big("\xfe\xff\0h\0i", 6), bare("h\0i\0 \0t\0", 8);
  for (const std::string& text : {little, big, bare}) {
    EXPECT_THAT(refusal({file("t.txt", text)}), AllOf(HasSubstr("UTF-16"), HasSubstr("t.txt")));
    EXPECT_THAT(refusal({file("t.jsonl", text)}), AllOf(HasSubstr("UTF-16"), HasSubstr("t.jsonl")));
  }
}

// Field report 72: degenerate sizes are refused with tokens found and needed, or train.
TEST_F(Data, RefusesTooShortDataWithTokensFoundAndNeeded) {
  EXPECT_THAT(refusal({file("t.txt", "")}), HasSubstr("t.txt' is empty"));
  EXPECT_THAT(refusal({file("t.txt", "\xef\xbb\xbf")}), HasSubstr("t.txt' is empty"));
  auto windows = [&](const std::string& text) -> std::string {
    TokenData data = read({file("t.txt", text)}).value();
    Result<TokenWindows> made = TokenWindows::create(data, 4, false);
    return made.is_ok() ? "accepted" : made.status().message();
  };
  EXPECT_THAT(windows("a"), HasSubstr("holds 1 tokens; one sequence of 4 and its next token "
                                      "need 5"));
  EXPECT_THAT(windows("abc"), HasSubstr("holds 3 tokens"));
  EXPECT_THAT(windows("abcd"), HasSubstr("holds 4 tokens"));
  EXPECT_EQ(windows("abcde"), "accepted");
}

TEST_F(Data, RefusesUnreadableFilesAndSmallVocabularies) {
  EXPECT_THAT(refusal({folder_.file("none.txt")}), HasSubstr("none.txt"));
  EXPECT_THAT(refusal({folder_.path()}), HasSubstr(folder_.path()));
  EXPECT_THAT(refusal({file("a", "abcdef")}, 255), HasSubstr("vocabulary is 255"));
  EXPECT_NE(refusal({}), "accepted");
  std::string good = file("a", "abcdef"), empty = file("e", "");
  EXPECT_THAT(refusal({good, empty}), HasSubstr("/e' is empty"));
  for (const char* name : {"a.json", "a.parquet", "a.npy", "a.gz", "a.TAR", "a.pt"}) {
    EXPECT_THAT(refusal({file(name, "abcdef")}), HasSubstr("allowed: text")) << name;
  }
}

TEST_F(Data, FilesOfDifferentTokenizersAreNotMixed) {
  TokenFileImage image;
  image.ids = {1, 2, 3};
  image.tokenizer = std::string(32, '\x11');
  std::string prepared = file("p.bin", image.bytes());
  std::string bare = file("n.bin", std::string("\1\0\2\0\3\0", 6));
  std::string text = file("t.txt", "abc");
  EXPECT_THAT(refusal({text, prepared}, 2000), AllOf(HasSubstr("t.txt"), HasSubstr("p.bin"),
                                                     HasSubstr("\"bytes\""), HasSubstr("1111")));
  EXPECT_THAT(refusal({prepared, bare}, 2000), HasSubstr("unknown tokenizer"));
  EXPECT_EQ(refusal({bare, bare}, 2000), "accepted");
  EXPECT_EQ(read({bare}, 2000)->notes.size(), 1u);
  EXPECT_THAT(read({bare}, 2000)->notes.front(), HasSubstr("n.bin' has no header"));
  image.tokenizer = std::string(32, '\0');
  EXPECT_EQ(refusal({text, file("b.bin", image.bytes())}, 2000), "accepted");
  EXPECT_THAT(refusal({file("renamed.txt", image.bytes())}, 2000), HasSubstr("end in .bin"));
}

TEST_F(Data, TokenizerFolderMustBeTheOneOfTheFile) {
  std::string content = "{\"model\":{}}";
  ASSERT_TRUE(make_folders(folder_.file("tok")).is_ok());
  file("tok/tokenizer.json", content);
  std::string tokenizer = folder_.file("tok");
  EXPECT_THAT(refusal({file("t.txt", "abc")}, 2000, tokenizer),
              AllOf(HasSubstr("stagecoach-prepare --tokenizer"), HasSubstr("t.txt")));
  TokenFileImage image;
  image.ids = {1, 2, 3};
  std::string digits = sha256_hex(content.data(), static_cast<ByteCount>(content.size()));
  image.tokenizer.clear();
  for (size_t i = 0; i < digits.size(); i += 2) {
    image.tokenizer += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  std::string right = file("right.bin", image.bytes());
  EXPECT_EQ(refusal({right}, 2000, tokenizer), "accepted");
  EXPECT_EQ(read({right}, 2000, tokenizer)->tokenizer, digits);
  image.tokenizer[0] ^= 1;
  EXPECT_THAT(refusal({file("wrong.bin", image.bytes())}, 2000, tokenizer),
              AllOf(HasSubstr("wrong.bin"), HasSubstr(digits)));
  EXPECT_THAT(refusal({right}, 2000, folder_.file("absent")), HasSubstr("tokenizer.json"));
}

// Field report 51: a change of length or content is seen, wherever it is.
TEST_F(Data, DigestTellsEveryChange) {
  TokenFileImage image;
  image.bits = 32;
  image.ids.assign(5'000'000, 7);  // more than one chunk
  image.mask.assign(image.ids.size(), true);
  image.documents = {0, 100};
  auto digest = [&](const TokenFileImage& changed) {
    Result<TokenData> data = read({file("d.bin", changed.bytes())}, 2000);
    EXPECT_TRUE(data.is_ok()) << data.status().to_string();
    return data.is_ok() ? data->digest : "";
  };
  std::string first = digest(image);
  EXPECT_EQ(digest(image), first);
  TokenFileImage id = image, mask = image, documents = image, longer = image;
  id.ids.back() = 8;
  mask.mask[4'999'999] = false;
  documents.documents[1] = 101;
  longer.ids.push_back(7);
  longer.mask.push_back(true);
  for (const TokenFileImage* changed : {&id, &mask, &documents, &longer}) {
    EXPECT_NE(digest(*changed), first);
  }
}

// A file that is cut or rewritten after it was opened ends in an error, not in a signal.
TEST_F(Data, FileThatChangesMeanwhileIsAnError) {
  std::string path = file("n.bin", std::string(20'000, '\1'));
  Result<TokenData> data = read({path}, 2000);
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  std::vector<int32_t> inputs(8), labels(8);
  ASSERT_TRUE(data->read(9000, 8, inputs.data(), labels.data()).is_ok());
  ASSERT_EQ(::truncate(path.c_str(), 10'000), 0);
  EXPECT_THAT(data->read(9000, 8, inputs.data(), labels.data()).message(),
              AllOf(HasSubstr("n.bin"), HasSubstr("20000")));
  FILE* rewritten = fopen(path.c_str(), "r+");
  ASSERT_NE(rewritten, nullptr);
  ASSERT_EQ(fwrite("\xff\xff\xff\xff", 1, 4, rewritten), 4u);
  ASSERT_EQ(fclose(rewritten), 0);
  EXPECT_THAT(data->read(0, 8, inputs.data(), labels.data()).message(),
              AllOf(HasSubstr("id 65535 at token 0"), HasSubstr("2000")));
}

}  // namespace
}  // namespace stagecoach
