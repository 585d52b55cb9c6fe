// Faults of the driver: whichever function fails, whoever is concerned gets a status that says
// where, nobody waits for ever, and everything can be closed.
#include <chrono>
#include <set>
#include <thread>

#include "core/clock.h"
#include "tests/backends/gpu_rig.h"

namespace stagecoach {
namespace {

constexpr int kUnknownError = 999;

class GpuFault : public GpuRig {
 protected:
  /// Everything the HAL offers, once. Returns the first failure.
  Status work() {
    // Outlives the devices: after a failure its copy may still be queued.
    std::vector<std::byte> mine(kBytes);
    STAGECOACH_ASSIGN_OR_RETURN(auto devices, machine_->open("all"));
    STAGECOACH_RETURN_IF_ERROR(devices[0]->enable_peer(*devices[1]));
    STAGECOACH_ASSIGN_OR_RETURN(auto code,
                                devices[0]->load_executable(FakeGpuMachine::test_kernels()));
    STAGECOACH_ASSIGN_OR_RETURN(auto stream, devices[0]->create_stream({"compute"}));
    STAGECOACH_ASSIGN_OR_RETURN(auto other, devices[1]->create_stream({"other"}));
    STAGECOACH_ASSIGN_OR_RETURN(auto event, devices[0]->create_event({true}));
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle memory, allocate(*devices[0], false));
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle away, allocate(*devices[1], false));
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle host, allocate(*devices[0], true));
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle registered,
                                devices[0]->register_host(mine.data(), kBytes, "mine"));
    for (int size : {1, 2, 4}) {
      STAGECOACH_RETURN_IF_FAILED(stream->fill({memory->view(), 0, size, "zero"}));
    }
    STAGECOACH_RETURN_IF_FAILED(stream->copy({memory->view(), registered->view(), "up"}));
    STAGECOACH_RETURN_IF_FAILED(stream->copy({away->view(), memory->view(), "across"}));
    STAGECOACH_RETURN_IF_FAILED(stream->copy({host->view(), memory->view(), "down"}));
    STAGECOACH_ASSIGN_OR_RETURN(Kernel * kernel, code->find_kernel("busy_wait"));
    BufferView half = memory->slice(0, kBytes / 2);
    STAGECOACH_RETURN_IF_FAILED(devices[0]->ops().gelu_forward(
        *stream,
        {{half, DType::kF32, Shape{kBytes / 8}}, {half, DType::kF32, Shape{kBytes / 8}}, "gelu"}));
    // Nothing is asked of the driver where the awaited work is done already: a busy host holds it
    // up longer.
    for (int64_t hold_ns = 2 * kMsNs; hold_ns < kLongestHoldNs; hold_ns *= 4) {
      LaunchRequest hold;
      hold.kernel = kernel;
      hold.arguments[0] = KernelArgument::of(hold_ns);
      hold.argument_count = 1;
      hold.label = "hold";
      STAGECOACH_RETURN_IF_FAILED(stream->launch(hold));
      STAGECOACH_RETURN_IF_FAILED(stream->record(*event));
      STAGECOACH_RETURN_IF_FAILED(other->wait(*event));
      if (driver().calls(FakeGpuFunction::stream_wait_event) > 0) break;
    }
    STAGECOACH_RETURN_IF_FAILED(other->wait(stream->last_submitted()));
    STAGECOACH_RETURN_IF_ERROR(other->status());
    STAGECOACH_RETURN_IF_ERROR(other->synchronize());
    STAGECOACH_RETURN_IF_ERROR(event->synchronize());
    STAGECOACH_RETURN_IF_FAILED(event->timestamp_ns());
    STAGECOACH_RETURN_IF_ERROR(devices[0]->synchronize());
    STAGECOACH_RETURN_IF_ERROR(devices[1]->synchronize());
    return stream->synchronize();
  }

 private:
  static constexpr ByteCount kBytes = 4096;
  static constexpr int64_t kMsNs = 1'000'000;
  static constexpr int64_t kLongestHoldNs = 4'000 * kMsNs;

  static Result<BufferHandle> allocate(Device& owner, bool pinned) {
    return require_buffer(
        pinned ? owner.allocate_pinned(kBytes, "memory") : owner.allocate(kBytes, "memory"), owner,
        kBytes, "memory");
  }
};

/// Functions that only give things back, and the question which context is current: nothing is left
/// to fail.
bool gives_back(FakeGpuFunction function) {
  static const std::set<FakeGpuFunction> kThose = {
      FakeGpuFunction::release_context, FakeGpuFunction::free,
      FakeGpuFunction::free_host,       FakeGpuFunction::unregister_host,
      FakeGpuFunction::destroy_stream,  FakeGpuFunction::destroy_event,
      FakeGpuFunction::unload_module,   FakeGpuFunction::get_current};
  return kThose.count(function) != 0;
}

/// Not called by this workload: no toolkit version is compared, no op asks for much shared memory.
bool is_not_called(FakeGpuFunction function) {
  return function == FakeGpuFunction::driver_version ||
         function == FakeGpuFunction::set_function_shared_bytes;
}

