#include "hal/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using testing::HasSubstr;
using Values = std::vector<std::string>;

std::vector<DeviceSpec> parsed(std::string_view text) {
  auto specs = parse_device_specs(text);
  EXPECT_TRUE(specs.is_ok()) << specs.status().to_string();
  return specs.is_ok() ? specs.value() : std::vector<DeviceSpec>{};
}

TEST(DeviceSpec, SplitsElements) {
  auto specs = parsed("cpu:4,cuda:0x2,hip:all, sim:8xrtx4090");
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[0].backend, "cpu");
  EXPECT_EQ(specs[0].which, "4");
  EXPECT_EQ(specs[0].text, "cpu:4");
  EXPECT_EQ(specs[1].which, "0x2");
  EXPECT_EQ(specs[2].which, "all");
  EXPECT_EQ(specs[3].backend, "sim");
  EXPECT_EQ(specs[3].which, "8xrtx4090");
  EXPECT_TRUE(specs[0].options.empty());
}

TEST(DeviceSpec, AnItemWithoutEqualsContinuesTheList) {
  auto specs = parsed("cpu:4[memory=64M,speed=1,0.5,1,1,h2d=2G],cpu:1");
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].options.at("memory"), Values({"64M"}));
  EXPECT_EQ(specs[0].options.at("speed"), Values({"1", "0.5", "1", "1"}));
  EXPECT_EQ(specs[0].options.at("h2d"), Values({"2G"}));
  EXPECT_EQ(specs[0].options.size(), 3u);
  EXPECT_EQ(specs[0].text, "cpu:4[memory=64M,speed=1,0.5,1,1,h2d=2G]");
  EXPECT_EQ(specs[1].which, "1");
}

TEST(DeviceSpec, ValuesMayHoldColonsAndEquals) {
  auto specs = parsed("sim:2x./box:1.json[a=b=c]");
  ASSERT_EQ(specs.size(), 1u);
  EXPECT_EQ(specs[0].which, "2x./box:1.json");
  EXPECT_EQ(specs[0].options.at("a"), Values({"b=c"}));
}

TEST(DeviceSpec, ErrorsNameTheElementAndTheFix) {
  struct Case {
    const char* text;
    const char* element;
    const char* advice;
  };
  for (const Case& one : std::vector<Case>{
           {"cpu4", "'cpu4'", "did you mean 'cpu:4'"},
           {"cpu", "'cpu'", "did you mean 'cpu:1'"},
           {"cpu:2,cuda0", "'cuda0'", "did you mean 'cuda:0'"},
           {"", "''", "element is empty"},
           {"cpu:1,,cpu:2", "''", "element is empty"},
           {"cpu:1,", "''", "element is empty"},
           {":4", "':4'", "before ':'"},
           {"cpu:", "'cpu:'", "after ':'"},
           {"cpu:4[memory=1M", "'cpu:4[memory=1M'", "']' is missing"},
           {"cpu:4 memory=1M]", "'cpu:4 memory=1M]'", "']' without '['"},
           {"cpu:4[memory=1M]x", "'cpu:4[memory=1M]x'", "text follows ']'"},
           {"cpu:4[a=[1]]", "'cpu:4[a=[1]]'", "brackets inside brackets"},
           {"cpu:4[]", "'cpu:4[]'", "option is empty"},
           {"cpu:4[memory=1M,]", "'cpu:4[memory=1M,]'", "option is empty"},
           {"cpu:4[memory]", "'cpu:4[memory]'", "write memory=VALUE"},
           {"cpu:4[memory=]", "'cpu:4[memory=]'", "write memory=VALUE"},
           {"cpu:4[=1M]", "'cpu:4[=1M]'", "has no name"},
           {"cpu:4[a=1,a=2]", "'cpu:4[a=1,a=2]'", "given twice"},
       }) {
    auto specs = parse_device_specs(one.text);
    ASSERT_FALSE(specs.is_ok()) << one.text;
    EXPECT_EQ(specs.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(specs.status().message(), HasSubstr(one.element));
    EXPECT_THAT(specs.status().message(), HasSubstr(one.advice));
  }
}

}  // namespace
}  // namespace stagecoach
