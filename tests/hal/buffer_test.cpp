#include "hal/buffer.h"

#include <gtest/gtest.h>
#include <thread>

#include "backends/register_backends.h"
#include "tests/hal/manual_timeline.h"

namespace stagecoach {
namespace {

class BufferTest : public testing::Test {
 protected:
  void SetUp() override {
    auto devices = built_in_backends().open_devices("cpu:1[memory=1M]");
    ASSERT_TRUE(devices.is_ok());
    device_ = std::move(devices.value()[0]);
  }
  BufferHandle make(ByteCount size) {
    Allocation allocation = device_->allocate(size, "test");
    EXPECT_EQ(allocation.outcome, AllocationOutcome::kOk);
    return std::move(allocation.buffer);
  }
  ByteCount used() { return device_->memory_usage()->used_bytes; }

  std::unique_ptr<Device> device_;
};

TEST_F(BufferTest, ViewsAndSlices) {
  BufferHandle buffer = make(100);
  BufferView whole = buffer->view();
  EXPECT_EQ(whole.offset, 0);
  EXPECT_EQ(whole.size, 100);
  BufferView inner = whole.slice(10, 50).slice(5, 20);
  EXPECT_EQ(inner.offset, 15);
  EXPECT_EQ(inner.size, 20);
  EXPECT_FALSE(inner.is_none());
  EXPECT_TRUE(BufferView{}.is_none());
  EXPECT_EQ(inner.host_data(), nullptr);
  EXPECT_EQ(BufferView{}.host_data(), nullptr);
}

TEST_F(BufferTest, SlicesOutsideEndTheProcess) {
  BufferHandle buffer = make(100);
  EXPECT_DEATH(buffer->slice(90, 11), "slice_size <= size");
  EXPECT_DEATH(buffer->slice(-1, 5), "slice_offset >= 0");
}

TEST_F(BufferTest, HostAddressesFollowOffsets) {
  std::byte data[16] = {};
  auto wrapped = device_->wrap_pageable(data, sizeof(data), "wrapped");
  ASSERT_TRUE(wrapped.is_ok());
  EXPECT_EQ(wrapped.value()->slice(4, 8).host_data(), data + 4);
}

TEST_F(BufferTest, UsesOfAllTimelinesCount) {
  ManualTimeline first, second;
  BufferHandle buffer = make(64);
  EXPECT_TRUE(buffer->uses_reached());
  buffer->note_use({first.id(), 3});
  buffer->note_use({second.id(), 1});
  buffer->note_use({first.id(), 2});  // noted late by another thread: 3 still counts
  EXPECT_FALSE(buffer->uses_reached());
  first.completed = 2;
  second.completed = 1;
  EXPECT_FALSE(buffer->uses_reached());
  first.completed = 3;
  EXPECT_TRUE(buffer->uses_reached());
}

TEST_F(BufferTest, FailedTimelinesCountOnceIdle) {
  ManualTimeline timeline;
  BufferHandle buffer = make(64);
  buffer->note_use({timeline.id(), 1});
  timeline.failed = true;
  EXPECT_FALSE(buffer->uses_reached());
  std::thread waiter([&] { buffer->wait_for_uses(); });
  timeline.idle = true;
  waiter.join();
  EXPECT_TRUE(buffer->uses_reached());
}

TEST_F(BufferTest, RetiredMemoryIsFreedWhenItsUsesArePast) {
  ManualTimeline timeline;
  BufferHandle buffer = make(64);
  buffer->note_use({timeline.id(), 1});
  buffer.reset();
  device_->collect_retired();
  EXPECT_EQ(used(), 64);
  timeline.completed = 1;
  device_->collect_retired();
  EXPECT_EQ(used(), 0);
}

TEST_F(BufferTest, TimelinesThatAreGoneCountAsPast) {
  BufferHandle buffer = make(64);
  // More timelines than any buffer keeps: the gone ones are forgotten on the way.
  for (int i = 0; i < 100; ++i) {
    ManualTimeline timeline;
    buffer->note_use({timeline.id(), 1});
    EXPECT_FALSE(buffer->uses_reached());
  }
  EXPECT_TRUE(buffer->uses_reached());
  buffer.reset();
  EXPECT_EQ(used(), 0);
}

TEST_F(BufferTest, DevicesFreeWhatIsRetiredWhenTheyGo) {
  auto timeline = std::make_unique<ManualTimeline>();
  BufferHandle buffer = make(64);
  buffer->note_use({timeline->id(), 1});
  buffer.reset();
  std::thread finisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    timeline->completed = 1;
  });
  device_.reset();  // blocks until the use is past; leaks are found by AddressSanitizer
  EXPECT_EQ(timeline->completed, 1u);
  finisher.join();
}

TEST_F(BufferTest, RequireBufferPassesFailuresOn) {
  Allocation failed = device_->allocate(-5, "negative");
  auto buffer = require_buffer(std::move(failed), *device_, -5, "negative");
  EXPECT_EQ(buffer.status().code(), StatusCode::kInvalidArgument);
  auto fine = require_buffer(device_->allocate(8, "fine"), *device_, 8, "fine");
  EXPECT_TRUE(fine.is_ok());
}

}  // namespace
}  // namespace stagecoach
