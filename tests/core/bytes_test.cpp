#include "core/bytes.h"

#include <gtest/gtest.h>
#include <limits>

namespace stagecoach {
namespace {

TEST(Bytes, AlignsUp) {
  EXPECT_EQ(align_up(0, 64), 0);
  EXPECT_EQ(align_up(1, 64), 64);
  EXPECT_EQ(align_up(64, 64), 64);
  EXPECT_EQ(align_up(65, 64), 128);
}

TEST(Bytes, MultiplyRefusesOverflowAndNegatives) {
  EXPECT_EQ(*checked_multiply(3, 4), 12);
  EXPECT_EQ(*checked_multiply(0, std::numeric_limits<int64_t>::max()), 0);
  EXPECT_FALSE(checked_multiply(int64_t{1} << 32, int64_t{1} << 31).is_ok());
  EXPECT_FALSE(checked_multiply(-1, 2).is_ok());
  EXPECT_FALSE(checked_multiply(2, -1).is_ok());
}

TEST(Bytes, ParsesSizes) {
  EXPECT_EQ(*parse_bytes("0"), 0);
  EXPECT_EQ(*parse_bytes("512"), 512);
  EXPECT_EQ(*parse_bytes("512B"), 512);
  EXPECT_EQ(*parse_bytes("64K"), 64 * kKiB);
  EXPECT_EQ(*parse_bytes("64k"), 64 * kKiB);
  EXPECT_EQ(*parse_bytes("64M"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("64MB"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("64MiB"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("1.5G"), kGiB + kGiB / 2);
  EXPECT_EQ(*parse_bytes("2T"), 2048 * kGiB);
}

TEST(Bytes, RefusesWhatIsNoSizeAndNamesIt) {
  for (const char* text : {"", "M", "-1", "-1M", "12X", "12iB", "12MM", "1 M", "nan", "inf", "1e30",
                           "99999999T", "12MiBs", " 12"}) {
    Result<ByteCount> result = parse_bytes(text);
    ASSERT_FALSE(result.is_ok()) << text;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(result.status().message().find(text), std::string::npos);
  }
}

TEST(Bytes, FormatsForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536 * kKiB), "1.50 MiB");
  EXPECT_EQ(format_bytes(24 * kGiB), "24.00 GiB");
  EXPECT_EQ(format_bytes(5000 * 1024 * kGiB), "5000.00 TiB");
  EXPECT_EQ(format_bytes(-2 * kKiB), "-2.00 KiB");
}

TEST(Bytes, ParsesDurations) {
  EXPECT_EQ(*parse_duration_ns("20us"), 20'000);
  EXPECT_EQ(*parse_duration_ns("5ns"), 5);
  EXPECT_EQ(*parse_duration_ns("1.5ms"), 1'500'000);
  EXPECT_EQ(*parse_duration_ns("60s"), 60'000'000'000);
  EXPECT_EQ(*parse_duration_ns("2"), 2'000'000'000);
  for (const char* text : {"", "us", "-1s", "3m", "3h", "1e12s", "3 s"}) {
    EXPECT_FALSE(parse_duration_ns(text).is_ok()) << text;
  }
}

TEST(Bytes, ParsesRatesInDecimal) {
  EXPECT_EQ(*parse_rate("20G"), 2.0e10);
  EXPECT_EQ(*parse_rate("1.5T"), 1.5e12);
  EXPECT_EQ(*parse_rate("7"), 7.0);
  for (const char* text : {"", "G", "-1G", "2GF", "2Gi"}) {
    EXPECT_FALSE(parse_rate(text).is_ok()) << text;
  }
}

}  // namespace
}  // namespace stagecoach
