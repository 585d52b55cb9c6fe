#include "core/status.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>

namespace stagecoach {
namespace {

TEST(Status, DefaultIsOkAndHoldsNothing) {
  Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(Status(StatusCode::kOk, "ignored").is_ok());
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    names.insert(status_code_name(static_cast<StatusCode>(code)));
  }
  EXPECT_EQ(names.size(), 13u);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Status, MakersUseTheirCode) {
  EXPECT_EQ(invalid_argument("x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(not_found("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(unavailable("x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(failed_precondition("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(resource_exhausted("x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(unimplemented("x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(data_loss("x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(deadline_exceeded("x").code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled("x").code(), StatusCode::kCancelled);
  EXPECT_EQ(io_error("x").code(), StatusCode::kIo);
  EXPECT_EQ(internal_error("x").code(), StatusCode::kInternal);
}

TEST(Status, PrintsOnlyKnownFieldsOfTheSite) {
  Status status(StatusCode::kDeviceLost, "gone", {"cpu:1", "compute", "launch", "", 7});
  EXPECT_EQ(status.to_string(),
            "device lost: gone (device cpu:1, stream compute, verb launch, sequence 7)");
  EXPECT_EQ(invalid_argument("bad").to_string(), "invalid argument: bad");
}

TEST(Status, ContextGoesBeforeTheMessageAndKeepsCodeAndSite) {
  Status status = Status(StatusCode::kIo, "short write", {"cpu:0", "", "", "", 0});
  Status wrapped = status.with_context("checkpoint");
  EXPECT_EQ(wrapped.message(), "checkpoint: short write");
  EXPECT_EQ(wrapped.code(), StatusCode::kIo);
  EXPECT_EQ(wrapped.site().device, "cpu:0");
  EXPECT_TRUE(Status().with_context("checkpoint").is_ok());
}

TEST(Status, SiteFillsOnlyWhatIsUnknown) {
  Status first = Status(StatusCode::kDataLoss, "nan", {"cpu:0", "", "copy", "", 0});
  Status merged = first.with_site({"cpu:9", "up", "fill", "weights", 3});
  EXPECT_EQ(merged.site().device, "cpu:0");
  EXPECT_EQ(merged.site().stream, "up");
  EXPECT_EQ(merged.site().verb, "copy");
  EXPECT_EQ(merged.site().label, "weights");
  EXPECT_EQ(merged.site().sequence, 3u);
  EXPECT_TRUE(Status().with_site({"cpu:9", "", "", "", 0}).is_ok());
}

TEST(Status, CopiesShareTheFailure) {
  Status status = invalid_argument("bad");
  Status copy = status;
  EXPECT_EQ(&copy.message(), &status.message());
}

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("odd");
  return value / 2;
}

Result<int> quarter(int value) {
  STAGECOACH_ASSIGN_OR_RETURN(int once, half(value));
  STAGECOACH_ASSIGN_OR_RETURN(int twice, half(once));
  return twice;
}

Status check_quarter(int value) {
  STAGECOACH_RETURN_IF_FAILED(quarter(value));
  STAGECOACH_RETURN_IF_ERROR(half(value).status());
  return Status::ok();
}

TEST(Result, CarriesValueOrFailureThroughTheMacros) {
  ASSERT_TRUE(quarter(12).is_ok());
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_TRUE(quarter(12).status().is_ok());
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(check_quarter(4).is_ok());
  EXPECT_FALSE(check_quarter(2).is_ok());
}

TEST(Result, MovesTheValueOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 5);
}

TEST(ResultDeathTest, ValueOfAFailureEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Result<int> result = invalid_argument("bad");
  EXPECT_DEATH((void)result.value(), "internal error: is_ok\\(\\) does not hold");
}

TEST(ResultDeathTest, OkIsNotAFailure) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH((void)Result<int>(Status::ok()), "does not hold");
}

}  // namespace
}  // namespace stagecoach
