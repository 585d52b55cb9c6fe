#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/sim/flow_network.h"
#include "backends/sim/sim_card.h"
#include "hal/host_queue.h"
#include "hal/virtual_time.h"

namespace stagecoach {

/// A link that several cards share on their way to the host; 0: no limit.
struct SimUplink {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
};

/// A machine to simulate: cards, what they share, and the host. Plain data.
struct SimMachineProfile {
  std::vector<SimCard> cards;
  std::vector<double> speeds;  ///< per card, of its compute; empty: 1 each
  std::vector<SimUplink> uplinks;
  std::vector<int> uplink_of_card;  ///< per card; -1 or empty: it shares none
  /// What all links together may move, both directions; 0: not limited.
  double host_memory_bytes_per_s = 0;
  /// What host work (optimizer, sums) touches alone; 16 threads of STREAM reached 83 GB/s.
  double host_work_bytes_per_s = 80e9;
  int64_t copy_latency_ns = 10'000;   ///< of a copy, before its first byte
  int64_t kernel_latency_ns = 3'000;  ///< of a kernel, before it begins
  HostCosts costs;
};

/// What the devices of a simulated machine share: time and links.
/// Thread rule: one thread.
class SimMachine {
 public:
  explicit SimMachine(SimMachineProfile profile);

  const SimMachineProfile& profile() const { return profile_; }
  VirtualTime& time() { return time_; }
  FlowNetwork& network() { return network_; }

  enum class Direction : uint8_t { kUp, kDown };
  /// What a copy between the host and a card passes through.
  std::vector<int> path(int card, Direction direction) const;
  /// What a copy from one card to another passes through.
  std::vector<int> path_between(int source, int target) const;
  /// What host work passes through.
  std::vector<int> host_path() const;

 private:
  const SimMachineProfile profile_;
  VirtualTime time_;
  FlowNetwork network_;
  std::vector<int> up_, down_, duplex_;
  std::vector<int> uplinks_up_, uplinks_down_;  ///< per uplink; -1: no limit
  int host_memory_ = -1;
  int host_work_ = -1;
};

/// Host work that only costs time: jobs are charged, never run. `machine` must outlive it.
std::unique_ptr<HostQueue> make_sim_host_queue(SimMachine& machine, std::string name);

}  // namespace stagecoach
