#include "train/jsonl_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/token_file_image.h"
#include "train/text_encoding.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Tokens with targets in capital letters: "abC" is C to be predicted after a, b. Documents are
/// divided by "/", the separator is "|" when it is no target and "!" when it is one.
std::string shown(const std::string& text, bool has_separator = true) {
  Result<TokenSource> source = read_jsonl_tokens(*source_of("f.jsonl", text), {has_separator});
  if (!source.is_ok()) return source.status().message();
  EXPECT_TRUE(source->has_documents);
  std::vector<int32_t> ids(static_cast<size_t>(source->count));
  EXPECT_TRUE(source->read_ids(0, source->count, ids.data()).is_ok());
  std::vector<uint8_t> mask(ids.size(), 1);
  // Without what documents mask on top.
  TokenSource plain = *source;
  plain.documents.clear();
  EXPECT_TRUE(plain.read_targets(0, plain.count, mask.data()).is_ok());
  std::string out;
  size_t document = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (document < source->documents.size() &&
        source->documents[document] == static_cast<int64_t>(i)) {
      out += document++ == 0 ? "" : "/";
    }
    char letter = static_cast<char>(ids[i]);
    out += ids[i] == 256  ? (mask[i] != 0 ? '!' : '|')
           : mask[i] != 0 ? static_cast<char>(toupper(letter))
                          : letter;
  }
  return out;
}

TEST(Jsonl, TextIsAllToBePredicted) {
  EXPECT_EQ(shown("{\"text\": \"ab\"}\n{\"id\": 7, \"text\": \"c\\nd\"}\n"), "AB!/C\nD!");
  EXPECT_EQ(shown("{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}", false), "AB/C");
  EXPECT_EQ(shown("{\"text\": \"ab\"}\n{\"text\": \"\"}", true), "AB!/!");
}

TEST(Jsonl, OnlyTheCompletionIsToBePredicted) {
  EXPECT_EQ(shown("{\"prompt\": \"q: \", \"completion\": \"yes\"}\n"), "q: YES!");
  EXPECT_EQ(shown("{\"completion\": \"yes\", \"prompt\": \"q: \"}\n", false), "q: YES");
}

TEST(Jsonl, OnlyWhatTheAssistantSaysIsToBePredicted) {
  std::string chat =
      "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
      "\"content\": \"u\"}, {\"content\": \"a\", \"role\": \"assistant\"}, {\"role\": \"user\", "
      "\"content\": \"v\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
  EXPECT_EQ(shown(chat),
            "<|system|>\ns\n<|user|>\nu\n<|assistant|>\nA!<|user|>\nv\n<|assistant|>\nB!");
  EXPECT_EQ(shown(chat, false),
            "<|system|>\ns\n<|user|>\nu\n<|assistant|>\nA\n<|user|>\nv\n<|assistant|>\nB\n");
}

// Field report 73: what editors add changes nothing; inside of strings it is text.
TEST(Jsonl, LineEndsMarksAndBlankLinesDoNotMatter) {
  std::string plain = shown("{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n");
  EXPECT_EQ(plain, "A!/B!/C!");
  EXPECT_EQ(shown("{\"text\":\"a\"}\r\n{\"text\":\"b\"}\r\n{\"text\":\"c\"}\r\n"), plain);
  EXPECT_EQ(shown("\xef\xbb\xbf{\"text\":\"a\"}\r\n{\"text\":\"b\"}\r\n{\"text\":\"c\"}\r\n"),
            plain);
  EXPECT_EQ(shown("{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}"), plain);
  EXPECT_EQ(shown("\n{\"text\":\"a\"}\n \t\n{\"text\":\"b\"}\n\r\n{\"text\":\"c\"}\n\n"), plain);
  EXPECT_EQ(shown("{\"text\":\"a\\r\\nb\"}\n"), "A\r\nB!");
}

