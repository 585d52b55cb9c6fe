// Lanes that may have so many chunks under way and no more, on the GPU template.
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

#include "core/clock.h"
#include "scheduler/bulk_lane.h"
#include "tests/backends/allocation_count.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

constexpr ByteCount kChunk = 64 * kKiB;
constexpr int kAhead = 3;
constexpr BulkOptions kOptions{BulkMethod::kAlternating, kChunk, kAhead, nullptr, 0};

class BulkLimit : public ::testing::Test {
 protected:
  /// A card whose copies run at this rate; 0: the host's.
  void open(double bytes_per_s, ByteCount size) {
    FakeGpuOptions options;
    options.copy_bytes_per_s = bytes_per_s;
    machine_ = std::make_unique<FakeGpuMachine>(options);
    devices_ = machine_->open("0").value();
    there_ = require_buffer(device().allocate(size, "test"), device(), size, "test").value();
    host_ = require_buffer(device().allocate_pinned(size, "test"), device(), size, "test").value();
    executable_ = device().load_executable(FakeGpuMachine::test_kernels()).value();
    compute_ = device().create_stream({"compute"}).value();
  }
  Device& device() { return *devices_[0]; }
  std::unique_ptr<BulkLane> lane(const BulkOptions& options = kOptions) {
    return BulkLane::create(device(), "up", options).value();
  }
  CopyRequest upload(ByteCount size) {
    return {there_->slice(0, size), host_->slice(0, size), "up"};
  }
  Status keep_busy(int64_t duration_ns) {
    LaunchRequest request;
    request.kernel = executable_->find_kernel("busy_wait").value();
    request.arguments[0] = KernelArgument::of(duration_ns);
    request.argument_count = 1;
    return compute_->launch(request).status();
  }

  std::unique_ptr<FakeGpuMachine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  BufferHandle there_, host_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Stream> compute_;
};

TEST_F(BulkLimit, NoMoreThanAheadAreUnderWayAndSubmittingDoesNotWait) {
  constexpr ByteCount kSize = 64 * kChunk;
  open(0, kSize);
  for (bool goes_up : {true, false}) {
    auto bulk = lane();
    constexpr int64_t kBusyNs = 200'000'000;
    int64_t start_ns = RealClock::instance().now_ns();
    ASSERT_TRUE(keep_busy(kBusyNs).is_ok());
    ASSERT_TRUE(bulk->wait(compute_->mark().value()).is_ok());
    CopyRequest request = upload(kSize);
    if (!goes_up) std::swap(request.target, request.source);
    ASSERT_TRUE(bulk->copy(request).is_ok());
    Timepoint end = bulk->mark().value();
    // All chunks wait for the kernel, and nobody for them.
    EXPECT_LT(RealClock::instance().now_ns() - start_ns, kBusyNs);
    EXPECT_FALSE(*reached(end));
    ASSERT_TRUE(wait_until_reached(end).is_ok());
    EXPECT_TRUE(*reached(end));
    EXPECT_GE(RealClock::instance().now_ns() - start_ns, kBusyNs);
    EXPECT_EQ(machine_->driver().most_copies_queued(), kAhead);
  }
  // Without a limit all of them are, on a host that is not too busy to issue them meanwhile.
  BulkOptions unlimited = kOptions;
  unlimited.ahead = 0;
  auto bulk = lane(unlimited);
  ASSERT_TRUE(keep_busy(200'000'000).is_ok());
  ASSERT_TRUE(bulk->wait(compute_->mark().value()).is_ok());
  ASSERT_TRUE(bulk->copy(upload(kSize)).is_ok());
  ASSERT_TRUE(wait_until_reached(bulk->mark().value()).is_ok());
  EXPECT_GT(machine_->driver().most_copies_queued(), 32);
}

// By the card's own times: how many chunks end between an urgent copy's issue and its end. What is
// held is issued later, so even an engine that serves by order of issue, as the fake's does where
// its threads are late for the gap between chunks, has only those before it that were under way.
TEST_F(BulkLimit, AnUrgentCopyWaitsForNoMoreThanIsUnderWay) {
  constexpr int kChunks = 40;
  open(20e6, kChunks * kChunk);  // 3.3 ms a chunk
  auto bulk = lane();
  auto urgent = device().create_stream({"urgent"}).value();
  std::vector<std::unique_ptr<Event>> ends;
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    ends.push_back(device().create_event({.timing = true}).value());
    ASSERT_TRUE(bulk->copy({there_->slice(chunk * kChunk, kChunk),
                            host_->slice(chunk * kChunk, kChunk), "up"})
                    .is_ok());
    ASSERT_TRUE(bulk->record(*ends.back()).is_ok());
  }
  Timepoint end = bulk->mark().value();
  std::vector<std::unique_ptr<Event>> urgent_ends;
  std::vector<int64_t> issued_ns;
  for (int copy = 0; copy < 5; ++copy) {
    constexpr int64_t kPauseNs = 12'000'000;
    sleep_until_ns(RealClock::instance().now_ns() + kPauseNs);
    ASSERT_TRUE(urgent->copy(upload(4096)).is_ok());
    issued_ns.push_back(RealClock::instance().now_ns());
    urgent_ends.push_back(device().create_event({.timing = true}).value());
    ASSERT_TRUE(urgent->record(*urgent_ends.back()).is_ok());
  }
  ASSERT_TRUE(wait_until_reached(end).is_ok());
  ASSERT_TRUE(urgent->synchronize().is_ok());
  for (size_t copy = 0; copy < urgent_ends.size(); ++copy) {
    int64_t ended_ns = urgent_ends[copy]->timestamp_ns().value();
    int between = 0, before = 0;
    for (const auto& chunk : ends) {
      int64_t at_ns = chunk->timestamp_ns().value();
      if (at_ns < ended_ns) ++before;
      if (at_ns > issued_ns[copy] && at_ns < ended_ns) ++between;
    }
    EXPECT_LT(before, kChunks) << "bulk had run dry";
    EXPECT_LE(between, kAhead) << copy;
  }
}

