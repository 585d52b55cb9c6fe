#pragma once

#include <vector>

#include "scheduler/plan.h"

namespace stagecoach {

/// Consecutive actions of one device on the same stage and round: its parameters stay loaded.
struct Slot {
  int stage = 0;
  int round = 0;
  int first_action = 0;
  int action_count = 0;
  int buffer = 0;  ///< of parameters: streamed slots use two in turn, a bound stage has its own
  bool uploads = true;  ///< whether it brings its parameters up: of a bound stage the first slot
};

/// The slots of a device. Streamed ones take buffer `first_turn`, then the other, and so on. Pure.
std::vector<Slot> slots_of_device(const Plan& plan, int device, int first_turn);

}  // namespace stagecoach
