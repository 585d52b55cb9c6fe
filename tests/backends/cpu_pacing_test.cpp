#include "backends/cpu/pacing.h"
#include "core/clock.h"
#include "tests/backends/cpu_rig.h"

namespace stagecoach {
namespace {

TEST(CpuPacing, CostsOfKernels) {
  CpuPacing pacing;
  EXPECT_FALSE(pacing.is_paced());
  EXPECT_EQ(kernel_cost(pacing, 1e9).duration_ns(123), 123);
  pacing.flop_per_s = 2e9;
  pacing.speed = 0.5;
  EXPECT_TRUE(pacing.is_paced());
  EXPECT_EQ(kernel_cost(pacing, 1e6).duration_ns(123), kMsNs);
  // No count, no pace.
  EXPECT_EQ(kernel_cost(pacing, 0).duration_ns(123), 123);
  pacing.flop_per_s = 0;
  EXPECT_TRUE(pacing.is_paced());
  EXPECT_EQ(kernel_cost(pacing, 1e6).duration_ns(100), 200);
}

TEST(CpuPacing, CostsOfCopies) {
  CpuPacing fast, slow;
  EXPECT_EQ(copy_cost(nullptr, &fast, 1000).duration_ns(77), 77);
  fast.up_bytes_per_s = 2e9;
  fast.down_bytes_per_s = 1e9;
  EXPECT_EQ(copy_cost(nullptr, &fast, 1000).duration_ns(77), 500);
  EXPECT_EQ(copy_cost(&fast, nullptr, 1000).duration_ns(77), 1000);
  fast.latency_ns = 50;
  EXPECT_EQ(copy_cost(nullptr, &fast, 1000).duration_ns(77), 550);
  slow.up_bytes_per_s = 0.5e9;
  slow.latency_ns = 80;
  // Between two devices: the slower link, the longer latency.
  EXPECT_EQ(copy_cost(&fast, &slow, 1000).duration_ns(77), 2080);
  slow.up_bytes_per_s = 0;
  EXPECT_EQ(copy_cost(&fast, &slow, 1000).duration_ns(77), 1080);
  EXPECT_EQ(copy_cost(nullptr, &slow, 1000).duration_ns(77), 157);
}

/// Nominal time of queued work, and the part of it that a busy host added.
struct QueuedTime {
  int64_t duration_ns = 0;
  int64_t overrun_ns = 0;
  int64_t lag_ns = 0;  ///< from its nominal end until the host knew

  int64_t planned_ns() const { return duration_ns - overrun_ns; }
};

class CpuPacedDevice : public CpuRig {
 protected:
  /// Times what `submit(stream)` queues. A kernel ahead of it holds it up until all is queued, so
  /// that submission does not count; a busy host gets a longer one.
  template <typename Submit>
  QueuedTime queued_time(Submit submit, size_t index = 0) {
    for (int64_t head_start_ns = kHeadStartNs;; head_start_ns *= 4) {
      auto stream = new_stream("timed", index);
      launch(*stream, head_start_ns, 0);
      size_t start = record_time(*stream, index);
      DeviceCounters before = device(index).counters();
      submit(*stream);
      size_t end = record_time(*stream, index);
      bool was_held_up = !has_passed(start);
      EXPECT_TRUE(stream->synchronize().is_ok());
      int64_t known_ns = RealClock::instance().now_ns();
      DeviceCounters after = device(index).counters();
      if (!was_held_up && head_start_ns < kLongestHeadStartNs) continue;
      EXPECT_TRUE(was_held_up) << "queueing took " << head_start_ns << " ns";
      int64_t overrun_ns =
          after.overrun_ns + after.copy_overrun_ns - before.overrun_ns - before.copy_overrun_ns;
      return {time_ns(end) - time_ns(start), overrun_ns, known_ns - time_ns(end)};
    }
  }
  QueuedTime kernel_time(double flop, int64_t work_ns = 0, size_t index = 0) {
    return queued_time([&](Stream& stream) { launch(stream, work_ns, flop); }, index);
  }