// Field report 74: file, physical line, what is expected and what was found.
TEST(Jsonl, RefusesRecordsByLineAndKeys) {
  std::string good = "{\"text\": \"a\"}\n\n";
  auto refused = [&](const std::string& line) { return shown(good + line + "\n" + good); };
  EXPECT_THAT(refused("{\"txt\": \"a\"}"),
              AllOf(StartsWith("'f.jsonl' line 3 "), HasSubstr("the keys \"txt\""),
                    HasSubstr("expected one of: \"text\"")));
  EXPECT_THAT(refused("{\"text \": \"a\"}"), HasSubstr("the keys \"text \""));
  EXPECT_THAT(refused("{\"text\": null}"), HasSubstr("line 3 has null as \"text\"; expected text"));
  EXPECT_THAT(refused("{\"text\": 7}"), HasSubstr("has integer as \"text\""));
  EXPECT_THAT(refused("[\"a\"]"), HasSubstr("line 3 is a list; expected an object"));
  EXPECT_THAT(refused("{\"text\": \"a\""), HasSubstr("line 3 is not JSON"));
  EXPECT_THAT(refused("{\"text\": \"a\"} x"), HasSubstr("line 3 is not JSON"));
  EXPECT_THAT(refused("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("appears twice"));
  EXPECT_THAT(refused("{}"), HasSubstr("no keys"));
  EXPECT_THAT(refused("{\"text\": \"a\", \"messages\": []}"), HasSubstr("expected one of"));
  EXPECT_THAT(refused("{\"prompt\": \"a\", \"completion\": \"b\"}"), HasSubstr("another kind"));
  EXPECT_THAT(shown("{\"prompt\": \"a\"}"), HasSubstr("line 1 has no \"completion\""));
  EXPECT_THAT(shown("{\"messages\": []}"), HasSubstr("an empty list"));
  EXPECT_THAT(shown("{\"messages\": [7]}"), HasSubstr("message 1 is integer"));
  EXPECT_THAT(shown("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"bot\", "
                    "\"content\": \"b\"}]}"),
              AllOf(HasSubstr("message 2 has the role \"bot\""), HasSubstr("assistant")));
  EXPECT_THAT(shown("{\"messages\": [{\"role\": \"user\", \"content\": null}]}"),
              HasSubstr("message 1 has null as \"content\""));
  EXPECT_THAT(shown("\n \n"), HasSubstr("is empty"));
  EXPECT_THAT(shown(""), HasSubstr("is empty"));
}

// Field report 75: line and byte.
TEST(Jsonl, RefusesBytesThatAreNotUtf8) {
  for (const char* bytes : {"\xe6", "\xd6\xd0", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    std::string text = std::string("{\"text\": \"a\"}\n{\"text\": \"") + bytes + "\"}\n";
    EXPECT_THAT(shown(text), HasSubstr("line 2 is not UTF-8 at its byte 11")) << text;
  }
  EXPECT_THAT(shown("{\"text\": \"\\ud800\"}"), HasSubstr("line 1 is not JSON"));
  EXPECT_THAT(shown(std::string("{\"text\": \"a\0b\"}", 15)), HasSubstr("line 1 is not JSON"));
  EXPECT_EQ(shown("{\"text\": \"\\u0000\"}", false), std::string("\0", 1));
  EXPECT_EQ(first_invalid_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"), -1);
}

// Field report 76: one record of many megabytes is read in time that grows with its size.
TEST(Jsonl, LongLinesAreReadWhole) {
  std::string text = "{\"text\": \"" + std::string(static_cast<size_t>(20 * kMiB), 'a') + "\"}\n";
  Result<TokenSource> source = read_jsonl_tokens(*source_of("f.jsonl", text), {true});
  ASSERT_TRUE(source.is_ok()) << source.status().to_string();
  EXPECT_EQ(source->count, 20 * kMiB + 1);
}

}  // namespace
}  // namespace stagecoach
