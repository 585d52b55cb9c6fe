#include <cstring>
#include <numeric>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class CopyConformance : public ConformanceTest {
 protected:
  /// Expects `request` to be refused as an invalid argument with its place named.
  void expect_refused(Stream& stream, const CopyRequest& request) {
    Timepoint before = stream.last_submitted();
    auto result = stream.copy(request);
    EXPECT_TRUE(has_code(result, StatusCode::kInvalidArgument));
    EXPECT_EQ(result.status().site().device, device().id());
    EXPECT_EQ(result.status().site().stream, stream.name());
    EXPECT_EQ(result.status().site().verb, "copy");
    EXPECT_EQ(result.status().site().label, request.label.view());
    EXPECT_EQ(stream.last_submitted(), before);
    EXPECT_TRUE(is_ok(stream.status()));
  }
};

std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// M4, V1, V2: up and down again, from and to pinned memory.
TEST_P(CopyConformance, M4_RoundTripThroughDeviceMemory) {
  std::vector<float> values = counting(1 << 18);
  BufferHandle memory = upload(values);
  EXPECT_EQ(download(memory->view()), values);
}

// M4: pageable and registered memory work as well as pinned.
TEST_P(CopyConformance, M4_PageableAndRegisteredMemory) {
  std::vector<float> source = counting(4096);
  std::vector<float> target(source.size(), -1);
  ByteCount size = static_cast<ByteCount>(source.size() * sizeof(float));
  auto wrapped = device().wrap_pageable(source.data(), size, "pageable");
  auto registered = device().register_host(target.data(), size, "registered");
  ASSERT_TRUE(is_ok(wrapped));
  ASSERT_TRUE(is_ok(registered));
  EXPECT_EQ(wrapped.value()->kind(), MemoryKind::kHostPageable);
  EXPECT_EQ(registered.value()->kind(), MemoryKind::kHostRegistered);
  BufferHandle memory = device_buffer(size);
  auto stream = new_stream();
  ASSERT_TRUE(is_ok(stream->copy({memory->view(), wrapped.value()->view(), "up"})));
  ASSERT_TRUE(is_ok(stream->copy({registered.value()->view(), memory->view(), "down"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(target, source);
}

// M4: inside one device's memory, and inside the host's.
TEST_P(CopyConformance, M4_InsideOneMemory) {
  std::vector<float> values = counting(1000);
  BufferHandle source = upload(values);
  BufferHandle target = device_buffer(source->size());
  BufferHandle host_source = pinned_floats(values);
  BufferHandle host_target = pinned_buffer(source->size());
  auto stream = new_stream();
  ASSERT_TRUE(is_ok(stream->copy({target->view(), source->view(), "device copy"})));
  ASSERT_TRUE(is_ok(stream->copy({host_target->view(), host_source->view(), "host copy"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(download(target->view()), values);
  EXPECT_EQ(
      std::memcmp(host_target->host_data(), values.data(), static_cast<size_t>(source->size())), 0);
}

// M4: parts at odd offsets; the bytes beside them stay.
TEST_P(CopyConformance, M4_PartsLeaveTheRestAlone) {
  constexpr ByteCount kSize = 64, kOffset = 13, kPart = 7;
  BufferHandle memory = device_buffer(kSize);
  BufferHandle host = pinned_buffer(kSize);
  BufferHandle back = pinned_buffer(kSize);
  std::memset(host->host_data(), 0x5a, kSize);
  auto stream = new_stream();
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0x11, 1, "ground"})));
  ASSERT_TRUE(is_ok(stream->copy({memory->slice(kOffset, kPart), host->slice(1, kPart), "part"})));
  ASSERT_TRUE(is_ok(stream->copy({back->view(), memory->view(), "back"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  for (ByteCount i = 0; i < kSize; ++i) {
    bool inside = i >= kOffset && i < kOffset + kPart;
    EXPECT_EQ(std::to_integer<int>(back->host_data()[i]), inside ? 0x5a : 0x11) << i;
  }
}

// V1: the bytes are read when the copy runs, in order with the stream.
TEST_P(CopyConformance, V1_HostWritesBeforeSubmitAreSeen) {
  BufferHandle host = pinned_buffer(4);
  BufferHandle memory = device_buffer(4);
  auto stream = new_stream();
  for (float value : {1.0f, 2.0f, 3.0f}) {
    std::memcpy(host->host_data(), &value, sizeof(value));
    auto copied = stream->copy({memory->view(), host->view(), "value"});
    ASSERT_TRUE(is_ok(copied));
    ASSERT_TRUE(is_ok(wait_until_reached(copied.value())));
    EXPECT_EQ(download(memory->view())[0], value);
  }
}

// M4, E1: what lies outside a buffer, is empty or has no buffer.
TEST_P(CopyConformance, E1_RangesOutsideAreRefused) {
  BufferHandle memory = device_buffer(64);
  BufferHandle host = pinned_buffer(64);
  auto stream = new_stream();
  expect_refused(*stream, {BufferView{memory.get(), 60, 8}, BufferView{host.get(), 0, 8}, "end"});
  expect_refused(*stream, {BufferView{memory.get(), -4, 8}, BufferView{host.get(), 0, 8}, "start"});
  expect_refused(*stream, {BufferView{memory.get(), 0, 0}, BufferView{host.get(), 0, 0}, "empty"});
  expect_refused(*stream, {BufferView{}, host->view(), "no target"});
  expect_refused(*stream, {memory->view(), BufferView{}, "no source"});
}

// M4, E1: unequal lengths.
TEST_P(CopyConformance, E1_UnequalLengthsAreRefused) {
  BufferHandle memory = device_buffer(64);
  BufferHandle host = pinned_buffer(32);
  auto stream = new_stream();
  expect_refused(*stream, {memory->view(), host->view(), "unequal"});
}

// M4, E1: overlapping ranges; ranges that touch are fine.
TEST_P(CopyConformance, E1_OverlapIsRefused) {
  BufferHandle memory = device_buffer(64);
  auto stream = new_stream();
  expect_refused(*stream, {memory->slice(0, 32), memory->slice(31, 32), "overlap"});
  expect_refused(*stream, {memory->view(), memory->view(), "same"});
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0x33, 1, "ground"})));
  EXPECT_TRUE(is_ok(stream->copy({memory->slice(0, 32), memory->slice(32, 32), "touching"})));
  EXPECT_TRUE(is_ok(stream->synchronize()));
}

// M4, E1: a stream copies for its own device.
TEST_P(CopyConformance, E1_AnotherDevicesMemoryIsRefused) {
  BufferHandle away = device_buffer(64, 1);
  BufferHandle host = pinned_buffer(64);
  auto stream = new_stream();
  expect_refused(*stream, {away->view(), host->view(), "upload elsewhere"});
  expect_refused(*stream, {host->view(), away->view(), "download elsewhere"});
  BufferHandle away_too = device_buffer(64, 1);
  expect_refused(*stream, {away->view(), away_too->view(), "inside elsewhere"});
}

// M3: a kernel reads and writes pinned memory where the device says that it does, bit by bit;
// elsewhere, and other host memory anywhere, it is refused.
TEST_P(CopyConformance, M3_KernelsReachPinnedMemoryWhereTheDeviceSaysSo) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kMath);
  constexpr int64_t kCount = 1000;
  std::vector<uint32_t> words(kCount);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = 0x7f800000u + static_cast<uint32_t>(i);  // NaN
  BufferHandle source = pinned_buffer(kCount * 4), target = pinned_buffer(kCount * 4);
  std::memcpy(source->host_data(), words.data(), words.size() * sizeof(words[0]));
  BufferHandle memory = device_buffer(kCount * 4);
  auto stream = new_stream();
  auto convert = [&](BufferView out, BufferView in) {
    Ops::Convert request;
    request.out = {out, DType::kF32, Shape{kCount}};
    request.in = {in, DType::kF32, Shape{kCount}};
    request.label = "through pinned memory";
    return device().ops().convert(*stream, request);
  };
  std::vector<float> ordinary(kCount);
  auto pageable = device().wrap_pageable(ordinary.data(), kCount * 4, "pageable");
  ASSERT_TRUE(is_ok(pageable));
  EXPECT_TRUE(has_code(convert(memory->view(), (*pageable)->view()), StatusCode::kInvalidArgument));
  if (!device().info().kernels_reach_pinned) {
    EXPECT_TRUE(has_code(convert(memory->view(), source->view()), StatusCode::kInvalidArgument));
    EXPECT_TRUE(has_code(convert(target->view(), memory->view()), StatusCode::kInvalidArgument));
    return;
  }
  ASSERT_TRUE(is_ok(convert(memory->view(), source->view())));
  ASSERT_TRUE(is_ok(convert(target->view(), memory->view())));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(std::memcmp(target->host_data(), words.data(), words.size() * sizeof(words[0])), 0);
}

// E1: there is nothing to wrap or register at no address or of no length.
TEST_P(CopyConformance, E1_BadHostRangesAreRefused) {
  float value = 0;
  EXPECT_TRUE(has_code(device().wrap_pageable(nullptr, 4, "null"), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(device().wrap_pageable(&value, 0, "none"), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(device().register_host(nullptr, 4, "null"), StatusCode::kInvalidArgument));
  EXPECT_TRUE(has_code(device().register_host(&value, -4, "none"), StatusCode::kInvalidArgument));
}

STAGECOACH_CONFORMANCE_SUITE(CopyConformance);

}  // namespace
}  // namespace stagecoach
