#include "core/settings.h"

#include <gtest/gtest.h>

#include "environment_value.h"

namespace stagecoach {
namespace {

TEST(Settings, UnsetAndEmptyGiveDefaults) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EnvironmentValue threads("STAGECOACH_THREADS", value);
    EnvironmentValue log("STAGECOACH_LOG", value);
    EnvironmentValue color("NO_COLOR", value);
    Result<Settings> settings = read_settings();
    ASSERT_TRUE(settings.is_ok());
    EXPECT_EQ(settings->threads, 0);
    EXPECT_EQ(settings->log_level, "info");
    EXPECT_FALSE(settings->no_color);
  }
}

TEST(Settings, ReadsValues) {
  EnvironmentValue threads("STAGECOACH_THREADS", "12");
  EnvironmentValue log("STAGECOACH_LOG", "debug");
  EnvironmentValue color("NO_COLOR", "1");
  Result<Settings> settings = read_settings();
  ASSERT_TRUE(settings.is_ok());
  EXPECT_EQ(settings->threads, 12);
  EXPECT_EQ(settings->log_level, "debug");
  EXPECT_TRUE(settings->no_color);
}

TEST(Settings, RefusesBadThreadsNamingVariableAndValue) {
  for (const char* value : {"0", "-1", "1025", "two", "2x", "2.5", " 2", "99999999999999999999"}) {
    EnvironmentValue threads("STAGECOACH_THREADS", value);
    Result<Settings> settings = read_settings();
    ASSERT_FALSE(settings.is_ok()) << value;
    EXPECT_EQ(settings.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(settings.status().message().find("STAGECOACH_THREADS"), std::string::npos);
    EXPECT_NE(settings.status().message().find(value), std::string::npos);
  }
}

TEST(Settings, RefusesBadLogLevels) {
  for (const char* value : {"loud", "INFO", "warn", "1"}) {
    EnvironmentValue log("STAGECOACH_LOG", value);
    Result<Settings> settings = read_settings();
    ASSERT_FALSE(settings.is_ok()) << value;
    EXPECT_NE(settings.status().message().find(value), std::string::npos);
    EXPECT_NE(settings.status().message().find("warning"), std::string::npos);
  }
}

TEST(Settings, EveryVariableIsDescribed) {
  ASSERT_EQ(all_settings().size(), 3u);
  for (const SettingInfo& setting : all_settings()) {
    EXPECT_STRNE(setting.name, "");
    EXPECT_STRNE(setting.values, "");
    EXPECT_STRNE(setting.meaning, "");
  }
}

}  // namespace
}  // namespace stagecoach