TEST_F(GpuFault, TheWorkloadCallsEveryFunction) {
  build();
  Status status = work();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(driver().leaks(), "");
  for (int i = 0; i < kFakeGpuFunctionCount; ++i) {
    auto function = static_cast<FakeGpuFunction>(i);
    EXPECT_EQ(driver().calls(function) > 0, !is_not_called(function))
        << fake_gpu_function_name(function);
  }
}

TEST_F(GpuFault, EveryFunctionFailingOnceIsReported) {
  for (int i = 0; i < kFakeGpuFunctionCount; ++i) {
    auto function = static_cast<FakeGpuFunction>(i);
    if (is_not_called(function)) continue;
    SCOPED_TRACE(fake_gpu_function_name(function));
    build();
    driver().fail_call(function, 1, kUnknownError);
    Status status = work();
    if (gives_back(function)) {
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      continue;
    }
    ASSERT_FALSE(status.is_ok());
    EXPECT_NE(status.message().find("(999)"), std::string::npos) << status.to_string();
    // What failed before a device was open names the driver; the rest says where it happened.
    if (driver().calls(FakeGpuFunction::retain_context) > 0) {
      EXPECT_EQ(status.site().device.rfind("fake_gpu:", 0), 0u) << status.to_string();
      EXPECT_NE(status.site().verb, "") << status.to_string();
    }
    EXPECT_EQ(driver().leaks(), "") << status.to_string();
  }
}

// The second and later calls fail in other places than the first: mid-stream, in a probe.
TEST_F(GpuFault, LaterCallsFailingIsReportedToo) {
  for (int i = 0; i < kFakeGpuFunctionCount; ++i) {
    auto function = static_cast<FakeGpuFunction>(i);
    SCOPED_TRACE(fake_gpu_function_name(function));
    for (int nth : {2, 3, 5}) {
      build();
      driver().fail_call(function, nth, kUnknownError);
      Status status = work();
      if (driver().calls(function) < nth || gives_back(function) || status.is_ok()) continue;
      EXPECT_NE(status.message().find("(999)"), std::string::npos) << status.to_string();
    }
  }
}

TEST_F(GpuFault, ALostCardEndsEveryFunction) {
  for (int i = 0; i < kFakeGpuFunctionCount; ++i) {
    auto function = static_cast<FakeGpuFunction>(i);
    if (is_not_called(function) || gives_back(function)) continue;
    SCOPED_TRACE(fake_gpu_function_name(function));
    build();
    driver().fail_call(function, 1, FakeGpuError::kIllegalAddress, true);
    Status status = work();
    ASSERT_FALSE(status.is_ok());
    if (driver().calls(FakeGpuFunction::retain_context) == 0) continue;  // no card to lose yet
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.to_string();
  }
}

TEST_F(GpuFault, OutOfMemoryIsAnOutcomeAtAnyAllocation) {
  for (int nth : {1, 2, 3}) {
    build();
    open("0");
    ByteCount set_aside = device().memory_usage()->used_bytes;
    driver().fail_call(FakeGpuFunction::allocate, nth, FakeGpuError::kOutOfMemory);
    // An allocation that finds too little collects and asks once more, so one fault is survived.
    std::vector<BufferHandle> kept;
    for (int i = 0; i < 3; ++i) {
      Allocation allocation = device().allocate(64, "memory");
      EXPECT_EQ(allocation.outcome, AllocationOutcome::kOk);
      kept.push_back(std::move(allocation.buffer));
    }
    EXPECT_EQ(driver().calls(FakeGpuFunction::allocate), 4);
    EXPECT_EQ(device().memory_usage()->used_bytes, set_aside + 3 * 64);
    kept.clear();
    driver().fail_call(FakeGpuFunction::allocate_host, nth, FakeGpuError::kOutOfMemory);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(device().allocate_pinned(64, "host").outcome, AllocationOutcome::kOk);
    }
  }
}

