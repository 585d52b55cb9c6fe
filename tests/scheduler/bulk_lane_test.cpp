#include "scheduler/bulk_lane.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

#include "backends/register_backends.h"
#include "backends/sim/sim_backend.h"
#include "scheduler/transfer_probe.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

constexpr BulkMethod kMethods[] = {BulkMethod::kAlternating, BulkMethod::kSharedStream,
                                   BulkMethod::kOneInFlight, BulkMethod::kWhole};

std::vector<std::unique_ptr<Device>> open(const std::string& spec) {
  auto devices = built_in_backends().open_devices(spec);
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  return std::move(devices).value();
}

BufferHandle on_device(Device& device, ByteCount size) {
  return require_buffer(device.allocate(size, "test"), device, size, "test").value();
}
BufferHandle on_host(Device& device, ByteCount size) {
  return require_buffer(device.allocate_pinned(size, "test"), device, size, "test").value();
}

// Up to the device and down again by way of a second lane that waits for the first.
void expect_every_byte_in_order(Device& device) {
  constexpr ByteCount kSize = 3 * kMiB + 12345;
  BufferHandle source = on_host(device, kSize), target = on_host(device, kSize);
  BufferHandle there = on_device(device, kSize);
  auto* bytes = reinterpret_cast<uint8_t*>(source->host_data());
  for (BulkMethod method : kMethods) {
    for (int ahead : {0, 3}) {
      SCOPED_TRACE(bulk_method_name(method));
      auto urgent = device.create_stream({"urgent"}).value();
      BulkOptions options{method, 256 * kKiB, ahead, nullptr, 0};
      if (method == BulkMethod::kSharedStream) options.urgent = urgent.get();
      auto up = BulkLane::create(device, "up", options).value();
      auto down = BulkLane::create(device, "down", options).value();
      for (ByteCount i = 0; i < kSize; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + ahead);
      std::memset(target->host_data(), 0, kSize);
      auto compute = device.create_stream({"compute"}).value();
      auto event = device.create_event({.timing = true}).value();
      ASSERT_TRUE(up->copy({there->view(), source->view(), "up"}).is_ok());
      ASSERT_TRUE(up->record(*event).is_ok());
      Timepoint landed = up->mark().value();
      // A consumer between the two changes the first byte.
      ASSERT_TRUE(BulkLane::hold(*compute, landed).is_ok());
      ASSERT_TRUE(compute->fill({there->view().slice(0, 1), 0xAB, 1, "change"}).is_ok());
      ASSERT_TRUE(down->wait(compute->mark().value()).is_ok());
      ASSERT_TRUE(down->copy({target->view(), there->view(), "down"}).is_ok());
      ASSERT_TRUE(wait_until_reached(down->mark().value()).is_ok());
      EXPECT_TRUE(event->timestamp_ns().is_ok());
      bytes[0] = 0xAB;
      EXPECT_EQ(std::memcmp(target->host_data(), source->host_data(), kSize), 0);
    }
  }
}

TEST(BulkLane, EveryMethodMovesEveryByteInOrder) {
  expect_every_byte_in_order(*open("cpu:1")[0]);
}

TEST(BulkLane, EveryMethodMovesEveryByteInOrderOnTheGpuTemplate) {
  FakeGpuMachine machine;
  auto devices = machine.open("0").value();
  expect_every_byte_in_order(*devices[0]);
}

// Pageable memory on both ends, by way of a ring of two or three chunks.
TEST(BulkLane, PageableMemoryGoesThroughARing) {
  auto devices = open("cpu:1[h2d=2G,d2h=2G]");
  Device& device = *devices[0];
  constexpr ByteCount kSize = 5 * kMiB + 4321;
  std::vector<uint8_t> source(kSize), target(kSize);
  std::iota(source.begin(), source.end(), uint8_t{1});
  BufferHandle from = device.wrap_pageable(source.data(), kSize, "source").value();
  BufferHandle to = device.wrap_pageable(target.data(), kSize, "target").value();
  BufferHandle there = on_device(device, kSize);
  for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kOneInFlight}) {
    for (int ring_chunks : {2, 3}) {
      SCOPED_TRACE(bulk_method_name(method));
      std::fill(target.begin(), target.end(), uint8_t{0});
      BulkOptions options{method, 640 * kKiB, 0, nullptr, ring_chunks};
      auto up = BulkLane::create(device, "up", options).value();
      auto down = BulkLane::create(device, "down", options).value();
      ASSERT_TRUE(up->copy({there->view(), from->view(), "up"}).is_ok());
      // No stream can wait for what a ring holds: the lane's own thread does.
      ASSERT_TRUE(down->wait(up->mark().value()).is_ok());
      ASSERT_TRUE(down->copy({to->view(), there->view(), "down"}).is_ok());
      ASSERT_TRUE(wait_until_reached(down->mark().value()).is_ok());
      EXPECT_EQ(target, source);
    }
  }
}

