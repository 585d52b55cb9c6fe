#include "backends/cpu/cpu_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using testing::HasSubstr;

Result<std::vector<CpuDeviceOptions>> parse(std::string_view text) {
  auto specs = parse_device_specs(text);
  if (!specs.is_ok()) return specs.status();
  return parse_cpu_options(specs.value()[0]);
}

TEST(CpuOptions, Defaults) {
  auto options = parse("cpu:3");
  ASSERT_TRUE(options.is_ok());
  ASSERT_EQ(options->size(), 3u);
  for (const CpuDeviceOptions& one : options.value()) {
    EXPECT_EQ(one.memory_bytes, kCpuDefaultMemoryBytes);
    EXPECT_FALSE(one.pacing.is_paced());
  }
}

TEST(CpuOptions, TheExampleOfTheContract) {
  auto options = parse("cpu:4[memory=64M,flops=20G,speed=1,0.5,1,1,h2d=2G,d2h=2G,latency=20us]");
  ASSERT_TRUE(options.is_ok()) << options.status().to_string();
  ASSERT_EQ(options->size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const CpuDeviceOptions& one = options.value()[i];
    EXPECT_EQ(one.memory_bytes, 64 * kMiB);
    EXPECT_EQ(one.pacing.flop_per_s, 20e9);
    EXPECT_EQ(one.pacing.speed, i == 1 ? 0.5 : 1.0);
    EXPECT_EQ(one.pacing.up_bytes_per_s, 2.0 * kGiB);
    EXPECT_EQ(one.pacing.down_bytes_per_s, 2.0 * kGiB);
    EXPECT_EQ(one.pacing.latency_ns, 20'000);
  }
}

TEST(CpuOptions, OneSpeedIsForAll) {
  auto options = parse("cpu:2[speed=0.5]");
  ASSERT_TRUE(options.is_ok());
  EXPECT_EQ(options.value()[0].pacing.speed, 0.5);
  EXPECT_EQ(options.value()[1].pacing.speed, 0.5);
}

TEST(CpuOptions, SpeedsAboveOneNeedFlops) {
  EXPECT_TRUE(parse("cpu:1[flops=1G,speed=2]").is_ok());
  auto refused = parse("cpu:1[speed=2]");
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("flops="));
}

TEST(CpuOptions, RefusalsNameElementOptionAndFix) {
  struct Case {
    const char* text;
    const char* problem;
  };
  for (const Case& one : std::vector<Case>{
           {"cpu:0", "N from 1 to 64"},
           {"cpu:-1", "N from 1 to 64"},
           {"cpu:65", "N from 1 to 64"},
           {"cpu:99999999999999999999", "N from 1 to 64"},
           {"cpu:two", "N from 1 to 64"},
           {"cpu:2x", "N from 1 to 64"},
           {"cpu:all", "N from 1 to 64"},
           {"cpu:1[memori=1M]", "did you mean 'memory'"},
           {"cpu:1[banana=1]", "the options are memory, pinned, flops"},
           {"cpu:1[memory=1M,2M]", "takes one"},
           {"cpu:1[memory=lots]", "option 'memory'"},
           {"cpu:1[memory=0]", "must be above 0"},
           {"cpu:1[flops=0]", "must be above 0"},
           {"cpu:1[flops=fast]", "option 'flops'"},
           {"cpu:1[h2d=-1]", "option 'h2d'"},
           {"cpu:1[latency=soon]", "option 'latency'"},
           {"cpu:2[flops=1G,speed=1,1,1]", "3 values for 2 devices"},
           {"cpu:3[flops=1G,speed=1,1]", "2 values for 3 devices"},
           {"cpu:1[speed=0]", "numbers above 0"},
           {"cpu:1[speed=-1]", "numbers above 0"},
           {"cpu:1[speed=nan]", "numbers above 0"},
           {"cpu:1[flops=1G,speed=inf]", "numbers above 0"},
           {"cpu:1[speed=half]", "numbers above 0"},
           {"cpu:1[flops=1G,speed=1e-300]", "from 0.001 to 1000"},
           {"cpu:1[flops=1G,speed=1e300]", "from 0.001 to 1000"},
           {"cpu:1[flops=1e-9]", "option 'flops' is 1e-9; it must be from 1000 to"},
           {"cpu:1[h2d=1]", "option 'h2d' is 1; it must be from 1000 to"},
       }) {
    auto options = parse(one.text);
    ASSERT_FALSE(options.is_ok()) << one.text;
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument) << one.text;
    EXPECT_THAT(options.status().message(), HasSubstr(one.problem));
    EXPECT_THAT(options.status().message(), HasSubstr("'" + std::string(one.text) + "'"));
  }
}

}  // namespace
}  // namespace stagecoach
