#include <algorithm>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class MemoryConformance : public ConformanceTest {
 protected:
  MemoryUsage usage() {
    auto result = device().memory_usage();
    EXPECT_TRUE(is_ok(result));
    return result.value();
  }
};

// M1: exactly the bytes asked for, aligned.
TEST_P(MemoryConformance, M1_SizeAndAlignment) {
  for (ByteCount size : {1, 3, 64, 65, 4097}) {
    Allocation allocation = device().allocate(size, "sized");
    ASSERT_EQ(allocation.outcome, AllocationOutcome::kOk);
    EXPECT_EQ(allocation.buffer->size(), size);
    EXPECT_EQ(allocation.buffer->kind(), MemoryKind::kDevice);
    EXPECT_EQ(allocation.buffer->device_address() % 64, 0u);
    EXPECT_EQ(allocation.buffer->host_data(), nullptr);
    EXPECT_EQ(allocation.buffer->label().view(), "sized");
  }
}

// M1: pinned memory is the host's.
TEST_P(MemoryConformance, M1_PinnedMemoryIsForTheHost) {
  Allocation allocation = device().allocate_pinned(100, "pinned");
  ASSERT_EQ(allocation.outcome, AllocationOutcome::kOk);
  EXPECT_EQ(allocation.buffer->kind(), MemoryKind::kHostPinned);
  ASSERT_NE(allocation.buffer->host_data(), nullptr);
  std::fill_n(allocation.buffer->host_data(), 100, std::byte{7});
  EXPECT_EQ(allocation.buffer->slice(99, 1).host_data()[0], std::byte{7});
}

// E1, invalid argument: nothing, or less.
TEST_P(MemoryConformance, E1_SizesMustBeAboveZero) {
  for (ByteCount size : {ByteCount{0}, ByteCount{-1}}) {
    Allocation allocation = device().allocate(size, "bad");
    EXPECT_EQ(allocation.outcome, AllocationOutcome::kFailed);
    EXPECT_TRUE(has_code(allocation.status, StatusCode::kInvalidArgument));
    EXPECT_EQ(allocation.status.site().device, device().id());
    EXPECT_EQ(allocation.status.site().label, "bad");
    EXPECT_EQ(device().allocate_pinned(size, "bad").outcome, AllocationOutcome::kFailed);
  }
}

// E7, M1: running out is an outcome, and what was freed can be had again.
TEST_P(MemoryConformance, E7_ExhaustionIsAnOutcome) {
  ByteCount total = usage().total_bytes;
  Allocation too_much = device().allocate(total + 1, "too much");
  EXPECT_EQ(too_much.outcome, AllocationOutcome::kExhausted);
  EXPECT_EQ(too_much.buffer, nullptr);
  EXPECT_TRUE(is_ok(too_much.status));
  std::vector<BufferHandle> pieces;
  ByteCount piece = total / 8;
  Allocation next = device().allocate(piece, "piece");
  while (next.outcome == AllocationOutcome::kOk) {
    pieces.push_back(std::move(next.buffer));
    next = device().allocate(piece, "piece");
  }
  EXPECT_EQ(next.outcome, AllocationOutcome::kExhausted);
  ASSERT_GE(pieces.size(), 2u);
  pieces.pop_back();
  EXPECT_EQ(device().allocate(piece, "again").outcome, AllocationOutcome::kOk);
}

// E8, resource exhausted: for callers that cannot go on, with what is needed to act.
TEST_P(MemoryConformance, E8_RequireBufferNamesWhatIsShort) {
  ByteCount asked = usage().total_bytes + 1;
  auto buffer = require_buffer(device().allocate(asked, "weights"), device(), asked, "weights");
  EXPECT_TRUE(has_code(buffer, StatusCode::kResourceExhausted));
  EXPECT_EQ(buffer.status().site().device, device().id());
  EXPECT_EQ(buffer.status().site().label, "weights");
  EXPECT_NE(buffer.status().message().find(std::to_string(asked)), std::string::npos);
  std::string free = std::to_string(usage().total_bytes - usage().used_bytes);
  EXPECT_NE(buffer.status().message().find(free), std::string::npos);
}

