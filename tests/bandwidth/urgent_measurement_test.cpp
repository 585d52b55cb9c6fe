#include "tools/bandwidth/urgent_measurement.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/decorated_backend.h"
#include "tests/bandwidth/bad_copies.h"
#include "tests/bandwidth/bandwidth_fixture.h"

namespace stagecoach {
namespace {

/// 32 MiB/s each way: a chunk of 256 KiB takes 8 ms, long beside what threads of a busy host lose.
constexpr double kBytesPerS = 32.0 * kMiB;
constexpr ByteCount kChunk = 256 * kKiB;
constexpr double kChunkMs = kChunk / kBytesPerS * 1e3;

MeasurementRecord measure(BulkMethod method, ByteCount urgent_bytes) {
  auto devices = open_devices("cpu:1[memory=16M,h2d=32M,d2h=32M]");
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  auto memory =
      std::make_shared<TransferMemory>(*devices[0], 2 * kMiB, MemoryKind::kHostPinned, 1, *pool);
  MeasurementInfo info;
  info.id = bulk_method_name(method);
  UrgentShape shape{LinkDirection::kUp, method, kChunk, 0, urgent_bytes};
  MeasurementGroup group;
  group.push_back(std::make_unique<UrgentMeasurement>(std::move(info), memory, shape));
  RepetitionOptions sampling = short_options("urgent").sampling;
  sampling.cv_limit = 1e9;
  sampling.batch_time_ns = 300'000'000;
  sampling.warm_up_limit_ns = 0;
  sampling.repetitions = 3;
  return run_group(group, sampling).front();
}

// An urgent copy waits for the chunks that the copy engine has been given, and no more: one where
// chunks take turns, two where two are issued on its own stream; whole copies make it wait for all.
TEST(UrgentBehindBulk, WaitIsThatOfTheChunksIssued) {
  constexpr ByteCount kUrgent = 64 * kKiB;
  constexpr double kOwnMs = kUrgent / kBytesPerS * 1e3;
  MeasurementRecord turns = measure(BulkMethod::kAlternating, kUrgent);
  ASSERT_TRUE(turns.is_ok()) << turns.reason;
  ASSERT_GT(turns.samples[1].size(), 10u);
  EXPECT_GT(turns.check.bytes, 0);
  if (turns.has_flag(SampleFlag::kOverrun)) GTEST_SKIP() << "the host is too slow for the pace";
  EXPECT_GE(turns.statistics[1].median, kOwnMs * 0.99);
  EXPECT_LE(turns.statistics[1].median, 1.0 * kChunkMs + 1.1 * kOwnMs);
  EXPECT_LE(turns.statistics[1].p95, 2.0 * kChunkMs + 1.1 * kOwnMs);
  MeasurementRecord whole = measure(BulkMethod::kWhole, kUrgent);
  ASSERT_TRUE(whole.is_ok()) << whole.reason;
  // Half of what is queued, on average, which is many chunks.
  EXPECT_GT(whole.statistics[1].median, 4 * kChunkMs);
  // Urgent bytes come out of the link's rate, not on top of it.
  EXPECT_LE(whole.median(2), kBytesPerS / 1e9 * 1.01);
  EXPECT_LE(turns.median(2), kBytesPerS / 1e9 * 1.01);
}

// The time limit holds inside a batch: where bulk or urgent copies never end, and for the one
// measured first, in which bulk is alone.
TEST(UrgentBehindBulk, CopiesThatNeverEndRunOutOfTime) {
  for (const char* label : {"bulk", "urgent"}) {
    auto devices =
        decorate_devices(open_devices("cpu:1[memory=16M,h2d=64M,d2h=64M]"),
                         std::make_shared<BadCopies>(0, label, Verdict::Kind::kNeverCompletes));
    BandwidthOptions options = short_options("urgent");
    options.working_set = 2 * kMiB;
    options.filter = "up/(alternating|one_in_flight)/";
    options.sampling.timeout_ns = 400'000'000;
    BandwidthReport report = run_suite(devices, options);
    ASSERT_FALSE(report.records.empty());
    for (const MeasurementRecord& record : report.records) {
      EXPECT_EQ(record.status, MeasurementStatus::kTimeout) << record.info.id;
      EXPECT_THAT(record.reason, testing::HasSubstr("cpu:0 did not end its copies up"));
    }
    EXPECT_EQ(bandwidth_exit_code(report, false), 5);
  }
}

}  // namespace
}  // namespace stagecoach
