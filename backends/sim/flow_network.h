#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hal/virtual_time.h"

namespace stagecoach {

/// Bytes that move through things of limited rate (links, shared uplinks, host memory), each flow
/// through several of them. Rates are max-min fair: what limits most is shared equally, what it
/// leaves goes to the others (Bertsekas and Gallager, Data Networks, section 6.5).
/// Thread rule: one thread.
class FlowNetwork {
 public:
  explicit FlowNetwork(VirtualTime& time) : time_(time) {}

  /// Adds something that passes at most `bytes_per_s` (above 0); its number.
  int add_resource(std::string name, double bytes_per_s);
  int resource_count() const { return static_cast<int>(resources_.size()); }
  const std::string& resource_name(int resource) const { return resources_[resource].name; }
  /// Time in which the resource was used to the full, and bytes through it.
  double busy_ns(int resource) const { return resources_[resource].busy_ns; }
  double bytes_moved(int resource) const { return resources_[resource].bytes; }

  /// Rates of the flows under way, oldest first, in bytes a second.
  std::vector<double> rates() const;

  /// Starts moving `bytes` through `resources` (no number twice); `done` runs when the last has
  /// arrived. `order` decides between flows that end together.
  void start(double bytes, std::vector<int> resources, const EventOrder& order,
             std::function<void()> done);

 private:
  struct Resource {
    std::string name;
    double bytes_per_ns;
    double busy_ns = 0;
    double bytes = 0;
    // While rates are being shared out.
    double left = 0;
    int open_flows = 0;
  };
  struct Flow {
    double bytes_left;
    std::vector<int> resources;
    EventOrder order;
    std::function<void()> done;
    double bytes_per_ns = 0;
  };

  void move_to_now();
  void share_rates();
  void plan_next_end();
  void end_due();

  VirtualTime& time_;
  std::vector<Resource> resources_;
  std::vector<std::unique_ptr<Flow>> flows_;  ///< oldest first
  int64_t moved_until_ns_ = 0;
  uint64_t plan_number_ = 0;  ///< an end planned under an older number is void
};

}  // namespace stagecoach
