#include <thread>

#include "backends/cpu/copy_engine.h"
#include "core/clock.h"
#include "tests/backends/cpu_rig.h"

namespace stagecoach {
namespace {

using Turn = IssueOrderEngine::Turn;

TEST(IssueOrderEngine, ServesTheEarliestOfTheReady) {
  IssueOrderEngine engine;
  WakeSignal signal;
  Turn holder{&signal, 5}, late{&signal, 9}, early{&signal, 7};
  engine.announce(holder);
  EXPECT_TRUE(holder.granted);
  engine.announce(late);
  engine.announce(early);
  EXPECT_FALSE(late.granted);
  EXPECT_FALSE(early.granted);
  engine.release(holder, nullptr, 0);
  EXPECT_FALSE(holder.granted);
  EXPECT_TRUE(early.granted);
  EXPECT_FALSE(late.granted);
  engine.release(early, nullptr, 0);
  EXPECT_TRUE(late.granted);
  engine.release(late, nullptr, 0);
}

TEST(IssueOrderEngine, AReadyNextCopyKeepsTheEngineHoweverLateItWasSubmitted) {
  IssueOrderEngine engine;
  WakeSignal signal;
  Turn bulk{&signal, 1}, urgent{&signal, 5};
  engine.announce(bulk);
  engine.announce(urgent);
  for (uint64_t ticket : {2, 6}) {
    engine.release(bulk, &bulk, ticket);
    EXPECT_TRUE(bulk.granted);
    EXPECT_FALSE(urgent.granted);
  }
  engine.release(bulk, nullptr, 0);
  EXPECT_TRUE(urgent.granted);
  EXPECT_FALSE(bulk.granted);
  engine.release(urgent, nullptr, 0);
}

TEST(IssueOrderEngine, WithdrawingFreesTheWay) {
  IssueOrderEngine engine;
  WakeSignal signal;
  Turn first{&signal, 1}, second{&signal, 2}, third{&signal, 3};
  engine.announce(first);
  engine.announce(second);
  engine.announce(third);
  engine.withdraw(second);  // not granted yet
  engine.withdraw(first);   // granted
  EXPECT_TRUE(third.granted);
  EXPECT_FALSE(second.granted);
  engine.release(third, nullptr, 0);
}

/// Copies of 1 MiB at 100 MiB/s: 10 ms each, long compared with a busy host's hiccups.
class CpuCopyEngine : public CpuRig {
 protected:
  static constexpr int kChunks = 10;
  static constexpr int64_t kChunkNs = 10 * kMsNs;

  void SetUp() override {
    open("cpu:2[memory=16M,h2d=100M,d2h=100M]");
    memory_ = device_buffer(kMiB);
    urgent_memory_ = device_buffer(kMiB);
    host_ = pinned_buffer(kMiB);
  }
  void TearDown() override {
    host_.reset();
    urgent_memory_.reset();
    memory_.reset();
    CpuRig::TearDown();
  }
  void upload(Stream& stream, Buffer& target, const char* label) {
    auto copied = stream.copy({target.view(), host_->view(), label});
    ASSERT_TRUE(copied.is_ok()) << copied.status().to_string();
  }
  /// Submits an urgent copy once the bulk is under way; returns its event.
  size_t upload_urgently(Stream& stream) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    upload(stream, *urgent_memory_, "urgent");
    return record_time(stream);
  }

