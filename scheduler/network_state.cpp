#include "scheduler/network_state.h"

#include <algorithm>

namespace stagecoach {

std::vector<BlockLayout> state_layouts(const Network& network) {
  std::vector<BlockLayout> layouts;
  for (const ParameterBlock& block : network.blocks) {
    layouts.push_back({block.name, block.element_count, block.site_count, block.is_frozen});
  }
  return layouts;
}

HostStateOptions state_options(const Network& network, int rounds, Residence residence,
                               UpdateMode update) {
  // Streamed rounds follow each other. Bound devices may be any number of rounds apart, so none of
  // their gradients may wait for an earlier round's.
  constexpr int kStreamedRounds = 2;
  int slots = residence == Residence::kBound ? rounds : std::min(rounds, kStreamedRounds);
  return {network.dtype, rounds, slots, update == UpdateMode::kAsync ? 2 : 1};
}

}  // namespace stagecoach
