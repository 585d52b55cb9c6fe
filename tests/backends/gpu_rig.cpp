#include "tests/backends/gpu_rig.h"

#include <cstring>
#include <unistd.h>

namespace stagecoach {

void GpuRig::SetUp() {
  constexpr unsigned kLimitS = 60;
  alarm(kLimitS);
}

void GpuRig::TearDown() {
  close();
  alarm(0);
}

void GpuRig::build(const FakeGpuOptions& options, GpuLibraryOpener open_library) {
  close();
  machine_ = std::make_unique<FakeGpuMachine>(options, std::move(open_library));
}

void GpuRig::open(const std::string& which) {
  if (machine_ == nullptr) build();
  auto opened = machine_->open(which);
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  devices_ = std::move(opened).value();
  for (auto& one : devices_) {
    auto executable = one->load_executable(FakeGpuMachine::test_kernels());
    ASSERT_TRUE(executable.is_ok()) << executable.status().to_string();
    executables_.push_back(std::move(executable).value());
  }
}

void GpuRig::close() {
  executables_.clear();
  devices_.clear();
}

std::unique_ptr<Stream> GpuRig::new_stream(const char* name, size_t index) {
  auto stream = device(index).create_stream({name});
  EXPECT_TRUE(stream.is_ok()) << stream.status().to_string();
  return std::move(stream).value();
}

BufferHandle GpuRig::device_buffer(ByteCount size, size_t index) {
  auto buffer = require_buffer(device(index).allocate(size, "test"), device(index), size, "test");
  EXPECT_TRUE(buffer.is_ok()) << buffer.status().to_string();
  return std::move(buffer).value();
}

BufferHandle GpuRig::pinned_buffer(ByteCount size, size_t index) {
  auto buffer =
      require_buffer(device(index).allocate_pinned(size, "host"), device(index), size, "host");
  EXPECT_TRUE(buffer.is_ok()) << buffer.status().to_string();
  std::memset(buffer.value()->host_data(), 0, static_cast<size_t>(size));
  return std::move(buffer).value();
}

LaunchRequest GpuRig::hold_request(int64_t duration_ns, size_t index) {
  LaunchRequest request;
  request.kernel = executables_[index]->find_kernel("busy_wait").value();
  request.arguments[0] = KernelArgument::of(duration_ns);
  request.argument_count = 1;
  request.label = "hold";
  return request;
}

}  // namespace stagecoach
