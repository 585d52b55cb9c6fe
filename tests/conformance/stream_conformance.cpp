#include <cstring>

#include "core/clock.h"
#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class StreamConformance : public ConformanceTest {};

// O1: each operation sees all earlier ones of its stream and none of the later.
TEST_P(StreamConformance, O1_OperationsTakeEffectInOrder) {
  constexpr uint32_t kRounds = 64;
  constexpr ByteCount kWord = 4;
  auto stream = new_stream();
  BufferHandle memory = device_buffer(kWord);
  BufferHandle log = pinned_buffer(kRounds * kWord);
  for (uint32_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(is_ok(stream->fill({memory->view(), round, 4, "round"})));
    ASSERT_TRUE(is_ok(stream->copy({log->slice(round * kWord, kWord), memory->view(), "log"})));
  }
  ASSERT_TRUE(is_ok(stream->synchronize()));
  for (uint32_t round = 0; round < kRounds; ++round) {
    uint32_t seen = 0;
    std::memcpy(&seen, log->host_data() + round * kWord, kWord);
    EXPECT_EQ(seen, round);
  }
}

// O1: kernels too.
TEST_P(StreamConformance, O1_KernelsAndCopiesKeepTheirOrder) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(1024);
  BufferHandle first = pinned_buffer(1024);
  BufferHandle second = pinned_buffer(1024);
  hold(*stream, kHoldNs / 10);
  ASSERT_TRUE(is_ok(stream->launch(fill_request(memory->view(), 1.5f))));
  ASSERT_TRUE(is_ok(stream->copy({first->view(), memory->view(), "first"})));
  ASSERT_TRUE(is_ok(stream->launch(fill_request(memory->view(), 2.5f))));
  ASSERT_TRUE(is_ok(stream->copy({second->view(), memory->view(), "second"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(reinterpret_cast<float*>(first->host_data())[255], 1.5f);
  EXPECT_EQ(reinterpret_cast<float*>(second->host_data())[255], 2.5f);
}

// O2: a stream that is held up does not hold up another.
TEST_P(StreamConformance, O2_StreamsAreIndependent) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto held = new_stream("held");
  auto other = new_stream("other");
  BufferHandle memory = device_buffer(1024);
  BufferHandle host = pinned_buffer(1024);
  // Held by a wait for a stream of the other device, so that not even the compute units are shared.
  auto holder = new_stream("holder", 1);
  hold(*holder, kHoldNs);
  ASSERT_TRUE(is_ok(held->wait(holder->last_submitted())));
  auto copied = other->copy({memory->view(), host->view(), "independent"});
  ASSERT_TRUE(is_ok(copied));
  ASSERT_TRUE(is_ok(wait_until_reached(copied.value())));
  auto passed = held->reached(held->last_submitted().sequence);
  ASSERT_TRUE(is_ok(passed));
  EXPECT_FALSE(passed.value()) << "the copy came through only after the held stream";
  EXPECT_TRUE(is_ok(held->synchronize()));
}

// O6: numbers run from 1 without gaps over every kind of operation.
TEST_P(StreamConformance, O6_NumbersHaveNoGaps) {
  auto stream = new_stream();
  auto event = new_event();
  BufferHandle memory = device_buffer(64);
  BufferHandle host = pinned_buffer(64);
  EXPECT_EQ(stream->last_submitted(), (Timepoint{stream->id(), 0}));
  EXPECT_EQ(stream->fill({memory->view(), 0, 4, "one"})->sequence, 1u);
  EXPECT_EQ(stream->copy({host->view(), memory->view(), "two"})->sequence, 2u);
  EXPECT_EQ(stream->record(*event)->sequence, 3u);
  EXPECT_EQ(stream->wait(*event)->sequence, 4u);
  EXPECT_EQ(stream->wait(Timepoint{})->sequence, 5u);
  EXPECT_EQ(stream->wait(Timepoint{stream->id(), 2})->sequence, 6u);
  EXPECT_EQ(stream->last_submitted(), (Timepoint{stream->id(), 6}));
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// O6: a refused request takes no number, and neither does a mark.
TEST_P(StreamConformance, O6_RefusalsAndMarksTakeNoNumber) {
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  EXPECT_EQ(stream->fill({memory->view(), 0, 4, "one"})->sequence, 1u);
  EXPECT_FALSE(stream->fill({memory->view(), 0, 3, "refused"}).is_ok());
  EXPECT_FALSE(stream->fill({BufferView{}, 0, 4, "refused"}).is_ok());
  EXPECT_EQ(stream->mark()->sequence, 1u);
  EXPECT_EQ(stream->mark()->sequence, 1u);
  EXPECT_EQ(stream->fill({memory->view(), 0, 4, "two"})->sequence, 2u);
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// O6: marking an empty stream gives a timepoint that is reached.
TEST_P(StreamConformance, O6_MarkOfAnEmptyStreamIsReached) {
  auto stream = new_stream();
  auto mark = stream->mark();
  ASSERT_TRUE(is_ok(mark));
  auto done = reached(mark.value());
  ASSERT_TRUE(is_ok(done));
  EXPECT_TRUE(done.value());
}

// O5: synchronize returns when all work is done, not before.
TEST_P(StreamConformance, O5_SynchronizeWaits) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  int64_t start_ns = RealClock::instance().now_ns();
  hold(*stream, kHoldNs);
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_GE(RealClock::instance().now_ns() - start_ns, kHoldNs);
  auto done = stream->reached(stream->last_submitted().sequence);
  ASSERT_TRUE(is_ok(done));
  EXPECT_TRUE(done.value());
}

// T4: submitting does not wait for the device.
TEST_P(StreamConformance, T4_SubmittingDoesNotBlock) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  hold(*stream, kHoldNs);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0, 4, "later"})));
  auto done = stream->reached(1);
  ASSERT_TRUE(is_ok(done));
  EXPECT_FALSE(done.value());
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// L3: destroying a stream waits for its work; afterwards its timepoints count as reached.
TEST_P(StreamConformance, L3_DestructionFinishesTheWork) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  BufferHandle host = pinned_buffer(64);
  hold(*stream, kHoldNs / 2);
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0x01020304, 4, "last"})));
  auto last = stream->copy({host->view(), memory->view(), "last"});
  ASSERT_TRUE(is_ok(last));
  stream.reset();
  EXPECT_EQ(std::to_integer<int>(host->host_data()[63]), 1);
  auto done = reached(last.value());
  ASSERT_TRUE(is_ok(done));
  EXPECT_TRUE(done.value());
  EXPECT_TRUE(is_ok(wait_until_reached(last.value())));
}

// O1: queues are as long as the caller makes them, and what they remember is let go of.
TEST_P(StreamConformance, O1_LongQueuesDrain) {
  constexpr uint32_t kOperations = 5000;
  auto stream = new_stream();
  BufferHandle memory = device_buffer(4);
  for (uint32_t i = 1; i <= kOperations; ++i) {
    ASSERT_TRUE(is_ok(stream->fill({memory->view(), i, 4, "one of many"})));
  }
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(stream->last_submitted().sequence, kOperations);
  EXPECT_EQ(download_words(memory->view())[0], kOperations);
}

STAGECOACH_CONFORMANCE_SUITE(StreamConformance);

}  // namespace
}  // namespace stagecoach
