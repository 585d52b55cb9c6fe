#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "hal/hal.h"
#include "tests/testing/decorated_rig.h"

namespace stagecoach {
namespace {

/// What a program can see of a backend.
struct Outcome {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> sequences;
  DeviceCounters counters;
  std::vector<std::string> failures;
};

BufferHandle allocate(Device& device, ByteCount size) {
  Allocation made = device.allocate(size, "part");
  EXPECT_EQ(made.outcome, AllocationOutcome::kOk);
  return std::move(made.buffer);
}

/// Requests that the front refuses: the decorator must refuse them with the same words.
void try_mistakes(Device& device, Stream& stream, Buffer& buffer, Outcome& outcome) {
  auto event = device.create_event();
  outcome.failures = {
      event.value()->query().status().to_string(),
      stream.wait(*event.value()).status().to_string(),
      stream.fill({buffer.view(), 0, 3, "odd"}).status().to_string(),
      stream.copy({buffer.view(), buffer.view(), "onto itself"}).status().to_string(),
      device.allocate(0, "nothing").status.to_string(),
      device.create_stream({""}).status().to_string(),
      device.load_executable({"no such table", {}}).status().to_string(),
      device.enable_peer(device).to_string(),
  };
}

/// Uploads, math, a peer copy and a download over two devices, and some mistakes.
Outcome run_program(Backend& backend) {
  Outcome outcome;
  auto devices = backend.open(parse_device_specs("cpu:2").value().front());
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  Device& first = *devices.value()[0];
  Device& second = *devices.value()[1];
  constexpr ByteCount kSize = 32 * 32 * 4;
  Allocation host = first.allocate_pinned(kSize, "host");
  auto* numbers = reinterpret_cast<float*>(host.buffer->host_data());
  for (int i = 0; i < 32 * 32; ++i) numbers[i] = 0.01f * static_cast<float>(i % 97) - 0.3f;
  BufferHandle a = allocate(first, kSize), b = allocate(first, kSize), c = allocate(second, kSize);
  TensorView left{a->view(), DType::kF32, Shape{32, 32}};
  TensorView right{b->view(), DType::kF32, Shape{32, 32}};
  TensorView far{c->view(), DType::kF32, Shape{32, 32}};

  auto up = first.create_stream({"up"}), compute = first.create_stream({"compute"});
  auto other = second.create_stream({"compute"});
  Ops::Matmul product;
  product.out = right;
  product.a = left;
  product.b = left;
  product.transpose_b = true;
  EXPECT_TRUE(first.enable_peer(second).is_ok());
  EXPECT_TRUE((*up)->copy({a->view(), host.buffer->view(), "upload"}).is_ok());
  EXPECT_TRUE((*compute)->wait((*up)->last_submitted()).is_ok());
  EXPECT_TRUE(first.ops().matmul(**compute, product).is_ok());
  EXPECT_TRUE(first.ops().gelu_forward(**compute, {right, right, "gelu"}).is_ok());
  EXPECT_TRUE((*compute)->copy({c->view(), b->view(), "to peer"}).is_ok());
  EXPECT_TRUE((*other)->wait((*compute)->last_submitted()).is_ok());
  EXPECT_TRUE(second.ops().add(**other, {far, far, far, "twice"}).is_ok());
  EXPECT_TRUE((*other)->fill({c->slice(0, 8), 0xabcdu, 2, "stamp"}).is_ok());
  EXPECT_TRUE((*other)->copy({host.buffer->view(), c->view(), "download"}).is_ok());
  EXPECT_TRUE((*other)->synchronize().is_ok());
  EXPECT_TRUE(first.synchronize().is_ok());

  outcome.bytes.resize(kSize);
  std::memcpy(outcome.bytes.data(), host.buffer->host_data(), kSize);
  for (Stream* stream : {up->get(), compute->get(), other->get()}) {
    outcome.sequences.push_back(stream->last_submitted().sequence);
  }
  outcome.counters = second.counters();
  try_mistakes(first, **up, *a, outcome);
  return outcome;
}

TEST(Transparent, ABackendWithoutFaultsBehavesAsTheOneInside) {
  std::unique_ptr<Backend> plain = make_cpu_backend();
  auto injector = std::make_shared<FaultInjector>();
  std::unique_ptr<Backend> decorated = make_faulty_backend(make_cpu_backend(), injector);
  Outcome expected = run_program(*plain);
  Outcome found = run_program(*decorated);
  EXPECT_TRUE(found.bytes == expected.bytes);
  EXPECT_EQ(found.sequences, expected.sequences);
  EXPECT_EQ(found.counters.kernels, expected.counters.kernels);
  EXPECT_EQ(found.counters.copies, expected.counters.copies);
  EXPECT_EQ(found.counters.bytes_down, expected.counters.bytes_down);
  EXPECT_EQ(found.failures, expected.failures);
  EXPECT_EQ(injector->counts().at({0, "matmul"}), 1);
  EXPECT_EQ(injector->counts().at({1, "fill"}), 1);
}

TEST(Transparent, ShowsTheInnerBackendsNameDevicesAndProviders) {
  std::unique_ptr<Backend> plain = make_cpu_backend();
  std::unique_ptr<Backend> decorated =
      make_faulty_backend(make_cpu_backend(), std::make_shared<FaultInjector>());
  EXPECT_EQ(decorated->name(), plain->name());
  EXPECT_EQ(decorated->availability().is_ok(), plain->availability().is_ok());
  EXPECT_EQ(decorated->list_devices().size(), plain->list_devices().size());
  DecoratedRig rig(std::make_shared<FaultInjector>());
  Device& device = rig.device(1);
  EXPECT_EQ(device.id(), "cpu:1");
  EXPECT_EQ(device.info().index, 1);
  EXPECT_NE(&device.root(), &device);
  EXPECT_EQ(device.ops().provider(OpKind::kMatmul), device.root().ops().provider(OpKind::kMatmul));
  EXPECT_EQ(decorated->open(parse_device_specs("cpu:0").value().front()).status().to_string(),
            plain->open(parse_device_specs("cpu:0").value().front()).status().to_string());
}

TEST(Transparent, BuffersBelongToTheDeviceInsideAndReturnToIt) {
  DecoratedRig rig(std::make_shared<FaultInjector>());
  Device& device = rig.device(0);
  ByteCount used = device.memory_usage()->used_bytes;
  {
    Allocation memory = device.allocate(4096, "part");
    ASSERT_EQ(memory.outcome, AllocationOutcome::kOk);
    EXPECT_EQ(&memory.buffer->device(), &device.root());
    EXPECT_GT(device.memory_usage()->used_bytes, used);
    auto stream = rig.make_stream(0);
    ASSERT_TRUE(stream->fill({memory.buffer->view(), 0, 4, "use"}).is_ok());
    ASSERT_TRUE(stream->synchronize().is_ok());
  }
  device.root().collect_retired();
  EXPECT_EQ(device.memory_usage()->used_bytes, used);
}

}  // namespace
}  // namespace stagecoach