// M2: usage follows allocation and release; the peak stays.
TEST_P(MemoryConformance, M2_UsageAndPeak) {
  MemoryUsage before = usage();
  {
    BufferHandle first = device_buffer(1000);
    BufferHandle second = device_buffer(500);
    EXPECT_GE(usage().used_bytes, before.used_bytes + 1500);
  }
  EXPECT_EQ(usage().used_bytes, before.used_bytes);
  EXPECT_GE(usage().peak_bytes, before.used_bytes + 1500);
}

// L2: a buffer destroyed in use keeps its memory until the last of its users, of any stream.
TEST_P(MemoryConformance, L2_ReleaseWaitsForAllUses) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto quick = new_stream("quick");
  auto slow = new_stream("slow");
  ByteCount before = usage().used_bytes;
  BufferHandle memory = device_buffer(4096);
  BufferHandle host = pinned_buffer(4096);
  ASSERT_TRUE(is_ok(quick->fill({memory->view(), 0x12121212, 4, "quick"})));
  ASSERT_TRUE(is_ok(quick->synchronize()));
  hold(*slow, kHoldNs);
  ASSERT_TRUE(is_ok(slow->copy({host->view(), memory->view(), "slow"})));
  memory.reset();
  device().collect_retired();
  EXPECT_GE(usage().used_bytes, before + 4096);
  ASSERT_TRUE(is_ok(slow->synchronize()));
  EXPECT_EQ(std::to_integer<int>(host->host_data()[4095]), 0x12);
  device().collect_retired();
  EXPECT_EQ(usage().used_bytes, before);
}

// L2: a pinned buffer too.
TEST_P(MemoryConformance, L2_PinnedReleaseWaits) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(4096);
  BufferHandle host = pinned_buffer(4096);
  std::fill_n(host->host_data(), 4096, std::byte{0x66});
  hold(*stream, kHoldNs / 2);
  ASSERT_TRUE(is_ok(stream->copy({memory->view(), host->view(), "up"})));
  host.reset();
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(download_words(memory->view()), std::vector<uint32_t>(1024, 0x66666666));
}

// M2: allocation frees what waits and is over, by itself.
TEST_P(MemoryConformance, M2_AllocationCollectsByItself) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  ByteCount large = usage().total_bytes - usage().used_bytes;
  ByteCount half = large / 2 / 64 * 64 + 64;
  BufferHandle memory = device_buffer(half);
  hold(*stream, kHoldNs);
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0, 4, "use"})));
  memory.reset();
  EXPECT_EQ(device().allocate(half, "too early").outcome, AllocationOutcome::kExhausted);
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(device().allocate(half, "in time").outcome, AllocationOutcome::kOk);
}

// L2: math counts as use.
TEST_P(MemoryConformance, L2_MathOperandsAreKept) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  auto stream = new_stream();
  BufferHandle in = upload({1, 2, 3, 4});
  BufferHandle out = upload({10, 10, 10, 10});
  ByteCount before = usage().used_bytes;
  hold(*stream, kHoldNs);
  Shape shape{4};
  ASSERT_TRUE(is_ok(device().ops().accumulate(
      *stream, {{out->view(), DType::kF32, shape}, {in->view(), DType::kF32, shape}, "sum"})));
  in.reset();
  device().collect_retired();
  EXPECT_EQ(usage().used_bytes, before);
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(download(out->view()), (std::vector<float>{11, 12, 13, 14}));
  device().collect_retired();
  EXPECT_LT(usage().used_bytes, before);
}

STAGECOACH_CONFORMANCE_SUITE(MemoryConformance);

}  // namespace
}  // namespace stagecoach