TEST(BulkLane, AbandoningWakesWhoeverWaits) {
  auto devices = open("cpu:1[h2d=1M]");
  Device& device = *devices[0];
  BufferHandle source = on_host(device, 8 * kMiB), target = on_device(device, 8 * kMiB);
  for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kOneInFlight}) {
    auto lane = BulkLane::create(device, "up", {method, kMiB, 0, nullptr, 0}).value();
    ASSERT_TRUE(lane->copy({target->view(), source->view(), "up"}).is_ok());
    Timepoint landed = lane->mark().value();
    Status stop = cancelled("enough");
    for (Stream* stream : lane->streams()) stream->abandon(stop);
    lane->abandon(stop);
    EXPECT_FALSE(wait_until_reached(landed).is_ok());
  }
}

TEST(BulkLane, SimulatedDevicesRefuseWhatNeedsAThread) {
  SimMachineProfile profile;
  profile.cards.push_back(*find_sim_card("rtx4090"));
  auto devices = open_sim_devices(std::make_shared<SimMachine>(std::move(profile)));
  for (BulkMethod method : kMethods) {
    auto urgent = devices[0]->create_stream({"urgent"}).value();
    BulkOptions options{method, kMiB, 0, nullptr, 0};
    if (method == BulkMethod::kSharedStream) options.urgent = urgent.get();
    StatusCode code = BulkLane::create(*devices[0], "up", options).status().code();
    bool needs_thread = method == BulkMethod::kSharedStream || method == BulkMethod::kOneInFlight;
    EXPECT_EQ(code, needs_thread ? StatusCode::kUnimplemented : StatusCode::kOk);
  }
}

/// A paced link of 200 MiB/s: a chunk takes 5 ms, long compared with a busy host's hiccups.
class SlowTransferProbe : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kChunkNs = 5'000'000;

  Result<TransferProbeResult> run(BulkMethod method, int urgent_copies, int ahead = 0,
                                  bool splits = false) {
    TransferProbe probe;
    probe.splits = splits;
    probe.up = GetParam();
    probe.method = method;
    probe.chunk_bytes = kMiB;
    probe.ahead = ahead;
    probe.bulk_bytes = 64 * kMiB;
    probe.urgent_copies = urgent_copies;
    probe.urgent_interval_ns = 4 * kChunkNs;
    ProbeMemory memory{device_->view().slice(0, 16 * kMiB), host_->view().slice(0, 16 * kMiB),
                       device_->view().slice(16 * kMiB, kMiB),
                       host_->view().slice(16 * kMiB, kMiB)};
    return run_transfer_probe(*devices_[0], memory, probe);
  }

  std::vector<std::unique_ptr<Device>> devices_ = open("cpu:1[h2d=200M,d2h=200M]");
  BufferHandle device_ = on_device(*devices_[0], 17 * kMiB);
  BufferHandle host_ = on_host(*devices_[0], 17 * kMiB);
};

// The target: within two chunks and its own time, while bulk loses less than a twenty-fifth.
TEST_P(SlowTransferProbe, UrgentCopiesWaitForTwoChunksAtMostAndBulkKeepsItsRate) {
  constexpr int kCopies = 14;
  constexpr double kTolerance = 1.2;
  double alone = run(BulkMethod::kWhole, 0)->bytes_per_s;
  for (int ahead : {0, 4}) {
    Result<TransferProbeResult> result = run(BulkMethod::kAlternating, kCopies, ahead);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_LE(result->urgent_at_ns(0.9), kTolerance * 3 * kChunkNs) << ahead;
    // It takes its own time at least: nothing is measured that did not happen.
    EXPECT_GE(result->urgent_at_ns(0), 0.9 * kChunkNs);
    EXPECT_GE(result->bytes_per_s, 0.96 * alone) << ahead;
    EXPECT_LE(result->bytes_per_s, 1.02 * alone) << ahead;
  }
}

TEST_P(SlowTransferProbe, SplitCopiesTellWaitingFromCopying) {
  constexpr int kCopies = 8;
  Result<TransferProbeResult> result = run(BulkMethod::kWhole, kCopies, 0, true);
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  // Behind whole copies the engine comes late, and the copy itself is as fast as ever.
  EXPECT_GE(result->part_at_ns(0.5, &UrgentTime::queue_ns), 15 * kChunkNs);
  EXPECT_GE(result->part_at_ns(0, &UrgentTime::copy_ns), 0.9 * kChunkNs);
  EXPECT_LE(result->part_at_ns(0.5, &UrgentTime::copy_ns), 3 * kChunkNs);
}

TEST_P(SlowTransferProbe, FallbacksLetUrgentCopiesThroughToo) {
  for (BulkMethod method : {BulkMethod::kSharedStream, BulkMethod::kOneInFlight}) {
    Result<TransferProbeResult> result = run(method, 8);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_LE(result->urgent_at_ns(0.8), 1.2 * 4 * kChunkNs) << bulk_method_name(method);
  }
}

TEST_P(SlowTransferProbe, BehindWholeCopiesTheyWaitForAll) {
  Result<TransferProbeResult> result = run(BulkMethod::kWhole, 4);
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  EXPECT_GE(result->urgent_at_ns(0.5), 20 * kChunkNs);
}

INSTANTIATE_TEST_SUITE_P(Directions, SlowTransferProbe, ::testing::Values(true, false),
                         [](const auto& one) { return one.param ? "Up" : "Down"; });

}  // namespace
}  // namespace stagecoach
