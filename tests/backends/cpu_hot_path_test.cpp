#include "tests/backends/allocation_count.h"
#include "tests/backends/cpu_rig.h"

namespace stagecoach {
namespace {

class CpuHotPath : public CpuRig {
 protected:
  /// One round of everything that a training step does to streams, queued ahead. With `hold_ns` the
  /// first stream is held up until all is queued: the high-water mark.
  void run_round(int64_t hold_ns) {
    if (hold_ns > 0) launch(*upload_, hold_ns, 0);
    for (int i = 0; i < 20; ++i) {
      Timepoint uploaded = upload_->copy({memory_->view(), host_->view(), "up"}).value();
      ASSERT_TRUE(upload_->mark().is_ok());
      ASSERT_TRUE(compute_->wait(uploaded).is_ok());
      launch(*compute_, 1'000, 0);
      ASSERT_TRUE(compute_->fill({memory_->view(), 0, 4, "clear"}).is_ok());
      ASSERT_TRUE(compute_->record(*event_).is_ok());
      ASSERT_TRUE(away_->wait(*event_).is_ok());
      ASSERT_TRUE(away_->copy({other_->view(), memory_->view(), "peer"}).is_ok());
      ASSERT_TRUE(upload_->wait(away_->mark().value()).is_ok());
      ASSERT_TRUE(reached(uploaded).is_ok());
    }
    ASSERT_TRUE(wait_until_reached(away_->mark().value()).is_ok());
    ASSERT_TRUE(upload_->synchronize().is_ok());
  }
  void SetUp() override {
    open("cpu:2[memory=1M]");
    upload_ = new_stream("upload");
    compute_ = new_stream("compute");
    away_ = new_stream("away", 1);
    event_ = std::move(device().create_event()).value();
    memory_ = device_buffer(4096);
    other_ = device_buffer(4096, 1);
    host_ = pinned_buffer(4096);
  }
  void TearDown() override {
    upload_.reset();
    compute_.reset();
    away_.reset();
    event_.reset();
    memory_.reset();
    other_.reset();
    host_.reset();
    CpuRig::TearDown();
  }

  std::unique_ptr<Stream> upload_, compute_, away_;
  std::unique_ptr<Event> event_;
  BufferHandle memory_, other_, host_;
};

// T4: queues, events and marks reach a high-water mark and stay there.
TEST_F(CpuHotPath, T4_NothingIsAllocatedAfterWarmUp) {
  for (int i = 0; i < 5; ++i) run_round(20 * kMsNs);
  ASSERT_GT(allocation_count(), 0);  // the count works
  EXPECT_TRUE(settles_without_allocating([this] { run_round(0); }));
}

}  // namespace
}  // namespace stagecoach
