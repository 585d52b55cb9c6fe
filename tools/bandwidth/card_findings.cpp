#include "tools/bandwidth/card_findings.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/bytes.h"

namespace stagecoach {

namespace {

/// A member below a member, or null.
const Json* look_up(const Json& json, std::initializer_list<const char*> keys) {
  const Json* found = &json;
  for (const char* key : keys) {
    found = found->find(key);
    if (found == nullptr || found->is_null()) return nullptr;
  }
  return found;
}

double number_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* found = look_up(json, keys);
  return found != nullptr && found->is_number() ? found->as_number() : 0;
}

std::string text_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json* found = look_up(json, keys);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

/// Whether no device has a bridge above it, though there are several.
bool is_flat_tree(const Json& devices) {
  constexpr size_t kItself = 1;
  bool has_bridges = false;
  for (const Json& device : devices.items()) {
    const Json* hops = look_up(device, {"pci", "hops"});
    has_bridges = has_bridges || (hops != nullptr && hops->items().size() > kItself);
  }
  return !has_bridges && devices.items().size() > 1;
}

/// The devices of a report, one after the other.
class CardProblems {
 public:
  explicit CardProblems(const BandwidthReport& report) : report_(report) {
    for (const MeasurementRecord& record : report.records) {
      has_peers_ = has_peers_ || record.info.group == "p2p";
    }
  }

  std::vector<Finding> run() {
    const Json* devices = report_.context.find("devices");
    if (devices == nullptr || !devices->is_array()) return {};
    for (const Json& device : devices->items()) {
      find_narrow_link(device);
      find_replays(device);
      find_throttling(device);
      find_others(device);
      if (has_peers_) find_peer_hindrances(device);
    }
    find_shared_cards(*devices);
    if (!report_.fits.empty() && is_flat_tree(*devices)) {
      add(Severity::kNote,
          "sysfs shows no bridges above the devices, as in virtual machines: what they share is "
          "known from these measurements alone",
          "take the pools of `fits` for the topology");
    }
    return std::move(findings_);
  }

 private:
  void add(Severity severity, std::string text, std::string remedy,
           std::vector<std::string> results = {}) {
    findings_.push_back({severity, std::move(text), std::move(remedy), std::move(results)});
  }

  /// Ids of results of a device whose bytes arrived wrong.
  std::vector<std::string> wrong_results(const std::string& id) const {
    std::vector<std::string> wrong;
    for (const MeasurementRecord& record : report_.records) {
      if (record.status != MeasurementStatus::kMismatch) continue;
      bool is_of = false;
      for (const auto& [key, value] : record.info.params.members()) {
        is_of = is_of || (value.is_string() && value.as_string() == id);
      }
      if (is_of) wrong.push_back(record.info.id);
    }
    return wrong;
  }

  /// Links were read under load.
  void find_narrow_link(const Json& device) {
    double rate = number_at(device, {"pci", "bytes_per_s"});
    double most = number_at(device, {"pci", "max_bytes_per_s"});
    constexpr double kSame = 0.99, kBytesOfGb = 1e9;
    std::string id = text_at(device, {"id"});
    const char* remedy =
        "reseat the card and look for its slot's width and generation in the board's manual and "
        "firmware; slots share lanes with others and with disks";
    if (rate > 0 && rate < kSame * most) {
      add(Severity::kWarning,
          fmt::format("the link of {} carries {:.3g} GB/s each way, its parts could carry {:.3g}",
                      id, rate / kBytesOfGb, most / kBytesOfGb),
          remedy);
      return;
    }
    double width = number_at(device, {"card", "pcie_width"});
    double most_width = number_at(device, {"card", "max_pcie_width"});
    if (rate > 0 || width <= 0 || width >= most_width) return;
    add(Severity::kWarning,
        fmt::format("the link of {} has {:.0f} lanes of {:.0f}", id, width, most_width), remedy);
  }

  void find_replays(const Json& device) {
    double replays = number_at(device, {"card", "during", "replays"});
    if (replays <= 0) return;
    std::string id = text_at(device, {"id"});
    std::vector<std::string> wrong = wrong_results(id);
    const char* remedy =
        "suspect cable or riser: reseat the card, try it without, or set its slot to a lower PCIe "
        "generation in the firmware";
    if (wrong.empty()) {
      add(Severity::kWarning,
          fmt::format("the link of {} repeated {:.0f} packets during the run", id, replays),
          remedy);
      return;
    }
    add(Severity::kError,
        fmt::format("bytes of {} arrived wrong and its link repeated {:.0f} packets", id, replays),
        remedy, std::move(wrong));
  }

