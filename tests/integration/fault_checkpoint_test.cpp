#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/file.h"
#include "core/log.h"
#include "testing/faulty_backend.h"
#include "tests/integration/fault_sweep_fixture.h"
#include "train/checkpoint.h"
#include "train/training_loop.h"

namespace stagecoach::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kIterations = 3;

/// A folder with data, a model and the runs made of them.
class FaultCheckpoint : public ::testing::Test {
 protected:
  FaultCheckpoint() {
    std::string pattern = (fs::temp_directory_path() / "stagecoach-faults-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::string text;
    for (int i = 0; i < 4096; ++i) text += static_cast<char>('a' + i * i % 23);
    Gpt2Config model = tiny_gpt2();
    model.vocab_size = 256;
    model.n_layer = 2;
    EXPECT_TRUE(write_file_atomically(folder_ + "/text.txt", text).is_ok());
    EXPECT_TRUE(
        write_file_atomically(folder_ + "/config.json", gpt2_config_to_json(model).dump()).is_ok());
    set_log_level("error");
  }
  ~FaultCheckpoint() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string run_folder(const std::string& name) const { return folder_ + "/" + name; }

  /// Trains, or goes on training, in `run_folder(name)`; a checkpoint after every iteration.
  Result<TrainingOutcome> train(const std::string& name, std::shared_ptr<FaultInjector> injector) {
    TrainConfig config;
    config.model.path = folder_ + "/config.json";
    config.model.init = "random";
    config.data.train = {folder_ + "/text.txt"};
    config.data.sequence = 16;
    config.train.iterations = kIterations;
    config.train.batch = 8;
    config.devices.use = "cpu:2";
    config.output.dir = run_folder(name);
    config.output.save_every = 1;
    config.output.keep_last = kIterations;
    config.output.trace = false;
    BackendRegistry registry;
    registry.add(make_faulty_backend(make_cpu_backend(), std::move(injector)));
    return run_training(config, LoopOptions{}, registry);
  }

  std::string folder_;
};

std::string digest_of(const TrainingOutcome& outcome) {
  const Json* digest = outcome.summary.find("weights_sha256");
  return digest == nullptr ? "none" : digest->as_string();
}

/// Weights after each iteration of the run in `folder`.
std::vector<std::string> digests_in(const std::string& folder) {
  std::vector<std::string> digests(kIterations + 1), notes;
  for (int iteration = 1; iteration <= kIterations; ++iteration) {
    auto found = find_checkpoint(folder + "/checkpoint-" + std::to_string(iteration), &notes);
    if (found.is_ok() && found->has_value()) digests[iteration] = (*found)->record.weights_sha256;
  }
  return digests;
}

TEST_F(FaultCheckpoint, ARunThatFailedLeavesWholeCheckpointsAndGoesOnToTheSameBits) {
  auto counter = std::make_shared<FaultInjector>();
  Result<TrainingOutcome> whole = train("whole", counter);
  ASSERT_TRUE(whole.is_ok()) << whole.status().to_string();
  std::vector<std::string> expected = digests_in(run_folder("whole"));
  ASSERT_EQ(expected.back(), digest_of(*whole));

  const FaultKind kinds[] = {FaultKind::kFail, FaultKind::kFailLater, FaultKind::kDeviceLost};
  int continued = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    // Math and copies only: how often they are called does not depend on timing.
    CallCounts counts = counter->counts();
    std::erase_if(counts, [](const auto& entry) {
      return !fault_applies(FaultKind::kCorrupt, entry.first.second);
    });
    FaultPlan plan = random_fault(seed, counts, kinds);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + format_fault_plan(plan));
    std::string name = "run-" + std::to_string(seed);
    auto injector = std::make_shared<FaultInjector>(plan);
    Result<TrainingOutcome> failed = train(name, injector);
    EXPECT_TRUE(injector->all_fired());
    ASSERT_FALSE(failed.is_ok());
    std::string message = failed.status().to_string();
    EXPECT_NE(message.find("device cpu:"), std::string::npos) << message;
    EXPECT_NE(message.find("label "), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(run_folder(name) + "/summary.json"));

    std::vector<std::string> notes;
    auto found = find_checkpoint(run_folder(name), &notes);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    if (found->has_value()) {
      ++continued;
      const CheckpointRecord& record = (*found)->record;
      EXPECT_EQ(record.weights_sha256, expected[static_cast<size_t>(record.iteration)]);
    }
    Result<TrainingOutcome> resumed = train(name, std::make_shared<FaultInjector>());
    ASSERT_TRUE(resumed.is_ok()) << resumed.status().to_string();
    EXPECT_EQ(digest_of(*resumed), expected.back());
    EXPECT_EQ(digests_in(run_folder(name)).back(), expected.back());
  }
  EXPECT_GT(continued, 5) << "the faults all came before the first checkpoint";
}

}  // namespace
}  // namespace stagecoach::testing
