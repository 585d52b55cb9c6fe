#include "tests/backends/cpu_rig.h"

#include "backends/register_backends.h"

namespace stagecoach {

void CpuRig::open(std::string_view spec) {
  TearDown();
  auto opened = built_in_backends().open_devices(spec);
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  devices_ = std::move(opened).value();
  for (auto& one : devices_) {
    ExecutableImage image;
    image.name = "stagecoach_test_kernels";
    executables_.push_back(std::move(one->load_executable(image)).value());
  }
}

void CpuRig::TearDown() {
  events_.clear();
  executables_.clear();
  devices_.clear();
}

std::unique_ptr<Stream> CpuRig::new_stream(const char* name, size_t index) {
  return std::move(device(index).create_stream({name})).value();
}

BufferHandle CpuRig::device_buffer(ByteCount size, size_t index) {
  return std::move(require_buffer(device(index).allocate(size, "rig"), device(index), size, "rig"))
      .value();
}

BufferHandle CpuRig::pinned_buffer(ByteCount size, size_t index) {
  Device& owner = device(index);
  return std::move(require_buffer(owner.allocate_pinned(size, "rig"), owner, size, "rig")).value();
}

void CpuRig::launch(Stream& stream, int64_t work_ns, double flop) {
  LaunchRequest request;
  size_t index = &stream.device() == devices_[0].get() ? 0 : 1;
  request.kernel = executables_[index]->find_kernel("busy_wait").value();
  request.arguments[0] = KernelArgument::of(work_ns);
  request.argument_count = 1;
  request.flop = flop;
  request.label = "busy";
  auto launched = stream.launch(request);
  ASSERT_TRUE(launched.is_ok()) << launched.status().to_string();
}

size_t CpuRig::record_time(Stream& stream, size_t index) {
  events_.push_back(std::move(device(index).create_event({true})).value());
  EXPECT_TRUE(stream.record(*events_.back()).is_ok());
  return events_.size() - 1;
}

int64_t CpuRig::time_ns(size_t event) {
  auto time = events_[event]->timestamp_ns();
  EXPECT_TRUE(time.is_ok()) << time.status().to_string();
  return time.is_ok() ? time.value() : 0;
}

}  // namespace stagecoach
