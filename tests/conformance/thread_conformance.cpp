#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

constexpr int kThreads = 4;

class ThreadConformance : public ConformanceTest {
 protected:
  template <typename Function>
  void run_threads(Function&& function) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { function(i); });
    for (std::thread& thread : threads) thread.join();
  }
};

// T2: submits from several threads get numbers of their own, each thread's in its order.
TEST_P(ThreadConformance, T2_SubmitsAreSerialised) {
  constexpr int kEach = 200;
  auto stream = new_stream();
  std::vector<BufferHandle> memory;
  for (int i = 0; i < kThreads; ++i) memory.push_back(device_buffer(4));
  std::vector<std::vector<uint64_t>> numbers(kThreads);
  run_threads([&](int thread) {
    for (uint32_t i = 1; i <= kEach; ++i) {
      auto filled = stream->fill({memory[thread]->view(), i, 4, "mine"});
      if (filled.is_ok()) numbers[thread].push_back(filled->sequence);
    }
  });
  ASSERT_TRUE(is_ok(stream->synchronize()));
  std::set<uint64_t> all;
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(std::is_sorted(numbers[i].begin(), numbers[i].end()));
    all.insert(numbers[i].begin(), numbers[i].end());
    EXPECT_EQ(download_words(memory[i]->view())[0], static_cast<uint32_t>(kEach));
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
  EXPECT_EQ(*all.begin(), 1u);
  EXPECT_EQ(*all.rbegin(), static_cast<uint64_t>(kThreads * kEach));
}

// T3: a blocked host thread keeps nobody from submitting, asking and abandoning.
TEST_P(ThreadConformance, T3_BlockingHoldsNoLock) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(4);
  hold(*stream, 4 * kHoldNs);
  Timepoint held = stream->last_submitted();
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    EXPECT_TRUE(has_code(wait_until_reached(held), StatusCode::kCancelled));
    woken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_ok(stream->fill({memory->view(), 0, 4, "meanwhile"})));
  auto done = reached(held);
  ASSERT_TRUE(is_ok(done));
  EXPECT_FALSE(done.value());
  EXPECT_FALSE(woken);
  stream->abandon(cancelled("enough"));
  waiter.join();
}

// T1: many threads ask about and wait for the same timepoints while work goes on.
TEST_P(ThreadConformance, T1_ManyAskWhileWorkGoesOn) {
  constexpr int kRounds = 200;
  auto stream = new_stream();
  BufferHandle memory = device_buffer(4);
  std::atomic<bool> stopping{false};
  std::vector<std::thread> askers;
  for (int i = 0; i < kThreads; ++i) {
    askers.emplace_back([&, i] {
      while (!stopping) {
        Timepoint last = stream->last_submitted();
        if (i % 2 == 0) {
          EXPECT_TRUE(is_ok(reached(last)));
        } else {
          EXPECT_TRUE(is_ok(wait_until_reached(last)));
          auto done = reached(last);
          EXPECT_TRUE(done.is_ok() && done.value());
        }
      }
    });
  }
  for (uint32_t i = 1; i <= kRounds; ++i) {
    EXPECT_TRUE(is_ok(stream->fill({memory->view(), i, 4, "work"})));
    if (i % 10 == 0) {
      EXPECT_TRUE(is_ok(stream->mark()));
    }
  }
  EXPECT_TRUE(is_ok(stream->synchronize()));
  stopping = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(download_words(memory->view())[0], static_cast<uint32_t>(kRounds));
}

// T1: streams wait for each other from several threads at once.
TEST_P(ThreadConformance, T1_CrossWaitsFromManyThreads) {
  constexpr int kRounds = 100;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<BufferHandle> memory;
  for (int i = 0; i < kThreads; ++i) {
    streams.push_back(new_stream("cross", static_cast<size_t>(i % 2)));
    memory.push_back(device_buffer(4, static_cast<size_t>(i % 2)));
  }
  run_threads([&](int thread) {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      Timepoint neighbour = streams[(thread + 1) % kThreads]->last_submitted();
      EXPECT_TRUE(is_ok(streams[thread]->wait(neighbour)));
      EXPECT_TRUE(is_ok(streams[thread]->fill({memory[thread]->view(), round, 4, "round"})));
    }
  });
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(is_ok(streams[i]->synchronize()));
    EXPECT_EQ(download_words(memory[i]->view())[0], static_cast<uint32_t>(kRounds));
  }
}

// L4: streams come and go while others hold their timepoints.
TEST_P(ThreadConformance, L4_StreamsMayGoWhileAwaited) {
  constexpr int kRounds = 50;
  auto waiter = new_stream("waiter");
  BufferHandle memory = device_buffer(4);
  for (int round = 0; round < kRounds; ++round) {
    auto passing = new_stream("passing", 1);
    BufferHandle away = device_buffer(4, 1);
    auto last = passing->fill({away->view(), 1, 4, "last"});
    ASSERT_TRUE(is_ok(last));
    std::thread host([timepoint = last.value()] {
      EXPECT_TRUE(is_ok(wait_until_reached(timepoint)));
      EXPECT_TRUE(is_ok(reached(timepoint)));
    });
    EXPECT_TRUE(is_ok(waiter->wait(last.value())));
    passing.reset();
    host.join();
  }
  EXPECT_TRUE(is_ok(waiter->synchronize()));
}

// T1: allocation, use and release from many threads; nothing is lost.
TEST_P(ThreadConformance, T1_AllocationFromManyThreads) {
  constexpr int kRounds = 50;
  ByteCount before = device().memory_usage()->used_bytes;
  run_threads([&](int thread) {
    auto stream = new_stream("own");
    BufferHandle host = pinned_buffer(1024);
    for (uint32_t round = 0; round < kRounds; ++round) {
      uint32_t value = static_cast<uint32_t>(thread) << 16 | round;
      BufferHandle memory = device_buffer(1024);
      EXPECT_TRUE(is_ok(stream->fill({memory->view(), value, 4, "own"})));
      EXPECT_TRUE(is_ok(stream->copy({host->view(), memory->view(), "own"})));
      memory.reset();
      EXPECT_TRUE(is_ok(stream->synchronize()));
      uint32_t seen = 0;
      std::memcpy(&seen, host->host_data(), sizeof(seen));
      EXPECT_EQ(seen, value);
    }
  });
  device().collect_retired();
  EXPECT_EQ(device().memory_usage()->used_bytes, before);
}

// T1: abandoning from one thread while another submits and a third waits.
TEST_P(ThreadConformance, T1_AbandonRacesWithSubmits) {
  for (int round = 0; round < 30; ++round) {
    auto stream = new_stream();
    BufferHandle memory = device_buffer(4);
    std::thread submitter([&] {
      for (int i = 0; i < 1000; ++i) {
        auto filled = stream->fill({memory->view(), 0, 4, "race"});
        if (!filled.is_ok()) {
          EXPECT_TRUE(has_code(filled, StatusCode::kCancelled));
          return;
        }
      }
    });
    std::thread waiter([&] {
      for (int i = 0; i < 20; ++i) {
        Status status = wait_until_reached(stream->last_submitted());
        if (!status.is_ok()) {
          EXPECT_TRUE(has_code(status, StatusCode::kCancelled));
        }
      }
    });
    stream->abandon(cancelled("raced"));
    submitter.join();
    waiter.join();
    EXPECT_TRUE(has_code(stream->status(), StatusCode::kCancelled));
  }
}

STAGECOACH_CONFORMANCE_SUITE(ThreadConformance);

}  // namespace
}  // namespace stagecoach
