#pragma once

#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/conformance_backends.h"

namespace stagecoach {

/// Ends the process with a message when it is not destroyed in time: a test of "nobody waits for
/// ever" must not itself wait for the test runner.
class Watchdog {
 public:
  Watchdog(std::string what, int limit_s);
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable disarm_;
  bool disarmed_ = false;
  std::thread thread_;
};

/// Base of every suite: devices of one backend, small helpers, a time limit on each test.
class ConformanceTest : public testing::TestWithParam<ConformanceBackend> {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Skips the running test when the backend cannot do `feature`.
#define STAGECOACH_REQUIRE_FEATURE(feature)                                  \
  do {                                                                       \
    auto missing = GetParam().cannot.find(feature);                          \
    if (missing != GetParam().cannot.end()) GTEST_SKIP() << missing->second; \
  } while (false)

  Device& device(size_t index = 0) {
    return *devices_[index];
  }
  std::unique_ptr<Stream> new_stream(const char* name = "stream", size_t device_index = 0);
  std::unique_ptr<Event> new_event(EventOptions options = {}, size_t device_index = 0);
  BufferHandle device_buffer(ByteCount size, size_t device_index = 0);
  /// Pinned memory filled with a byte that no test expects.
  BufferHandle pinned_buffer(ByteCount size, size_t device_index = 0);
  /// Pinned memory that holds `values`.
  BufferHandle pinned_floats(const std::vector<float>& values);

  /// Writes `values` to a new device buffer and waits.
  BufferHandle upload(const std::vector<float>& values, size_t device_index = 0);
  /// Reads `view` through a poisoned buffer on a stream of its own.
  std::vector<float> download(BufferView view);
  std::vector<uint32_t> download_words(BufferView view);

  /// A kernel of the test executable.
  Kernel* kernel(const char* name, size_t device_index = 0);
  LaunchRequest fill_request(BufferView out, float value);
  /// Keeps `stream` busy for at least `duration_ns`; needs kTestKernels.
  void hold(Stream& stream, int64_t duration_ns);
  /// Makes `stream` fail by itself with data loss; needs kMath and kAsyncFailure.
  void make_fail(Stream& stream);

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::vector<BufferHandle> kept_;  // operands of `make_fail`

 private:
  std::unique_ptr<Watchdog> watchdog_;
};

inline constexpr int64_t kMillisecondNs = 1'000'000;
/// Long enough that work behind it has certainly not run when the host looks.
inline constexpr int64_t kHoldNs = 50 * kMillisecondNs;

inline std::string conformance_name(const testing::TestParamInfo<ConformanceBackend>& info) {
  return info.param.name;
}

/// Failures are printed as people see them.
inline void PrintTo(const ConformanceBackend& backend, std::ostream* out) {
  *out << backend.name;
}

testing::AssertionResult is_ok(const Status& status);
template <typename T>
testing::AssertionResult is_ok(const Result<T>& result) {
  return is_ok(result.status());
}
testing::AssertionResult has_code(const Status& status, StatusCode code);
template <typename T>
testing::AssertionResult has_code(const Result<T>& result, StatusCode code) {
  return has_code(result.status(), code);
}

/// Instantiates a suite for every backend.
#define STAGECOACH_CONFORMANCE_SUITE(suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(conformance_backends()), \
                           conformance_name)

}  // namespace stagecoach
