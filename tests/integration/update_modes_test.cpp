// Update modes: what may overlap changes no bit.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

TinyResult train(const TinyRun& run) {
  Result<TinyResult> result = train_tiny(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return result.is_ok() ? std::move(result).value() : TinyResult{};
}

void expect_same(const TinyResult& one, const TinyResult& other, const std::string& what) {
  EXPECT_EQ(one.losses, other.losses) << what;
  EXPECT_EQ(one.norms, other.norms) << what;
  EXPECT_EQ(one.weights_sha256, other.weights_sha256) << what;
}

TinyRun mode_run(const char* update, DType dtype, double clip_norm, int64_t rounds) {
  TinyRun run;
  run.dtype = dtype;
  run.iterations = 5;
  run.options.times_layers = false;
  run.options.update = update;
  run.options.clip_norm = clip_norm;
  run.options.rounds = rounds;
  return run;
}

TEST(UpdateModes, OverlapGivesTheBitsOfBarrier) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    for (double clip_norm : {0.0, 0.5}) {
      for (int64_t rounds : {1, 2}) {
        TinyRun run = mode_run("barrier", dtype, clip_norm, rounds);
        TinyResult barrier = train(run);
        run.options.update = "overlap";
        for (const char* devices : {"cpu:1", "cpu:2", "cpu:3", "cpu:4"}) {
          run.devices = devices;
          expect_same(barrier, train(run),
                      fmt::format("{} {} clip {} rounds {}", devices, dtype_name(dtype), clip_norm,
                                  rounds));
        }
        run.devices = "cpu:2";
        for (const char* schedule : {"1f1b", "zb-v"}) {
          run.options.schedule = schedule;
          expect_same(barrier, train(run), schedule);
        }
      }
    }
  }
}

TEST(UpdateModes, AsyncGivesTheSameBitsOnAnyDevices) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16, DType::kF16})) {
    for (double clip_norm : {0.0, 0.5}) {
      TinyRun run = mode_run("async", dtype, clip_norm, 1);
      run.devices = "cpu:1";
      TinyResult one = train(run);
      for (const char* devices : {"cpu:2", "cpu:3", "cpu:4"}) {
        run.devices = devices;
        expect_same(one, train(run), devices);
      }
      run.devices = "cpu:2";
      run.options.schedule = "1f1b";
      expect_same(one, train(run), "1f1b");
      run.options.schedule = "roundpipe";
      run.options.update = "barrier";
      EXPECT_NE(train(run).weights_sha256, one.weights_sha256);
    }
  }
}

using Weights = std::vector<std::vector<float>>;

Weights read_weights(const Trainer& trainer) {
  Weights weights;
  for (size_t block = 0; block < trainer.network().blocks.size(); ++block) {
    std::vector<float>& values =
        weights.emplace_back(static_cast<size_t>(trainer.network().blocks[block].element_count));
    trainer.read_parameters(static_cast<int>(block), 0, values);
  }
  return weights;
}

void write_weights(Trainer& trainer, const Weights& weights) {
  for (size_t block = 0; block < weights.size(); ++block) {
    ASSERT_TRUE(trainer.write_parameters(static_cast<int>(block), 0, weights[block]).is_ok());
  }
}

/// What `async` means, without anything that overlaps: gradients of step T are taken at the weights
/// that step T - 1 began with, and update those that it ended with.
TinyResult train_one_step_late(TinyRun run) {
  run.options.update = "barrier";
  auto device = built_in_backends().open_devices("cpu:1").value();
  auto trainer = Trainer::create(make_gpt2(run.model, NetworkHead::kLoss, run.dtype).value(),
                                 {device[0].get()}, run.options)
                     .value();
  trainer->initialize_parameters();
  TinyResult result;
  Weights before = read_weights(*trainer), now = before;
  TinyBatches batches(run);
  for (int iteration = 0; iteration < run.iterations; ++iteration) {
    write_weights(*trainer, before);
    for (int64_t pass = 0; pass < run.passes_per_step; ++pass) {
      batches.next();
      Result<StepLoss> loss = trainer->forward_backward(batches.inputs(), batches.labels());
      EXPECT_TRUE(loss.is_ok()) << loss.status().to_string();
      result.losses.push_back(loss->loss);
    }
    write_weights(*trainer, now);
    EXPECT_TRUE(trainer->step(3e-3).is_ok());
    before = std::move(now);
    now = read_weights(*trainer);
  }
  for (const StepUpdate& update : trainer->take_updates()) {
    result.norms.push_back(update.gradient_norm);
  }
  result.weights_sha256 = trainer->weights_sha256();
  return result;
}

TEST(UpdateModes, AsyncIsAPlainLoopWhoseUpdatesComeOneStepLate) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16, DType::kF16})) {
    for (double clip_norm : {0.0, 0.5}) {
      for (int64_t rounds : {1, 2}) {
        TinyRun run = mode_run("async", dtype, clip_norm, rounds);
        run.iterations = 6;
        TinyResult plain = train_one_step_late(run);
        for (const char* devices : {"cpu:1", "cpu:3"}) {
          run.devices = devices;
          expect_same(plain, train(run),
                      fmt::format("{} {} clip {} rounds {}", devices, dtype_name(dtype), clip_norm,
                                  rounds));
        }
      }
    }
  }
}

TEST(UpdateModes, StepsOfTwoPasses) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = mode_run("async", DType::kBF16, 0.5, 1);
    run.options.schedule = schedule;
    run.devices = "cpu:2";
    run.passes_per_step = 2;
    expect_same(train_one_step_late(run), train(run), schedule);
    run.options.update = "barrier";
    TinyResult barrier = train(run);
    run.options.update = "overlap";
    expect_same(barrier, train(run), schedule);
  }
}

}  // namespace
}  // namespace stagecoach::testing
