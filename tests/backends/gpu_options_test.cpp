#include "backends/gpu/gpu_options.h"

#include <filesystem>
#include <fstream>

#include "backends/gpu/gpu_memory.h"
#include "backends/gpu/gpu_sysfs.h"
#include "tests/backends/gpu_rig.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

Result<std::vector<GpuDeviceRequest>> parse(const std::string& text, int cards) {
  auto specs = parse_device_specs(text);
  if (!specs.is_ok()) return specs.status();
  return parse_gpu_options(specs->front(), cards);
}

TEST(GpuOptions, OneCardAllCardsAndParts) {
  auto one = parse("cuda:1", 2);
  ASSERT_TRUE(one.is_ok());
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().ordinal, 1);
  EXPECT_EQ(one->front().part_count, 1);
  auto all = parse("cuda:all[memory=2G]", 3);
  ASSERT_TRUE(all.is_ok());
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[2].ordinal, 2);
  EXPECT_EQ((*all)[2].memory_bytes, 2 * kGiB);
  auto parts = parse("cuda:0x4", 1);
  ASSERT_TRUE(parts.is_ok());
  ASSERT_EQ(parts->size(), 4u);
  EXPECT_EQ((*parts)[3].ordinal, 0);
  EXPECT_EQ((*parts)[3].part, 3);
  EXPECT_EQ((*parts)[3].index, 3);
}

TEST(GpuOptions, SwitchesAreOnOrOff) {
  auto plain = parse("cuda:0", 1);
  ASSERT_TRUE(plain.is_ok());
  EXPECT_TRUE(plain->front().use_libraries);
  EXPECT_FALSE(plain->front().fp16_accumulate);
  EXPECT_FALSE(plain->front().is_deterministic);
  auto set = parse("cuda:0x2[memory=1G,libraries=on,fp16_accumulate=on]", 1);
  ASSERT_TRUE(set.is_ok()) << set.status().to_string();
  EXPECT_TRUE((*set)[1].use_libraries);
  EXPECT_TRUE((*set)[1].fp16_accumulate);
  EXPECT_EQ((*set)[1].memory_bytes, kGiB);
  auto off = parse("cuda:0[libraries=off,fp16_accumulate=off]", 1);
  ASSERT_TRUE(off.is_ok());
  EXPECT_FALSE(off->front().use_libraries);
}

TEST(GpuOptions, MistakesAreNamed) {
  struct Case {
    const char* text;
    const char* expected;
  };
  constexpr Case kCases[] = {
      {"cuda:none", "'none' names no card"},
      {"cuda:0x0", "'0x0' names no card"},
      {"cuda:0x17", "'0x17' names no card"},
      {"cuda:0x", "'0x' names no card"},
      {"cuda:-1", "'-1' names no card"},
      {"cuda:0[speed=1]",
       "unknown option 'speed'; there are 'memory', 'libraries' and 'fp16_accumulate'"},
      {"cuda:0[libraries=maybe]", "option 'libraries' is 'maybe'; it takes on or off"},
      {"cuda:0[libraries=on,off]", "option 'libraries' has 2 values"},
      {"cuda:0[fp16_accumulate=1]", "option 'fp16_accumulate' is '1'; it takes on or off"},
      {"cuda:0[libraries=off,fp16_accumulate=on]", "option 'fp16_accumulate' needs 'libraries'"},
      {"cuda:0[memory=1G,2G]", "option 'memory' has 2 values"},
      {"cuda:0[memory=much]", "option 'memory': "},
      {"cuda:0[memory=0]", "option 'memory' is 0; it must be above 0"},
  };
  for (const Case& one : kCases) {
    auto result = parse(one.text, 1);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << one.text;
    EXPECT_NE(result.status().message().find(one.expected), std::string::npos)
        << result.status().message();
    EXPECT_NE(result.status().message().find(one.text), std::string::npos);
  }
}

TEST(GpuOptions, AnAbsentCardIsUnavailable) {
  auto result = parse("cuda:2", 2);
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(result.status().message().find("card 2 is not there; this machine has 2"),
            std::string::npos);
}

