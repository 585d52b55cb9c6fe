#include "core/json.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace stagecoach {
namespace {

std::string refusal(std::string_view text) {
  Result<Json> result = Json::parse(text);
  if (result.is_ok()) return "accepted";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return result.status().message();
}

TEST(Json, BuildsAndPrintsInOrder) {
  Json json;
  json["zeta"] = 1;
  json["alpha"]["inner"] = true;
  json["list"].push_back("text");
  json["list"].push_back(nullptr);
  json["list"].push_back(0.5);
  EXPECT_EQ(json.dump(), R"({"zeta":1,"alpha":{"inner":true},"list":["text",null,0.5]})");
  EXPECT_EQ(json.dump(true),
            "{\n  \"zeta\": 1,\n  \"alpha\": {\n    \"inner\": true\n  },\n  \"list\": [\n"
            "    \"text\",\n    null,\n    0.5\n  ]\n}");
  EXPECT_EQ(Json::object().dump(true), "{}");
  EXPECT_EQ(Json::array().dump(), "[]");
}

TEST(Json, ParsesEveryType) {
  Result<Json> parsed = Json::parse(R"( {"n":null,"t":true,"i":-7,"d":1.5,"s":"a\u00e4\n","l":[1,2],
                                        "o":{"x":1}} )");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_TRUE(parsed->find("n")->is_null());
  EXPECT_TRUE(parsed->find("t")->as_bool());
  EXPECT_EQ(parsed->find("i")->as_integer(), -7);
  EXPECT_EQ(parsed->find("d")->as_number(), 1.5);
  EXPECT_FALSE(parsed->find("d")->is_integer());
  EXPECT_EQ(parsed->find("s")->as_string(), "a\xc3\xa4\n");
  EXPECT_EQ(parsed->find("l")->items().size(), 2u);
  EXPECT_EQ(parsed->find("o")->find("x")->as_number(), 1.0);
  EXPECT_EQ(parsed->find("absent"), nullptr);
  EXPECT_EQ(parsed->find("i")->find("x"), nullptr);
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(Json::parse(R"({"b":1,"a":{"d":2,"c":3}})")->dump(), R"({"b":1,"a":{"d":2,"c":3}})");
}

TEST(Json, IntegersThatDoNotFitBecomeDoubles) {
  Result<Json> largest = Json::parse("9223372036854775807");
  EXPECT_EQ(largest->as_integer(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Json::parse("-9223372036854775808")->as_integer(), std::numeric_limits<int64_t>::min());
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1e3"}) {
    EXPECT_FALSE(Json::parse(text)->is_integer()) << text;
  }
  EXPECT_EQ(Json::parse("18446744073709551616")->as_number(), 18446744073709551616.0);
}

TEST(Json, DoublesRoundTrip) {
  for (double value : {0.1, 1.0, -0.0, 1e300, 5e-324, 3.0e-4, 1.0 / 3.0}) {
    Result<Json> back = Json::parse(Json(value).dump());
    ASSERT_TRUE(back.is_ok());
    EXPECT_FALSE(back->is_integer()) << value;
    EXPECT_EQ(back->as_number(), value);
  }
  EXPECT_EQ(Json(NAN).dump(), "null");
  EXPECT_EQ(Json(INFINITY).dump(), "null");
}

TEST(Json, EscapesTextAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(Json("a\"\\\n\x01").dump(), R"("a\"\\\n\u0001")");
  EXPECT_EQ(Json("\xff").dump(), "\"\xef\xbf\xbd\"");
}

TEST(Json, RefusesDuplicateKeysAtTheirPlace) {
  EXPECT_EQ(refusal("{\"a\": 1,\n  \"a\": 2}"), "line 2, column 3: key 'a' appears twice");
  EXPECT_EQ(refusal(R"({"x\"y":1,"x\"y":2})"), "line 1, column 11: key 'x\"y' appears twice");
  EXPECT_EQ(refusal(R"({"o":{"k":1,"k":1}})"), "line 1, column 13: key 'k' appears twice");
  // The same key in other objects is no duplicate.
  EXPECT_EQ(refusal(R"([{"a":1},{"a":{"a":1}}])"), "accepted");
}

TEST(Json, RefusesFaultsWithLineAndColumn) {
  EXPECT_EQ(refusal("{\"a\": }").substr(0, 17), "line 1, column 7:");
  EXPECT_EQ(refusal("[1,\n2,]").substr(0, 17), "line 2, column 3:");
  for (const char* text : {"", " ", "{", "[1", "{\"a\" 1}", "{a:1}", "'a'", "[1] x", "nul", "01",
                           "// c\n1", "\"\xff\"", "\"a", "{\"a\":1,}", "NaN", "1e999", "+1"}) {
    EXPECT_NE(refusal(text).find("line 1, column"), std::string::npos) << text << refusal(text);
  }
}

TEST(Json, RefusesBottomlessNesting) {
  auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal(nested(256)), "accepted");
  EXPECT_NE(refusal(nested(257)).find("line 1, column 257: nested deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(1 << 20, '[')).find("nested deeper"), std::string::npos);
}

TEST(Json, LargeObjectsParseInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 50000; ++i) {
    text += (i > 0 ? "," : "") + ("\"key" + std::to_string(i)) + "\":" + std::to_string(i);
  }
  text += "}";
  Result<Json> parsed = Json::parse(text);
  ASSERT_TRUE(parsed.is_ok());
  EXPECT_EQ(parsed->members().size(), 50000u);
  EXPECT_EQ(parsed->dump(), text);
}

TEST(Json, NamesItsType) {
  EXPECT_EQ(Json().type_name(), "null");
  EXPECT_EQ(Json(true).type_name(), "true or false");
  EXPECT_EQ(Json(1).type_name(), "integer");
  EXPECT_EQ(Json(1.0).type_name(), "number");
  EXPECT_EQ(Json("x").type_name(), "text");
  EXPECT_EQ(Json::array().type_name(), "list");
  EXPECT_EQ(Json::object().type_name(), "table");
}

}  // namespace
}  // namespace stagecoach
