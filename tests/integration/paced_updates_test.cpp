// What update modes take where the host's updates are most of a step, on paced devices and a paced
// host.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

/// What norm and update of a step take, as a share of an iteration without them.
constexpr double kUpdateShare = 0.8;
/// What waits for the verdict: of 32 bytes that the two touch the update touches 28.
constexpr double kGatedShare = kUpdateShare * 28 / 32;
/// The forward of an iteration that recomputes: f of f + f + 2 f.
constexpr double kForwardShare = 1.0 / 4;

TinyRun paced_run(const std::string& update, double clip_norm, int64_t rounds) {
  TinyRun run;
  run.devices = "cpu:1[memory=400K,flops=200M]";
  run.model.n_layer = 28;
  run.iterations = 8;
  run.options.batch = 8;
  run.options.micro_batches = 8;
  run.options.rounds = rounds;
  run.options.update = update;
  run.options.clip_norm = clip_norm;
  run.options.times_layers = false;
  // The first stage waits for the updates of all its layers.
  run.options.max_stage_layers = 1;
  return run;
}

double step_ns(const TinyRun& run) {
  Result<TinyResult> result = train_paced(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  if (!result.is_ok()) return 1;
  EXPECT_LE(result->report.overrun, kMaxOverrun) << "invalid measurement";
  return result->report.step_ns;
}

/// Host bytes a second at which updates take kUpdateShare of an iteration, measured.
struct Pace {
  double iteration_ns = 0;  ///< without updates
  double host_bytes_per_s = 0;

  static Pace measure(double clip_norm, int64_t rounds) {
    TinyRun run = paced_run("barrier", clip_norm, rounds);
    Pace pace;
    pace.iteration_ns = step_ns(run);
    constexpr double kTrial = 40e6;
    run.options.host_bytes_per_s = kTrial;
    double updates_ns = step_ns(run) - pace.iteration_ns;
    pace.host_bytes_per_s = kTrial * updates_ns / (kUpdateShare * pace.iteration_ns);
    return pace;
  }
  /// A step of `update`, in iterations.
  double steps(const std::string& update, double clip_norm, int64_t rounds) const {
    TinyRun run = paced_run(update, clip_norm, rounds);
    run.options.host_bytes_per_s = host_bytes_per_s;
    return step_ns(run) / iteration_ns;
  }
};

TEST(SlowPacedUpdates, UngatedOverlapIsAsGoodAsAsync) {
  Pace pace = Pace::measure(0, 1);
  double barrier = pace.steps("barrier", 0, 1);
  double overlap = pace.steps("overlap", 0, 1);
  double async = pace.steps("async", 0, 1);
  fmt::print(
      "an iteration {:.1f} ms; steps of barrier {:.3f}, overlap {:.3f}, async {:.3f} of it\n",
      pace.iteration_ns / 1e6, barrier, overlap, async);
  EXPECT_LE(overlap, 1.06 * async);
  EXPECT_GE(barrier, 1.4 * overlap);
}

TEST(SlowPacedUpdates, GatedOverlapHidesUpdatesBehindTheNextForward) {
  constexpr double kClip = 1e-3;
  for (int64_t rounds : {1, 2}) {
    Pace pace = Pace::measure(kClip, rounds);
    double overlap = pace.steps("overlap", kClip, rounds);
    double window = kForwardShare / static_cast<double>(rounds);
    double expected = 1 + std::max(0.0, kGatedShare - window);
    fmt::print("rounds {}: a step of overlap {:.3f} iterations, expected {:.3f}\n", rounds, overlap,
               expected);
    EXPECT_NEAR(overlap, expected, 0.05 * expected);
  }
}

TEST(SlowPacedUpdates, GatedAsyncWaitsForNothing) {
  constexpr double kClip = 1e-3;
  Pace pace = Pace::measure(kClip, 1);
  double async = pace.steps("async", kClip, 1);
  fmt::print("a step of async {:.3f} iterations\n", async);
  EXPECT_LE(async, 1.05);
}

}  // namespace
}  // namespace stagecoach::testing