// The contract: without a cap, 1.5 GiB stay for a display; driver and libraries take some too.
TEST(GpuUsableMemory, LeavesRoomForOthers) {
  EXPECT_EQ(usable_memory_bytes(8 * kGiB, 8 * kGiB, true), 6 * kGiB + 512 * kMiB);
  EXPECT_EQ(usable_memory_bytes(7 * kGiB, 8 * kGiB, false), 7 * kGiB - 256 * kMiB);
  EXPECT_EQ(usable_memory_bytes(32 * kMiB, 32 * kMiB, false), 31 * kMiB);
  EXPECT_EQ(usable_memory_bytes(kGiB, 8 * kGiB, true), 0);
}

// Ops find their scratch memory however full the device is, and more while there is more.
TEST(GpuMemoryAccount, ScratchMemoryIsSetAside) {
  GpuMemoryAccount account(80 * kMiB);
  EXPECT_EQ(account.usage().used_bytes, 10 * kMiB);
  EXPECT_TRUE(account.reserve(60 * kMiB));
  EXPECT_FALSE(account.reserve(11 * kMiB));
  EXPECT_TRUE(account.reserve_scratch(8 * kMiB));
  EXPECT_EQ(account.usage().used_bytes, 70 * kMiB);
  EXPECT_TRUE(account.reserve_scratch(7 * kMiB));
  EXPECT_EQ(account.usage().used_bytes, 75 * kMiB);
  EXPECT_FALSE(account.reserve_scratch(6 * kMiB));
  account.release_scratch(8 * kMiB);
  EXPECT_EQ(account.usage().used_bytes, 70 * kMiB);
  account.release_scratch(7 * kMiB);
  account.release(60 * kMiB);
  EXPECT_EQ(account.usage().used_bytes, 10 * kMiB);
}

TEST(GpuDisplay, IsFoundByAConnectorThatIsOn) {
  TemporaryFolder folder;
  std::string connector = folder.path() + "/0000:3b:00.0/drm/card0/card0-HDMI-A-1";
  std::filesystem::create_directories(connector);
  EXPECT_FALSE(pci_drives_display("0000:3B:00.0", folder.path()));
  std::ofstream(connector + "/enabled") << "disabled\n";
  EXPECT_FALSE(pci_drives_display("0000:3B:00.0", folder.path()));
  std::ofstream(connector + "/enabled") << "enabled\n";
  EXPECT_TRUE(pci_drives_display("00000000:3B:00.0", folder.path()));
  EXPECT_FALSE(pci_drives_display("0000:3b:00.1", folder.path()));
  EXPECT_FALSE(pci_drives_display("", folder.path()));
}

class GpuDevices : public GpuRig {};

TEST_F(GpuDevices, TakeWhatOthersLeaveUnlessACapIsGiven) {
  FakeGpuOptions options;
  options.foreign_bytes = 8 * kMiB;
  build(options);
  open("0");
  EXPECT_EQ(device().info().memory_bytes, 23 * kMiB);
  close();
  open("0[memory=30M]");
  EXPECT_EQ(device().info().memory_bytes, 30 * kMiB);
  close();
  options.memory_bytes = 16 * kGiB;
  options.foreign_bytes = 2 * kGiB;
  options.drives_display = true;
  build(options);
  open("0x2");
  EXPECT_EQ(device(0).info().memory_bytes, 6 * kGiB + 256 * kMiB);
  close();
  options.foreign_bytes = 15 * kGiB;
  build(options);
  Status full = machine_->open("0").status();
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_NE(full.message().find("drives a display"), std::string::npos) << full.message();
}

