#include "core/clock.h"
#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class EventConformance : public ConformanceTest {};

// O7, E8 failed precondition: nothing can be asked of an event never recorded.
TEST_P(EventConformance, O7_NeverRecordedIsAFailedPrecondition) {
  auto event = new_event({true});
  auto stream = new_stream();
  EXPECT_FALSE(event->is_recorded());
  EXPECT_TRUE(has_code(event->query(), StatusCode::kFailedPrecondition));
  EXPECT_TRUE(has_code(event->synchronize(), StatusCode::kFailedPrecondition));
  EXPECT_TRUE(has_code(event->timestamp_ns(), StatusCode::kFailedPrecondition));
  auto waited = stream->wait(*event);
  EXPECT_TRUE(has_code(waited, StatusCode::kFailedPrecondition));
  EXPECT_EQ(waited.status().site().stream, "stream");
  EXPECT_EQ(waited.status().site().verb, "wait");
  EXPECT_TRUE(is_ok(stream->status()));  // E1: the stream is as it was
}

// V2: an event is passed when the work before it is done, and not earlier.
TEST_P(EventConformance, V2_PassedWhenWorkBeforeIsDone) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  auto event = new_event();
  int64_t start_ns = RealClock::instance().now_ns();
  hold(*stream, kHoldNs);
  auto recorded = stream->record(*event);
  ASSERT_TRUE(is_ok(recorded));
  EXPECT_EQ(event->timepoint(), recorded.value());
  auto passed = event->query();
  ASSERT_TRUE(is_ok(passed));
  EXPECT_FALSE(passed.value());
  ASSERT_TRUE(is_ok(event->synchronize()));
  EXPECT_GE(RealClock::instance().now_ns() - start_ns, kHoldNs);
  passed = event->query();
  ASSERT_TRUE(is_ok(passed));
  EXPECT_TRUE(passed.value());
}

// O3: work behind the wait sees the work before the record.
TEST_P(EventConformance, O3_WaitOrdersAcrossStreams) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto producer = new_stream("producer");
  auto consumer = new_stream("consumer");
  auto event = new_event();
  BufferHandle memory = device_buffer(256);
  BufferHandle host = pinned_buffer(256);
  hold(*producer, kHoldNs / 5);
  ASSERT_TRUE(is_ok(producer->launch(fill_request(memory->view(), 7))));
  ASSERT_TRUE(is_ok(producer->record(*event)));
  ASSERT_TRUE(is_ok(consumer->wait(*event)));
  ASSERT_TRUE(is_ok(consumer->copy({host->view(), memory->view(), "consume"})));
  ASSERT_TRUE(is_ok(consumer->synchronize()));
  EXPECT_EQ(reinterpret_cast<float*>(host->host_data())[63], 7.0f);
}

// O3: recording the event again does not move an earlier wait.
TEST_P(EventConformance, O3_RecordingAgainDoesNotMoveAnEarlierWait) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto producer = new_stream("producer");
  auto consumer = new_stream("consumer", 1);
  auto event = new_event();
  ASSERT_TRUE(is_ok(producer->record(*event)));
  ASSERT_TRUE(is_ok(consumer->wait(*event)));
  hold(*producer, kHoldNs);
  ASSERT_TRUE(is_ok(producer->record(*event)));
  ASSERT_TRUE(is_ok(consumer->synchronize()));
  auto passed = event->query();
  ASSERT_TRUE(is_ok(passed));
  EXPECT_FALSE(passed.value()) << "the wait followed the event to its second place";
  EXPECT_TRUE(is_ok(producer->synchronize()));
}

