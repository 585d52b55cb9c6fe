#include <cstring>

#include "core/clock.h"
#include "core/task_pool.h"
#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class TimepointConformance : public ConformanceTest {
 protected:
  bool is_reached(Timepoint timepoint) {
    auto done = reached(timepoint);
    EXPECT_TRUE(is_ok(done));
    return done.is_ok() && done.value();
  }
};

// O5: reached exactly when the operation and all before it are done, and for good.
TEST_P(TimepointConformance, O5_ReachedIsMonotonic) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  auto first = stream->fill({memory->view(), 0, 4, "first"});
  ASSERT_TRUE(is_ok(first));
  ASSERT_TRUE(is_ok(stream->mark()));
  hold(*stream, kHoldNs);
  auto last = stream->fill({memory->view(), 0, 4, "last"});
  ASSERT_TRUE(is_ok(last));
  ASSERT_TRUE(is_ok(wait_until_reached(first.value())));
  EXPECT_TRUE(is_reached(first.value()));
  EXPECT_FALSE(is_reached(last.value()));
  ASSERT_TRUE(is_ok(wait_until_reached(last.value())));
  for (uint64_t sequence = 0; sequence <= last->sequence; ++sequence) {
    EXPECT_TRUE(is_reached({stream->id(), sequence})) << sequence;
  }
}

// O5: asking alone is enough to learn of the end; nobody has to mark or block.
TEST_P(TimepointConformance, O5_PollingEnds) {
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  for (int round = 0; round < 100; ++round) {
    auto filled = stream->fill({memory->view(), 0, 4, "round"});
    ASSERT_TRUE(is_ok(filled));
    while (!is_reached(filled.value())) std::this_thread::yield();
  }
}

// O5: a mark makes timepoints before it cheap, and changes nothing else.
TEST_P(TimepointConformance, O5_MarksKeepTheAnswers) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  std::vector<Timepoint> marks;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0, 4, "work"})));
    auto mark = stream->mark();
    ASSERT_TRUE(is_ok(mark));
    marks.push_back(mark.value());
  }
  ASSERT_TRUE(is_ok(wait_until_reached(marks[10])));
  for (int i = 0; i <= 10; ++i) EXPECT_TRUE(is_reached(marks[i])) << i;
  hold(*stream, kHoldNs);
  auto held = stream->mark();
  ASSERT_TRUE(is_ok(held));
  EXPECT_FALSE(is_reached(held.value()));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_TRUE(is_reached(held.value()));
}

// O4: no timeline, or one that is gone, counts as reached and costs nothing.
TEST_P(TimepointConformance, O4_NoneAndGoneAreReached) {
  auto stream = new_stream();
  auto gone = new_stream("gone");
  BufferHandle memory = device_buffer(64);
  auto last = gone->fill({memory->view(), 0, 4, "last"});
  ASSERT_TRUE(is_ok(last));
  gone.reset();
  EXPECT_TRUE(is_reached(Timepoint{}));
  EXPECT_TRUE(is_reached(last.value()));
  EXPECT_TRUE(is_ok(wait_until_reached(last.value())));
  EXPECT_TRUE(is_ok(stream->wait(last.value())));
  EXPECT_TRUE(is_ok(stream->wait(Timepoint{})));
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// O4, V3: work behind the wait sees all work up to the timepoint, marked or not.
TEST_P(TimepointConformance, O4_WaitOrdersAcrossStreams) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto producer = new_stream("producer");
  auto consumer = new_stream("consumer");
  BufferHandle memory = device_buffer(256);
  BufferHandle host = pinned_buffer(256);
  for (uint32_t round = 1; round <= 20; ++round) {
    hold(*producer, kMillisecondNs);
    auto filled = producer->fill({memory->view(), round, 4, "produce"});
    ASSERT_TRUE(is_ok(filled));
    ASSERT_TRUE(is_ok(consumer->wait(filled.value())));
    auto copied = consumer->copy({host->view(), memory->view(), "consume"});
    ASSERT_TRUE(is_ok(copied));
    ASSERT_TRUE(is_ok(producer->wait(copied.value())));
    ASSERT_TRUE(is_ok(wait_until_reached(copied.value())));
    uint32_t seen = 0;
    std::memcpy(&seen, host->host_data(), sizeof(seen));
    EXPECT_EQ(seen, round);
  }
}