TEST_F(GpuDevices, LogicalDevicesShareACardAndItsMemory) {
  open("0x2");
  ASSERT_EQ(devices_.size(), 2u);
  EXPECT_EQ(device(0).id(), "fake_gpu:0.0");
  EXPECT_EQ(device(1).id(), "fake_gpu:0.1");
  EXPECT_EQ(device(0).info().memory_bytes, 31 * kMiB / 2);  // a 32nd is the driver's
  MemoryUsage usage = *device(0).memory_usage();
  ByteCount each = usage.total_bytes - usage.used_bytes;
  EXPECT_EQ(driver().calls(FakeGpuFunction::retain_context), 2);
  // What one takes, the other still has.
  EXPECT_EQ(device(0).allocate(each, "all").outcome, AllocationOutcome::kOk);
  BufferHandle all = device_buffer(each, 1);
  EXPECT_EQ(device(1).allocate(1, "more").outcome, AllocationOutcome::kExhausted);
}

TEST_F(GpuDevices, MemoryCapsHoldAndAreChecked) {
  open("0[memory=1M]");
  EXPECT_EQ(device().info().memory_bytes, kMiB);
  EXPECT_EQ(device().memory_usage()->total_bytes, kMiB);
  BufferHandle half = device_buffer(kMiB / 2);
  EXPECT_EQ(device().allocate(kMiB / 2 + 1, "too much").outcome, AllocationOutcome::kExhausted);
  int64_t asked = driver().calls(FakeGpuFunction::allocate);
  EXPECT_EQ(device().allocate(kMiB, "too much").outcome, AllocationOutcome::kExhausted);
  EXPECT_EQ(driver().calls(FakeGpuFunction::allocate), asked) << "the cap is ours to keep";
  half.reset();
  close();
  auto greedy = machine_->open("0x2[memory=20M]");
  EXPECT_EQ(greedy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(greedy.status().message().find("each of 2 logical devices"), std::string::npos)
      << greedy.status().message();
}

TEST_F(GpuDevices, IdsOfLivingDevicesDiffer) {
  open("0");
  auto again = machine_->open("0");
  ASSERT_TRUE(again.is_ok());
  EXPECT_NE(again->front()->id(), device().id());
  again->clear();
  close();
  open("0");
  EXPECT_EQ(device().id(), "fake_gpu:0");
}

TEST_F(GpuDevices, NothingIsLeftBehind) {
  open("all");
  {
    auto stream = new_stream();
    auto event = device().create_event({true}).value();
    BufferHandle memory = device_buffer(4096);
    BufferHandle host = pinned_buffer(4096);
    std::vector<std::byte> mine(4096);
    auto first = device(0).register_host(mine.data(), 4096, "mine");
    auto second = device(1).register_host(mine.data(), 4096, "mine too");
    ASSERT_TRUE(first.is_ok() && second.is_ok());
    ASSERT_TRUE(stream->copy({memory->view(), first.value()->view(), "up"}).is_ok());
    ASSERT_TRUE(stream->record(*event).is_ok());
    memory.reset();
    ASSERT_TRUE(stream->synchronize().is_ok());  // `mine` goes before the stream
  }
  close();
  EXPECT_EQ(driver().leaks(), "");
}

// A destroyed stream's handle is the next one given out: nothing may still mean the old one.
TEST_F(GpuDevices, RecycledHandlesMeanTheNewStream) {
  open("0");
  auto event = device().create_event().value();
  for (int round = 0; round < 5; ++round) {
    auto old_stream = new_stream("old");
    BufferHandle memory = device_buffer(64);
    ASSERT_TRUE(old_stream->fill({memory->view(), 1, 4, "old"}).is_ok());
    ASSERT_TRUE(old_stream->record(*event).is_ok());
    Timepoint old_point = old_stream->last_submitted();
    old_stream.reset();
    auto fresh = new_stream("fresh");
    ASSERT_TRUE(fresh->launch(hold_request(20'000'000)).is_ok());
    auto passed = event->query();
    ASSERT_TRUE(passed.is_ok());
    EXPECT_TRUE(passed.value());
    EXPECT_TRUE(reached(old_point).value());
    EXPECT_FALSE(reached(fresh->last_submitted()).value());
    ASSERT_TRUE(fresh->wait(*event).is_ok());
    ASSERT_TRUE(fresh->synchronize().is_ok());
  }
}

}  // namespace
}  // namespace stagecoach
