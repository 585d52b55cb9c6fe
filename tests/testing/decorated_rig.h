#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/hal.h"
#include "testing/faulty_backend.h"
#include "testing/interceptor.h"

namespace stagecoach {

/// Devices behind a decorator with buffers and kernels to call verbs with. What the rig itself
/// needs comes from the wrapped devices, so that the interceptor sees the calls of the test only.
class DecoratedRig {
 public:
  static constexpr int64_t kElements = 64;  // floats in every buffer: a matrix of 8 x 8
  static constexpr ByteCount kBytes = kElements * 4;

  /// Opens `spec`, a device string of the CPU backend.
  explicit DecoratedRig(std::shared_ptr<Interceptor> interceptor, std::string_view spec = "cpu:2");

  Device& device(int index) { return *devices_[static_cast<size_t>(index)]; }
  std::unique_ptr<Stream> make_stream(int index, const std::string& name = "compute");
  std::unique_ptr<Event> make_event(int index);

  /// Buffers of the device whose floats are all 1, all 2, and all 0; pinned host memory, all 0.
  Buffer& ones(int index) { return *parts(index).ones; }
  Buffer& twos(int index) { return *parts(index).twos; }
  Buffer& target(int index) { return *parts(index).target; }
  Buffer& host(int index) { return *parts(index).host; }
  /// The floats of any of them, once the work behind it is known to be done.
  std::vector<float> read(Buffer& buffer);

  /// Submits one call of a stream verb and answers what the submit did.
  Status submit(std::string_view verb, Stream& stream, const Label& label);
  /// Occupies `stream` for a while, so that work behind it is still queued.
  void submit_busy_wait(Stream& stream, int64_t duration_ns);
  /// One call of any verb on new streams and events, without waiting for the work.
  Status call(std::string_view verb, int index, const Label& label);

 private:
  struct Parts {
    BufferHandle ones, twos, target, host;
    std::unique_ptr<Executable> kernels;
    std::unique_ptr<Stream> stream;
  };
  Parts& parts(int index) { return parts_[static_cast<size_t>(index)]; }
  Parts make_parts(Device& root);
  int index_of(const Stream& stream);
  Status submit_op(std::string_view verb, Stream& stream, const Label& label);
  Status call_device(std::string_view verb, Device& device, const Label& label);

  BackendRegistry registry_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<float> registered_ = std::vector<float>(4096);
  std::vector<Parts> parts_;
};

/// Verbs that `submit` knows.
const std::vector<std::string>& stream_verbs();
/// The other verbs that `call` knows.
const std::vector<std::string>& device_verbs();

/// An injector for a plan in its text form.
std::shared_ptr<FaultInjector> make_injector(std::string_view plan);

/// Runs `function` on a thread and fails the test when it takes longer than ten seconds.
void expect_finishes(const std::function<void()>& function);

}  // namespace stagecoach
