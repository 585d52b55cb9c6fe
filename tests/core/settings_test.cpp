#include "core/settings.h"

#include <gtest/gtest.h>
#include <set>
#include <string>

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

TEST(Settings, PeerChoiceAndLibrariesAreRead) {
  EnvironmentValue cuda("STAGECOACH_CUDA_LIBRARY", "my_cuda.so");
  EnvironmentValue hip("STAGECOACH_HIP_LIBRARY", "my_hip.so");
  for (const char* value : {"auto", "on", "off"}) {
    EnvironmentValue peer("STAGECOACH_PEER", value);
    Result<Settings> settings = read_settings();
    ASSERT_TRUE(settings.is_ok());
    EXPECT_EQ(settings->peer, value);
    EXPECT_EQ(settings->cuda_library, "my_cuda.so");
    EXPECT_EQ(settings->hip_library, "my_hip.so");
  }
  EnvironmentValue peer("STAGECOACH_PEER", "yes");
  EXPECT_NE(read_settings().status().message().find("STAGECOACH_PEER is 'yes'"), std::string::npos);
}

TEST(Settings, EveryVariableIsDescribed) {
  std::set<std::string> names;
  for (const SettingInfo& setting : all_settings()) {
    names.insert(setting.name);
    EXPECT_STRNE(setting.values, "");
    EXPECT_STRNE(setting.meaning, "");
  }
  const std::set<std::string> expected = {"NO_COLOR",
                                          "STAGECOACH_CUDA_LIBRARY",
                                          "STAGECOACH_HIP_LIBRARY",
                                          "STAGECOACH_NVML_LIBRARY",
                                          "STAGECOACH_ROCM_SMI_LIBRARY",
                                          "STAGECOACH_LOG",
                                          "STAGECOACH_PEER",
                                          "STAGECOACH_THREADS"};
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace stagecoach
