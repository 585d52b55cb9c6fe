#include <cmath>

#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class LaunchConformance : public ConformanceTest {
 protected:
  void expect_refused(Stream& stream, const LaunchRequest& request) {
    Timepoint before = stream.last_submitted();
    auto result = stream.launch(request);
    EXPECT_TRUE(has_code(result, StatusCode::kInvalidArgument));
    EXPECT_EQ(result.status().site().verb, "launch");
    EXPECT_EQ(result.status().site().stream, stream.name());
    EXPECT_EQ(stream.last_submitted(), before);
    EXPECT_TRUE(is_ok(stream.status()));
  }
};

// O1: a kernel writes what its arguments say, where its view begins.
TEST_P(LaunchConformance, O1_KernelsRunWithTheirArguments) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle out = upload({9, 9, 9, 9, 9, 9});
  BufferHandle in = upload({1, 2, 3, 4});
  ASSERT_TRUE(is_ok(stream->launch(fill_request(out->slice(4, 16), 0.5f))));
  LaunchRequest axpy;
  axpy.kernel = kernel("axpy_f32");
  axpy.arguments[0] = KernelArgument::of(out->slice(4, 16));
  axpy.arguments[1] = KernelArgument::of(in->view());
  axpy.arguments[2] = KernelArgument::of(int64_t{4});
  axpy.arguments[3] = KernelArgument::of(2.0f);
  axpy.argument_count = 4;
  axpy.grid = {4, 1, 1};
  ASSERT_TRUE(is_ok(stream->launch(axpy)));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(download(out->view()), (std::vector<float>{9, 2.5f, 4.5f, 6.5f, 8.5f, 9}));
}

// V3: a checksum on the device sees what was copied there.
TEST_P(LaunchConformance, V3_KernelsSeeCopiedBytes) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle in = device_buffer(8);
  BufferHandle out = device_buffer(4);
  ASSERT_TRUE(is_ok(stream->fill({out->view(), 0xffffffff, 4, "poison"})));
  ASSERT_TRUE(is_ok(stream->fill({in->view(), 1, 4, "words"})));
  LaunchRequest request;
  request.kernel = kernel("checksum_u32");
  request.arguments[0] = KernelArgument::of(out->view());
  request.arguments[1] = KernelArgument::of(in->view());
  request.arguments[2] = KernelArgument::of(int64_t{2});
  request.argument_count = 3;
  ASSERT_TRUE(is_ok(stream->launch(request)));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  uint32_t expected = 2166136261u;
  for (int i = 0; i < 2; ++i) expected = (expected ^ 1u) * 16777619u;
  EXPECT_EQ(download_words(out->view())[0], expected);
}

// E8, not found: a kernel that does not exist.
TEST_P(LaunchConformance, E8_UnknownKernelIsNotFound) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto found = executables_[0]->find_kernel("fill_f33");
  EXPECT_TRUE(has_code(found, StatusCode::kNotFound));
}

// M3, E1: kernels refuse host pointers.
TEST_P(LaunchConformance, M3_HostPointersAreRefused) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle host = pinned_buffer(64);
  expect_refused(*stream, fill_request(host->view(), 1));
  float values[16] = {};
  auto wrapped = device().wrap_pageable(values, sizeof(values), "pageable");
  ASSERT_TRUE(is_ok(wrapped));
  expect_refused(*stream, fill_request(wrapped.value()->view(), 1));
  EXPECT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(values[0], 0.0f);
}

// M3, E1: and another device's memory.
TEST_P(LaunchConformance, M3_AnotherDevicesMemoryIsRefused) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle away = device_buffer(64, 1);
  expect_refused(*stream, fill_request(away->view(), 1));
}

// E1: launches that cannot be right.
TEST_P(LaunchConformance, E1_BadRequestsAreRefused) {
  STAGECOACH_REQUIRE_FEATURE(Feature::kTestKernels);
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  const LaunchRequest good = fill_request(memory->view(), 1);
  LaunchRequest bad = good;
  bad.kernel = nullptr;
  expect_refused(*stream, bad);
  bad = good;
  bad.argument_count = LaunchRequest::kMaxArguments + 1;
  expect_refused(*stream, bad);
  bad = good;
  bad.argument_count = -1;
  expect_refused(*stream, bad);
  bad = good;
  bad.grid = {0, 1, 1};
  expect_refused(*stream, bad);
  bad = good;
  bad.block = {1, 1, -1};
  expect_refused(*stream, bad);
  for (double flop : {-1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    bad = good;
    bad.flop = flop;
    expect_refused(*stream, bad);
  }
  bad = good;
  bad.arguments[0] = KernelArgument::of(BufferView{memory.get(), 32, 64});
  expect_refused(*stream, bad);
}

STAGECOACH_CONFORMANCE_SUITE(LaunchConformance);

}  // namespace
}  // namespace stagecoach
