#include "core/log.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Log, PrintsFromTheLevelOn) {
  set_log_level("warning");
  testing::internal::CaptureStderr();
  log_info("quiet");
  log_warning("braces {} stay");
  log_error("loud");
  std::string printed = testing::internal::GetCapturedStderr();
  set_log_level("info");
  EXPECT_EQ(printed.find("quiet"), std::string::npos);
  EXPECT_NE(printed.find("warning: braces {} stay\n"), std::string::npos);
  EXPECT_NE(printed.find("error: loud\n"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
