#include "scheduler/schedules/split_order.h"

#include <algorithm>

namespace stagecoach {

std::vector<StageWork> split_order(const LoopedTable& table, int rank, int input_lag,
                                   int weight_lag) {
  std::vector<StageWork> work;
  auto exists = [&](int k) { return k >= 0 && k < table.size(); };
  for (int x = 0; x < table.size() + std::max(input_lag, weight_lag); ++x) {
    if (exists(x)) work.push_back(table.forward(rank, x));
    if (exists(x - input_lag)) {
      work.push_back(table.backward(rank, x - input_lag, ActionKind::kInputGradient));
    }
    if (exists(x - weight_lag)) {
      work.push_back(table.backward(rank, x - weight_lag, ActionKind::kWeightGradient));
    }
  }
  return work;
}

}  // namespace stagecoach
