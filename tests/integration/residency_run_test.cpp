// Parameters that stay on a device between slots: fewer uploads, the same bits,
// no race.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "scheduler/device_memory.h"
#include "tests/integration/race_check_fixture.h"

namespace stagecoach::testing {
namespace {

TinyRun streamed_run(const std::string& devices, const std::string& update, int rounds) {
  TinyRun run;
  run.devices = devices;
  run.iterations = 4;
  run.options.times_layers = false;
  run.options.max_stage_layers = 1;
  run.options.update = update;
  run.options.rounds = rounds;
  return run;
}

TinyResult train(TinyRun run, const std::string& residency) {
  run.options.residency = residency;
  Result<TinyResult> result = train_tiny(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return std::move(result).value();
}

struct UploadBytes {
  ByteCount every_slot = 0;  ///< of one pass
  ByteCount once = 0;        ///< of all blocks
  ByteCount largest_block = 0;
};

UploadBytes upload_bytes(const TinyRun& run, const Plan& plan) {
  Network network = run.make_network(run.model, run.dtype).value();
  MicroBatchShape shape{run.options.batch / run.options.micro_batches, run.options.sequence};
  UploadBytes bytes;
  std::map<int, ByteCount> blocks;
  for (const StageLayout& layout : layout_stages(network, plan, shape, true)) {
    for (const StageLayout::BlockPlace& place : layout.blocks) {
      bytes.every_slot += plan.rounds * place.size;
      blocks[place.block] = place.size;
    }
  }
  for (const auto& [block, size] : blocks) {
    bytes.once += size;
    bytes.largest_block = std::max(bytes.largest_block, size);
  }
  return bytes;
}

// With memory to spare, one device uploads every block once a pass, whatever
// the rounds.
TEST(ResidencyRun, OneDeviceUploadsEveryBlockOnceAPass) {
  for (int rounds : {1, 2}) {
    TinyRun run = streamed_run("cpu:1", "barrier", rounds);
    TinyResult off = train(run, "off"), kept = train(run, "auto");
    UploadBytes bytes = upload_bytes(run, kept.plan);
    ASSERT_GT(bytes.every_slot, bytes.once);
    EXPECT_EQ(off.report.bytes_up - kept.report.bytes_up,
              run.iterations * (bytes.every_slot - bytes.once))
        << rounds;
    EXPECT_EQ(kept.weights_sha256, off.weights_sha256);
    // What stays is planned memory.
    EXPECT_GT(kept.report.device_planned_bytes[0], off.report.device_planned_bytes[0]);
    EXPECT_LE(kept.report.device_peak_bytes[0], kept.report.device_planned_bytes[0]);
  }
}

// Two steps in flight, rotations that go on across rounds and passes, 16-bit
// parameters.
TEST(ResidencyRun, NoModeOrNumberOfDevicesChangesABit) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    for (const char* update : {"overlap", "async", "barrier"}) {
      for (int rounds : {1, 2}) {
        std::string expected;
        for (int devices : {1, 2, 3}) {
          TinyRun run = streamed_run(fmt::format("cpu:{}", devices), update, rounds);
          run.dtype = dtype;
          TinyResult off = train(run, "off"), kept = train(run, "auto");
          if (expected.empty()) expected = off.weights_sha256;
          EXPECT_EQ(off.weights_sha256, expected) << update << rounds << run.devices;
          EXPECT_EQ(kept.weights_sha256, expected) << update << rounds << run.devices;
          // With async, what the first slot brings and the last reads again does not stay.
          bool may_keep_nothing = std::string(update) == "async" && rounds == 1 && devices == 3;
          EXPECT_LT(kept.report.bytes_up, off.report.bytes_up + (may_keep_nothing ? 1 : 0))
              << update << rounds << run.devices;
        }
      }
    }
  }
}

/// A run whose device has room for about `blocks` blocks beside its stages, so that places are used
/// by several blocks in turn.
TinyRun tight_run(const std::string& update, int rounds, double blocks) {
  TinyRun run = streamed_run("cpu:1", update, rounds);
  TinyResult off = train(run, "off");
  ByteCount base = off.report.device_planned_bytes[0];
  ByteCount largest = upload_bytes(run, off.plan).largest_block;
  auto memory = static_cast<ByteCount>(
      (static_cast<double>(base) + blocks * static_cast<double>(largest)) * 16 / 15 + 1);
  run.devices = fmt::format("cpu:1[memory={}]", memory);
  return run;
}

TEST(ResidencyRun, LittleMemoryKeepsWhatFits) {
  ByteCount before = 0;
  for (double blocks : {0.0, 1.5, 3.0, 20.0}) {
    TinyRun run = tight_run("overlap", 2, blocks);
    TinyResult off = train(run, "off"), kept = train(run, "auto");
    ByteCount spared = off.report.bytes_up - kept.report.bytes_up;
    if (blocks == 0) {
      EXPECT_EQ(spared, 0);
    } else {
      EXPECT_GT(spared, before) << blocks;
    }
    before = spared;
    EXPECT_EQ(kept.weights_sha256, off.weights_sha256);
    EXPECT_LE(kept.report.device_peak_bytes[0], kept.report.device_planned_bytes[0]);
  }
}

// P2: a copy that stayed is replaced only after the last kernel that reads it.
TEST(ResidencyRun, PlacesThatChangeHandsMakeNoRace) {
  for (const char* update : {"overlap", "async"}) {
    TinyRun run = tight_run(update, 2, 1.5);
    std::string expected = train(run, "off").weights_sha256;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      TinyRun delayed = run;
      CheckedRun checked = train_checked(delayed, draw_delays(seed, delayed));
      expect_clean(checked, update);
      EXPECT_EQ(checked.weights_sha256, expected) << update << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
