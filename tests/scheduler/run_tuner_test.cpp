#include "scheduler/run_tuner.h"

#include <gtest/gtest.h>

#include "scheduler/schedules/roundpipe.h"

namespace stagecoach {
namespace {

constexpr double kForwardNs = 100, kBackwardNs = 200;

/// Two layers, one micro-batch: F0, FB1, B0 on one device.
class TunedRun {
 public:
  TunedRun() : tuner_(layers(), std::vector<PlannedDevice>(1)) {
    plan_ = make_roundpipe_plan({{ActionKind::kForward, 0, 0},
                                 {ActionKind::kForwardBackward, 1, 1},
                                 {ActionKind::kBackward, 0, 0}},
                                1, 1, 1, 0, Dispatch::kRotation);
  }

  /// A pass of a device that takes `factor` times as long; samples where the tuner wants them.
  void pass(double factor) {
    IterationReport report;
    report.up.resize(1);
    report.down.resize(1);
    auto ns = [&](double time) { return static_cast<int64_t>(time * factor); };
    report.action_ns = {
        {ns(kForwardNs), ns(kForwardNs + kBackwardNs), ns(kForwardNs + kBackwardNs)}};
    if (tuner_.times_layers()) {
      ++timed_;
      for (int layer : {0, 1}) {
        report.layer_samples.push_back({0, layer, LayerPhase::kForward, kForwardNs * factor});
        report.layer_samples.push_back({0, layer, LayerPhase::kSavingForward, kForwardNs * factor});
        report.layer_samples.push_back({0, layer, LayerPhase::kBackward, kBackwardNs * factor});
      }
    }
    tuner_.add_pass(plan_, {0}, report);
  }

  /// Passes until the tuner wants a plan; -1 when it does not within `most`.
  int passes_until_due(double factor, int most) {
    for (int count = 1; count <= most; ++count) {
      pass(factor);
      if (!tuner_.is_due()) continue;
      tuner_.take_measured();
      return count;
    }
    return -1;
  }

  RunTuner& tuner() { return tuner_; }
  int timed() const { return timed_; }

 private:
  static std::vector<LayerProfile> layers() {
    LayerProfile layer;
    layer.forward_ns = layer.recompute_ns = 1;
    layer.backward_ns = 2;
    return {layer, layer};
  }
  RunTuner tuner_;
  Plan plan_;
  int timed_ = 0;
};

TEST(RunTuner, TimesLayersInTheFirstPassesAndThenLeavesThemAlone) {
  TunedRun run;
  EXPECT_FALSE(run.tuner().times_layers());
  EXPECT_EQ(run.passes_until_due(1, 10), RunTuner::kWarmUpPasses + RunTuner::kTimedPasses);
  EXPECT_EQ(run.timed(), RunTuner::kTimedPasses);
  EXPECT_DOUBLE_EQ(run.tuner().measured().layers[0].forward_ns, kForwardNs);
  EXPECT_EQ(run.passes_until_due(1, 500), -1);
  EXPECT_EQ(run.timed(), RunTuner::kTimedPasses);
}

// Design, section 6: a plan is kept until measured times move by more than 5 %.
TEST(RunTuner, SmallChangesAndShortOnesCountForNothing) {
  TunedRun run;
  run.passes_until_due(1, 10);
  EXPECT_EQ(run.passes_until_due(1.045, 300), -1);
  for (int turn = 0; turn < 50; ++turn) {
    for (int pass = 0; pass < RunTuner::kPatiencePasses - 1; ++pass) run.pass(1.5);
    run.pass(1);
    EXPECT_FALSE(run.tuner().times_layers());
  }
}

TEST(RunTuner, LastingChangesAreMeasuredAgainWithGrowingPatience) {
  TunedRun run;
  run.passes_until_due(1, 10);
  double factor = 1;
  for (int patience :
       {RunTuner::kPatiencePasses, 2 * RunTuner::kPatiencePasses, 4 * RunTuner::kPatiencePasses}) {
    factor *= 1.2;
    EXPECT_EQ(run.passes_until_due(factor, 100), patience + RunTuner::kTimedPasses);
    EXPECT_NEAR(run.tuner().measured().layers[1].backward_ns, kBackwardNs * factor, 1e-6);
  }
}

}  // namespace
}  // namespace stagecoach
