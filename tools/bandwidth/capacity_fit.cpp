#include "tools/bandwidth/capacity_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <set>

namespace stagecoach {

namespace {

constexpr DeviceSet bit_of(int device) {
  return DeviceSet{1} << device;
}

double total_of(const std::vector<double>& rates) {
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double total_of(const std::vector<double>& rates, DeviceSet members) {
  double total = 0;
  for (size_t device = 0; device < rates.size(); ++device) {
    if ((members & bit_of(static_cast<int>(device))) != 0) total += rates[device];
  }
  return total;
}

/// The search of `fit_capacities`.
class CapacitySearch {
 public:
  CapacitySearch(int count, const MeasureSet& measure, const CapacityFitOptions& options)
      : count_(count), measure_(measure), options_(options) {}

  Result<CapacityModel> run() {
    for (int device = 0; device < count_; ++device) {
      STAGECOACH_RETURN_IF_ERROR(measure_once(bit_of(device)));
      model_.links.push_back(total_of(model_.measured.at(bit_of(device))));
    }
    DeviceSet all = bit_of(count_) - 1;
    STAGECOACH_RETURN_IF_ERROR(explain(all));
    for (int size = 2; size < count_; ++size) STAGECOACH_RETURN_IF_ERROR(explain_sets(size));
    STAGECOACH_RETURN_IF_ERROR(explain_unions());
    finish();
    return std::move(model_);
  }

 private:
  bool is_known(DeviceSet set) const {
    return model_.measured.contains(set) || unclear_.contains(set);
  }

  bool has_room() const { return std::ssize(model_.measured) < options_.most_sets; }

  Status measure_once(DeviceSet set) {
    if (is_known(set)) return Status::ok();
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<double> rates, measure_(set));
    if (rates.empty() && std::popcount(set) > 1) {
      unclear_.insert(set);
      model_.is_complete = false;
      return Status::ok();
    }
    if (std::ssize(rates) != count_) return internal_error("a rate a device is needed");
    model_.measured[set] = std::move(rates);
    return Status::ok();
  }

  /// Whether a measured set has less than links and known pools let expect.
  bool is_unexplained(DeviceSet set) const {
    if (unclear_.contains(set)) return false;
    return total_of(model_.measured.at(set)) < (1 - options_.tolerance) * expected_total(set);
  }

  double expected_total(DeviceSet set) const { return total_of(model_.rates(set)); }

  /// Whether a known pool limits the set.
  bool is_limited(DeviceSet set) const {
    return expected_total(set) < (1 - kSame) * total_of(model_.links, set);
  }

  /// Whether measuring the set could show nothing new. Totals grow with the set, so that a device
  /// which adds nothing need not be there to show a pool; and a part of a measured set cannot lack
  /// more than the whole does, where known pools leave what it gets alone.
  bool is_settled(DeviceSet set) const {
    double expected = expected_total(set);
    for (int device = 0; device < count_; ++device) {
      DeviceSet less = set & ~bit_of(device);
      if (less != set && expected_total(less) >= (1 - kSame) * expected) return true;
    }
    for (const auto& [whole, rates] : model_.measured) {
      if ((set & whole) != set) continue;
      double of_whole = expected_total(whole);
      double apart = expected + expected_total(whole & ~set);
      bool is_alone = of_whole >= apart * (1 - kRounding);
      if (is_alone && of_whole - total_of(rates) < options_.tolerance * expected) return true;
    }
    return false;
  }

  /// Adds pools until `set` is explained.
  Status explain(DeviceSet set) {
    if (std::popcount(set) < 2) return Status::ok();
    STAGECOACH_RETURN_IF_ERROR(measure_once(set));
    for (int turn = 0; turn < count_ && is_unexplained(set); ++turn) {
      size_t before = model_.pools.size();
      STAGECOACH_RETURN_IF_ERROR(add_pool(set));
      if (model_.pools.size() == before) break;
    }
    return Status::ok();
  }

  Status explain_sets(int size) {
    for (DeviceSet set = 1; set < bit_of(count_); ++set) {
      if (std::popcount(set) != size || is_known(set) || is_settled(set)) continue;
      if (!has_room()) {
        model_.is_complete = false;
        return Status::ok();
      }
      STAGECOACH_RETURN_IF_ERROR(explain(set));
    }
    return Status::ok();
  }

  /// Pools that only show when pools below them are full.
  Status explain_unions() {
    std::vector<CapacityPool> pools = model_.pools;
    for (size_t one = 0; one < pools.size(); ++one) {
      for (size_t other = one + 1; other < pools.size(); ++other) {
        if (!has_room()) return Status::ok();
        STAGECOACH_RETURN_IF_ERROR(explain(pools[one].members | pools[other].members));
      }
    }
    return Status::ok();
  }

  Status add_pool(DeviceSet set) {
    for (DeviceSet before = 0; before != set;) {
      before = set;
      for (int device = 0; device < count_; ++device) {
        DeviceSet less = set & ~bit_of(device);
        if (less == set || std::popcount(less) < 2) continue;
        STAGECOACH_RETURN_IF_ERROR(measure_once(less));
        if (is_unexplained(less)) set = less;
      }
    }
    CapacityPool pool{set, at_least_a_link(set, total_of(model_.measured.at(set), set))};
    for (int device = 0; device < count_; ++device) {
      DeviceSet more = set | bit_of(device);
      if (more == set) continue;
      STAGECOACH_RETURN_IF_ERROR(measure_once(more));
      if (unclear_.contains(more)) continue;
      double together = total_of(model_.measured.at(more));
      if (together <= (1 + kSame) * pool.capacity) pool.members |= bit_of(device);
    }
    pool.capacity = at_least_a_link(pool.members, pool.capacity);
    for (const CapacityPool& known : model_.pools) {
      if (known.members == pool.members) return Status::ok();
    }
    model_.pools.push_back(pool);
    return Status::ok();
  }

  /// What carries a device alone carries at least that.
  double at_least_a_link(DeviceSet members, double capacity) const {
    for (int device = 0; device < count_; ++device) {
      if ((members & bit_of(device)) == 0) continue;
      capacity = std::max(capacity, model_.links[static_cast<size_t>(device)]);
    }
    return capacity;
  }

  /// Capacities from all measured sets that a pool limits; order; residual.
  void finish() {
    for (CapacityPool& pool : model_.pools) {
      std::vector<double> totals;
      for (const auto& [set, rates] : model_.measured) {
        double total = total_of(rates, pool.members);
        bool is_full = std::abs(total - pool.capacity) <= options_.tolerance * pool.capacity &&
                       (set & pool.members) == set;
        if (is_full && is_limited(set)) totals.push_back(total);
      }
      if (totals.empty()) continue;
      std::nth_element(totals.begin(), totals.begin() + std::ssize(totals) / 2, totals.end());
      pool.capacity = at_least_a_link(pool.members, totals[totals.size() / 2]);
    }
    std::sort(model_.pools.begin(), model_.pools.end(), [](const auto& a, const auto& b) {
      int size_a = std::popcount(a.members), size_b = std::popcount(b.members);
      if (size_a != size_b) return size_a < size_b;
      return std::countr_zero(a.members) < std::countr_zero(b.members);
    });
    for (const auto& [set, rates] : model_.measured) {
      double total = total_of(rates), expected = expected_total(set);
      if (total <= 0) continue;
      model_.residual = std::max(model_.residual, std::abs(expected - total) / total);
    }
  }

  /// Totals this near are the same: a device outside a pool adds more than this to its total.
  static constexpr double kSame = 0.02;
  static constexpr double kRounding = 1e-9;

  const int count_;
  const MeasureSet& measure_;
  const CapacityFitOptions options_;
  CapacityModel model_;
  std::set<DeviceSet> unclear_;  ///< measured, and no evidence
};

}  // namespace

std::vector<double> CapacityModel::rates(DeviceSet active) const {
  std::vector<double> rates(links.size(), 0);
  DeviceSet open = active & (bit_of(static_cast<int>(links.size())) - 1);
  while (open != 0) {
    // The least fair share of what is left: a link's own, or a pool's by its open members.
    double share = std::numeric_limits<double>::max();
    DeviceSet fixed = 0;
    auto offer = [&](double value, DeviceSet members) {
      if (value > share) return;
      fixed = value < share ? members : fixed | members;
      share = value;
    };
    for (size_t device = 0; device < links.size(); ++device) {
      DeviceSet bit = bit_of(static_cast<int>(device));
      if ((open & bit) != 0) offer(links[device], bit);
    }
    for (const CapacityPool& pool : pools) {
      DeviceSet members = pool.members & open;
      if (members == 0) continue;
      double left = pool.capacity - total_of(rates, pool.members & active & ~open);
      offer(std::max(0.0, left) / std::popcount(members), members);
    }
    for (size_t device = 0; device < links.size(); ++device) {
      if ((fixed & bit_of(static_cast<int>(device))) != 0) rates[device] = share;
    }
    open &= ~fixed;
  }
  return rates;
}

Result<CapacityModel> fit_capacities(int device_count, const MeasureSet& measure,
                                     const CapacityFitOptions& options) {
  if (device_count < 1 || device_count > kMostFittedDevices) {
    return invalid_argument(fmt::format("capacities of {} devices; it must be 1 to {}",
                                        device_count, kMostFittedDevices));
  }
  return CapacitySearch(device_count, measure, options).run();
}

}  // namespace stagecoach
