#include "backends/sim/flow_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"

namespace stagecoach {

namespace {

constexpr double kSecondNs = 1e9;
/// Less than a byte is left over by rounding.
constexpr double kNothingBytes = 0.5;

}  // namespace

int FlowNetwork::add_resource(std::string name, double bytes_per_s) {
  STAGECOACH_CHECK(bytes_per_s > 0);
  Resource resource;
  resource.name = std::move(name);
  resource.bytes_per_ns = bytes_per_s / kSecondNs;
  resources_.push_back(std::move(resource));
  return resource_count() - 1;
}

std::vector<double> FlowNetwork::rates() const {
  std::vector<double> rates;
  for (const auto& flow : flows_) rates.push_back(flow->bytes_per_ns * kSecondNs);
  return rates;
}

void FlowNetwork::start(double bytes, std::vector<int> resources, const EventOrder& order,
                        std::function<void()> done) {
  STAGECOACH_CHECK(!resources.empty());
  move_to_now();
  auto flow = std::make_unique<Flow>();
  flow->bytes_left = bytes;
  flow->resources = std::move(resources);
  flow->order = order;
  flow->done = std::move(done);
  flows_.push_back(std::move(flow));
  share_rates();
  plan_next_end();
}

void FlowNetwork::move_to_now() {
  double elapsed_ns = static_cast<double>(time_.now_ns() - moved_until_ns_);
  moved_until_ns_ = time_.now_ns();
  if (elapsed_ns <= 0) return;
  for (Resource& resource : resources_) resource.left = 0;
  for (const auto& flow : flows_) {
    double moved = std::min(flow->bytes_left, flow->bytes_per_ns * elapsed_ns);
    flow->bytes_left -= moved;
    for (int index : flow->resources) {
      resources_[index].bytes += moved;
      resources_[index].left += flow->bytes_per_ns;
    }
  }
  constexpr double kFull = 0.999;
  for (Resource& resource : resources_) {
    if (resource.left >= kFull * resource.bytes_per_ns) resource.busy_ns += elapsed_ns;
  }
}

void FlowNetwork::share_rates() {
  std::vector<Flow*> open;
  for (Resource& resource : resources_) {
    resource.left = resource.bytes_per_ns;
    resource.open_flows = 0;
  }
  for (const auto& flow : flows_) {
    open.push_back(flow.get());
    for (int index : flow->resources) ++resources_[index].open_flows;
  }
  while (!open.empty()) {
    // The resource that leaves each of its flows the least fixes their rates.
    double least = std::numeric_limits<double>::infinity();
    int tightest = -1;
    for (int index = 0; index < resource_count(); ++index) {
      const Resource& resource = resources_[index];
      if (resource.open_flows == 0) continue;
      double share = resource.left / resource.open_flows;
      if (share < least) {
        least = share;
        tightest = index;
      }
    }
    auto is_fixed = [&](Flow* flow) {
      const std::vector<int>& through = flow->resources;
      if (std::find(through.begin(), through.end(), tightest) == through.end()) return false;
      flow->bytes_per_ns = least;
      for (int index : through) {
        resources_[index].left = std::max(0.0, resources_[index].left - least);
        --resources_[index].open_flows;
      }
      return true;
    };
    std::erase_if(open, is_fixed);
  }
}

void FlowNetwork::plan_next_end() {
  const Flow* first = nullptr;
  double first_ns = std::numeric_limits<double>::infinity();
  for (const auto& flow : flows_) {
    double needed_ns = std::max(0.0, flow->bytes_left) / flow->bytes_per_ns;
    if (needed_ns >= first_ns) continue;
    first_ns = needed_ns;
    first = flow.get();
  }
  uint64_t number = ++plan_number_;
  if (first == nullptr) return;
  time_.at(time_.now_ns() + static_cast<int64_t>(std::ceil(first_ns)), first->order,
           [this, number] {
             if (number == plan_number_) end_due();
           });
}

void FlowNetwork::end_due() {
  move_to_now();
  std::vector<std::unique_ptr<Flow>> ended;
  for (auto& flow : flows_) {
    // A flow ends in this nanosecond or it is not due.
    if (flow->bytes_left <= std::max(kNothingBytes, flow->bytes_per_ns)) {
      ended.push_back(std::move(flow));
    }
  }
  std::erase(flows_, nullptr);
  share_rates();
  plan_next_end();
  std::sort(ended.begin(), ended.end(),
            [](const auto& a, const auto& b) { return a->order < b->order; });
  for (const auto& flow : ended) flow->done();
}

}  // namespace stagecoach
