#include "scheduler/schedules/zb_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "scheduler/schedules/schedule_checks.h"

namespace stagecoach {

namespace {

/// Memory is counted in thousandths of an activation, so that sums are exact.
constexpr int64_t kActivation = 1000;

/// What one attempt may do; the search tries all of them.
struct Choices {
  bool overshoot = false;  ///< a warm-up forward may end after the first gradient arrives
  bool spare_neighbour =
      false;  ///< a forward waits while a gradient that the rank before needs is there
  bool fill_every_wait = false;  ///< a weight gradient may overrun any wait, not only long ones
};

struct RankState {
  int64_t now_ns = 0;
  int64_t start_ns = 0;
  int64_t waited_ns = 0;
  int64_t memory = 0;
  int forwards = 0, inputs = 0, weights = 0;
  std::vector<int64_t> forward_end_ns, input_end_ns;
  std::vector<StageWork> work;
};

/// One attempt.
class Attempt {
 public:
  Attempt(const ZeroBubbleRequest& request, Choices choices)
      : request_(request),
        choices_(choices),
        limit_(std::llround(request.memory_limit * kActivation)),
        freed_at_input_(std::llround(request.freed_at_input * kActivation)),
        ranks_(request.stages) {}

  void run() {
    std::vector<int> counts = warmup_counts();
    for (int rank = 0; rank < request_.stages; ++rank) {
      for (int k = 0; k < counts[rank]; ++k) forward(rank);
    }
    for (int rank = request_.stages - 1; rank >= 0; --rank) input(rank);
    while (ranks_[0].inputs < request_.micro_batches) turn();
    for (int rank = 0; rank < request_.stages; ++rank) {
      while (ranks_[rank].weights < request_.micro_batches) weight(rank);
    }
  }

  int64_t span_ns() const {
    int64_t span = 0;
    for (const RankState& rank : ranks_) span = std::max(span, rank.now_ns - rank.start_ns);
    return span;
  }

  std::vector<std::vector<StageWork>> take() {
    std::vector<std::vector<StageWork>> work;
    for (RankState& rank : ranks_) work.push_back(std::move(rank.work));
    return work;
  }

 private:
  const StageTimes& times() const { return request_.times; }

  /// Forwards of each rank before its first input gradient, fewer on each rank than on the one
  /// before: as many as fit into the time until that gradient arrives, and into memory.
  std::vector<int> warmup_counts() const {
    int stages = request_.stages;
    std::vector<int> counts(stages, 1);
    int64_t step = times().forward_ns + times().hop_ns;
    int64_t loss_ns = stages * step - times().hop_ns;
    for (int rank = stages - 1; rank >= 0; --rank) {
      int64_t first_end = rank * step + times().forward_ns;
      int64_t arrival = loss_ns + (stages - 1 - rank) * (times().input_ns + times().hop_ns);
      // Ranks before this one hold at least one more each, all under the same limit.
      int64_t most = std::min<int64_t>(request_.micro_batches, limit_ / kActivation - rank);
      int count = 1;
      while (count + 1 <= most) {
        int64_t end = first_end + count * times().forward_ns;
        bool fits = end <= arrival;
        bool overshoots = choices_.overshoot && end - times().forward_ns < arrival;
        if (!fits && !overshoots) break;
        ++count;
      }
      int after = rank + 1 < stages ? counts[rank + 1] : 0;
      int64_t cap = std::min<int64_t>(request_.micro_batches, limit_ / kActivation);
      counts[rank] = static_cast<int>(std::max<int64_t>(count, std::min<int64_t>(after + 1, cap)));
      // A rank cannot run what the one before has not run.
      counts[rank] = std::max(counts[rank], after);
    }
    return counts;
  }

  void emit(int rank, ActionKind kind, int micro_batch) {
    ranks_[rank].work.push_back({kind, rank, micro_batch});
  }

  void weight(int rank) {
    RankState& state = ranks_[rank];
    emit(rank, ActionKind::kWeightGradient, state.weights++);
    state.now_ns += times().weight_ns;
    state.memory -= kActivation - freed_at_input_;
  }

  /// Passes the time until `arrival_ns`, with weight gradients where they fit or pay.
  void wait_until(int rank, int64_t arrival_ns) {
    RankState& state = ranks_[rank];
    while (state.weights < state.inputs && state.now_ns + times().weight_ns <= arrival_ns) {
      weight(rank);
    }
    int64_t gap = arrival_ns - state.now_ns;
    if (gap > 0 && state.weights < state.inputs) {
      int64_t longest = 0;
      for (const RankState& other : ranks_) longest = std::max(longest, other.waited_ns);
      // A rank that has waited less than another may be late without making the whole longer.
      if (choices_.fill_every_wait || gap > longest - state.waited_ns) weight(rank);
    }
    if (arrival_ns > state.now_ns) {
      state.waited_ns += arrival_ns - state.now_ns;
      state.now_ns = arrival_ns;
    }
  }

