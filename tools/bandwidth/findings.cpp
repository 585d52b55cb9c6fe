#include "tools/bandwidth/findings.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <set>

#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/card_findings.h"
#include "tools/bandwidth/copy_paths.h"
#include "tools/bandwidth/overlap_shares.h"
#include "tools/bandwidth/placement_findings.h"

namespace stagecoach {

namespace {

using Records = std::vector<const MeasurementRecord*>;

std::string text_param(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

int64_t integer_param(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

/// Kernels are no measure of a link.
bool is_by_kernel(const MeasurementRecord& record) {
  return text_param(record, "engine") == "kernel";
}

/// Gathers the findings of a report.
class ProblemFinder {
 public:
  explicit ProblemFinder(const BandwidthReport& report) : report_(report) {
    for (const MeasurementRecord& record : report.records) {
      // Without a common window figures say what came of it, not what devices can do together.
      bool is_evidence = record.is_ok() && !record.has_flag(SampleFlag::kShortWindow);
      if (is_evidence) groups_[record.info.group].push_back(&record);
    }
    for (const MeasurementRecord* record : groups_["copy"]) {
      if (text_param(*record, "kind") != "pinned" || is_by_kernel(*record)) continue;
      const MeasurementRecord*& best =
          best_copies_[{text_param(*record, "device"), text_param(*record, "dir")}];
      if (best == nullptr || record->median() > best->median()) best = record;
    }
  }

  std::vector<Finding> run() {
    find_wrong_bytes();
    find_slow_links();
    find_outliers();
    find_asymmetry();
    find_slow_duplex();
    find_shared();
    find_serialised();
    find_slow_kinds();
    find_chunk_sizes();
    find_peer_routes();
    find_urgent_waits();
    add_all(find_copy_paths(report_));
    add_all(find_overlap(report_));
    find_doubtful();
    for (Finding& finding : find_card_problems(report_)) findings_.push_back(std::move(finding));
    for (Finding& one : find_placement_problems(report_)) findings_.push_back(std::move(one));
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
    return std::move(findings_);
  }

 private:
  void add_all(std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings_));
  }

  void add(Severity severity, std::string text, std::string remedy, Records records) {
    Finding finding{severity, std::move(text), std::move(remedy), {}};
    for (const MeasurementRecord* record : records) finding.results.push_back(record->info.id);
    findings_.push_back(std::move(finding));
  }

  const MeasurementRecord* best_copy(const std::string& device, const std::string& dir) const {
    auto found = best_copies_.find({device, dir});
    return found == best_copies_.end() ? nullptr : found->second;
  }

  void find_wrong_bytes() {
    std::set<std::string> unsafe;
    for (const MeasurementRecord& record : report_.records) {
      if (record.status != MeasurementStatus::kMismatch) continue;
      if (record.info.group == "p2p") {
        // Whatever goes that way says the same.
        if (record.reason.find("unsafe: ") != std::string::npos &&
            !unsafe.insert(record.reason).second) {
          continue;
        }
        add(Severity::kError, fmt::format("{}: {}", record.info.id, record.reason),
            "set STAGECOACH_PEER=off, so that copies go through the host; iommu=pt may help",
            {&record});
        continue;
      }
      add(Severity::kError, fmt::format("{}: {}", record.info.id, record.reason),
          "do not train on this device: reseat the card, replace the riser or cable, test the "
          "host's memory, look for AER errors in the kernel's log, try iommu=pt",
          {&record});
    }
  }

  void find_slow_links() {
    constexpr double kHealthy = 0.75;
    for (const auto& [key, record] : best_copies_) {
      double limit = record->info.limit;
      if (limit <= 0 || record->median() >= kHealthy * limit) continue;
      add(Severity::kWarning,
          fmt::format("{} {} reaches {:.3g} of {:.3g} GB/s that its link carries", key.first,
                      key.second, record->median(), limit),
          "look for IOMMU translation, memory of another NUMA node, a power limit or other load",
          {record});
    }
  }

  /// Of devices of one direction that are more than two.
  void find_outliers() {
    constexpr double kBehind = 0.85;
    for (const char* dir : {"up", "down"}) {
      std::vector<double> rates;
      for (const auto& [key, record] : best_copies_) {
        if (key.second == dir) rates.push_back(record->median());
      }
      if (rates.size() < 3) continue;
      double median = summarize(rates).median;
      std::string fastest;
      double most = 0;
      for (const auto& [key, record] : best_copies_) {
        if (key.second != dir || record->median() <= most) continue;
        most = record->median();
        fastest = key.first;
      }
      for (const auto& [key, record] : best_copies_) {
        if (key.second != dir || record->median() >= kBehind * median) continue;
        add(Severity::kWarning,
            fmt::format("{} {} reaches {:.3g} GB/s, the median of all is {:.3g} ({}; of {}: {})",
                        key.first, dir, record->median(), median,
                        place_of_device(report_.context, key.first), fastest,
                        place_of_device(report_.context, fastest)),
            "compare link width, NUMA node and replays with `stagecoach topology`", {record});
      }
    }
  }

  void find_asymmetry() {
    constexpr double kEven = 0.85;
    for (const auto& [key, up] : best_copies_) {
      if (key.second != "up") continue;
      const MeasurementRecord* down = best_copy(key.first, "down");
      if (down == nullptr) continue;
      double less = std::min(up->median(), down->median());
      double more = std::max(up->median(), down->median());
      if (less >= kEven * more) continue;
      add(Severity::kNote,
          fmt::format("{} carries {:.3g} GB/s up and {:.3g} down", key.first, up->median(),
                      down->median()),
          "expected of some platforms; else look at the host's memory and the IOMMU", {up, down});
    }
  }

  void find_slow_duplex() {
    constexpr double kFull = 0.75;
    for (const MeasurementRecord* record : groups_["duplex"]) {
      std::string device = text_param(*record, "device");
      const MeasurementRecord* up = best_copy(device, "up");
      const MeasurementRecord* down = best_copy(device, "down");
      if (up == nullptr || down == nullptr) continue;
      double alone = up->median() + down->median();
      if (record->median() >= kFull * alone) continue;
      add(Severity::kWarning,
          fmt::format("{} carries {:.3g} GB/s both ways at once, {:.3g} one after the other",
                      device, record->median(), alone),
          "plan with the duplex figure: host memory or an IO die limits both directions together",
          {record, up, down});
    }
  }

  void find_shared() {
    for (const ContentionFit& fit : report_.fits) {
      for (const CapacityPool& pool : fit.model.pools) {
        std::vector<std::string> names;
        for (size_t device = 0; device < fit.devices.size(); ++device) {
          if ((pool.members >> device & 1) != 0) names.push_back(fit.devices[device]);
        }
        add(Severity::kWarning,
            fmt::format("{} share {:.3g} GB/s {}", fmt::join(names, " and "), pool.capacity,
                        fit.direction),
            "plan them as one pool, and prefer devices of different pools", {});
      }
      constexpr double kGoodFit = 0.1;
      if (fit.model.residual <= kGoodFit) continue;
      add(Severity::kNote,
          fmt::format("shared capacities {} explain what was measured to {:.0f} % only",
                      fit.direction, 100 * fit.model.residual),
          "use the measured sets themselves", {});
    }
  }

  /// Streams that look fast alone and take turns together.
  void find_serialised() {
    constexpr double kTurns = 1.2;
    for (const MeasurementRecord* record : groups_["together"]) {
      std::string dir = text_param(*record, "dir");
      if (dir == "both" || !report_.fits.empty()) continue;
      double alone = 0;
      for (const auto& [key, copy] : best_copies_) {
        if (key.second == dir) alone += copy->median();
      }
      if (alone <= kTurns * record->median()) continue;
      add(Severity::kWarning,
          fmt::format("all devices together carry {:.3g} GB/s {}, the sum of each alone is {:.3g}",
                      record->median(), dir, alone),
          "find what they share with `stagecoach bench bandwidth contention`", {record});
    }
  }

  void find_slow_kinds() {
    constexpr double kMuchSlower = 1.3;
    for (const MeasurementRecord* record : groups_["copy"]) {
      std::string kind = text_param(*record, "kind");
      const MeasurementRecord* pinned =
          best_copy(text_param(*record, "device"), text_param(*record, "dir"));
      if (kind == "pinned" || pinned == nullptr || record->median() <= 0) continue;
      if (!is_largest_of_kind(*record)) continue;
      double factor = pinned->median() / record->median();
      if (factor < kMuchSlower) continue;
      add(Severity::kNote,
          fmt::format("{} memory is {:.1f} times slower than pinned: {}", kind, factor,
                      record->info.id),
          "copy from and to pinned memory", {record, pinned});
    }
  }

  /// Latency decides about small ones.
  bool is_largest_of_kind(const MeasurementRecord& record) const {
    auto group = groups_.find(record.info.group);
    return std::none_of(group->second.begin(), group->second.end(), [&](const auto* other) {
      for (const char* key : {"device", "dir", "kind"}) {
        if (text_param(*other, key) != text_param(record, key)) return false;
      }
      return integer_param(*other, "size") > integer_param(record, "size");
    });
  }

  /// The smallest chunk that reaches 95 % of the best.
  void find_chunk_sizes() {
    constexpr double kEnough = 0.95;
    for (const auto& [key, best] : best_copies_) {
      const MeasurementRecord* smallest = best;
      int sizes = 0;
      for (const MeasurementRecord* record : groups_["copy"]) {
        bool is_comparable = text_param(*record, "device") == key.first &&
                             text_param(*record, "dir") == key.second &&
                             text_param(*record, "kind") == "pinned" && !is_by_kernel(*record);
        if (!is_comparable) continue;
        ++sizes;
        bool is_smaller = integer_param(*record, "size") < integer_param(*smallest, "size");
        if (is_smaller && record->median() >= kEnough * best->median()) smallest = record;
      }
      constexpr int kFewest = 4;
      if (sizes < kFewest) continue;
      add(Severity::kNote,
          fmt::format("{} {} reaches 95 % of {:.3g} GB/s with chunks of {}", key.first, key.second,
                      best->median(), short_size(integer_param(*smallest, "size"))),
          "smaller chunks waste the link, larger ones make urgent copies wait", {smallest});
    }
  }

  /// Which way is faster between two devices.
  void find_peer_routes() {
    for (const MeasurementRecord* direct : groups_["p2p"]) {
      if (text_param(*direct, "route") != "direct") continue;
      for (const MeasurementRecord* staged : groups_["p2p"]) {
        bool is_twin = text_param(*staged, "route") == "staged" &&
                       text_param(*staged, "device") == text_param(*direct, "device") &&
                       text_param(*staged, "peer") == text_param(*direct, "peer");
        if (!is_twin || staged->median() <= direct->median()) continue;
        add(Severity::kWarning,
            fmt::format("{} to {}: {:.3g} GB/s directly, {:.3g} through the host",
                        text_param(*direct, "device"), text_param(*direct, "peer"),
                        direct->median(), staged->median()),
            "set STAGECOACH_PEER=off", {direct, staged});
      }
    }
  }

  void find_urgent_waits() {
    std::map<std::pair<std::string, std::string>, Records> ways;
    for (const MeasurementRecord* record : groups_["urgent"]) {
      ways[{text_param(*record, "device"), text_param(*record, "dir")}].push_back(record);
    }
    for (const auto& [key, records] : ways) {
      std::set<std::string> methods;
      for (const MeasurementRecord* record : records) methods.insert(text_param(*record, "method"));
      if (methods.size() < 2) continue;  // nothing to choose from
      const MeasurementRecord* best = *std::min_element(
          records.begin(), records.end(),
          [](const auto* a, const auto* b) { return a->statistics[0].p99 < b->statistics[0].p99; });
      add(Severity::kNote,
          fmt::format("urgent copies {} {} take {:.3g} ms (p99) behind bulk: {}", key.first,
                      key.second, best->statistics[0].p99, best->info.id),
          "issue bulk that way", {best});
    }
  }

  void find_doubtful() {
    Records doubtful;
    for (const MeasurementRecord& record : report_.records) {
      if (record.has_flag(SampleFlag::kImplausible)) {
        add(Severity::kWarning,
            fmt::format("{} is faster than its link can be: {:.3g} of {:.3g} GB/s", record.info.id,
                        record.median(), record.info.limit),
            "do not use it: something caches, or the link is not what it says", {&record});
      } else if (record.is_ok() &&
                 std::any_of(record.flags.begin(), record.flags.end(),
                             [](auto flag) { return flag != SampleFlag::kInterrupted; })) {
        doubtful.push_back(&record);
      }
    }
    if (doubtful.empty()) return;
    add(Severity::kNote, fmt::format("{} results are flagged as doubtful", doubtful.size()),
        "repeat with less load on the machine, or with a longer --min-time", doubtful);
  }

  const BandwidthReport& report_;
  std::map<std::string, Records> groups_;
  std::map<std::pair<std::string, std::string>, const MeasurementRecord*> best_copies_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> find_problems(const BandwidthReport& report) {
  return ProblemFinder(report).run();
}

}  // namespace stagecoach
