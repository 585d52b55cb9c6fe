#include <set>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class DeviceConformance : public ConformanceTest {};

// M2: what the device says it has is what the usage counts against.
TEST_P(DeviceConformance, M2_InfoAndUsageAgree) {
  const DeviceInfo& info = device().info();
  EXPECT_FALSE(info.backend.empty());
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.copy_engines, 1);
  EXPECT_GE(info.memory_bytes, kConformanceMemoryBytes);
  auto usage = device().memory_usage();
  ASSERT_TRUE(is_ok(usage));
  EXPECT_EQ(usage->total_bytes, info.memory_bytes);
}

// E1: messages name devices by id, so ids differ and begin with the backend.
TEST_P(DeviceConformance, E1_IdsAreUniqueAndNameTheBackend) {
  std::set<std::string> ids;
  for (const auto& one : devices_) {
    EXPECT_TRUE(ids.insert(one->id()).second) << one->id();
    EXPECT_EQ(one->id().rfind(one->info().backend + ":", 0), 0u) << one->id();
  }
  EXPECT_EQ(devices_[1]->info().index, devices_[0]->info().index + 1);
}

// E1: a card may be asked for by what it is told by, which no other card has.
TEST_P(DeviceConformance, E1_UuidsAreThoseOfOneCard) {
  std::set<std::string> uuids;
  for (const auto& one : devices_) {
    const std::string& uuid = one->info().uuid;
    if (uuid.empty()) continue;
    EXPECT_TRUE(uuid.starts_with("GPU-") || uuid.starts_with("MIG-")) << uuid;
    bool is_part = one->info().name.find("(part ") != std::string::npos;
    EXPECT_TRUE(uuids.insert(uuid).second || is_part) << uuid;
  }
}

// E1, invalid argument: a stream without a name is refused, naming the device and the verb.
TEST_P(DeviceConformance, E1_StreamNeedsAName) {
  auto stream = device().create_stream({});
  EXPECT_TRUE(has_code(stream, StatusCode::kInvalidArgument));
  EXPECT_EQ(stream.status().site().device, device().id());
  EXPECT_EQ(stream.status().site().verb, "create stream");
}

// E8, not found: an executable that does not exist.
TEST_P(DeviceConformance, E8_UnknownExecutableIsNotFound) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  ExecutableImage image;
  image.name = "no such executable";
  auto executable = device().load_executable(image);
  EXPECT_TRUE(has_code(executable, StatusCode::kNotFound));
  EXPECT_EQ(executable.status().site().device, device().id());
  EXPECT_EQ(executable.status().site().label, "no such executable");
}

// O5: synchronize of a device returns when the work of all its streams is done.
TEST_P(DeviceConformance, O5_SynchronizeWaitsForAllStreams) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto first = new_stream("first");
  auto second = new_stream("second");
  hold(*first, kHoldNs);
  hold(*second, kHoldNs / 2);
  ASSERT_TRUE(is_ok(device().synchronize()));
  // A stream learns of it by asking once, without blocking.
  for (Stream* stream : {first.get(), second.get()}) {
    auto event = new_event();
    ASSERT_TRUE(is_ok(stream->record(*event)));
    ASSERT_TRUE(is_ok(device().synchronize()));
    auto passed = event->query();
    ASSERT_TRUE(is_ok(passed));
    EXPECT_TRUE(passed.value());
  }
}

// E2: synchronize of a device tells of a stream that failed.
TEST_P(DeviceConformance, E2_SynchronizeReturnsAStreamsFailure) {
  auto stream = new_stream();
  stream->abandon(cancelled("stopped by the test"));
  EXPECT_TRUE(has_code(device().synchronize(), StatusCode::kCancelled));
}

// P2: counters count what has finished, by direction.
TEST_P(DeviceConformance, P2_CountersCountWorkAndBytes) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  constexpr ByteCount kSize = 4096;
  DeviceCounters before = device().counters();
  auto stream = new_stream();
  BufferHandle host = pinned_buffer(kSize);
  BufferHandle memory = device_buffer(kSize);
  ASSERT_TRUE(is_ok(stream->copy({memory->view(), host->view(), "up"})));
  ASSERT_TRUE(is_ok(stream->copy({memory->view(), host->view(), "up"})));
  ASSERT_TRUE(is_ok(stream->launch(fill_request(memory->view(), 1))));
  ASSERT_TRUE(is_ok(stream->copy({host->view(), memory->view(), "down"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  DeviceCounters after = device().counters();
  EXPECT_EQ(after.kernels - before.kernels, 1);
  EXPECT_EQ(after.copies - before.copies, 3);
  EXPECT_EQ(after.bytes_up - before.bytes_up, 2 * kSize);
  EXPECT_EQ(after.bytes_down - before.bytes_down, kSize);
  EXPECT_GE(after.compute_busy_ns, before.compute_busy_ns);
}

STAGECOACH_CONFORMANCE_SUITE(DeviceConformance);

}  // namespace
}  // namespace stagecoach
