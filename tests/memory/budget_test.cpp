#include "memory/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "memory/host_limits.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

double state_bytes(DType dtype, bool is_asynchronous, bool has_several_rounds) {
  return element_bytes({dtype, is_asynchronous, has_several_rounds, 8}, true).total();
}

// The table of the design: one round, several rounds.
TEST(Budget, StateTakesTheBytesOfTheTable) {
  EXPECT_EQ(state_bytes(DType::kBF16, false, false), 14);
  EXPECT_EQ(state_bytes(DType::kBF16, false, true), 16);
  EXPECT_EQ(state_bytes(DType::kBF16, true, false), 16);
  EXPECT_EQ(state_bytes(DType::kBF16, true, true), 20);
  EXPECT_EQ(state_bytes(DType::kF16, false, false), 16);
  EXPECT_EQ(state_bytes(DType::kF16, false, true), 18);
  EXPECT_EQ(state_bytes(DType::kF16, true, false), 18);
  EXPECT_EQ(state_bytes(DType::kF16, true, true), 22);
  EXPECT_EQ(state_bytes(DType::kF32, false, false), 16);
  EXPECT_EQ(state_bytes(DType::kF32, false, true), 16);
  EXPECT_EQ(state_bytes(DType::kF32, true, false), 20);
  EXPECT_EQ(state_bytes(DType::kF32, true, true), 20);
  EXPECT_EQ(element_bytes({DType::kBF16, false, false, 8}, false).total(), 2);
}

TEST(Budget, EverythingIsAddedUpOnce) {
  BudgetRequest request;
  request.blocks = {{1000, true}, {300, true}, {5000, false}};
  request.activation_bytes = 70;
  request.staging_bytes = 7;
  Budget budget = make_budget(request);
  EXPECT_EQ(budget.landing_ring, 2 * 1000 * 2);  // of the largest block that has a gradient
  EXPECT_EQ(budget.host_bytes(), 1300 * 14 + 5000 * 2 + 4000 + 77);
  // High halves, frozen copies, gradients, ring, activations, staging.
  EXPECT_EQ(budget.pinned, 1300 * 2 + 5000 * 2 + 1300 * 2 + 4000 + 77);
  EXPECT_EQ(budget.trainable_elements, 1300);
}

TEST(Budget, RefusalsNameTheNumbersTheLimitAndWhatToChange) {
  BudgetRequest request;
  request.blocks = {{ByteCount{1} << 30, true}};
  request.devices = {{"cuda:0", kGiB, 2 * kGiB}, {"cuda:1", 3 * kGiB, 2 * kGiB}};
  Budget budget = make_budget(request);
  HostLimits limits{18 * kGiB, "the control group /sys/fs/cgroup/job", 2 * kGiB};
  std::vector<std::string> problems = budget_problems(budget, limits, false);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0], HasSubstr("memory of cuda:1"));
  limits.free_bytes = 18 * kGiB - 1;
  problems = budget_problems(budget, limits, true);
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_THAT(problems[0], HasSubstr("14.0 bytes a parameter"));
  EXPECT_THAT(problems[0], HasSubstr("the control group /sys/fs/cgroup/job"));
  EXPECT_THAT(problems[1], HasSubstr("ulimit -l"));
  limits.free_bytes = 18 * kGiB;
  budget.devices.clear();
  EXPECT_TRUE(budget_problems(budget, limits, false).empty());
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

TEST_F(HostLimitsTest, UlimitsCount) {
  inputs.address_space = 3000;
  inputs.data_segment = 2000;
  inputs.lockable = 64 * kKiB;
  EXPECT_EQ(limits().free_bytes, 2000);
  EXPECT_EQ(limits().free_source, "ulimit -d");
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
