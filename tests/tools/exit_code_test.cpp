#include "tools/exit_code.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(ExitCode, EveryFailureHasTheCodeOfTheContract) {
  EXPECT_EQ(exit_code_of(StatusCode::kOk), 0);
  for (StatusCode code : {StatusCode::kInvalidArgument, StatusCode::kNotFound,
                          StatusCode::kFailedPrecondition, StatusCode::kUnimplemented,
                          StatusCode::kIo, StatusCode::kInternal, StatusCode::kCancelled}) {
    EXPECT_EQ(exit_code_of(code), 1) << status_code_name(code);
  }
  EXPECT_EQ(exit_code_of(StatusCode::kUnavailable), 2);
  EXPECT_EQ(exit_code_of(StatusCode::kDeviceLost), 2);
  EXPECT_EQ(exit_code_of(StatusCode::kDeadlineExceeded), 2);
  EXPECT_EQ(exit_code_of(StatusCode::kDataLoss), 3);
  EXPECT_EQ(exit_code_of(StatusCode::kResourceExhausted), 4);
}

}  // namespace
}  // namespace stagecoach
