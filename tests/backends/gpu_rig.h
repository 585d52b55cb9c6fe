#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "hal/hal.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {

/// A fake machine and the devices opened on it, for tests of the GPU backends' template. A test
/// that takes longer than a minute ends the program: nothing may hang.
class GpuRig : public testing::Test {
 protected:
  /// A new machine; devices of the old one are closed first.
  void build(const FakeGpuOptions& options = {}, GpuLibraryOpener open_library = nullptr);
  /// Opens "fake_gpu:WHICH", which must succeed.
  void open(const std::string& which);
  void close();

  FakeGpuDriver& driver() { return machine_->driver(); }
  Device& device(size_t index = 0) { return *devices_[index]; }
  std::unique_ptr<Stream> new_stream(const char* name = "stream", size_t index = 0);
  BufferHandle device_buffer(ByteCount size, size_t index = 0);
  BufferHandle pinned_buffer(ByteCount size, size_t index = 0);
  /// A launch of the test kernel `busy_wait`.
  LaunchRequest hold_request(int64_t duration_ns, size_t index = 0);

  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<FakeGpuMachine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

}  // namespace stagecoach
