#include "scheduler/network_state.h"

#include <algorithm>

namespace stagecoach {

std::vector<BlockLayout> state_layouts(const Network& network) {
  std::vector<BlockLayout> layouts;
  for (const ParameterBlock& block : network.blocks) {
    BlockLayout& layout = layouts.emplace_back();
    layout.name = block.name;
    layout.element_count = block.element_count;
    layout.site_count = block.site_count;
    layout.is_frozen = block.is_frozen;
    layout.is_mapped = block.is_mapped;
    for (const ParameterInfo& parameter : block.parameters) {
      layout.parts.push_back(parameter.offset);
    }
  }
  return layouts;
}

HostStateOptions state_options(const Network& network, int rounds, Residence residence,
                               UpdateMode update, const MomentOptions& moments) {
  // Streamed rounds follow each other. Bound devices may be any number of rounds apart, so none of
  // their gradients may wait for an earlier round's.
  constexpr int kStreamedRounds = 2;
  int slots = residence == Residence::kBound ? rounds : std::min(rounds, kStreamedRounds);
  HostStateOptions options;
  options.compute_dtype = network.dtype;
  options.rounds = rounds;
  options.slots_per_site = slots;
  options.moments = moments;
  options.versions = update == UpdateMode::kAsync ? 2 : 1;
  return options;
}

}  // namespace stagecoach
