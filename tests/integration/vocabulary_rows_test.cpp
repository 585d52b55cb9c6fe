// What treating the rows of the first layer's vocabulary block apart would gain, by the step model.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/model_source.h"
#include "scheduler/device_planner.h"
#include "scheduler/network_profile.h"
#include "scheduler/step_model.h"

namespace stagecoach {
namespace {

constexpr double kLinkBytesPerNs = 24;
constexpr double kHostBytesPerS = 80e9;
constexpr double kDeviceFlopPerS = 140e12;
constexpr int64_t kVocabulary = 50257;
constexpr int64_t kTokens = 16 * 1024;  ///< of a round

/// Share of the rows that a round gathers when words are as frequent as Zipf's law has it.
double gathered_share() {
  double sum = 0, rows = 0;
  for (int64_t rank = 1; rank <= kVocabulary; ++rank) sum += 1.0 / static_cast<double>(rank);
  for (int64_t rank = 1; rank <= kVocabulary; ++rank) {
    double frequency = 1.0 / (static_cast<double>(rank) * sum);
    rows += 1 - std::pow(1 - frequency, static_cast<double>(kTokens));
  }
  return rows / static_cast<double>(kVocabulary);
}

struct Case {
  const char* model;
  bool gated;
  double host_bytes_per_s = kHostBytesPerS;
};

StepSetup setup_of(const Case& asked) {
  Result<ShapeSource> source = resolve_shape(asked.model);
  EXPECT_TRUE(source.is_ok());
  Result<Network> network = make_network(*source->model, NetworkHead::kLoss, DType::kBF16, 1024);
  EXPECT_TRUE(network.is_ok());
  StepSetup setup;
  ProfileRates rates{kDeviceFlopPerS, asked.host_bytes_per_s};
  setup.layers = profile_network(*network, {4, 1024}, rates);
  PlannedDevice device;
  device.memory_bytes = 23 * kGiB;
  device.up_bytes_per_ns = device.down_bytes_per_ns = kLinkBytesPerNs;
  setup.devices = {device};
  setup.micro_batches = 4;
  setup.update = UpdateMode::kOverlap;
  setup.gated = asked.gated;
  return setup;
}

DevicePlan plan_of(const StepSetup& setup) {
  Result<DevicePlan> plan = plan_for_devices(setup);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return plan.is_ok() ? std::move(plan).value() : DevicePlan{};
}

/// The embedding's forward uploads `share` of its rows, which the host gathers before.
void gather_rows(StepSetup& setup, double share, double host_bytes_per_s) {
  LayerProfile& first = setup.layers.front();
  auto gathered = static_cast<double>(first.parameter_bytes) * share;
  first.parameter_bytes = static_cast<ByteCount>(gathered);
  first.update_ns += 2 * gathered / host_bytes_per_s * 1e9;
}

/// Those rows are updated first, the rest when the head needs them.
void update_rows_first(StepSetup& setup, double share) {
  LayerProfile& first = setup.layers.front();
  double rest_ns = first.update_ns * (1 - share);
  first.update_ns -= rest_ns;
  setup.layers.back().update_ns += rest_ns;
}

/// How much shorter a step becomes, by its own plan or by that of the step as it is.
double gain(const StepSetup& changed, const DevicePlan& now) {
  const PlannedStages& planned = now.planned;
  double same_ns = predict_step(changed, CostTable(changed.layers), planned.slots).step_ns;
  double step_ns = std::min(same_ns, plan_of(changed).planned.prediction.step_ns);
  return 1 - step_ns / planned.prediction.step_ns;
}

struct Gains {
  double gathered = 0, both = 0;
};

Gains gains_of(const Case& asked) {
  double share = gathered_share();
  StepSetup now = setup_of(asked), gathered = now, both = now;
  gather_rows(gathered, share, asked.host_bytes_per_s);
  gather_rows(both, share, asked.host_bytes_per_s);
  update_rows_first(both, share);
  DevicePlan plan = plan_of(now);
  Gains gains{gain(gathered, plan), gain(both, plan)};
  const LayerProfile& first = now.layers.front();
  fmt::print(
      "{}{}, host {:.0f} GB/s: a step of {:.1f} ms; the block's update {:.2f} ms, its upload "
      "{:.2f} ms; gains: gathered rows alone {:.1f} %, updated first too {:.1f} %\n",
      asked.model, asked.gated ? ", clipping" : "", asked.host_bytes_per_s / 1e9,
      plan.planned.prediction.step_ns / 1e6, first.update_ns / 1e6,
      static_cast<double>(first.parameter_bytes) / kLinkBytesPerNs / 1e6, 100 * gains.gathered,
      100 * gains.both);
  return gains;
}

// The figures of docs/performance.md, Vocabulary rows. With clipping, which is the default, the
// table must be whole before the head all the same, so that little is gained however fast the host.
TEST(VocabularyRows, GainLittleWhereUpdatesWaitForTheNorm) {
  EXPECT_NEAR(gathered_share(), 0.114, 0.001);
  for (const char* model : {"gpt2", "gpt2-medium"}) {
    for (double host : {kHostBytesPerS, 4 * kHostBytesPerS}) {
      Gains gains = gains_of({model, true, host});
      EXPECT_GT(gains.gathered, -0.005);
      EXPECT_LT(gains.gathered, 0.01);
      EXPECT_LT(gains.both, 0.02);
    }
  }
}

TEST(VocabularyRows, GainSomePercentWhereTheyDoNot) {
  Gains small = gains_of({"gpt2", false}), medium = gains_of({"gpt2-medium", false});
  EXPECT_NEAR(small.gathered, 0.021, 0.005);
  EXPECT_NEAR(small.both, 0.087, 0.005);
  EXPECT_NEAR(medium.gathered, 0.009, 0.005);
  EXPECT_NEAR(medium.both, 0.05, 0.005);
}

}  // namespace
}  // namespace stagecoach
