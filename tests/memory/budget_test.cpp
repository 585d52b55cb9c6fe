#include "memory/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "memory/host_guard.h"
#include "memory/host_limits.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

HostNeed need_of(ByteCount trained) {
  HostNeed need;
  need.state.trained = trained;
  need.state.frozen = 100;
  need.state.landing = 20;
  need.boundaries = 3;
  need.staging = 4;
  need.devices = 5;
  return need;
}

TEST(Budget, WhatFitsToTheByteIsTaken) {
  HostNeed need = need_of(1000);
  EXPECT_EQ(need.total(), 1132);
  ByteCount least = 1132 + kHostReserve;
  EXPECT_TRUE(check_host_need(need, {least, "MemAvailable", {}}).is_ok());
  EXPECT_FALSE(check_host_need(need, {least - 1, "MemAvailable", {}}).is_ok());
}

TEST(Budget, RefusalsNameTheNumbersTheLimitAndWhatToChange) {
  HostNeed need = need_of(20 * kGiB);
  HostLimits limits{18 * kGiB, "the control group /sys/fs/cgroup/job", {}};
  Status status = check_host_need(need, limits);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("20.00 GiB training state"));
  EXPECT_THAT(status.message(), HasSubstr("19327352832 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("the control group /sys/fs/cgroup/job"));
  EXPECT_THAT(status.message(), HasSubstr("train.microbatches"));
  EXPECT_THAT(check_host_need(need, limits, "Pray").message(), HasSubstr("Pray, or free 2.25 GiB"));
}

TEST(Budget, NothingIsNegativeWhereNothingIsFree) {
  Status status = check_host_need({}, {0, "the control group /job", {}});
  EXPECT_THAT(status.message(), HasSubstr("0 B (0 bytes) are free"));
  EXPECT_THAT(status.message(), HasSubstr("or free 256.00 MiB"));
}

// Field report 57: the guard looks while a run goes on.
TEST(HostGuardTest, StopsBelowTheFloorAndLooksNoMoreOftenThanItShould) {
  int looked = 0;
  ByteCount free = kHostFloor;
  auto read = [&]() -> Result<HostLimits> {
    ++looked;
    return HostLimits{free, "MemAvailable", {}};
  };
  HostGuard guard(read, 0);
  EXPECT_TRUE(guard.check().is_ok());
  free = kHostFloor - 1;
  Status status = guard.check();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("left by MemAvailable"));
  EXPECT_EQ(looked, 2);
  HostGuard seldom(read, int64_t{1} << 60);
  EXPECT_FALSE(seldom.check().is_ok());
  EXPECT_TRUE(seldom.check().is_ok());
  EXPECT_EQ(looked, 3);
}

struct HostLimitsTest : ::testing::Test {
  void write(const std::string& file, const std::string& text) {
    std::string path = folder.path() + "/sys/fs/cgroup/" + file;
    ASSERT_TRUE(make_folders(std::filesystem::path(path).parent_path().string()).is_ok());
    ASSERT_TRUE(write_file_atomically(path, text).is_ok());
  }
  HostLimits limits() { return internal::host_limits(inputs).value(); }

  TemporaryFolder folder;
  internal::HostLimitInputs inputs{"MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:  8000 kB\n",
                                   "0::/job/part\n",
                                   "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                                   folder.path(),
                                   {},
                                   {},
                                   {}};
};

TEST_F(HostLimitsTest, WithoutLimitsTheKernelSaysWhatIsFree) {
  EXPECT_EQ(limits().free_bytes, 8000 * kKiB);
  EXPECT_THAT(limits().free_source, HasSubstr("MemAvailable"));
  inputs.meminfo = "MemTotal: 9000 kB\n";
  EXPECT_EQ(internal::host_limits(inputs).status().code(), StatusCode::kDataLoss);
}

TEST_F(HostLimitsTest, AControlGroupLeavesItsLimitLessWhatCannotBeDropped) {
  write("job/memory.max", "5000000\n");
  write("job/memory.current", "4000000\n");
  write("job/memory.stat", "anon 1\ninactive_file 1500000\n");
  write("job/part/memory.max", "max\n");
  write("job/part/memory.current", "4000000\n");
  EXPECT_EQ(limits().free_bytes, 2500000);
  EXPECT_THAT(limits().free_source, HasSubstr("/sys/fs/cgroup/job"));
  write("job/memory.current", "9000000\n");
  EXPECT_EQ(limits().free_bytes, 0);
}

TEST_F(HostLimitsTest, Version1IsReadToo) {
  inputs.cgroup = "5:memory:/job\n";
  inputs.mountinfo = "34 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  write("memory/job/memory.limit_in_bytes", "3000000\n");
  write("memory/job/memory.usage_in_bytes", "1000000\n");
  write("memory/job/memory.stat", "total_inactive_file 400000\n");
  EXPECT_EQ(limits().free_bytes, 2400000);
}

// Field report 58: of nested groups the one that leaves the least counts, not the inner one.
TEST_F(HostLimitsTest, TheLeastOfTheAncestryCounts) {
  auto group = [this](const std::string& name, const char* limit, const char* usage) {
    write(name + "/memory.max", limit);
    write(name + "/memory.current", usage);
  };
  group("job", "6000000\n", "5000000\n");
  group("job/part", "3000000\n", "1000000\n");
  EXPECT_EQ(limits().free_bytes, 1000000);
  EXPECT_THAT(limits().free_source, ::testing::EndsWith("/sys/fs/cgroup/job"));
  group("job/part", "1500000\n", "1000000\n");
  EXPECT_EQ(limits().free_bytes, 500000);
  EXPECT_THAT(limits().free_source, ::testing::EndsWith("/sys/fs/cgroup/job/part"));
}

TEST_F(HostLimitsTest, UlimitsCount) {
  inputs.address_space = 3000;
  inputs.data_segment = 2000;
  inputs.lockable = 64 * kKiB;
  EXPECT_EQ(limits().free_bytes, 2000);
  EXPECT_EQ(limits().free_source, "ulimit -d");
  EXPECT_EQ(limits().limited_bytes, 2000);
  inputs.address_space = inputs.data_segment = ByteCount{1} << 50;
  EXPECT_EQ(limits().limited_bytes, ByteCount{1} << 50) << "whatever is free";
  EXPECT_THAT(limits().free_source, ::testing::HasSubstr("MemAvailable"));
  EXPECT_EQ(limits().lockable_bytes, 64 * kKiB);
}

TEST(HostLimits, ThisProcessHasSome) {
  Result<HostLimits> limits = read_host_limits();
  ASSERT_TRUE(limits.is_ok()) << limits.status().to_string();
  EXPECT_GT(limits->free_bytes, 0);
  EXPECT_FALSE(limits->free_source.empty());
}

}  // namespace
}  // namespace stagecoach