  void find_throttling(const Json& device) {
    std::string id = text_at(device, {"id"});
    std::vector<std::string> reasons;
    if (const Json* seen = look_up(device, {"card", "during", "throttle_reasons"})) {
      for (const Json& reason : seen->items()) reasons.push_back(reason.as_string());
    }
    double throttled_ms = number_at(device, {"card", "during", "throttled_ms"});
    double elapsed_ms = number_at(device, {"card", "during", "elapsed_ms"});
    constexpr double kNoticed = 0.01;
    bool is_long = throttled_ms > kNoticed * elapsed_ms && throttled_ms > 0;
    if (reasons.empty() && !is_long) return;
    // Cards at their power limit are usual where they compute.
    bool is_power_alone = !reasons.empty() && std::all_of(reasons.begin(), reasons.end(),
                                                          [](const std::string& reason) {
                                                            return reason == "the power limit";
                                                          });
    std::string by =
        reasons.empty() ? "power or heat" : fmt::format("{}", fmt::join(reasons, ", "));
    std::string time =
        is_long ? fmt::format(", {:.0f} ms of {:.0f}", throttled_ms, elapsed_ms) : "";
    add(is_power_alone ? Severity::kNote : Severity::kWarning,
        fmt::format("{} was slowed down by {}{}", id, by, time),
        "look at its cooling and its power limit; figures of the device's own work may be too low");
  }

  void find_others(const Json& device) {
    std::string id = text_at(device, {"id"});
    double others = number_at(device, {"card", "during", "other_processes"});
    double busy = number_at(device, {"card", "during", "busy_percent_before"});
    constexpr double kBusy = 20;
    if (others > 0) {
      add(Severity::kWarning,
          fmt::format("{:.0f} other program{} used {} during the run", others,
                      others > 1 ? "s" : "", id),
          "end them, or take the figures for what is left beside them");
    } else if (busy > kBusy) {
      add(Severity::kWarning, fmt::format("{} was {:.0f} % busy before the run", id, busy),
          "repeat when nothing else uses it");
    }
  }

  /// What matters for copies between devices and for nothing else.
  void find_peer_hindrances(const Json& device) {
    std::string id = text_at(device, {"id"});
    double bar = number_at(device, {"card", "bar_bytes"});
    if (bar <= 0) bar = number_at(device, {"pci", "largest_bar_bytes"});
    double memory = number_at(device, {"memory_bytes"});
    // What a BAR is without the extension that makes it as large as the memory.
    constexpr double kUsual = 256 * 1024.0 * 1024.0;
    if (bar > 0 && bar <= kUsual && memory > 2 * kUsual) {
      add(Severity::kWarning,
          fmt::format("{} can be reached by others through {} of its {} only: resizable BAR is off",
                      id, format_bytes(static_cast<ByteCount>(bar)),
                      format_bytes(static_cast<ByteCount>(memory))),
          "turn on 'Above 4G decoding' and 'Resizable BAR' in the firmware; else copies between "
          "devices are slow or impossible");
    }
    std::string iommu = text_at(device, {"pci", "iommu"});
    if (iommu.starts_with("DMA")) {
      add(Severity::kWarning, fmt::format("{} is behind an IOMMU that translates ({})", id, iommu),
          "boot with iommu=pt: copies between devices have lost bytes behind such ones");
    }
    const Json* redirects = look_up(device, {"pci", "acs_redirects"});
    if (redirects != nullptr && redirects->is_bool() && redirects->as_bool()) {
      add(Severity::kWarning,
          fmt::format("bridges on the way to {} send what goes to other devices to the host (ACS)",
                      id),
          "turn ACS off in the firmware, or for these bridges with setpci, where isolation of "
          "guests is not needed");
    }
  }

  /// Instances of one card.
  void find_shared_cards(const Json& devices) {
    std::map<std::string, std::vector<std::string>> instances;
    for (const Json& device : devices.items()) {
      if (!text_at(device, {"uuid"}).starts_with("MIG-")) continue;
      instances[text_at(device, {"pci_address"})].push_back(text_at(device, {"id"}));
    }
    for (const auto& [address, ids] : instances) {
      if (ids.size() < 2) {
        add(Severity::kNote,
            fmt::format("{} is an instance (MIG) of the card at {}", ids.front(), address),
            "other instances of the card may use its link at the same time");
        continue;
      }
      add(Severity::kWarning,
          fmt::format("{} are instances (MIG) of the card at {} and share its link",
                      fmt::join(ids, " and "), address),
          "plan them as one pool; copies between them go through the host");
    }
  }

  const BandwidthReport& report_;
  bool has_peers_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> find_card_problems(const BandwidthReport& report) {
  return CardProblems(report).run();
}

std::string place_of_device(const Json& context, const std::string& id) {
  const Json* devices = context.find("devices");
  const Json* found = nullptr;
  if (devices != nullptr && devices->is_array()) {
    for (const Json& device : devices->items()) {
      if (text_at(device, {"id"}) == id) found = &device;
    }
  }
  if (found == nullptr) return "unknown";
  double rate = number_at(*found, {"pci", "bytes_per_s"});
  const Json* node = look_up(*found, {"pci", "numa_node"});
  const Json* replays = look_up(*found, {"card", "replays"});
  constexpr double kBytesOfGb = 1e9;
  std::string link = rate > 0 ? fmt::format("{:.3g} GB/s", rate / kBytesOfGb) : "unknown";
  return fmt::format("link {}, NUMA node {}, replays {}", link,
                     node != nullptr ? node->dump() : "unknown",
                     replays != nullptr ? replays->dump() : "unknown");
}

}  // namespace stagecoach
