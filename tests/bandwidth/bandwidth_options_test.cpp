#include "tools/bandwidth/bandwidth_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BandwidthOptionLists, AreParsedAndRefusedByOptionAndValue) {
  EXPECT_THAT(parse_size_list("4K,1M", "--sizes").value(), ElementsAre(4 * kKiB, kMiB));
  EXPECT_THAT(parse_size_list("4K:1M:x4", "--sizes").value(),
              ElementsAre(4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB));
  for (const char* bad :
       {"", "4K,", "x", "7", "0", "-4K", "4K:1M:x1", "1M:4K:x4", "4K:1M:4", "4K:1M:x", "4K:1M"}) {
    EXPECT_THAT(parse_size_list(bad, "--sizes").status().message(), HasSubstr("--sizes")) << bad;
  }
  EXPECT_THAT(parse_depth_list("1,8", "--depth").value(), ElementsAre(1, 8));
  for (const char* bad : {"", "0", "1,", "1.5", "2000", "one"}) {
    EXPECT_THAT(parse_depth_list(bad, "--depth").status().message(), HasSubstr("--depth")) << bad;
  }
  EXPECT_THAT(parse_memory_kinds("pinned,pageable", "--mem").value(),
              ElementsAre(MemoryKind::kHostPinned, MemoryKind::kHostPageable));
  EXPECT_THAT(parse_memory_kinds("device", "--mem").status().message(),
              HasSubstr("pinned, registered or pageable"));
}

TEST(BandwidthSuites, AreFoundOrRefusedByName) {
  EXPECT_STREQ(find_bandwidth_suite("quick").value()->name, "quick");
  EXPECT_THAT(find_bandwidth_suite("contenton").status().message(),
              HasSubstr("did you mean 'contention'?"));
  EXPECT_THAT(find_bandwidth_suite("overlp").status().message(),
              HasSubstr("did you mean 'overlap'?"));
  EXPECT_THAT(find_bandwidth_suite("xyzzy").status().message(), HasSubstr("it has quick, full"));
}

TEST(ShortSizes, AreExact) {
  EXPECT_EQ(short_size(kGiB), "1G");
  EXPECT_EQ(short_size(64 * kMiB), "64M");
  EXPECT_EQ(short_size(1536 * kKiB), "1536K");
  EXPECT_EQ(short_size(100), "100");
}

TEST(BandwidthPlans, ListWhatTheyMeasureAndTakeNothing) {
  auto devices = open_devices("cpu:2[memory=64M,h2d=1G,d2h=1G]");
  std::vector<MeasuredDevice> measured = {{devices[0].get(), 0}, {devices[1].get(), 0}};
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
  BandwidthOptions options;
  auto plan = plan_bandwidth(measured, options, kGiB, *pool);
  ASSERT_TRUE(plan.is_ok());
  std::vector<std::string> names;
  double seconds = 0;
  for (const BandwidthGroup& group : plan->groups) {
    names.push_back(group.name);
    seconds += group.expected_s;
    if (group.name == "copy") {
      EXPECT_EQ(group.ids.size(), 12u);
    }
    if (group.name == "host") {
      EXPECT_EQ(group.pinned_bytes, 0);
    }
  }
  EXPECT_THAT(names,
              ElementsAre("copy", "duplex", "together", "compute", "optim", "host", "overlap"));
  EXPECT_LT(seconds, 40);
  EXPECT_EQ(devices[0]->memory_usage()->peak_bytes, 0);
  // Nothing to measure but the host without a device.
  plan = plan_bandwidth({}, options, kGiB, *pool);
  ASSERT_EQ(plan->groups.size(), 2u);
  EXPECT_EQ(plan->groups[0].name, "optim");
  EXPECT_EQ(plan->groups[1].name, "host");
  options.filter = "copy/cpu:1/up";
  plan = plan_bandwidth(measured, options, kGiB, *pool);
  ASSERT_EQ(plan->groups.size(), 1u);
  EXPECT_EQ(plan->groups[0].ids.size(), 3u);
  options.filter = "(";
  EXPECT_THAT(plan_bandwidth(measured, options, kGiB, *pool).status().message(),
              HasSubstr("regular expression"));
  options.filter = "nothing";
  EXPECT_THAT(plan_bandwidth(measured, options, kGiB, *pool).status().message(),
              HasSubstr("--list"));
}

// Little memory: rings shrink instead of failing.
TEST(BandwidthPlans, KeepPinnedMemoryWithinItsLimit) {
  auto devices = open_devices("cpu:2[memory=1G]");
  std::vector<MeasuredDevice> measured = {{devices[0].get(), 0}, {devices[1].get(), 0}};
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  BandwidthOptions options;
  options.suite = "full";
  for (ByteCount limit : {ByteCount{0}, 8 * kMiB}) {
    options.max_pinned = limit;
    auto plan = plan_bandwidth(measured, options, 64 * kMiB, *pool);
    ASSERT_TRUE(plan.is_ok());
    for (const BandwidthGroup& group : plan->groups) {
      EXPECT_LE(group.pinned_bytes, limit > 0 ? limit : 16 * kMiB) << group.name;
    }
  }
}

// A limit is kept or refused, never exceeded in silence; the refusal says what would do.
TEST(BandwidthPlans, RefuseLimitsBelowWhatAMeasurementTakes) {
  auto devices = open_devices("cpu:2[memory=1G]");
  std::vector<MeasuredDevice> measured = {{devices[0].get(), 0}, {devices[1].get(), 0}};
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  BandwidthOptions options;
  auto refusal = [&] { return plan_bandwidth(measured, options, kGiB, *pool).status().message(); };
  options.max_pinned = 1;
  EXPECT_THAT(refusal(), testing::HasSubstr("--max-pinned is 1; copies of 2 devices, up and down, "
                                            "take at least 256K"));
  options.max_pinned = 256 * kKiB;
  EXPECT_EQ(refusal(), "");
  options.max_host = 1;
  EXPECT_THAT(refusal(), testing::HasSubstr("--max-mem is 1; threads of the host go through at "
                                            "least 4M"));
  options.max_host = 4 * kMiB;
  EXPECT_EQ(refusal(), "");
}

// Urgent copies never settle to 2 %, so that each takes its whole warm-up.
TEST(BandwidthPlans, ExpectWarmUpsAsLongAsTheyAre) {
  auto devices = open_devices("cpu:1[memory=64M,h2d=1G,d2h=1G]");
  std::vector<MeasuredDevice> measured = {{devices[0].get(), 0}};
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  BandwidthOptions options;
  options.suite = "urgent";
  options.sampling.repetitions = 3;
  options.sampling.min_time_ns = 20'000'000;
  auto plan = plan_bandwidth(measured, options, kGiB, *pool);
  ASSERT_TRUE(plan.is_ok());
  auto count = static_cast<double>(plan->groups.front().ids.size());
  // 2 s of warm-up and three batches of 0.1 s.
  EXPECT_GE(plan->groups.front().expected_s, 2.3 * count);
  EXPECT_LE(plan->groups.front().expected_s, 3 * count);
}

}  // namespace
}  // namespace stagecoach
