#include <algorithm>

#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/v_placement.h"

namespace stagecoach {

namespace {

/// Writes one rank's list: each call runs the next micro-batch of a kind and chunk.
class RankWriter {
 public:
  RankWriter(int stages, int rank, int micro_batches)
      : stages_(stages),
        rank_(rank),
        micro_batches_(micro_batches),
        padded_(std::max(micro_batches, 2 * stages - 1)) {}

  std::vector<StageWork> write() {
    constexpr auto kF = ActionKind::kForward;
    constexpr auto kI = ActionKind::kInputGradient;
    constexpr auto kW = ActionKind::kWeightGradient;
    int after = stages_ - rank_;
    repeat(2 * after - 1, [&] { run(kF, 0); });
    repeat(rank_, [&] { run(kF, 1), run(kF, 0); });
    repeat(after, [&] { run(kF, 1), run(kI, 1), run(kW, 1); });
    while (done(kF, 1) < done(kF, 0) || done(kF, 0) < padded_) {
      if (done(kF, 0) < padded_) run(kF, 0);
      run(kI, 0), run(kW, 0);
      run(kF, 1), run(kI, 1), run(kW, 1);
    }
    repeat(rank_, [&] { run(kI, 0), run(kI, 1); });
    repeat(after, [&] { run(kI, 0), run(kW, 0); });
    while (done(kW, 1) < padded_) run(kW, 1);
    while (done(kW, 0) < padded_) run(kW, 0);
    return std::move(work_);
  }

 private:
  template <typename Step>
  static void repeat(int count, Step step) {
    for (int i = 0; i < count; ++i) step();
  }

  int& done(ActionKind kind, int chunk) { return done_[static_cast<int>(kind)][chunk]; }

  /// The order is made for at least 2N - 1 micro-batches; those that do not exist are left out.
  void run(ActionKind kind, int chunk) {
    int m = done(kind, chunk)++;
    if (m < micro_batches_) work_.push_back({kind, v_stage(stages_, rank_, chunk), m});
  }

  int stages_;
  int rank_;
  int micro_batches_;
  int padded_;
  int done_[5][2] = {};  ///< per kind and chunk
  std::vector<StageWork> work_;
};

Result<Plan> make_zb_v(const ScheduleParameters& p) {
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("zb-v", p, 2 * p.stages));
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < p.stages; ++rank) {
    work.push_back(RankWriter(p.stages, rank, p.micro_batches).write());
  }
  return build_plan("zb-v", p.micro_batches, layers, work);
}

}  // namespace

// ZB-V (arXiv 2401.10241, section on the V placement): no waits within a rank at F = I = W with the
// activations of 1F1B's first rank on every rank.
Schedule zb_v_schedule() {
  Schedule schedule;
  schedule.name = "zb-v";
  schedule.summary = "two folded chunks a device, no waits at F = I = W, activations as 1F1B";
  schedule.trains = true;
  schedule.parameters = {"iterations"};
  schedule.chunks = two_chunks;
  schedule.make = make_zb_v;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes& t) -> std::optional<ClosedForm> {
    bool holds = p.micro_batches >= 2 * p.stages - 1 && t.forward_ns == t.weight_ns &&
                 t.input_ns == t.weight_ns && p.iterations.value_or(1) == 1;
    if (!holds) return std::nullopt;
    return ClosedForm{BubbleDefinition::kSpan, 0};
  };
  return schedule;
}

}  // namespace stagecoach