TEST_F(BulkLimit, AFailureWithChunksHeldEndsEveryWaiter) {
  constexpr ByteCount kSize = 64 * kChunk;
  for (bool is_abandoned : {true, false}) {
    open(20e6, kSize);
    auto bulk = lane();
    // The eighth copy is one that the lane's thread issues.
    if (!is_abandoned) {
      machine_->driver().fail_call(FakeGpuFunction::copy_async, 8, FakeGpuError::kLaunchFailed);
    }
    ASSERT_TRUE(bulk->copy(upload(kSize)).is_ok());
    Timepoint end = bulk->mark().value();
    std::atomic<int> failed = 0;
    std::vector<std::thread> waiters;
    waiters.emplace_back([&] { failed += !BulkLane::hold(*compute_, end).is_ok(); });
    waiters.emplace_back([&] { failed += !wait_until_reached(end).is_ok(); });
    waiters.emplace_back([&] {
      Result<bool> is_over = false;
      while (is_over.is_ok() && !*is_over) {
        is_over = reached(end);
        sleep_until_ns(RealClock::instance().now_ns() + 100'000);
      }
      failed += !is_over.is_ok();
    });
    if (is_abandoned) {
      sleep_until_ns(RealClock::instance().now_ns() + 5'000'000);
      for (Stream* stream : bulk->streams()) stream->abandon(cancelled("enough"));
      bulk->abandon(cancelled("enough"));
    }
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(failed, 3);
    EXPECT_EQ(bulk->status().code(),
              is_abandoned ? StatusCode::kCancelled : StatusCode::kDeviceLost)
        << bulk->status().to_string();
    EXPECT_FALSE(bulk->copy(upload(kChunk)).is_ok());
    EXPECT_FALSE(bulk->mark().is_ok());
    bulk.reset();
    compute_.reset();
    executable_.reset();
    there_.reset();
    host_.reset();
    devices_.clear();
  }
}

// Pieces of state that are pinned and pieces that are not share a lane and its ring.
TEST_F(BulkLimit, PinnedAndPageablePiecesTakeTurns) {
  constexpr ByteCount kPiece = 5 * kChunk / 2, kSize = 16 * kPiece;
  open(200e6, kSize);
  std::vector<uint8_t> memory(kSize), expected(kSize);
  BufferHandle pageable = device().wrap_pageable(memory.data(), kSize, "pageable").value();
  auto piece_of = [&](Buffer& pinned, int piece) {
    return (piece % 3 == 0 ? *pageable : pinned).slice(piece * kPiece, kPiece);
  };
  BulkOptions options = kOptions;
  options.ring_chunks = 3;
  auto up = lane(options), down = lane(options);
  for (ByteCount i = 0; i < kSize; ++i) expected[i] = static_cast<uint8_t>(i * 13 / 5);
  std::memcpy(host_->host_data(), expected.data(), kSize);
  std::memcpy(memory.data(), expected.data(), kSize);
  for (int piece = 0; piece < 16; ++piece) {
    ASSERT_TRUE(
        up->copy({there_->slice(piece * kPiece, kPiece), piece_of(*host_, piece), "up"}).is_ok());
  }
  ASSERT_TRUE(wait_until_reached(up->mark().value()).is_ok());
  std::memset(host_->host_data(), 0, kSize);
  std::memset(memory.data(), 0, kSize);
  for (int piece = 0; piece < 16; ++piece) {
    ASSERT_TRUE(down->copy({piece_of(*host_, piece), there_->slice(piece * kPiece, kPiece), "down"})
                    .is_ok());
  }
  ASSERT_TRUE(wait_until_reached(down->mark().value()).is_ok());
  for (int piece = 0; piece < 16; ++piece) {
    BufferView at = piece_of(*host_, piece);
    EXPECT_EQ(std::memcmp(at.host_data(), expected.data() + at.offset, kPiece), 0) << piece;
  }
  EXPECT_EQ(machine_->driver().pageable_copies(), 0);
  EXPECT_LE(machine_->driver().most_copies_queued(), 3);
}

TEST_F(BulkLimit, NothingIsAllocatedOnceWarm) {
  open(0, 16 * kChunk);
  auto bulk = lane();
  auto event = device().create_event({.timing = true}).value();
  EXPECT_TRUE(settles_without_allocating([&] {
    ASSERT_TRUE(keep_busy(1'000'000).is_ok());
    ASSERT_TRUE(bulk->wait(compute_->mark().value()).is_ok());
    for (int layer = 0; layer < 4; ++layer) {
      ASSERT_TRUE(bulk->copy(upload(16 * kChunk)).is_ok());
      ASSERT_TRUE(bulk->record(*event).is_ok());
    }
    Timepoint end = bulk->mark().value();
    ASSERT_TRUE(BulkLane::hold(*compute_, end).is_ok());
    ASSERT_TRUE(wait_until_reached(end).is_ok());
    ASSERT_TRUE(compute_->synchronize().is_ok());
  }));
}

}  // namespace
}  // namespace stagecoach
