#include "tools/bandwidth/profile_builder.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "scheduler/op_rates_json.h"
#include "tools/bandwidth/overlap_shares.h"
#include "tools/bandwidth/profile_peers.h"
#include "tools/bandwidth/units.h"
#include "tools/rated_devices.h"

namespace stagecoach {

namespace {

constexpr double kEnoughOfLink = 0.96;     ///< that bulk and urgent copies together must keep
constexpr double kEnoughOfUpdates = 0.97;  ///< more threads than reach it gain nothing

/// Looks results up by what they are of.
class Results {
 public:
  explicit Results(const BandwidthReport& report) : report_(report) {}

  /// Those of a group that went well, with `params` of these values.
  std::vector<const MeasurementRecord*> find(
      std::string_view group,
      std::initializer_list<std::pair<std::string_view, std::string_view>> params) const {
    std::vector<const MeasurementRecord*> found;
    for (const MeasurementRecord& record : report_.records) {
      bool fits = record.is_ok() && record.info.group == group && !is_by_kernel(record);
      for (const auto& [name, value] : params) {
        const Json* own = record.info.params.find(name);
        fits = fits && own != nullptr && own->is_string() && own->as_string() == value;
      }
      if (fits) found.push_back(&record);
    }
    return found;
  }

 private:
  /// What kernels copy says nothing of copies as training makes them.
  static bool is_by_kernel(const MeasurementRecord& record) {
    const Json* engine = record.info.params.find("engine");
    return engine != nullptr && engine->is_string() && engine->as_string() == "kernel";
  }