  void forward(int rank) {
    RankState& state = ranks_[rank];
    int m = state.forwards;
    int64_t arrival = rank == 0 ? 0 : ranks_[rank - 1].forward_end_ns[m] + times().hop_ns;
    if (m == 0) state.start_ns = state.now_ns = arrival;
    while (state.memory + kActivation > limit_ && state.weights < state.inputs) weight(rank);
    wait_until(rank, arrival);
    emit(rank, ActionKind::kForward, m);
    state.now_ns += times().forward_ns;
    state.forward_end_ns.push_back(state.now_ns);
    state.memory += kActivation;
    ++state.forwards;
  }

  int64_t input_arrival_ns(int rank) const {
    int m = ranks_[rank].inputs;
    return rank + 1 == request_.stages ? ranks_[rank].forward_end_ns[m]
                                       : ranks_[rank + 1].input_end_ns[m] + times().hop_ns;
  }

  bool input_exists(int rank) const {
    const RankState& state = ranks_[rank];
    if (state.inputs >= std::min(state.forwards, request_.micro_batches)) return false;
    return rank + 1 == request_.stages || ranks_[rank + 1].inputs > state.inputs;
  }

  void input(int rank) {
    RankState& state = ranks_[rank];
    wait_until(rank, input_arrival_ns(rank));
    emit(rank, ActionKind::kInputGradient, state.inputs++);
    state.now_ns += times().input_ns;
    state.input_end_ns.push_back(state.now_ns);
    state.memory -= freed_at_input_;
  }

  bool wants_forward(int rank) const {
    const RankState& state = ranks_[rank];
    if (state.forwards == request_.micro_batches) return false;
    if (rank > 0 && ranks_[rank - 1].forwards <= state.forwards) return false;
    int64_t freeable = (kActivation - freed_at_input_) * (state.inputs - state.weights);
    if (state.memory + kActivation - freeable > limit_) return false;
    if (!choices_.spare_neighbour || rank == 0 || !input_exists(rank)) return true;
    // The rank before idles until our input gradient arrives: that comes first if it is here
    // already and our own forward is not.
    int64_t arrival = ranks_[rank - 1].forward_end_ns[state.forwards] + times().hop_ns;
    return arrival <= std::max(state.now_ns, input_arrival_ns(rank));
  }

  /// A forward from the first rank to the last, then an input gradient back.
  void turn() {
    for (int rank = 0; rank < request_.stages; ++rank) {
      if (wants_forward(rank)) forward(rank);
    }
    for (int rank = request_.stages - 1; rank >= 0; --rank) {
      if (input_exists(rank)) input(rank);
    }
    RankState& first = ranks_[0];
    while (first.forwards == request_.micro_batches && first.weights < first.inputs) weight(0);
  }

  const ZeroBubbleRequest& request_;
  Choices choices_;
  int64_t limit_;
  int64_t freed_at_input_;
  std::vector<RankState> ranks_;
};

}  // namespace

std::vector<std::vector<StageWork>> search_zero_bubble(const ZeroBubbleRequest& request) {
  std::vector<std::vector<StageWork>> best;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (int bits = 0; bits < 8; ++bits) {
    Attempt attempt(request, Choices{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
    attempt.run();
    if (attempt.span_ns() >= best_ns) continue;
    best_ns = attempt.span_ns();
    best = attempt.take();
  }
  return best;
}

Result<Plan> make_searched_plan(std::string_view schedule, const ScheduleParameters& parameters,
                                int memory_factor) {
  int limit = parameters.memory_limit.value_or(memory_factor * parameters.stages);
  STAGECOACH_RETURN_IF_ERROR(check_range(schedule, "memory-limit", limit, 1, kNoMaximum));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers,
                              stage_layers(schedule, parameters, parameters.stages));
  ZeroBubbleRequest request;
  request.stages = parameters.stages;
  request.micro_batches = parameters.micro_batches;
  request.memory_limit = limit;
  request.times = parameters.times;
  request.freed_at_input = parameters.freed_at_input;
  if (request.times.forward_ns == 0 && request.times.input_ns == 0 &&
      request.times.weight_ns == 0) {
    request.times.forward_ns = request.times.input_ns = request.times.weight_ns = 1;
  }
  return build_plan(std::string(schedule), parameters.micro_batches, layers,
                    search_zero_bubble(request));
}

}  // namespace stagecoach