TEST_F(GpuFault, AKernelThatFailsPoisonsTheWholeCard) {
  build();
  open("all");
  auto compute = new_stream("compute");
  auto sibling = new_stream("sibling");
  auto elsewhere = new_stream("elsewhere", 1);
  BufferHandle away = device_buffer(64, 1);
  driver().fail_next_kernel(FakeGpuError::kLaunchFailed);
  ASSERT_TRUE(compute->launch(hold_request(0)).is_ok());
  Status first = compute->synchronize();
  EXPECT_EQ(first.code(), StatusCode::kDeviceLost) << first.to_string();
  EXPECT_EQ(first.site().device, "fake_gpu:0");
  EXPECT_EQ(first.site().stream, "compute");
  EXPECT_EQ(first.site().verb, "launch");
  EXPECT_EQ(first.site().label, "hold");
  Status second = sibling->status();
  EXPECT_EQ(second.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(second.site().stream, "compute") << "the first failure is what everybody reports";
  Allocation allocation = device().allocate(64, "late");
  EXPECT_EQ(allocation.outcome, AllocationOutcome::kFailed);
  EXPECT_EQ(allocation.status.code(), StatusCode::kDeviceLost);
  // The other card goes on.
  ASSERT_TRUE(elsewhere->fill({away->view(), 0, 4, "go on"}).is_ok());
  EXPECT_TRUE(elsewhere->synchronize().is_ok());
}

TEST_F(GpuFault, AStreamBehindALostCardIsWoken) {
  build();
  open("all");
  auto source = new_stream("source");
  auto waiter = new_stream("waiter", 1);
  auto event = device().create_event().value();
  ASSERT_TRUE(source->launch(hold_request(100'000'000)).is_ok());
  // The first kernel is running by then; the second fails.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  driver().fail_next_kernel(FakeGpuError::kLaunchFailed);
  ASSERT_TRUE(source->launch(hold_request(0)).is_ok());
  ASSERT_TRUE(source->record(*event).is_ok());
  ASSERT_TRUE(waiter->wait(*event).is_ok());
  // Nobody asks the source; whoever waits behind it learns of its failure all the same, long
  // before the fake's broken card lets the event go.
  Status status = waiter->synchronize();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.to_string();
  EXPECT_EQ(status.site().device, "fake_gpu:0");
  EXPECT_EQ(status.site().stream, "source");
  EXPECT_EQ(source->synchronize().code(), StatusCode::kDeviceLost);
}

TEST_F(GpuFault, ALaunchTheDriverRefusesLeavesTheStreamAsItWas) {
  build();
  open("0");
  auto stream = new_stream();
  LaunchRequest request = hold_request(0);
  request.block = {2048, 1, 1};
  auto refused = stream->launch(request);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().site().label, "hold");
  EXPECT_EQ(stream->last_submitted().sequence, 0u);
  EXPECT_TRUE(stream->launch(hold_request(0)).is_ok());
  EXPECT_TRUE(stream->synchronize().is_ok());
}

// A card that hangs for good must not keep the program from ending.
TEST_F(GpuFault, ClosingAHungCardEnds) {
  FakeGpuOptions options;
  options.peer_copies = FakePeerCopies::kHang;
  build(options);
  open("all");
  int64_t start_ns = RealClock::instance().now_ns();
  {
    auto stream = new_stream();
    BufferHandle near = device_buffer(64);
    BufferHandle far = device_buffer(64, 1);
    ASSERT_TRUE(stream->copy({far->view(), near->view(), "hangs"}).is_ok());
    stream->abandon(deadline_exceeded("no progress"));
    EXPECT_EQ(stream->synchronize().code(), StatusCode::kDeadlineExceeded);
  }
  close();
  EXPECT_LT(RealClock::instance().now_ns() - start_ns, int64_t{30'000'000'000});
  EXPECT_NE(driver().leaks(), "") << "memory that the card may still write stays allocated";
}

// An id outside the vocabulary fails the op's stream with its site, and the card goes on.
TEST_F(GpuFault, ABadIdIsDataLossOfItsStreamAlone) {
  build();
  open("0");
  auto stream = new_stream("compute");
  auto other = new_stream("other");
  BufferHandle ids = device_buffer(4);
  BufferHandle table = device_buffer(16);
  BufferHandle out = device_buffer(8);
  ASSERT_TRUE(stream->fill({ids->view(), 7, 4, "ids"}).is_ok());
  ASSERT_TRUE(stream->fill({table->view(), 0, 4, "table"}).is_ok());
  Ops::EmbeddingForward request{};
  request.out = {out->view(), DType::kF32, Shape{1, 2}};
  request.ids = {ids->view(), DType::kI32, Shape{1}};
  request.table = {table->view(), DType::kF32, Shape{2, 2}};
  request.sequence = 1;
  request.label = "bad id";
  // Held, so that nothing has been reported when the other stream begins to wait.
  ASSERT_TRUE(stream->launch(hold_request(50'000'000)).is_ok());
  ASSERT_TRUE(device().ops().embedding_forward(*stream, request).is_ok());
  ASSERT_TRUE(stream->fill({out->view(), 0, 4, "behind"}).is_ok());
  ASSERT_TRUE(other->wait(stream->last_submitted()).is_ok());
  Status status = stream->synchronize();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
  EXPECT_EQ(status.site().device, "fake_gpu:0");
  EXPECT_EQ(status.site().stream, "compute");
  EXPECT_EQ(status.site().verb, "embedding_forward");
  EXPECT_EQ(status.site().label, "bad id");
  EXPECT_EQ(status.site().sequence, 4u);
  EXPECT_EQ(other->synchronize().code(), StatusCode::kDataLoss) << "who waited for it, too";
  auto fresh = new_stream("fresh");
  ASSERT_TRUE(fresh->fill({out->view(), 0, 4, "go on"}).is_ok());
  EXPECT_TRUE(fresh->synchronize().is_ok());
}

}  // namespace
}  // namespace stagecoach
