#include "tests/testing/decorated_rig.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_executable.h"
#include "testing/decorated_backend.h"

namespace stagecoach {

namespace {

/// Ends the test program when a step that everything else needs fails.
template <typename T>
T must(Result<T> result) {
  if (!result.is_ok()) {
    std::fprintf(stderr, "rig: %s\n", result.status().to_string().c_str());
    std::abort();
  }
  return std::move(result).value();
}

void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "rig: %s\n", status.to_string().c_str());
  std::abort();
}

TensorView matrix(Buffer& buffer) {
  return TensorView{buffer.view(), DType::kF32, Shape{8, 8}};
}

}  // namespace

DecoratedRig::DecoratedRig(std::shared_ptr<Interceptor> interceptor, std::string_view spec) {
  registry_.add(std::make_unique<DecoratedBackend>(make_cpu_backend(), std::move(interceptor)));
  devices_ = must(registry_.open_devices(spec));
  for (const auto& device : devices_) parts_.push_back(make_parts(device->root()));
}

DecoratedRig::Parts DecoratedRig::make_parts(Device& root) {
  Parts made;
  made.stream = must(root.create_stream({"rig"}));
  std::pair<BufferHandle*, uint32_t> wanted[] = {
      {&made.ones, 0x3f800000u}, {&made.twos, 0x40000000u}, {&made.target, 0u}};
  for (auto& [handle, pattern] : wanted) {
    *handle = must(require_buffer(root.allocate(kBytes, "rig"), root, kBytes, "rig"));
    must(made.stream->fill({(*handle)->view(), pattern, 4, "rig"}).status());
  }
  made.host = must(require_buffer(root.allocate_pinned(kBytes, "rig"), root, kBytes, "rig"));
  std::memset(made.host->host_data(), 0, kBytes);
  made.kernels = must(root.load_executable({std::string(kTestKernelsName), {}}));
  must(made.stream->synchronize());
  return made;
}

std::unique_ptr<Stream> DecoratedRig::make_stream(int index, const std::string& name) {
  return must(device(index).create_stream({name}));
}

std::unique_ptr<Event> DecoratedRig::make_event(int index) {
  return must(device(index).create_event());
}

std::vector<float> DecoratedRig::read(Buffer& buffer) {
  std::vector<float> values(static_cast<size_t>(buffer.size() / 4));
  auto bytes = static_cast<size_t>(buffer.size());
  if (buffer.host_data() != nullptr) {
    std::memcpy(values.data(), buffer.host_data(), bytes);
    return values;
  }
  Device& root = buffer.device();
  BufferHandle copy = must(
      require_buffer(root.allocate_pinned(buffer.size(), "read"), root, buffer.size(), "read"));
  std::unique_ptr<Stream> stream = must(root.create_stream({"read"}));
  must(stream->copy({copy->view(), buffer.view(), "read"}).status());
  must(stream->synchronize());
  std::memcpy(values.data(), copy->host_data(), bytes);
  return values;
}

int DecoratedRig::index_of(const Stream& stream) {
  int index = 0;
  while (devices_[static_cast<size_t>(index)].get() != &stream.device()) ++index;
  return index;
}

Status DecoratedRig::submit_op(std::string_view verb, Stream& stream, const Label& label) {
  int index = index_of(stream);
  Ops& ops = stream.device().ops();
  TensorView one = matrix(ones(index)), two = matrix(twos(index)), out = matrix(target(index));
  if (verb == "add") return ops.add(stream, {out, one, two, label}).status();
  if (verb == "gelu_forward") return ops.gelu_forward(stream, {out, one, label}).status();
  STAGECOACH_CHECK(verb == "matmul");
  Ops::Matmul request;
  request.out = out;
  request.a = one;
  request.b = two;
  request.label = label;
  return ops.matmul(stream, request).status();
}