// O4: two streams that wait for each other's past, queued ahead, make progress.
TEST_P(TimepointConformance, O4_PingPongQueuedAhead) {
  constexpr uint32_t kRounds = 200;
  auto left = new_stream("left", 0);
  auto right = new_stream("right", 1);
  BufferHandle left_memory = device_buffer(4, 0);
  BufferHandle right_memory = device_buffer(4, 1);
  BufferHandle host = pinned_buffer(4 * kRounds);
  Timepoint last;
  for (uint32_t round = 0; round < kRounds; ++round) {
    BufferView slot = host->slice(4 * round, 4);
    ASSERT_TRUE(is_ok(left->wait(last)));
    ASSERT_TRUE(is_ok(left->fill({left_memory->view(), round, 4, "left"})));
    auto down = left->copy({slot, left_memory->view(), "down"});
    ASSERT_TRUE(is_ok(down));
    ASSERT_TRUE(is_ok(right->wait(down.value())));
    auto up = right->copy({right_memory->view(), slot, "up"});
    ASSERT_TRUE(is_ok(up));
    last = up.value();
  }
  ASSERT_TRUE(is_ok(right->synchronize()));
  EXPECT_EQ(download_words(right_memory->view())[0], kRounds - 1);
  EXPECT_TRUE(is_ok(left->synchronize()));
}

// O4: waiting for the stream's own past is allowed and changes nothing.
TEST_P(TimepointConformance, O4_OwnPastCostsNothing) {
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  auto filled = stream->fill({memory->view(), 0, 4, "fill"});
  ASSERT_TRUE(is_ok(filled));
  EXPECT_TRUE(is_ok(stream->wait(filled.value())));
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// O7, invalid argument: a sequence never submitted.
TEST_P(TimepointConformance, O7_NeverSubmittedIsAnInvalidArgument) {
  auto stream = new_stream();
  auto other = new_stream("other");
  Timepoint future{stream->id(), 1};
  EXPECT_TRUE(has_code(reached(future), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(wait_until_reached(future), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(other->wait(future), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(stream->wait(future), StatusCode::kInvalidArgument));
  EXPECT_TRUE(is_ok(stream->status()));
  EXPECT_TRUE(is_ok(other->status()));
}

// O4, E8 failed precondition: a host worker's timepoint is waited for on the host.
TEST_P(TimepointConformance, E8_HostWorkersAreAwaitedOnTheHost) {
  auto pool = TaskPool::create(1);
  HostWorker worker("worker", *pool);
  auto done = worker.submit("job", {}, [](TaskPool&) { return Status::ok(); });
  ASSERT_TRUE(is_ok(done));
  auto stream = new_stream();
  auto waited = stream->wait(done.value());
  EXPECT_TRUE(has_code(waited, StatusCode::kFailedPrecondition));
  EXPECT_EQ(waited.status().site().label, "worker");
  EXPECT_TRUE(is_ok(stream->status()));
}

// O4, V2: a host worker starts behind a stream's timepoint and sees its bytes.
TEST_P(TimepointConformance, V2_HostWorkersFollowStreams) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto pool = TaskPool::create(1);
  HostWorker worker("worker", *pool);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(4);
  BufferHandle host = pinned_buffer(4);
  hold(*stream, kHoldNs / 5);
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 42, 4, "answer"})));
  auto copied = stream->copy({host->view(), memory->view(), "down"});
  ASSERT_TRUE(is_ok(copied));
  uint32_t seen = 0;
  auto done = worker.submit_after(copied.value(), "read", {}, [&](TaskPool&) {
    std::memcpy(&seen, host->host_data(), sizeof(seen));
    return Status::ok();
  });
  ASSERT_TRUE(is_ok(done));
  ASSERT_TRUE(is_ok(wait_until_reached(done.value())));
  EXPECT_EQ(seen, 42u);
}

STAGECOACH_CONFORMANCE_SUITE(TimepointConformance);

}  // namespace
}  // namespace stagecoach
