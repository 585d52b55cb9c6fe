#include "core/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "core/file.h"
#include "core/task_pool.h"
#include "environment_value.h"
#include "temporary_folder.h"

namespace stagecoach {
namespace {

using internal::cgroup_cpu_quota;
using internal::combine_thread_limits;

constexpr const char* kVersion2Mount =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1Mount =
    "33 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

/// A made-up /sys/fs/cgroup.
class FakeCgroups {
 public:
  void write(const std::string& file, const std::string& text) {
    std::string path = folder_.path() + "/sys/fs/cgroup/" + file;
    ASSERT_TRUE(make_folders(std::filesystem::path(path).parent_path().string()).is_ok());
    ASSERT_TRUE(write_file_atomically(path, text).is_ok());
  }
  std::optional<double> quota(std::string_view cgroup, std::string_view mountinfo) const {
    return cgroup_cpu_quota(cgroup, mountinfo, folder_.path());
  }

 private:
  TemporaryFolder folder_;
};

TEST(CpuCount, Version2TakesTheLeastOfTheAncestry) {
  FakeCgroups groups;
  groups.write("a/cpu.max", "150000 100000\n");
  groups.write("a/b/cpu.max", "max 100000\n");
  groups.write("a/b/c/cpu.max", "400000 100000\n");
  EXPECT_EQ(groups.quota("0::/a/b/c\n", kVersion2Mount), 1.5);
  EXPECT_EQ(groups.quota("0::/a/b\n", kVersion2Mount), 1.5);
  EXPECT_EQ(groups.quota("0::/\n", kVersion2Mount), std::nullopt);
}

TEST(CpuCount, Version2InAContainerReadsTheMountPoint) {
  FakeCgroups groups;
  groups.write("cpu.max", "50000 100000\n");
  EXPECT_EQ(groups.quota("0::/\n", kVersion2Mount), 0.5);
}

TEST(CpuCount, Version1TakesTheLeastOfTheAncestry) {
  FakeCgroups groups;
  groups.write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  groups.write("cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
  std::string cgroup = "5:memory:/job/step\n4:cpu,cpuacct:/job/step\n0::/\n";
  EXPECT_EQ(groups.quota(cgroup, kVersion1Mount), 3.0);
}

TEST(CpuCount, Version1MountOfAGroupBelowTheTop) {
  FakeCgroups groups;
  groups.write("cpu/cpu.cfs_quota_us", "200000\n");
  groups.write("cpu/cpu.cfs_period_us", "100000\n");
  std::string mount = "33 25 0:28 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
  EXPECT_EQ(groups.quota("4:cpu:/docker/1\n", mount), 2.0);
  EXPECT_EQ(groups.quota("4:cpu:/other\n", mount), 2.0);
}

TEST(CpuCount, NoGroupsOrNonsenseMeanNoQuota) {
  FakeCgroups groups;
  groups.write("cpu.max", "nonsense\n");
  EXPECT_EQ(groups.quota("0::/\n", kVersion2Mount), std::nullopt);
  EXPECT_EQ(groups.quota("", ""), std::nullopt);
  EXPECT_EQ(groups.quota("no colons\n", "no fields\n"), std::nullopt);
}

TEST(CpuCount, TheSmallestLimitCounts) {
  EXPECT_EQ(combine_thread_limits(8, std::nullopt, 0), 8);
  EXPECT_EQ(combine_thread_limits(8, 2.0, 0), 2);
  EXPECT_EQ(combine_thread_limits(8, 1.5, 0), 2);
  EXPECT_EQ(combine_thread_limits(8, 0.2, 0), 1);
  EXPECT_EQ(combine_thread_limits(8, 100.0, 0), 8);
  EXPECT_EQ(combine_thread_limits(8, 4.0, 3), 3);
  EXPECT_EQ(combine_thread_limits(2, std::nullopt, 16), 2);
  EXPECT_EQ(combine_thread_limits(0, std::nullopt, 0), 1);
}

TEST(CpuCount, FollowsSettingAndAffinity) {
  {
    EnvironmentValue threads("STAGECOACH_THREADS", "1");
    EXPECT_EQ(usable_thread_count(), 1);
  }
  EnvironmentValue threads("STAGECOACH_THREADS", nullptr);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(usable_thread_count(), 1);
  EXPECT_LE(usable_thread_count(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_thread_count(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace stagecoach
