// Checkpoints are written while training goes on: they hold what the iteration they are named by
// left, and disturb nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/integration/race_check_fixture.h"
#include "train/checkpoint.h"

namespace stagecoach::testing {
namespace {

constexpr int kSavedAt = 3, kIterations = 6;

TinyRun saving_run(const std::string& devices, const std::string& update, int rounds) {
  TinyRun run;
  run.devices = devices;
  run.dtype = DType::kBF16;
  run.iterations = kIterations;
  run.options.times_layers = false;
  run.options.update = update;
  run.options.rounds = rounds;
  return run;
}

/// A trainer with its devices and its batches.
struct Training {
  explicit Training(const TinyRun& asked) : run(asked), batches(run) {
    devices = built_in_backends().open_devices(run.devices).value();
    std::vector<Device*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    trainer = Trainer::create(run.make_network(run.model, run.dtype).value(), pointers, run.options)
                  .value();
    trainer->initialize_parameters();
  }
  void iterate(int count) {
    for (int i = 0; i < count; ++i) {
      batches.next();
      Result<StepLoss> loss = trainer->forward_backward(batches.inputs(), batches.labels());
      ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
      Status stepped = trainer->step(run.learning_rate(static_cast<int>(trainer->iteration())));
      ASSERT_TRUE(stepped.is_ok()) << stepped.to_string();
    }
  }
  std::string sha() {
    Status status = trainer->synchronize();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return trainer->weights_sha256();
  }

  TinyRun run;
  TinyBatches batches;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Trainer> trainer;
};

CheckpointRecord record_of(const Training& training) {
  CheckpointRecord record;
  record.iteration = training.trainer->iteration();
  record.config = train_config_to_json(TrainConfig{});
  record.model = Json::object();
  record.data_digest = "digest";
  return record;
}

/// The checkpoint of iteration kSavedAt of a run that goes on while it is written.
FoundCheckpoint save_in_the_middle(const TinyRun& run, const std::string& folder,
                                   ByteCount copy_bytes, std::string& final_sha) {
  SaveCopies copies;
  if (copy_bytes > 0) {
    copies = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(copy_bytes));
  }
  Training training(run);
  training.iterate(kSavedAt);
  auto save = CheckpointSave::begin(folder, record_of(training), *training.trainer, copies);
  EXPECT_TRUE(save.is_ok()) << save.status().to_string();
  training.iterate(kIterations - kSavedAt);
  Status published = (*save)->publish(2);
  EXPECT_TRUE(published.is_ok()) << published.to_string();
  final_sha = training.sha();
  std::vector<std::string> notes;
  return find_checkpoint(folder, &notes).value().value();
}

void expect_saved_beside(const TinyRun& run, const std::string& what, ByteCount copy_bytes = 0) {
  TemporaryFolder folder;
  Training plain(run);
  plain.iterate(kSavedAt);
  std::string sha_then = plain.sha();
  plain.iterate(kIterations - kSavedAt);
  std::string final_sha;
  FoundCheckpoint found = save_in_the_middle(run, folder.path(), copy_bytes, final_sha);
  EXPECT_EQ(found.record.iteration, kSavedAt) << what;
  EXPECT_EQ(found.record.weights_sha256, sha_then) << what;
  EXPECT_EQ(final_sha, plain.sha()) << what;
  // Moments and, with async, the weights before are those of that iteration too.
  Training resumed(run);
  Status loaded = load_checkpoint(found, *resumed.trainer);
  ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
  for (int i = 0; i < kSavedAt; ++i) resumed.batches.next();
  resumed.iterate(kIterations - kSavedAt);
  EXPECT_EQ(resumed.sha(), final_sha) << what;
}

TEST(SaveWhileTraining, HoldsItsIterationAndChangesNoBit) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    for (int rounds : {1, 2}) {
      for (const char* devices : {"cpu:1", "cpu:2"}) {
        expect_saved_beside(saving_run(devices, update, rounds),
                            fmt::format("{} {} {}", update, rounds, devices));
      }
    }
  }
}

TEST(SaveWhileTraining, WithEveryFormatOfMomentsAndType) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kF16, DType::kBF16})) {
    for (const char* moments : {"fp32", "bf16", "8bit"}) {
      TinyRun run = saving_run("cpu:2", "overlap", 1);
      run.dtype = dtype;
      run.options.moments = moments;
      expect_saved_beside(run, fmt::format("{} {}", dtype_name(dtype), moments));
    }
  }
}

TEST(SaveWhileTraining, CopiesOfSomeOrAllBlocksChangeNoBit) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    for (ByteCount copy_bytes : {100 * kKiB, 64 * kMiB}) {
      for (const char* moments : {"fp32", "8bit"}) {
        TinyRun run = saving_run("cpu:2", update, 1);
        run.options.moments = moments;
        expect_saved_beside(run, fmt::format("{} {} {}", update, copy_bytes, moments), copy_bytes);
      }
    }
  }
}

TEST(SaveWhileTraining, UpdatesOnDevicesWaitToo) {
  TinyRun run = saving_run("cpu:2", "overlap", 1);
  run.options.device_share = 0.5;
  expect_saved_beside(run, "device share");
}

TEST(SaveWhileTraining, AFailedWriteEndsTheSaveAndNotTheTraining) {
  TemporaryFolder folder;
  Training training(saving_run("cpu:2", "overlap", 1));
  training.iterate(kSavedAt);
  auto save = CheckpointSave::begin(folder.path(), record_of(training), *training.trainer).value();
  // Its folder goes: what is written cannot be named in the end.
  std::filesystem::remove_all(folder.path() + fmt::format("/.checkpoint-{}.tmp", kSavedAt));
  training.iterate(kIterations - kSavedAt);
  Status published = save->publish(2);
  EXPECT_EQ(published.code(), StatusCode::kIo) << published.to_string();
  EXPECT_THAT(published.message(), ::testing::HasSubstr("there is no earlier checkpoint"));
  Training plain(training.run);
  plain.iterate(kIterations);
  EXPECT_EQ(training.sha(), plain.sha());
  std::vector<std::string> notes;
  EXPECT_FALSE(find_checkpoint(folder.path(), &notes).value().has_value());
}

}  // namespace
}  // namespace stagecoach::testing
