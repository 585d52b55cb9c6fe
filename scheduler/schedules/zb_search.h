#pragma once

#include <vector>

#include "scheduler/schedules/schedule.h"

namespace stagecoach {

/// What a search for a zero-bubble order works with.
struct ZeroBubbleRequest {
  int stages = 1;
  int micro_batches = 1;
  double memory_limit = 1;  ///< activations a rank may hold, in micro-batches of its stage
  StageTimes times;         ///< F, I, W and hop
  double freed_at_input = 0.5;
};

/// Searches an order of F, I and W under a memory limit (after arXiv 2401.10241, the greedy search
/// behind ZB-1p and ZB-2p): ranks start as many forwards as fit before the first gradient arrives,
/// then run one forward and one input gradient a turn, with weight gradients where memory or a wait
/// asks for them. Tries every combination of its three choices and keeps the shortest span; the
/// first of equals wins. One list a rank. Pure.
std::vector<std::vector<StageWork>> search_zero_bubble(const ZeroBubbleRequest& request);

/// Plan of that search with a limit of `memory_factor` * N, or `memory_limit` where given.
Result<Plan> make_searched_plan(std::string_view schedule, const ScheduleParameters& parameters,
                                int memory_factor);

}  // namespace stagecoach