Status DecoratedRig::submit(std::string_view verb, Stream& stream, const Label& label) {
  int index = index_of(stream);
  if (verb == "copy") {
    return stream.copy({target(index).view(), ones(index).view(), label}).status();
  }
  if (verb == "fill") return stream.fill({target(index).view(), 0x3f800000u, 4, label}).status();
  if (verb == "launch") {
    LaunchRequest request;
    request.kernel = must(parts(index).kernels->find_kernel("fill_f32"));
    request.arguments[0] = KernelArgument::of(target(index).view());
    request.arguments[1] = KernelArgument::of(kElements);
    request.arguments[2] = KernelArgument::of(1.0f);
    request.argument_count = 3;
    request.label = label;
    return stream.launch(request).status();
  }
  if (verb == "record") {
    std::unique_ptr<Event> event;
    STAGECOACH_ASSIGN_OR_RETURN(event, stream.device().create_event());
    return stream.record(*event).status();
  }
  if (verb == "wait") {
    std::unique_ptr<Stream> source;
    STAGECOACH_ASSIGN_OR_RETURN(source, stream.device().create_stream({"source"}));
    std::unique_ptr<Event> event;
    STAGECOACH_ASSIGN_OR_RETURN(event, stream.device().create_event());
    STAGECOACH_RETURN_IF_FAILED(source->record(*event));
    return stream.wait(*event).status();
  }
  return submit_op(verb, stream, label);
}

void DecoratedRig::submit_busy_wait(Stream& stream, int64_t duration_ns) {
  LaunchRequest request;
  request.kernel = must(parts(index_of(stream)).kernels->find_kernel("busy_wait"));
  request.arguments[0] = KernelArgument::of(duration_ns);
  request.argument_count = 1;
  request.label = "busy wait";
  must(stream.launch(request).status());
}

Status DecoratedRig::call_device(std::string_view verb, Device& device, const Label& label) {
  if (verb == "create_event") return device.create_event().status();
  if (verb == "allocate" || verb == "allocate_pinned") {
    Allocation made =
        verb == "allocate" ? device.allocate(256, label) : device.allocate_pinned(256, label);
    return require_buffer(std::move(made), device.root(), 256, label).status();
  }
  if (verb == "register_host") {
    ByteCount size = static_cast<ByteCount>(registered_.size() * sizeof(float));
    return device.register_host(registered_.data(), size, label).status();
  }
  if (verb == "load_executable") {
    return device.load_executable({std::string(kTestKernelsName), {}}).status();
  }
  if (verb == "memory_usage") return device.memory_usage().status();
  STAGECOACH_CHECK(verb == "enable_peer");
  return device.enable_peer(*devices_[devices_[0].get() == &device ? 1 : 0]);
}

Status DecoratedRig::call(std::string_view verb, int index, const Label& label) {
  Device& target_device = device(index);
  bool needs_event = verb == "query_event" || verb == "timestamp_event" || verb == "synchronize";
  std::vector<std::string> submits = stream_verbs();
  bool is_submit = std::find(submits.begin(), submits.end(), verb) != submits.end();
  if (!needs_event && !is_submit && verb != "create_stream") {
    return call_device(verb, target_device, label);
  }
  std::unique_ptr<Stream> stream;
  STAGECOACH_ASSIGN_OR_RETURN(stream, target_device.create_stream({"compute"}));
  if (verb == "create_stream") return Status::ok();
  if (is_submit) return submit(verb, *stream, label);
  std::unique_ptr<Event> event;
  STAGECOACH_ASSIGN_OR_RETURN(event, target_device.create_event({.timing = true}));
  STAGECOACH_RETURN_IF_ERROR(submit("fill", *stream, label));
  STAGECOACH_RETURN_IF_FAILED(stream->record(*event));
  if (verb == "query_event") return event->query().status();
  if (verb == "synchronize") return event->synchronize();
  STAGECOACH_RETURN_IF_ERROR(stream->synchronize());
  return event->timestamp_ns().status();
}

const std::vector<std::string>& stream_verbs() {
  static const std::vector<std::string> all = {"copy", "fill", "launch", "record",
                                               "wait", "add",  "matmul", "gelu_forward"};
  return all;
}

const std::vector<std::string>& device_verbs() {
  static const std::vector<std::string> all = {
      "create_stream",   "create_event", "allocate",        "allocate_pinned",
      "register_host",   "enable_peer",  "load_executable", "query_event",
      "timestamp_event", "synchronize",  "memory_usage"};
  return all;
}

std::shared_ptr<FaultInjector> make_injector(std::string_view plan) {
  return std::make_shared<FaultInjector>(must(parse_fault_plan(plan)));
}

void expect_finishes(const std::function<void()>& function) {
  std::future<void> done = std::async(std::launch::async, function);
  if (done.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return;
  // The thread cannot be stopped, so neither can the test go on.
  std::fprintf(stderr, "a call that must return did not\n");
  std::abort();
}

}  // namespace stagecoach