  static constexpr int64_t kHeadStartNs = 20 * kMsNs;
  static constexpr int64_t kLongestHeadStartNs = 5'000 * kMsNs;
};

// P3: nominal times are exact, whatever the host does in between.
TEST_F(CpuPacedDevice, P3_KernelsTakeTheirFlopOverTheRate) {
  open("cpu:2[memory=1M,flops=1G,speed=1,0.5]");
  EXPECT_EQ(kernel_time(20e6).planned_ns(), 20 * kMsNs);
  EXPECT_EQ(kernel_time(40e6).planned_ns(), 40 * kMsNs);
  EXPECT_EQ(kernel_time(20e6, 0, 1).planned_ns(), 40 * kMsNs);
}

// P3: the host sees the end no earlier than the nominal one.
TEST_F(CpuPacedDevice, P3_RealTimeFollowsNominalTime) {
  open("cpu:1[memory=1M,flops=1G]");
  auto stream = new_stream();
  int64_t start_ns = RealClock::instance().now_ns();
  for (int i = 0; i < 5; ++i) {
    launch(*stream, 0, 10e6);
    size_t end = record_time(*stream);
    ASSERT_TRUE(stream->synchronize().is_ok());
    EXPECT_GE(RealClock::instance().now_ns(), time_ns(end) - kShortestSleepNs);
  }
  EXPECT_GE(RealClock::instance().now_ns() - start_ns, 50 * kMsNs - kShortestSleepNs);
}

// P3: many operations shorter than a wake-up cost what they should, not a wake-up each.
TEST_F(CpuPacedDevice, P3_TinyOperationsDoNotAccumulateLag) {
  open("cpu:1[memory=1M,flops=1G]");
  constexpr int kCount = 20'000;
  constexpr int64_t kEachNs = 5'000;
  QueuedTime time = queued_time([&](Stream& stream) {
    for (int i = 0; i < kCount; ++i) launch(stream, 0, static_cast<double>(kEachNs));
  });
  EXPECT_EQ(time.planned_ns(), kCount * kEachNs);
  // One wake-up (at least 50 us) an operation would end 900 ms late; a busy host wakes late once.
  EXPECT_LT(time.lag_ns, kCount * kShortestSleepNs / 2);
}

// P4: real work longer than the nominal cost moves the end and is counted.
TEST_F(CpuPacedDevice, P4_OverrunIsCounted) {
  open("cpu:1[memory=1M,flops=1G]");
  QueuedTime time = kernel_time(1e6, 10 * kMsNs);
  EXPECT_GE(time.duration_ns, 10 * kMsNs);
  EXPECT_GE(time.overrun_ns, 9 * kMsNs);
  EXPECT_LE(time.overrun_ns, device().counters().compute_busy_ns);
  EXPECT_EQ(time.planned_ns(), kMsNs);
}

// P4: copies count apart.
TEST_F(CpuPacedDevice, P4_CopyOverrunIsCountedApart) {
  open("cpu:1[memory=64M,h2d=1000G]");
  BufferHandle memory = device_buffer(32 * kMiB), host = pinned_buffer(32 * kMiB);
  auto stream = new_stream();
  ASSERT_TRUE(stream->copy({memory->view(), host->view(), "too fast"}).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  EXPECT_GT(device().counters().copy_overrun_ns, 0);
  EXPECT_EQ(device().counters().overrun_ns, 0);
  EXPECT_EQ(device().counters().compute_busy_ns, 0);
}

// P5: kernels occupy the device when flops paces them.
TEST_F(CpuPacedDevice, P5_KernelsOfAllStreamsShareTheDevice) {
  open("cpu:1[memory=1M,flops=1G]");
  auto first = new_stream("first");
  auto second = new_stream("second");
  int64_t start_ns = RealClock::instance().now_ns();
  launch(*first, 0, 20e6);
  launch(*second, 0, 20e6);
  size_t first_end = record_time(*first), second_end = record_time(*second);
  ASSERT_TRUE(device().synchronize().is_ok());
  EXPECT_GE(std::max(time_ns(first_end), time_ns(second_end)) - start_ns, 40 * kMsNs);
  EXPECT_GE(std::abs(time_ns(first_end) - time_ns(second_end)), 20 * kMsNs);
}

// Without flops, speed stretches what kernels really take.
TEST_F(CpuPacedDevice, P3_SpeedAloneStretchesRealTime) {
  open("cpu:1[memory=1M,speed=0.25]");
  QueuedTime time = kernel_time(0, 10 * kMsNs);
  EXPECT_GE(time.duration_ns, 40 * kMsNs);
  EXPECT_EQ(time.overrun_ns, 0);
}

// P3: copies cost latency + bytes / rate; the difference of two sizes is the rate's part.
TEST_F(CpuPacedDevice, P3_CopiesTakeLatencyPlusBytesOverRate) {
  open("cpu:1[memory=16M,h2d=64M,d2h=32M,latency=2ms]");
  BufferHandle memory = device_buffer(2 * kMiB), host = pinned_buffer(2 * kMiB);
  auto duration_ns = [&](const CopyRequest& request) {
    return queued_time([&](Stream& stream) { EXPECT_TRUE(stream.copy(request).is_ok()); })
        .planned_ns();
  };
  constexpr int64_t kMiBUpNs = 1'000'000'000 / 64;
  EXPECT_EQ(duration_ns({memory->view(), host->view(), "up"}), 2 * kMiBUpNs + 2 * kMsNs);
  EXPECT_EQ(duration_ns({memory->slice(0, kMiB), host->slice(0, kMiB), "half up"}),
            kMiBUpNs + 2 * kMsNs);
  EXPECT_EQ(duration_ns({host->view(), memory->view(), "down"}), 4 * kMiBUpNs + 2 * kMsNs);
}

// P3: a wait carries nominal time from one stream, and device, to another.
TEST_F(CpuPacedDevice, P3_WaitsCarryNominalTime) {
  open("cpu:2[memory=1M,flops=1G]");
  auto second = new_stream("second", 1);
  size_t first_end = 0, second_end = 0;
  int64_t before_ns = 0;
  queued_time([&](Stream& first) {
    ASSERT_TRUE(second->synchronize().is_ok());
    before_ns = device(1).counters().overrun_ns;
    launch(first, 0, 30e6);
    first_end = record_time(first, 0);
    ASSERT_TRUE(second->wait(first.mark().value()).is_ok());
    launch(*second, 0, 10e6);
    second_end = record_time(*second, 1);
  });
  ASSERT_TRUE(second->synchronize().is_ok());
  EXPECT_EQ(time_ns(second_end) - time_ns(first_end),
            10 * kMsNs + device(1).counters().overrun_ns - before_ns);
}

// Without pacing options, times are real.
TEST_F(CpuPacedDevice, P1_UnpacedTimesAreReal) {
  open("cpu:1[memory=1M]");
  QueuedTime time = kernel_time(1e15, 5 * kMsNs);
  EXPECT_GE(time.duration_ns, 5 * kMsNs);
  EXPECT_LT(time.duration_ns, 5000 * kMsNs);  // 1e15 FLOP would take days at any pace
  EXPECT_EQ(time.overrun_ns, 0);
  EXPECT_GE(device().counters().compute_busy_ns, 5 * kMsNs);
}

// E4: a worker that sleeps until a nominal end far away is woken.
TEST_F(CpuPacedDevice, E4_AbandonWakesAPacedSleep) {
  open("cpu:1[memory=1M,flops=1G]");
  auto stream = new_stream();
  int64_t start_ns = RealClock::instance().now_ns();
  launch(*stream, 0, 100e9);  // 100 s
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  stream->abandon(cancelled("stop"));
  stream.reset();
  EXPECT_LT(RealClock::instance().now_ns() - start_ns, 20'000 * kMsNs);
}

}  // namespace
}  // namespace stagecoach