  const BandwidthReport& report_;
};

const MeasurementRecord* fastest(const std::vector<const MeasurementRecord*>& records,
                                 size_t quantity = 0) {
  const MeasurementRecord* best = nullptr;
  for (const MeasurementRecord* record : records) {
    if (best == nullptr || record->median(quantity) > best->median(quantity)) best = record;
  }
  return best;
}

int64_t whole(const MeasurementRecord& record, std::string_view name) {
  const Json* value = record.info.params.find(name);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

Status missing(const std::string& what, const std::string& suite) {
  return failed_precondition(
      fmt::format("no machine profile: {} was not measured; run 'stagecoach bench bandwidth {}' "
                  "with --save-profile, without a filter that leaves it out",
                  what, suite));
}

/// Of the ways that keep the link busy, the one behind which urgent copies wait least.
std::optional<MeasuredLane> best_lane(const Results& results, const std::string& device,
                                      const char* direction) {
  enum Quantity : size_t { kLatency = 0, kTotal = 2, kBulkAlone = 3 };
  std::vector<const MeasurementRecord*> ways =
      results.find("urgent", {{"device", device}, {"dir", direction}});
  const MeasurementRecord* best = nullptr;
  for (const MeasurementRecord* way : ways) {
    bool keeps_link = way->median(kTotal) >= kEnoughOfLink * way->median(kBulkAlone);
    bool is_sooner =
        best == nullptr || way->statistics[kLatency].p99 < best->statistics[kLatency].p99;
    if (keeps_link && is_sooner) best = way;
  }
  if (best == nullptr) return std::nullopt;
  std::string method = best->info.params.find("method")->as_string();
  std::replace(method.begin(), method.end(), '_', ' ');
  Result<BulkMethod> parsed = parse_bulk_method(method);
  // Whole copies leave no room; that they were not worse only means that nothing was in the way.
  if (!parsed.is_ok() || *parsed == BulkMethod::kWhole) return std::nullopt;
  MeasuredLane lane;
  lane.method = *parsed;
  lane.chunk_bytes = whole(*best, "chunk");
  lane.ahead = static_cast<int>(whole(*best, "ahead"));
  lane.urgent_p99_s = best->statistics[kLatency].p99 / 1e3;
  return lane;
}

Status add_card(const Results& results, const DeviceInfo& info, MachineProfile& profile) {
  MachineCard card;
  card.name = info.name;
  card.device = info.id;
  card.memory_bytes = info.memory_bytes;
  for (const char* direction : {"up", "down"}) {
    const MeasurementRecord* copy = fastest(
        results.find("copy", {{"device", info.id}, {"dir", direction}, {"kind", "pinned"}}));
    if (copy == nullptr) {
      return missing(fmt::format("copying {} of {}", direction, info.id), "quick");
    }
    bool is_up = std::string_view(direction) == "up";
    (is_up ? card.up_bytes_per_s : card.down_bytes_per_s) = copy->median() * kBytesPerGb;
  }
  const MeasurementRecord* duplex = fastest(results.find("duplex", {{"device", info.id}}));
  if (duplex == nullptr) return missing("both directions of " + info.id, "quick");
  card.duplex_bytes_per_s =
      std::min(duplex->median() * kBytesPerGb, card.up_bytes_per_s + card.down_bytes_per_s);
  if (const MeasurementRecord* product = fastest(results.find("compute", {{"device", info.id}}))) {
    card.flop_per_s = product->median() * 1e12;
  } else {
    card.flop_per_s = kAssumedCpuFlopPerS;
    profile.notes.push_back(
        fmt::format("{}: computing was not measured; {:.3g} GFLOP/s are assumed", info.id,
                    card.flop_per_s / 1e9));
  }
  card.bulk.up = best_lane(results, info.id, "up");
  card.bulk.down = best_lane(results, info.id, "down");
  profile.cards.push_back(std::move(card));
  return Status::ok();
}

/// Operations of cards of one name are timed on each of them, and count together.
Status add_ops(const Results& results, const std::vector<DeviceInfo>& devices,
               MachineProfile& profile) {
  for (const DeviceInfo& info : devices) {
    for (const MeasurementRecord* record : results.find("layers", {{"device", info.id}})) {
      const Json* ops = record->info.params.find("ops");
      if (ops == nullptr || record->has_flag(SampleFlag::kOverrun)) continue;
      STAGECOACH_ASSIGN_OR_RETURN(std::vector<TimedOp> timed,
                                  read_timed_ops(*ops, record->info.id));
      auto known = std::find_if(profile.ops.begin(), profile.ops.end(),
                                [&](const MachineOps& one) { return one.card == info.name; });
      if (known == profile.ops.end()) known = profile.ops.insert(known, {info.name, {}});
      for (const TimedOp& op : timed) known->rates.add(op);
    }
    if (profile.ops_of(info.name) == nullptr && info.is_real_hardware) {
      profile.notes.push_back(fmt::format(
          "{}: operations were not timed; layers are taken to run at the rate of large products",
          info.id));
    }
  }
  return Status::ok();
}

/// Pools of both directions with the same members are one uplink; a card is behind the smallest
/// that it is in.
void add_uplinks(const BandwidthReport& report, MachineProfile& profile) {
  struct Pool {
    std::vector<int> cards;
    double up = 0, down = 0;  ///< GB/s
  };
  std::vector<Pool> pools;
  for (const ContentionFit& fit : report.fits) {
    for (const CapacityPool& found : fit.model.pools) {
      std::vector<int> cards;
      for (size_t bit = 0; bit < fit.devices.size(); ++bit) {
        if ((found.members >> bit & 1) == 0) continue;
        for (int card = 0; card < std::ssize(profile.cards); ++card) {
          if (profile.cards[card].device == fit.devices[bit]) cards.push_back(card);
        }
      }
      auto known = std::find_if(pools.begin(), pools.end(),
                                [&](const Pool& pool) { return pool.cards == cards; });
      if (known == pools.end()) known = pools.insert(pools.end(), {cards});
      (fit.direction == "up" ? known->up : known->down) = found.capacity;
    }
  }
  std::stable_sort(pools.begin(), pools.end(),
                   [](const Pool& a, const Pool& b) { return a.cards.size() < b.cards.size(); });
  for (const Pool& pool : pools) {
    bool is_free = std::all_of(pool.cards.begin(), pool.cards.end(),
                               [&](int card) { return profile.cards[card].uplink < 0; });
    if (!is_free || pool.cards.size() < 2) {
      profile.notes.push_back(fmt::format(
          "{} devices share more than one pool; planning knows the smallest", pool.cards.size()));
      continue;
    }
    double links_up = 0, links_down = 0;
    for (int card : pool.cards) {
      profile.cards[card].uplink = static_cast<int>(profile.uplinks.size());
      links_up += profile.cards[card].up_bytes_per_s / 1e9;
      links_down += profile.cards[card].down_bytes_per_s / 1e9;
    }
    // A direction in which nothing is shared has what the links have together: GB/s are bytes a ns.
    profile.uplinks.push_back({fmt::format("pool {}", profile.uplinks.size()),
                               pool.up > 0 ? pool.up : links_up,
                               pool.down > 0 ? pool.down : links_down});
  }
}

/// What the host's memory carries of copies and updates together: planning charges both to it. Host
/// threads alone may not get all of it, so what both moved at the same time counts where it is
/// more; where they hindered each other it is the limit, even if threads that only read got more.
double host_memory_bytes_per_s(const BandwidthReport& report, double by_threads_bytes_per_s) {
  const MeasurementRecord* joint = joint_traffic(report);
  if (joint == nullptr) return by_threads_bytes_per_s;
  double together = median_of(*joint, "memory") * kBytesPerGb;
  if (is_joint_limit(report, *joint)) return together;
  return std::max(together, by_threads_bytes_per_s);
}

Status add_host(const BandwidthReport& report, const Results& results, MachineProfile& profile) {
  enum Quantity : size_t { kDram = 1 };
  std::vector<const MeasurementRecord*> updates = results.find("optim", {});
  const MeasurementRecord* best = fastest(updates, kDram);
  if (best == nullptr) return missing("updating parameters", "quick");
  profile.host_work_bytes_per_s = best->median(kDram) * kBytesPerGb;
  profile.host_work_threads = static_cast<int>(whole(*best, "threads"));
  for (const MeasurementRecord* record : updates) {
    if (record->median(kDram) < kEnoughOfUpdates * best->median(kDram)) continue;
    profile.host_work_threads =
        std::min(profile.host_work_threads, static_cast<int>(whole(*record, "threads")));
  }
  const MeasurementRecord* memory = fastest(results.find("host", {}), kDram);
  bool has_devices = !profile.cards.empty();
  if (memory != nullptr && has_devices) {
    double by_memory = host_memory_bytes_per_s(report, memory->median(kDram) * kBytesPerGb);
    profile.host_memory_bytes_per_s = std::max(by_memory, profile.host_work_bytes_per_s);
  }
  return Status::ok();
}

/// What a copy takes beyond its bytes: of the straight line through the smallest and the largest,
/// of the direction and device where it is most.
double copy_latency_ns(const Results& results, const std::vector<DeviceInfo>& devices) {
  double latency_ns = 0;
  for (const DeviceInfo& info : devices) {
    for (const char* direction : {"up", "down"}) {
      const MeasurementRecord *small = nullptr, *large = nullptr;
      for (const MeasurementRecord* copy :
           results.find("copy", {{"device", info.id}, {"dir", direction}, {"kind", "pinned"}})) {
        if (small == nullptr || whole(*copy, "size") < whole(*small, "size")) small = copy;
        if (large == nullptr || whole(*copy, "size") > whole(*large, "size")) large = copy;
      }
      if (small == large) continue;
      auto small_bytes = static_cast<double>(whole(*small, "size"));
      auto large_bytes = static_cast<double>(whole(*large, "size"));
      // GB/s are bytes a ns.
      double small_ns = small_bytes / small->median(), large_ns = large_bytes / large->median();
      double ns_a_byte = (large_ns - small_ns) / (large_bytes - small_bytes);
      latency_ns = std::max(latency_ns, small_ns - small_bytes * ns_a_byte);
    }
  }
  return latency_ns;
}

}  // namespace

Result<MachineProfile> build_machine_profile(const BandwidthReport& report,
                                             const ProfileSubject& subject) {
  if (subject.devices.empty()) return missing("a device", "quick --devices SPEC");
  Results results(report);
  MachineProfile profile;
  profile.name = subject.devices.front().name;
  if (subject.devices.size() > 1) {
    profile.name = fmt::format("{} devices, first {}", subject.devices.size(), profile.name);
  }
  profile.measurement = subject.measurement;
  for (const DeviceInfo& info : subject.devices) {
    STAGECOACH_RETURN_IF_ERROR(add_card(results, info, profile));
  }
  STAGECOACH_RETURN_IF_ERROR(add_ops(results, subject.devices, profile));
  add_uplinks(report, profile);
  add_profile_peers(report, profile);
  STAGECOACH_RETURN_IF_ERROR(add_host(report, results, profile));
  profile.latency_ns = copy_latency_ns(results, subject.devices);
  for (const MeasurementRecord& record : report.records) {
    if (!record.is_ok() || record.flags.empty()) continue;
    std::string flags;
    for (SampleFlag flag : record.flags) {
      flags += fmt::format("{}{}", flags.empty() ? "" : ", ", sample_flag_name(flag));
    }
    profile.notes.push_back(fmt::format("{} is {}", record.info.id, flags));
  }
  return profile;
}

}  // namespace stagecoach
