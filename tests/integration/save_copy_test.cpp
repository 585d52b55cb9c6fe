// What an update would wait for while it is saved is copied where there is memory for it
// (output.save_copy): the update goes on, and what is saved is the same.
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>

#include "hal/host_worker.h"
#include "tests/integration/race_check_fixture.h"

namespace stagecoach::testing {
namespace {

using std::chrono::milliseconds;

/// Reads weights like a save whose disk hangs at its first piece, and copies like a slow host.
class CopyingReader final : public BlockReader {
 public:
  struct Options {
    bool copies = false;
    /// Copies that the first piece waits for; what has not come after `limit` does not come.
    size_t awaited = 0;
    milliseconds limit{20'000};
    milliseconds copy_takes{0};
    /// Between two pieces the executor sees that copies have been made.
    milliseconds piece_takes{5};
  };
  CopyingReader(const Trainer& trainer, const Options& options)
      : trainer_(trainer),
        options_(options),
        seen_(trainer.network().blocks.size()),
        copies_(trainer.network().blocks.size()),
        pool_(TaskPool::create(1)),
        worker_("reader", *pool_),
        copier_("copier", *pool_) {}

  HostQueue& queue() override { return worker_; }
  HostQueue& copy_queue() override { return copier_; }
  int piece_count(int) const override { return 1; }
  void read(int block, int, bool from_copy) override {
    auto end = std::chrono::steady_clock::now() + options_.limit;
    while (copied_ < options_.awaited && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    options_.awaited = 0;
    std::this_thread::sleep_for(options_.piece_takes);
    from_copies += from_copy ? 1 : 0;
    auto index = static_cast<size_t>(block);
    seen_[index] = from_copy ? copies_[index] : values_of(block);
  }
  void finish() override {}
  bool reserve_copy(int block) override {
    bool is_new = options_.copies && reserved_.insert(block).second;
    return is_new;
  }
  void copy(int block, TaskPool&) override {
    std::this_thread::sleep_for(options_.copy_takes);
    copies_[static_cast<size_t>(block)] = values_of(block);
    ++copied_;
  }
  void release_copy(int) override { ++released; }

  std::vector<std::vector<float>> seen() {
    EXPECT_TRUE(wait_until_reached(worker_.last_submitted()).is_ok());
    EXPECT_TRUE(wait_until_reached(copier_.last_submitted()).is_ok());
    EXPECT_EQ(static_cast<size_t>(released), reserved_.size());
    return seen_;
  }

  std::atomic<int> from_copies = 0;
  int released = 0;

 private:
  std::vector<float> values_of(int block) const {
    std::vector<float> values(static_cast<size_t>(trainer_.host_state().element_count(block)));
    trainer_.host_state().read_parameters(block, 0, values);
    return values;
  }

  const Trainer& trainer_;
  Options options_;
  std::set<int> reserved_;
  std::atomic<size_t> copied_ = 0;
  std::vector<std::vector<float>> seen_, copies_;
  std::unique_ptr<TaskPool> pool_;
  HostWorker worker_, copier_;
};

struct ReadRun {
  std::vector<std::vector<float>> seen;
  std::string final_sha;
  int from_copies = 0, released = 0;
};

/// The weights after two steps, read while two more are made.
ReadRun read_beside(const TinyRun& run, const CopyingReader::Options& options) {
  auto devices = built_in_backends().open_devices(run.devices).value();
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  auto trainer =
      Trainer::create(run.make_network(run.model, run.dtype).value(), pointers, run.options)
          .value();
  trainer->initialize_parameters();
  TinyBatches batches(run);
  auto iterate = [&] {
    batches.next();
    EXPECT_TRUE(trainer->forward_backward(batches.inputs(), batches.labels()).is_ok());
    EXPECT_TRUE(trainer->step(3e-3).is_ok());
  };
  for (int i = 0; i < 2; ++i) iterate();
  auto reader = std::make_shared<CopyingReader>(*trainer, options);
  EXPECT_TRUE(trainer->begin_reading(reader).is_ok());
  for (int i = 0; i < 2; ++i) iterate();
  EXPECT_TRUE(trainer->finish_reading().is_ok());
  EXPECT_TRUE(trainer->synchronize().is_ok());
  ReadRun read;
  read.seen = reader->seen();
  read.final_sha = trainer->weights_sha256();
  read.from_copies = reader->from_copies;
  read.released = reader->released;
  return read;
}

TinyRun run_of(const char* update) {
  TinyRun run;
  run.devices = "cpu:2";
  run.options.times_layers = false;
  run.options.clip_norm = 0;
  run.options.update = update;
  return run;
}

size_t trained_blocks(const TinyRun& run) {
  Network network = run.make_network(run.model, run.dtype).value();
  return static_cast<size_t>(std::count_if(network.blocks.begin(), network.blocks.end(),
                                           [](const auto& block) { return !block.is_frozen; }));
}

// All updates go on while the reader hangs at its first piece, but for that of the piece's block.
TEST(SaveCopy, EveryBlockIsCopiedWhileTheReaderHangs) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    SCOPED_TRACE(update);
    TinyRun run = run_of(update);
    ReadRun waiting = read_beside(run, {});
    CopyingReader::Options options;
    options.copies = true;
    options.awaited = trained_blocks(run);
    ReadRun copied = read_beside(run, options);
    EXPECT_EQ(waiting.from_copies, 0);
    EXPECT_EQ(copied.released, static_cast<int>(trained_blocks(run)));
    // A piece may be asked for before its copy is seen to be made.
    EXPECT_GT(copied.from_copies, 0);
    EXPECT_EQ(copied.seen, waiting.seen);
    EXPECT_EQ(copied.final_sha, waiting.final_sha);
  }
}

// That a copy is made before the update goes on is what holds it.
TEST(SaveCopy, UpdatesThatDoNotWaitForTheCopyAreNoticed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it races on purpose: ThreadSanitizer would end it";
#endif
  TinyRun run = run_of("overlap");
  CopyingReader::Options options;
  options.copies = true;
  options.awaited = 1;
  options.copy_takes = milliseconds(50);
  ReadRun expected = read_beside(run, options);
  EXPECT_GT(expected.released, 0);
  run.options.left_out = {Ordering::kCopyBeforeOverwrite};
  int caught = 0;
  for (int i = 0; i < 3; ++i) caught += read_beside(run, options).seen != expected.seen ? 1 : 0;
  EXPECT_GE(caught, 1);
}

}  // namespace
}  // namespace stagecoach::testing
