#include "scheduler/network_profile.h"

#include <algorithm>

#include "memory/arena.h"

namespace stagecoach {

namespace {

double time_ns(double flop, const ProfileRates& rates) {
  return std::max(flop / rates.flop_per_s * 1e9, kLeastLayerNs);
}

void add_block(const Network& network, int block, bool rounds, LayerProfile& profile) {
  profile.parameter_bytes += Arena::padded(network.block_bytes(block, network.dtype));
  if (network.blocks[block].is_frozen) {
    ++profile.frozen_copies;
    return;
  }
  profile.gradient_bytes += Arena::padded(network.block_bytes(block, network.dtype));
  if (!rounds) return;
  profile.gradient_sum_bytes += Arena::padded(network.block_bytes(block, DType::kF32));
}

/// The last layer before `name` that uses `block`; -1 when there is none.
int earlier_user(const Network& network, int block, const std::string& name) {
  int user = -1;
  for (size_t index = 0; network.layers[index]->name() != name; ++index) {
    for (const BlockUse& use : network.layers[index]->uses()) {
      if (use.block == block) user = static_cast<int>(index);
    }
  }
  return user;
}

}  // namespace

std::vector<LayerProfile> profile_network(const Network& network, const MicroBatchShape& shape,
                                          const ProfileRates& rates) {
  std::vector<LayerProfile> profiles;
  bool rounds = network.dtype != DType::kF32;
  for (const auto& layer : network.layers) {
    LayerProfile& profile = profiles.emplace_back();
    profile.name = layer->name();
    LayerFlop flop = layer->flop(shape);
    profile.forward_ns = time_ns(flop.forward, rates);
    profile.recompute_ns = profile.forward_ns;
    profile.early_stop_ns = profile.forward_ns - flop.recompute / rates.flop_per_s * 1e9;
    profile.early_stop_ns = std::clamp(profile.early_stop_ns, 0.0, profile.forward_ns);
    profile.backward_ns = time_ns(flop.backward_input + flop.backward_weight, rates);
    for (const BlockUse& use : layer->uses()) {
      add_block(network, use.block, rounds, profile);
      if (use.site > 0 || network.blocks[use.block].is_frozen) continue;
      double parameters = static_cast<double>(network.blocks[use.block].element_count);
      double touched = parameters * rates.update_bytes_per_parameter;
      profile.update_bytes += static_cast<ByteCount>(touched);
      profile.update_ns += touched / rates.host_bytes_per_s * 1e9;
    }
    for (const BlockUse& use : layer->uses()) {
      double bytes = static_cast<double>(network.block_bytes(use.block, network.dtype));
      profile.copy_shares.push_back(bytes / static_cast<double>(profile.parameter_bytes));
      profile.shared_layers.push_back(earlier_user(network, use.block, layer->name()));
    }
    LayerMemory memory = layer->memory(shape);
    profile.boundary_bytes = Arena::padded(layer->output().size_bytes(shape));
    profile.saved_bytes = Arena::padded(memory.saved_bytes);
    if (profiles.size() == 1) {
      profile.input_bytes = Arena::padded(layer->input().size_bytes(shape));
    }
    for (RowInput rows : kRowInputs) {
      if (!layer->needs(rows)) continue;
      profile.row_bytes[rows] = Arena::padded(network.row_input(rows).size_bytes(shape));
    }
    profile.report_bytes = Arena::padded(layer->report_bytes(shape));
    profile.forward_workspace_bytes = Arena::padded(memory.forward_workspace_bytes);
    profile.backward_workspace_bytes = Arena::padded(memory.backward_workspace_bytes);
  }
  return profiles;
}

}  // namespace stagecoach
