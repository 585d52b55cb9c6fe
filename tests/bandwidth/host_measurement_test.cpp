#include "tools/bandwidth/host_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"

namespace stagecoach {
namespace {

struct HostCase {
  HostKernel kernel;
  double dram_factor;  ///< of payload: what is read and written by what the pass is there for
};

class HostKernels : public testing::TestWithParam<HostCase> {
 protected:
  std::unique_ptr<HostMeasurement> make(const std::shared_ptr<HostArrays>& arrays) const {
    MeasurementInfo info;
    info.id = host_kernel_name(GetParam().kernel);
    return std::make_unique<HostMeasurement>(std::move(info), GetParam().kernel, 2, arrays);
  }
};

// Results are those of plain code, whatever the threads, and bytes are counted as they are moved.
TEST_P(HostKernels, GiveWhatPlainCodeGives) {
  MeasurementGroup group;
  auto arrays = std::make_shared<HostArrays>(3 * kMiB);
  group.push_back(make(arrays));
  RepetitionOptions sampling = short_options("host").sampling;
  sampling.verify = VerifyMode::kEach;
  sampling.batch_time_ns = 1'000'000;
  MeasurementRecord record = run_group(group, sampling).front();
  ASSERT_TRUE(record.is_ok()) << record.reason;
  EXPECT_GT(record.check.bytes, 0);
  EXPECT_EQ(record.check.wrong_bytes, 0);
  EXPECT_NEAR(record.median(1), GetParam().dram_factor * record.median(0), 1e-9 * record.median(1));
  HostPassBytes bytes = host_pass_bytes(GetParam().kernel, 3 * kMiB);
  EXPECT_EQ(bytes.dram_factor(), GetParam().dram_factor);
  EXPECT_EQ(record.info.payload_bytes, bytes.payload);
}

TEST_P(HostKernels, WrongResultsAreFound) {
  auto arrays = std::make_shared<HostArrays>(kMiB);
  std::unique_ptr<HostMeasurement> measurement = make(arrays);
  ASSERT_TRUE(measurement->prepare().is_ok());
  ASSERT_TRUE(measurement->poison().is_ok());
  ASSERT_TRUE(measurement->run(2, 0).is_ok());
  EXPECT_EQ(measurement->check(0)->wrong_bytes, 0);
  // Reading is told from its source, all else from what it wrote.
  bool reads = GetParam().kernel == HostKernel::kRead;
  (reads ? arrays->source : arrays->target).data()[1000] ^= std::byte{0x10};
  EXPECT_GT(measurement->check(0)->wrong_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, HostKernels,
    testing::Values(HostCase{HostKernel::kRead, 1}, HostCase{HostKernel::kWrite, 1},
                    HostCase{HostKernel::kCopy, 2}, HostCase{HostKernel::kTriad, 3},
                    HostCase{HostKernel::kConvert, 3}, HostCase{HostKernel::kAccumulate, 5}),
    [](const auto& test) { return std::string(host_kernel_name(test.param.kernel)); });

TEST(HostGroups, QuickConvertsAndFullSweepsEveryKernel) {
  for (auto [suite, expected] : {std::pair{"quick", 4u}, {"host", 6u}}) {
    std::unique_ptr<TaskPool> pool = TaskPool::create(1);
    BandwidthOptions options;
    options.suite = suite;
    auto plan = plan_bandwidth({}, options, kGiB, *pool);
    ASSERT_TRUE(plan.is_ok());
    const BandwidthGroup& group = plan->groups.back();
    EXPECT_EQ(group.name, "host");
    EXPECT_EQ(group.ids.size(), expected);
    EXPECT_THAT(group.ids, testing::Contains("host/convert/threads1"));
  }
}

}  // namespace
}  // namespace stagecoach
