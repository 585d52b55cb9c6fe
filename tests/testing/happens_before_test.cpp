#include "testing/happens_before.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "hal/backend_registry.h"
#include "hal/hal.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

struct HappensBeforeTest : ::testing::Test {
  static constexpr ByteCount kBytes = 1024;

  HappensBeforeTest() {
    registry.add(make_race_checking_backend(make_cpu_backend(), checker));
    devices = registry.open_devices("cpu:2").value();
    for (int i = 0; i < 2; ++i) {
      device_memory.push_back(allocate(*devices[i], false));
      host_memory.push_back(allocate(*devices[0], true));
    }
    upload = devices[0]->create_stream({"up"}).value();
    compute = devices[0]->create_stream({"compute"}).value();
    other = devices[1]->create_stream({"compute"}).value();
    event = devices[0]->create_event().value();
  }
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "programs that race on purpose: ThreadSanitizer would end them";
#endif
  }
  static BufferHandle allocate(Device& device, bool pinned) {
    Allocation made =
        pinned ? device.allocate_pinned(kBytes, "memory") : device.allocate(kBytes, "memory");
    STAGECOACH_CHECK(made.outcome == AllocationOutcome::kOk);
    return std::move(made.buffer);
  }
  void copy(Stream& stream, BufferView target, BufferView source, Label label) {
    ASSERT_TRUE(stream.copy({target, source, label}).is_ok());
  }
  void fill(Stream& stream, BufferView target, Label label) {
    ASSERT_TRUE(stream.fill({target, 0, 4, label}).is_ok());
  }
  void order(Stream& before, Stream& after) {
    ASSERT_TRUE(before.record(*event).is_ok());
    ASSERT_TRUE(after.wait(*event).is_ok());
  }

  std::shared_ptr<HappensBefore> checker = std::make_shared<HappensBefore>();
  BackendRegistry registry;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<BufferHandle> device_memory, host_memory;
  std::unique_ptr<Stream> upload, compute, other;  ///< the last is of the second device
  std::unique_ptr<Event> event;
};

TEST_F(HappensBeforeTest, StreamsThatShareMemoryRaceUntilOneWaits) {
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "w up");
  fill(*compute, device_memory[0]->slice(512, 8), "clear");
  ASSERT_EQ(checker->race_count(), 1);
  std::string text = format_race(checker->races()[0]);
  EXPECT_THAT(text, HasSubstr("copy 'w up' on cpu:0/up writes"));
  EXPECT_THAT(text, HasSubstr("fill 'clear' on cpu:0/compute writes"));
  EXPECT_THAT(text, HasSubstr("share 8 bytes from byte 512 and 0 on"));
}

TEST_F(HappensBeforeTest, EventsOrderStreams) {
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "w up");
  order(*upload, *compute);
  fill(*compute, device_memory[0]->view(), "clear");
  EXPECT_EQ(checker->race_count(), 0);
  // The wait says nothing of what the waiting stream does afterwards.
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "next");
  EXPECT_EQ(checker->race_count(), 1);
}

TEST_F(HappensBeforeTest, TimepointsOrderStreamsAndOrderIsTransitive) {
  std::unique_ptr<Stream> down = devices[0]->create_stream({"down"}).value();
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "w up");
  Timepoint uploaded = upload->mark().value();
  ASSERT_TRUE(compute->wait(uploaded).is_ok());
  Timepoint computed = compute->mark().value();
  ASSERT_TRUE(down->wait(computed).is_ok());
  copy(*down, host_memory[1]->view(), device_memory[0]->view(), "w down");
  EXPECT_EQ(checker->race_count(), 0);
}

TEST_F(HappensBeforeTest, ReadsDoNotRaceAndDisjointBytesNeither) {
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "read");
  copy(*other, device_memory[1]->view(), host_memory[0]->view(), "read too");
  fill(*upload, device_memory[0]->slice(0, 512), "front");
  order(*upload, *compute);
  fill(*compute, device_memory[0]->slice(512, 512), "back");
  fill(*upload, device_memory[0]->slice(0, 512), "front again");
  EXPECT_EQ(checker->race_count(), 0);
}

TEST_F(HappensBeforeTest, TwoReadersAreBothRemembered) {
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "reader one");
  copy(*other, device_memory[1]->view(), host_memory[0]->view(), "reader two");
  // Waiting for the second reader alone is not enough.
  ASSERT_TRUE(other->synchronize().is_ok());
  note_host_write(host_memory[0]->host_data(), kBytes, "refill");
  ASSERT_EQ(checker->race_count(), 1);
  EXPECT_THAT(format_race(checker->races()[0]), HasSubstr("reader one"));
}