// O3: neither lets a record on a faster stream an earlier wait go.
TEST_P(EventConformance, O3_RecordingElsewhereDoesNotReleaseAnEarlierWait) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto slow = new_stream("slow");
  auto fast = new_stream("fast");
  auto consumer = new_stream("consumer");
  auto event = new_event();
  BufferHandle memory = device_buffer(256);
  BufferHandle host = pinned_buffer(256);
  hold(*slow, kHoldNs);
  ASSERT_TRUE(is_ok(slow->fill({memory->view(), 0x11111111, 4, "slow"})));
  ASSERT_TRUE(is_ok(slow->record(*event)));
  ASSERT_TRUE(is_ok(consumer->wait(*event)));
  ASSERT_TRUE(is_ok(fast->record(*event)));
  ASSERT_TRUE(is_ok(fast->synchronize()));
  ASSERT_TRUE(is_ok(consumer->copy({host->view(), memory->view(), "consume"})));
  ASSERT_TRUE(is_ok(consumer->synchronize()));
  EXPECT_EQ(std::to_integer<int>(host->host_data()[0]), 0x11);
}

// L6: an event may be destroyed while a wait for it is pending.
TEST_P(EventConformance, L6_DestroyedWhileAwaited) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto producer = new_stream("producer");
  auto consumer = new_stream("consumer");
  auto event = new_event();
  BufferHandle memory = device_buffer(256);
  BufferHandle host = pinned_buffer(256);
  hold(*producer, kHoldNs / 2);
  ASSERT_TRUE(is_ok(producer->fill({memory->view(), 0x22222222, 4, "produce"})));
  ASSERT_TRUE(is_ok(producer->record(*event)));
  ASSERT_TRUE(is_ok(consumer->wait(*event)));
  event.reset();
  ASSERT_TRUE(is_ok(consumer->copy({host->view(), memory->view(), "consume"})));
  ASSERT_TRUE(is_ok(consumer->synchronize()));
  EXPECT_EQ(std::to_integer<int>(host->host_data()[0]), 0x22);
}

// E1, invalid argument: an event is recorded on streams of its own device.
TEST_P(EventConformance, E1_RecordOnAnotherDeviceIsRefused) {
  auto stream = new_stream("stream", 0);
  auto event = new_event({}, 1);
  auto recorded = stream->record(*event);
  EXPECT_TRUE(has_code(recorded, StatusCode::kInvalidArgument));
  EXPECT_EQ(recorded.status().site().device, device().id());
  EXPECT_FALSE(event->is_recorded());
}

// P1: timestamps lie on RealClock and do not decrease along a stream.
TEST_P(EventConformance, P1_TimestampsAreOnTheRealClock) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  auto first = new_event({true});
  auto second = new_event({true});
  int64_t before_ns = RealClock::instance().now_ns();
  ASSERT_TRUE(is_ok(stream->record(*first)));
  hold(*stream, kHoldNs / 5);
  ASSERT_TRUE(is_ok(stream->record(*second)));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  int64_t after_ns = RealClock::instance().now_ns();
  auto start = first->timestamp_ns();
  auto end = second->timestamp_ns();
  ASSERT_TRUE(is_ok(start));
  ASSERT_TRUE(is_ok(end));
  EXPECT_GE(start.value(), before_ns - kMillisecondNs);
  EXPECT_LE(end.value(), after_ns + kMillisecondNs);
  EXPECT_GE(end.value() - start.value(), kHoldNs / 5 - kMillisecondNs);
}

// E8, failed precondition: no timestamp without `timing`.
TEST_P(EventConformance, E8_TimestampNeedsTiming) {
  auto stream = new_stream();
  auto event = new_event();
  ASSERT_TRUE(is_ok(stream->record(*event)));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_TRUE(has_code(event->timestamp_ns(), StatusCode::kFailedPrecondition));
}

// E8, failed precondition: no timestamp before the mark has been passed.
TEST_P(EventConformance, E8_TimestampNeedsThePastMark) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  auto event = new_event({true});
  hold(*stream, kHoldNs);
  ASSERT_TRUE(is_ok(stream->record(*event)));
  EXPECT_TRUE(has_code(event->timestamp_ns(), StatusCode::kFailedPrecondition));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_TRUE(is_ok(event->timestamp_ns()));
}

STAGECOACH_CONFORMANCE_SUITE(EventConformance);

}  // namespace
}  // namespace stagecoach