  BufferHandle memory_;
  BufferHandle urgent_memory_;
  BufferHandle host_;
};

// P5: a stream with a ready copy keeps the engine.
TEST_F(CpuCopyEngine, P5_PlainBulkQueuedAheadStarvesAnUrgentCopy) {
  auto bulk = new_stream("bulk");
  auto urgent = new_stream("urgent");
  for (int i = 0; i < kChunks; ++i) {
    upload(*bulk, *memory_, "bulk");
    record_time(*bulk);  // marks between the chunks change nothing
  }
  size_t bulk_end = record_time(*bulk);
  size_t urgent_end = upload_urgently(*urgent);
  ASSERT_TRUE(device().synchronize().is_ok());
  EXPECT_GE(time_ns(urgent_end), time_ns(bulk_end) + kChunkNs);
}

// P5: chunks that alternate between two streams, each behind the one before, let it through.
TEST_F(CpuCopyEngine, P5_ChainedBulkLetsAnUrgentCopyThrough) {
  std::unique_ptr<Stream> bulk[] = {new_stream("bulk a"), new_stream("bulk b")};
  auto urgent = new_stream("urgent");
  std::vector<size_t> ends;
  Timepoint before;
  for (int i = 0; i < kChunks; ++i) {
    Stream& stream = *bulk[i % 2];
    ASSERT_TRUE(stream.wait(before).is_ok());
    upload(stream, *memory_, "bulk");
    ends.push_back(record_time(stream));
    before = stream.mark().value();
  }
  size_t urgent_end = upload_urgently(*urgent);
  ASSERT_TRUE(device().synchronize().is_ok());
  // Submitted during the first chunk, so it goes second; half of the bulk is room for a slow host.
  EXPECT_LT(time_ns(urgent_end), time_ns(ends[kChunks / 2]));
  // And the chain itself loses nothing: the engine never stands idle in nominal time.
  int64_t bulk_ns = time_ns(ends.back()) - time_ns(ends.front());
  EXPECT_GE(bulk_ns, (kChunks - 1) * kChunkNs);
  EXPECT_LE(bulk_ns, (kChunks + 1) * kChunkNs);
}

// P5: directions have an engine each.
TEST_F(CpuCopyEngine, P5_DirectionsRunAtTheSameTime) {
  auto up = new_stream("up");
  auto down = new_stream("down");
  BufferHandle back = pinned_buffer(kMiB);
  auto gate = new_stream("gate");
  size_t start = 0, up_end = 0, down_end = 0;
  // Both start together, when all is queued, however busy the host is.
  bool was_held_up = false;
  for (int64_t hold_ns = 20 * kMsNs; !was_held_up && hold_ns < 5'000 * kMsNs; hold_ns *= 4) {
    launch(*gate, hold_ns, 0);
    start = record_time(*gate);
    ASSERT_TRUE(up->wait(gate->mark().value()).is_ok());
    ASSERT_TRUE(down->wait(gate->mark().value()).is_ok());
    for (int i = 0; i < kChunks; ++i) {
      upload(*up, *memory_, "up");
      ASSERT_TRUE(down->copy({back->view(), urgent_memory_->view(), "down"}).is_ok());
    }
    up_end = record_time(*up);
    down_end = record_time(*down);
    was_held_up = !has_passed(start);
    ASSERT_TRUE(device().synchronize().is_ok());
  }
  ASSERT_TRUE(was_held_up);
  int64_t both_ns = std::max(time_ns(up_end), time_ns(down_end)) - time_ns(start);
  EXPECT_LT(both_ns - device().counters().copy_overrun_ns, 2 * kChunks * kChunkNs * 3 / 4);
}

// P5: two streams of one direction share its engine.
TEST_F(CpuCopyEngine, P5_OneDirectionIsOneEngine) {
  auto first = new_stream("first");
  auto second = new_stream("second");
  int64_t start_ns = RealClock::instance().now_ns();
  upload(*first, *memory_, "first");
  upload(*second, *urgent_memory_, "second");
  size_t first_end = record_time(*first), second_end = record_time(*second);
  ASSERT_TRUE(device().synchronize().is_ok());
  EXPECT_GE(std::max(time_ns(first_end), time_ns(second_end)) - start_ns, 2 * kChunkNs);
}

// A copy between two devices occupies the way down of the one and the way up of the other.
TEST_F(CpuCopyEngine, P5_PeerCopiesOccupyBothEngines) {
  BufferHandle away = device_buffer(kMiB, 1);
  auto peer = new_stream("peer", 0);
  auto down = new_stream("down", 0);
  auto up = new_stream("up", 1);
  int64_t start_ns = RealClock::instance().now_ns();
  ASSERT_TRUE(peer->copy({away->view(), memory_->view(), "peer"}).is_ok());
  BufferHandle other = device_buffer(kMiB, 1);
  BufferHandle back = pinned_buffer(kMiB);
  ASSERT_TRUE(down->copy({back->view(), urgent_memory_->view(), "down"}).is_ok());
  ASSERT_TRUE(up->copy({other->view(), host_->view(), "up"}).is_ok());
  size_t peer_end = record_time(*peer), down_end = record_time(*down);
  size_t up_end = record_time(*up, 1);
  ASSERT_TRUE(device(0).synchronize().is_ok());
  ASSERT_TRUE(device(1).synchronize().is_ok());
  EXPECT_GE(time_ns(peer_end) - start_ns, kChunkNs);
  // Which of two ready copies goes first depends on the workers; that they share does not.
  EXPECT_GE(std::max(time_ns(down_end), time_ns(peer_end)) - start_ns, 2 * kChunkNs);
  EXPECT_GE(std::max(time_ns(up_end), time_ns(peer_end)) - start_ns, 2 * kChunkNs);
}

// E4: a stream that is abandoned while it waits for an engine, or holds one, gives it up.
TEST_F(CpuCopyEngine, E4_AbandonedStreamsGiveUpTheEngine) {
  auto holder = new_stream("holder");
  auto waiter = new_stream("waiter");
  auto last = new_stream("last");
  for (int i = 0; i < 200; ++i) upload(*holder, *memory_, "holder");
  for (int i = 0; i < 200; ++i) upload(*waiter, *memory_, "waiter");
  upload(*last, *urgent_memory_, "last");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  waiter->abandon(cancelled("stop"));
  holder->abandon(cancelled("stop"));
  int64_t start_ns = RealClock::instance().now_ns();
  EXPECT_TRUE(last->synchronize().is_ok());
  EXPECT_LT(RealClock::instance().now_ns() - start_ns, 100 * kChunkNs);
}

}  // namespace
}  // namespace stagecoach
