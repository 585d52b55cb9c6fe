#include "backends/cpu/cpu_memory.h"

#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "tests/backends/cpu_rig.h"

namespace stagecoach {
namespace {

bool is_poison(const std::byte* data, ByteCount size) {
  for (ByteCount i = 0; i < size; ++i) {
    if (data[i] != std::byte{0xff}) return false;
  }
  return true;
}

bool released_as_poison = false;
constexpr ByteCount kReleasedSize = 1000;

void inspect_and_free(void* data) {
  released_as_poison = is_poison(static_cast<const std::byte*>(data), kReleasedSize);
  std::free(data);
}

TEST(CpuMemory, PoisonIsNanInEveryFloatingType) {
  alignas(8) std::byte data[8];
  poison_memory(data, sizeof(data));
  float single = 0;
  double wide = 0;
  uint16_t half = 0;
  std::memcpy(&single, data, sizeof(single));
  std::memcpy(&wide, data, sizeof(wide));
  std::memcpy(&half, data, sizeof(half));
  EXPECT_TRUE(std::isnan(single));
  EXPECT_TRUE(std::isnan(wide));
  EXPECT_TRUE(std::isnan(to_float(BFloat16{half})));
  EXPECT_TRUE(std::isnan(to_float(Float16{half})));
}

TEST(CpuMemory, PoisonedAtAllocationAndAtRelease) {
  CpuMemory memory(kReleasedSize, allocate_aligned, inspect_and_free);
  std::byte* data = memory.allocate(kReleasedSize);
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(is_poison(data, kReleasedSize));
  std::memset(data, 1, kReleasedSize);
  released_as_poison = false;
  memory.release(data, kReleasedSize);
  EXPECT_TRUE(released_as_poison);
}

TEST(CpuMemory, TheLimitIsExact) {
  CpuMemory memory(1000);
  EXPECT_EQ(memory.allocate(1001), nullptr);
  std::byte* most = memory.allocate(999);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(memory.allocate(2), nullptr);
  std::byte* last = memory.allocate(1);
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(memory.usage().used_bytes, 1000);
  memory.release(most, 999);
  EXPECT_EQ(memory.usage().used_bytes, 1);
  EXPECT_EQ(memory.usage().peak_bytes, 1000);
  EXPECT_EQ(memory.usage().total_bytes, 1000);
  memory.release(last, 1);
}

TEST(CpuMemory, AHostWithoutMemoryCountsNothing) {
  CpuMemory memory(1000, [](ByteCount) -> std::byte* { return nullptr; });
  EXPECT_EQ(memory.allocate(10), nullptr);
  EXPECT_EQ(memory.usage().used_bytes, 0);
  EXPECT_EQ(memory.usage().peak_bytes, 0);
}

class CpuDeviceMemory : public CpuRig {};

// M1: contents are undefined, and on this mock NaN: what was not uploaded shows.
TEST_F(CpuDeviceMemory, M1_FreshMemoryIsNan) {
  open("cpu:1[memory=1M]");
  BufferHandle memory = device_buffer(256), host = pinned_buffer(256);
  std::memset(host->host_data(), 0, 256);
  auto stream = new_stream();
  ASSERT_TRUE(stream->copy({host->view(), memory->view(), "down"}).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  EXPECT_TRUE(is_poison(host->host_data(), 256));
}

TEST_F(CpuDeviceMemory, M1_TheLimitOfADeviceIsExactAndItsOwn) {
  open("cpu:2[memory=1000]");
  BufferHandle all = device_buffer(1000);
  EXPECT_EQ(device(0).allocate(1, "over").outcome, AllocationOutcome::kExhausted);
  EXPECT_EQ(device(1).allocate(1000, "other device").outcome, AllocationOutcome::kOk);
  EXPECT_EQ(device(0).allocate_pinned(1000, "host").outcome, AllocationOutcome::kOk);
}

}  // namespace
}  // namespace stagecoach
