#include "scheduler/schedules/v_pattern.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/v_placement.h"

namespace stagecoach {

namespace {

constexpr int kPeriod = 6;
constexpr int kWidestWindow = 2;
constexpr int kNotYet = -1;

/// F or I of one chunk, with its slot in the pattern.
struct Entry {
  int slot = 0;
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int micro_batch = 0;
};

struct Rank {
  std::deque<Entry> entries;      ///< in the pattern's order
  std::deque<StageWork> weights;  ///< W that may run
  int held_chunks = 0;            ///< activations between F and W
  std::vector<StageWork> work;
};

/// Runs the pattern slot by slot.
class SlotMachine {
 public:
  SlotMachine(int stages, int micro_batches, int limit_chunks)
      : stages_(stages),
        micro_batches_(micro_batches),
        limit_chunks_(limit_chunks),
        ranks_(stages),
        forward_end_(static_cast<size_t>(2) * stages * micro_batches, kNotYet),
        input_end_(forward_end_) {}

  void set_pattern(int rank, const VPattern& pattern) {
    std::vector<Entry> entries;
    for (int m = 0; m < micro_batches_; ++m) {
      int base = kPeriod * m;
      entries.push_back({base + pattern.forward_a, ActionKind::kForward, 0, m});
      entries.push_back({base + pattern.forward_b, ActionKind::kForward, 1, m});
      entries.push_back({base + pattern.input_b, ActionKind::kInputGradient, 1, m});
      entries.push_back({base + pattern.input_a, ActionKind::kInputGradient, 0, m});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.slot < b.slot; });
    ranks_[rank].entries.assign(entries.begin(), entries.end());
  }

  /// Slots until all is done, or nothing when memory blocks every rank.
  std::optional<int> run(int window) {
    int idle_slots = 0;
    for (now_ = 0; unfinished(); ++now_) {
      bool moved = false;
      for (int rank = 0; rank < stages_; ++rank) moved = step(rank, window) || moved;
      idle_slots = moved ? 0 : idle_slots + 1;
      // Everything takes one slot: two without any action mean that nothing will ever arrive.
      if (idle_slots > 1) return std::nullopt;
    }
    return now_;
  }

  std::vector<std::vector<StageWork>> take() {
    std::vector<std::vector<StageWork>> work;
    for (Rank& rank : ranks_) work.push_back(std::move(rank.work));
    return work;
  }

 private:
  size_t cell(int stage, int m) const { return static_cast<size_t>(stage) * micro_batches_ + m; }
  bool arrived(const std::vector<int>& ends, int stage, int m) const {
    int end = ends[cell(stage, m)];
    return end != kNotYet && end <= now_;
  }

  bool unfinished() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return !rank.entries.empty() || !rank.weights.empty();
    });
  }

  bool can_run(int rank, const Entry& entry) const {
    int stage = v_stage(stages_, rank, entry.chunk);
    if (entry.kind == ActionKind::kForward) {
      if (ranks_[rank].held_chunks >= limit_chunks_) return false;
      return stage == 0 || arrived(forward_end_, stage - 1, entry.micro_batch);
    }
    if (stage + 1 == 2 * stages_) return arrived(forward_end_, stage, entry.micro_batch);
    return arrived(input_end_, stage + 1, entry.micro_batch);
  }

  bool step(int rank, int window) {
    Rank& state = ranks_[rank];
    int candidates = std::min<int>(window + 1, static_cast<int>(state.entries.size()));
    for (int index = 0; index < candidates; ++index) {
      Entry entry = state.entries[index];
      if (!can_run(rank, entry)) continue;
      state.entries.erase(state.entries.begin() + index);
      run_entry(rank, entry);
      return true;
    }
    if (state.weights.empty()) return false;
    state.work.push_back(state.weights.front());
    state.weights.pop_front();
    --state.held_chunks;
    return true;
  }

  void run_entry(int rank, const Entry& entry) {
    Rank& state = ranks_[rank];
    int stage = v_stage(stages_, rank, entry.chunk);
    state.work.push_back({entry.kind, stage, entry.micro_batch});
    if (entry.kind == ActionKind::kForward) {
      ++state.held_chunks;
      forward_end_[cell(stage, entry.micro_batch)] = now_ + 1;
    } else {
      state.weights.push_back({ActionKind::kWeightGradient, stage, entry.micro_batch});
      input_end_[cell(stage, entry.micro_batch)] = now_ + 1;
    }
  }

  int stages_;
  int micro_batches_;
  int limit_chunks_;
  int now_ = 0;
  std::vector<Rank> ranks_;
  std::vector<int> forward_end_, input_end_;  ///< slot, per (stage, micro-batch)
};

}  // namespace

Result<Plan> make_v_plan(std::string_view schedule, const ScheduleParameters& parameters,
                         VPattern (*pattern)(int stages, int rank), int memory_limit) {
  int stages = parameters.stages;
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers(schedule, parameters, 2 * stages));
  std::optional<int> best_slots;
  std::vector<std::vector<StageWork>> best;
  for (int window = 0; window <= kWidestWindow; ++window) {
    SlotMachine machine(stages, parameters.micro_batches, 2 * memory_limit);
    for (int rank = 0; rank < stages; ++rank) machine.set_pattern(rank, pattern(stages, rank));
    std::optional<int> slots = machine.run(window);
    if (!slots || (best_slots && *slots >= *best_slots)) continue;
    best_slots = slots;
    best = machine.take();
  }
  if (!best_slots) {
    return internal_error(std::string("schedule ") + std::string(schedule) +
                          ": its pattern does not run under its memory limit");
  }
  return build_plan(std::string(schedule), parameters.micro_batches, layers, best);
}

}  // namespace stagecoach