TEST_F(HappensBeforeTest, TheHostHasToNoticeThatWorkIsDone) {
  copy(*upload, device_memory[0]->view(), host_memory[0]->view(), "w up");
  note_host_read(host_memory[0]->host_data(), kBytes, "look");
  EXPECT_EQ(checker->race_count(), 0);
  note_host_write(host_memory[0]->host_data() + 100, 1, "update");
  ASSERT_EQ(checker->race_count(), 1);
  EXPECT_THAT(format_race(checker->races()[0]), HasSubstr("host work 'update' on host writes"));
}

TEST_F(HappensBeforeTest, EveryWayOfNoticingOrders) {
  auto use = [&] { copy(*upload, host_memory[0]->view(), device_memory[0]->view(), "down"); };
  auto touch = [&] { note_host_write(host_memory[0]->host_data(), kBytes, "update"); };
  use();
  ASSERT_TRUE(upload->synchronize().is_ok());
  touch();
  use();
  ASSERT_TRUE(devices[0]->synchronize().is_ok());
  touch();
  use();
  ASSERT_TRUE(upload->record(*event).is_ok());
  ASSERT_TRUE(event->synchronize().is_ok());
  touch();
  use();
  ASSERT_TRUE(upload->record(*event).is_ok());
  while (!event->query().value()) std::this_thread::yield();
  touch();
  use();
  ASSERT_TRUE(wait_until_reached(upload->mark().value()).is_ok());
  touch();
  EXPECT_EQ(checker->race_count(), 0);
  // What the host has noticed, later work of any stream knows.
  copy(*compute, device_memory[0]->view(), host_memory[0]->view(), "up");
  EXPECT_EQ(checker->race_count(), 0);
  use();
  EXPECT_EQ(checker->race_count(), 2);  // it reads what "up" writes, and writes what "up" reads
}

TEST_F(HappensBeforeTest, MemoryThatIsAllocatedAnewHasNoPast) {
  const std::byte* place = host_memory[1]->host_data();
  copy(*upload, device_memory[0]->view(), host_memory[1]->view(), "old life");
  host_memory[1].reset();
  devices[0]->collect_retired();
  for (int i = 0; i < 20; ++i) {
    BufferHandle again = allocate(*devices[0], true);
    note_host_write(again->host_data(), kBytes, "new life");
    if (again->host_data() == place) break;
  }
  EXPECT_EQ(checker->race_count(), 0);
}

TEST_F(HappensBeforeTest, DevicesAreOrderedByEventsOfTheOther) {
  copy(*upload, host_memory[0]->view(), device_memory[0]->view(), "boundary down");
  order(*upload, *other);
  copy(*other, device_memory[1]->view(), host_memory[0]->view(), "boundary up");
  EXPECT_EQ(checker->race_count(), 0);
  copy(*upload, host_memory[0]->view(), device_memory[0]->view(), "next boundary");
  ASSERT_EQ(checker->race_count(), 1);
  EXPECT_THAT(format_race(checker->races()[0]), HasSubstr("cpu:1/compute"));
}

TEST(AccessHistory, SplitsRangesAndKeepsTheirPasts) {
  AccessHistory history;
  auto access = [](size_t subject, uint64_t time, bool writes, uintptr_t begin, uintptr_t end) {
    MemoryAccess made;
    made.subject = subject;
    made.time = time;
    made.writes = writes;
    made.begin = begin;
    made.end = end;
    return std::make_shared<const MemoryAccess>(made);
  };
  VectorClock knows_one, knows_nothing;
  knows_one.set(1, 1);
  EXPECT_EQ(history.add(access(1, 1, true, 100, 200), knows_nothing), nullptr);
  EXPECT_EQ(history.add(access(2, 1, true, 120, 140), knows_one), nullptr);
  // The middle belongs to subject 2 now, both ends still to subject 1.
  EXPECT_EQ(history.add(access(3, 1, false, 100, 120), knows_one), nullptr);
  EXPECT_EQ(history.add(access(3, 2, false, 140, 300), knows_one), nullptr);
  AccessHistory::Access found = history.add(access(3, 3, false, 139, 141), knows_one);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->subject, 2u);
  found = history.add(access(1, 2, true, 250, 260), knows_one);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->time, 2u);
  history.forget(0, 1000);
  EXPECT_EQ(history.add(access(4, 1, true, 0, 1000), knows_nothing), nullptr);
}

}  // namespace
}  // namespace stagecoach
