#include "tests/backends/allocation_count.h"
#include "tests/backends/gpu_rig.h"

namespace stagecoach {
namespace {

class GpuHotPath : public GpuRig {
 protected:
  void SetUp() override {
    GpuRig::SetUp();
    open("all");
    upload_ = new_stream("upload");
    compute_ = new_stream("compute");
    away_ = new_stream("away", 1);
    event_ = device().create_event().value();
    memory_ = device_buffer(4096);
    other_ = device_buffer(4096, 1);
    host_ = pinned_buffer(4096);
    hold_ = hold_request(1'000);
    long_hold_ = hold_request(30'000'000);
  }
  void TearDown() override {
    upload_.reset();
    compute_.reset();
    away_.reset();
    event_.reset();
    memory_.reset();
    other_.reset();
    host_.reset();
    GpuRig::TearDown();
  }

  /// One round of everything that a training step does to streams, queued ahead. When `held`, all
  /// is queued before anything runs: the high-water mark.
  void run_round(bool held) {
    if (held) {
      ASSERT_TRUE(upload_->launch(long_hold_).is_ok());
    }
    for (int i = 0; i < 20; ++i) {
      Timepoint uploaded = upload_->copy({memory_->view(), host_->view(), "up"}).value();
      ASSERT_TRUE(upload_->mark().is_ok());
      ASSERT_TRUE(compute_->wait(uploaded).is_ok());
      ASSERT_TRUE(compute_->launch(hold_).is_ok());
      ASSERT_TRUE(compute_->fill({memory_->view(), 0, 4, "clear"}).is_ok());
      ASSERT_TRUE(compute_->record(*event_).is_ok());
      ASSERT_TRUE(away_->wait(*event_).is_ok());
      ASSERT_TRUE(away_->copy({other_->view(), memory_->view(), "peer"}).is_ok());
      ASSERT_TRUE(upload_->wait(away_->mark().value()).is_ok());
      ASSERT_TRUE(reached(uploaded).is_ok());
    }
    ASSERT_TRUE(wait_until_reached(away_->mark().value()).is_ok());
    ASSERT_TRUE(upload_->synchronize().is_ok());
    ASSERT_TRUE(compute_->synchronize().is_ok());
  }

  std::unique_ptr<Stream> upload_, compute_, away_;
  std::unique_ptr<Event> event_;
  BufferHandle memory_, other_, host_;
  LaunchRequest hold_, long_hold_;
};

// T4: after warm-up the template neither allocates nor creates driver objects.
TEST_F(GpuHotPath, T4_NothingIsAllocatedAfterWarmUp) {
  run_round(true);
  run_round(true);
  // What the driver creates counts too: the fake one allocates for it.
  EXPECT_TRUE(settles_without_allocating([this] { run_round(false); }));
}

// The first need takes what the device sets aside; only beyond that it grows, and then stays.
TEST_F(GpuHotPath, TheWorkspaceIsTakenOnceAndGrowsOnlyBeyondWhatIsSetAside) {
  Shape shape{1024};
  TensorView tensor{memory_->view(), DType::kF32, shape};
  auto run_op = [&](ByteCount workspace) {
    machine_->table().set_workspace_bytes(workspace);
    ASSERT_TRUE(device().ops().gelu_forward(*compute_, {tensor, tensor, "gelu"}).is_ok());
    ASSERT_TRUE(compute_->synchronize().is_ok());
  };
  auto allocations = [&] { return driver().calls(FakeGpuFunction::allocate); };
  auto used_bytes = [&] { return device().memory_usage().value().used_bytes; };
  int64_t before = allocations();
  ByteCount used = used_bytes();
  // An eighth of the card's 32 MiB is set aside.
  for (ByteCount size : {1000 * kKiB, 2000 * kKiB, 3000 * kKiB, 500 * kKiB}) run_op(size);
  EXPECT_EQ(allocations(), before + 1);
  EXPECT_EQ(used_bytes(), used);
  run_op(6 * kMiB);
  EXPECT_EQ(allocations(), before + 2);
  EXPECT_GT(used_bytes(), used);
  run_op(7 * kMiB);  // lets the outgrown pieces go, whose last use is over
  for (int i = 0; i < 10; ++i) run_op(7 * kMiB);
  EXPECT_EQ(allocations(), before + 3);
}

TEST_F(GpuHotPath, AWorkspaceThatDoesNotFitIsExhaustion) {
  Shape shape{1024};
  TensorView tensor{memory_->view(), DType::kF32, shape};
  machine_->table().set_workspace_bytes(64 * kMiB);
  auto refused = device().ops().gelu_forward(*compute_, {tensor, tensor, "gelu"});
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().site().verb, "gelu_forward");
  EXPECT_EQ(refused.status().site().label, "gelu");
  EXPECT_NE(refused.status().message().find("67108864 bytes of scratch memory"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace stagecoach
