// What memory that is spare on one device spares of GPT-2 medium's uploads (docs/performance.md).
#include <gtest/gtest.h>
#include <set>

#include "model/gpt2.h"
#include "scheduler/device_memory.h"
#include "scheduler/planner.h"

namespace stagecoach {
namespace {

struct Uploads {
  ByteCount every_slot = 0;  ///< of a pass
  ByteCount spared = 0;
  ByteCount once = 0;  ///< every block once
  PlannedRun run;
};

Uploads plan_uploads(const Network& network, ByteCount memory, int rounds, int stage_layers) {
  PlanRequest request;
  request.devices.resize(1);
  request.free_bytes = {memory};
  request.shape = {2, 1024};
  request.micro_batches = 8;
  request.rounds = rounds;
  request.max_stage_layers = stage_layers;
  request.update = UpdateMode::kOverlap;
  Uploads uploads;
  uploads.run = plan_run(network, request).value();
  const Plan& plan = uploads.run.training_plans.front();
  std::vector<StageLayout> layouts = layout_stages(network, plan, request.shape, true);
  std::set<int> blocks;
  for (const StageLayout& layout : layouts) {
    for (const StageLayout::BlockPlace& place : layout.blocks) {
      uploads.every_slot += rounds * place.size;
      if (blocks.insert(place.block).second) uploads.once += place.size;
    }
  }
  uploads.spared = device_residency(plan, layouts, 0, {uploads.run.resident_bytes[0]}).saved_bytes;
  return uploads;
}

TEST(ResidencyPlan, Gpt2MediumOnOneDevice) {
  Gpt2Config config;
  config.n_embd = 1024;
  config.n_layer = 24;
  config.n_head = 16;
  config.n_inner = 4096;
  Network network = make_gpt2(config, NetworkHead::kLoss, DType::kBF16).value();
  for (int rounds : {1, 2, 4}) {
    for (ByteCount memory : {kGiB, 3 * kGiB / 2, 64 * kGiB}) {
      Uploads uploads = plan_uploads(network, memory, rounds, 4);
      std::printf("%d rounds, %5.1f GiB: %7.1f MB a pass, %7.1f spared, %7.1f MB stay\n", rounds,
                  static_cast<double>(memory) / static_cast<double>(kGiB),
                  static_cast<double>(uploads.every_slot) / 1e6,
                  static_cast<double>(uploads.spared) / 1e6,
                  static_cast<double>(uploads.run.resident_bytes[0]) / 1e6);
      EXPECT_GT(uploads.spared, 0);
      EXPECT_LE(uploads.run.arena_bytes[0], memory - memory / 16);
      // Where all fits, every block goes up once.
      if (memory == 64 * kGiB) {
        EXPECT_EQ(uploads.every_slot - uploads.spared, uploads.once);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
