#include "backends/sim/sim_machine.h"

#include <fmt/format.h>
#include <utility>

namespace stagecoach {

SimMachine::SimMachine(SimMachineProfile profile)
    : profile_(std::move(profile)), time_(profile_.costs), network_(time_) {
  for (size_t card = 0; card < profile_.cards.size(); ++card) {
    const SimCard& one = profile_.cards[card];
    up_.push_back(network_.add_resource(fmt::format("sim:{} up", card), one.link_bytes_per_s));
    down_.push_back(network_.add_resource(fmt::format("sim:{} down", card), one.link_bytes_per_s));
    duplex_.push_back(
        network_.add_resource(fmt::format("sim:{} both", card), one.duplex_bytes_per_s));
  }
  for (size_t index = 0; index < profile_.uplinks.size(); ++index) {
    auto add = [&](const char* direction, double rate) {
      if (rate <= 0) return -1;
      return network_.add_resource(fmt::format("uplink {} {}", index, direction), rate);
    };
    uplinks_up_.push_back(add("up", profile_.uplinks[index].up_bytes_per_s));
    uplinks_down_.push_back(add("down", profile_.uplinks[index].down_bytes_per_s));
  }
  if (profile_.host_memory_bytes_per_s > 0) {
    host_memory_ = network_.add_resource("host memory", profile_.host_memory_bytes_per_s);
  }
  host_work_ = network_.add_resource("host work", profile_.host_work_bytes_per_s);
}

std::vector<int> SimMachine::path(int card, Direction direction) const {
  auto index = static_cast<size_t>(card);
  std::vector<int> path = {direction == Direction::kUp ? up_[index] : down_[index], duplex_[index]};
  if (!profile_.uplink_of_card.empty() && profile_.uplink_of_card[index] >= 0) {
    auto uplink = static_cast<size_t>(profile_.uplink_of_card[index]);
    int shared = direction == Direction::kUp ? uplinks_up_[uplink] : uplinks_down_[uplink];
    if (shared >= 0) path.push_back(shared);
  }
  if (host_memory_ >= 0) path.push_back(host_memory_);
  return path;
}

std::vector<int> SimMachine::path_between(int source, int target) const {
  auto from = static_cast<size_t>(source), to = static_cast<size_t>(target);
  return {down_[from], duplex_[from], up_[to], duplex_[to]};
}

std::vector<int> SimMachine::host_path() const {
  std::vector<int> path = {host_work_};
  if (host_memory_ >= 0) path.push_back(host_memory_);
  return path;
}

}  // namespace stagecoach
