#include "tools/bandwidth/nvbandwidth_comparison.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/bandwidth/bandwidth_options.h"

namespace stagecoach {

namespace {

/// A test of nvbandwidth and what here is of the same copies.
struct Counterpart {
  const char* test;
  std::string_view group;
  const char* params_dir;  ///< of our record
  std::string_view side;   ///< direction whose own rate it is; of a pair: who is the source
  const char* method;      ///< theirs
};

constexpr std::string_view kOfRow = "row";        ///< bytes go from the row's GPU to the column's
constexpr std::string_view kOfColumn = "column";  ///< the other way

constexpr Counterpart kCounterparts[] = {
    {"host_to_device_memcpy_ce", "copy", "up", "up", "one GPU at a time, pinned, copy engine"},
    {"device_to_host_memcpy_ce", "copy", "down", "down", "one GPU at a time, pinned, copy engine"},
    {"host_to_device_bidirectional_memcpy_ce", "duplex", "both", "up",
     "up alone, while twice as much goes down"},
    {"device_to_host_bidirectional_memcpy_ce", "duplex", "both", "down",
     "down alone, while twice as much goes up"},
    {"host_to_all_memcpy_ce", "together", "up", "up",
     "one GPU, while all others copy twice as much"},
    {"all_to_host_memcpy_ce", "together", "down", "down",
     "one GPU, while all others copy twice as much"},
    {"host_to_all_bidirectional_memcpy_ce", "together", "both", "up",
     "up of one GPU, while its own other direction and all others copy"},
    {"all_to_host_bidirectional_memcpy_ce", "together", "both", "down",
     "down of one GPU, while its own other direction and all others copy"},
    {"device_to_device_memcpy_write_ce", "p2p", "", kOfRow, "copy engine of the source"},
    {"device_to_device_memcpy_read_ce", "p2p", "", kOfColumn, "copy engine of the target"}};

/// Why the other tests have no pair: by the end or a part of their names.
struct Reason {
  const char* part;
  const char* why;
};

constexpr Reason kReasons[] = {
    {"multinode", "copies between machines are not measured here"},
    {"latency", "latency of single accesses is not measured here"},
    {"device_local", "copies inside a card are not measured here"},
    {"_sm", "copies by kernels are not measured here"},
    {"device_to_device_bidirectional", "both directions between cards are not measured here"},
    {"one_to_all", "copies from one card to all are not measured here"},
    {"all_to_one", "copies from all cards to one are not measured here"}};

std::string why_unpaired(const NvbandwidthTest& test) {
  if (test.is_waived()) return "nvbandwidth did not run it on this machine";
  if (!test.has_passed()) {
    return test.reason.empty() ? "it did not pass, and the file does not say why" : test.reason;
  }
  for (const Reason& one : kReasons) {
    if (test.name.find(one.part) != std::string::npos) return one.why;
  }
  return "a test that is not known here";
}

UnpairedTest unpaired(const NvbandwidthTest& test) {
  UnpairedTest one{test.name, test.status, why_unpaired(test), 0, 0, 0, test.unit};
  for (const auto& row : test.matrix) {
    for (const std::optional<double>& cell : row) {
      if (!cell) continue;
      one.least = one.values == 0 ? *cell : std::min(one.least, *cell);
      one.most = std::max(one.most, *cell);
      ++one.values;
    }
  }
  return one;
}

/// Our names of nvbandwidth's GPUs.
class DeviceNames {
 public:
  DeviceNames(const NvbandwidthFile& file, const BandwidthReport& report,
              std::vector<std::string>& notes) {
    const Json* list = report.context.find("devices");
    if (list == nullptr || !list->is_array()) return;
    for (const Json& device : list->items()) add(device);
    bool tells = !file.devices.empty() && !known_.empty();
    for (const std::string& device : file.devices) {
      addresses_.push_back(nvbandwidth_pci_address(device));
      tells = tells && !addresses_.back().empty();
    }
    if (tells) return;
    addresses_.clear();
    notes.emplace_back("one of the files has no PCI addresses: GPU number I is taken for cuda:I");
  }

  std::string of(size_t number) const {
    if (addresses_.empty()) return fmt::format("cuda:{}", number);
    std::string address = number < addresses_.size() ? addresses_[number] : "";
    for (const auto& [known, id] : known_) {
      if (known.starts_with(address) && !address.empty()) return id;
    }
    return fmt::format("GPU {}", number);
  }

 private:
  void add(const Json& device) {
    const Json *id = device.find("id"), *address = device.find("pci_address");
    bool tells = id != nullptr && id->is_string() && address != nullptr && address->is_string() &&
                 !address->as_string().empty();
    if (!tells) return;
    std::string lower = address->as_string();
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    known_.emplace_back(lower, id->as_string());
  }

  std::vector<std::string> addresses_;                      ///< by number; empty: not told
  std::vector<std::pair<std::string, std::string>> known_;  ///< address and id
};

bool has_param(const MeasurementRecord& record, const char* name, const std::string& value) {
  const Json* param = record.info.params.find(name);
  return param != nullptr && param->is_string() && param->as_string() == value;
}

int64_t chunk_of(const MeasurementRecord& record) {
  const Json* size = record.info.params.find("size");
  return size != nullptr && size->is_integer() ? size->as_integer() : 0;
}

/// The quantity of that name.
std::optional<size_t> quantity_of(const MeasurementRecord& record, const std::string& name) {
  for (size_t index = 0; index < record.info.quantities.size(); ++index) {
    if (record.info.quantities[index].name == name) return index;
  }
  return std::nullopt;
}

/// The quantity of `record` that is of the same copies as a cell; nothing where it is not of them.
std::optional<size_t> matching_quantity(const MeasurementRecord& record, const Counterpart& kind,
                                        const NvbandwidthPair& pair) {
  if (!record.is_ok() || record.info.group != kind.group) return std::nullopt;
  if (kind.group == "p2p") {
    std::string id =
        fmt::format("p2p/{}/{}/direct/{}", pair.device, pair.peer, short_size(chunk_of(record)));
    return record.info.id == id ? quantity_of(record, "rate") : std::nullopt;
  }
  bool is_of_all = kind.group == "together";
  bool fits = has_param(record, "device", is_of_all ? "all" : pair.device) &&
              has_param(record, "dir", kind.params_dir) && has_param(record, "kind", "pinned");
  if (!fits) return std::nullopt;
  std::string own = fmt::format("{} {}", pair.device, kind.side);
  return quantity_of(record, kind.group == "copy" ? "rate" : own);
}

std::string our_method(const MeasurementRecord& record, size_t quantity) {
  std::string chunk =
      chunk_of(record) > 0 ? fmt::format(", chunks of {}", short_size(chunk_of(record))) : "";
  const char* window = record.info.quantities.size() > 1 ? ", while all streams are active" : "";
  return fmt::format("median of {}{}{}", record.statistics[quantity].n, chunk, window);
}

/// Our result of the same copies, of the largest chunks: nvbandwidth's are hundreds of MiB.
void find_ours(const BandwidthReport& report, const Counterpart& kind, NvbandwidthPair& pair) {
  int64_t largest = -1;
  for (const MeasurementRecord& record : report.records) {
    std::optional<size_t> quantity = matching_quantity(record, kind, pair);
    if (!quantity || *quantity >= record.statistics.size()) continue;
    if (chunk_of(record) <= largest) continue;
    largest = chunk_of(record);
    pair.ours = record.median(*quantity);
    pair.our_id = record.info.id;
    pair.our_method = our_method(record, *quantity);
  }
}

void add_pairs(const NvbandwidthTest& test, const Counterpart& kind, const DeviceNames& names,
               const BandwidthReport& report, NvbandwidthComparison& comparison) {
  bool is_peer = kind.group == "p2p";
  for (size_t row = 0; row < test.matrix.size(); ++row) {
    for (size_t column = 0; column < test.matrix[row].size(); ++column) {
      const std::optional<double>& cell = test.matrix[row][column];
      if (!cell) continue;
      NvbandwidthPair pair;
      pair.test = test.name;
      pair.theirs = *cell;
      pair.their_method = kind.method;
      pair.device = names.of(column);
      if (is_peer) {
        bool is_of_row = kind.side == kOfRow;
        pair.device = names.of(is_of_row ? row : column);
        pair.peer = names.of(is_of_row ? column : row);
      }
      find_ours(report, kind, pair);
      comparison.pairs.push_back(std::move(pair));
    }
  }
}

const Counterpart* counterpart_of(const NvbandwidthTest& test) {
  for (const Counterpart& kind : kCounterparts) {
    if (test.name == kind.test) return &kind;
  }
  return nullptr;
}

Json pair_json(const NvbandwidthPair& pair) {
  bool is_known = !pair.our_id.empty();
  Json json = Json::object();
  json["test"] = pair.test;
  json["device"] = pair.device;
  json["peer"] = pair.peer.empty() ? Json() : Json(pair.peer);
  json["unit"] = "GB/s";
  json["theirs"] = pair.theirs;
  json["their_method"] = pair.their_method;
  json["ours"] = is_known ? Json(pair.ours) : Json();
  json["our_id"] = is_known ? Json(pair.our_id) : Json();
  json["our_method"] = is_known ? Json(pair.our_method) : Json();
  json["ratio"] = is_known && pair.theirs > 0 ? Json(pair.ours / pair.theirs) : Json();
  return json;
}

std::string pair_line(const NvbandwidthPair& pair) {
  std::string device = pair.peer.empty() ? pair.device : pair.device + " to " + pair.peer;
  bool is_known = !pair.our_id.empty();
  std::string ours = is_known ? fmt::format("{:.4g}", pair.ours) : "-";
  std::string ratio =
      is_known && pair.theirs > 0 ? fmt::format("{:.3f}", pair.ours / pair.theirs) : "-";
  return fmt::format("  {:<18} {:>9.4g} {:>9} {:>7}  {}\n", device, pair.theirs, ours, ratio,
                     is_known ? fmt::format("{}: {}", pair.our_id, pair.our_method)
                              : std::string("not among our results"));
}

}  // namespace

NvbandwidthComparison compare_with_nvbandwidth(const NvbandwidthFile& file,
                                               const BandwidthReport& report) {
  NvbandwidthComparison comparison;
  comparison.version = file.version;
  comparison.driver = file.driver;
  comparison.notes = file.notes;
  DeviceNames names(file, report, comparison.notes);
  comparison.notes.emplace_back(
      "nvbandwidth's file does not tell samples and buffer: unless it was asked for others, its "
      "figures are medians of 3, of 16 copies of 512 MiB each");
  for (const NvbandwidthTest& test : file.tests) {
    const Counterpart* kind = counterpart_of(test);
    bool has_pairs = kind != nullptr && test.has_passed() && !test.matrix.empty();
    if (has_pairs) {
      add_pairs(test, *kind, names, report, comparison);
    } else {
      comparison.unpaired.push_back(unpaired(test));
    }
  }
  return comparison;
}

std::string nvbandwidth_table(const NvbandwidthComparison& comparison) {
  std::string text = fmt::format(
      "nvbandwidth {}{}, GB/s\n",
      comparison.version.empty() ? "of unknown version" : comparison.version,
      comparison.driver.empty() ? "" : fmt::format(" with driver {}", comparison.driver));
  std::string test;
  for (const NvbandwidthPair& pair : comparison.pairs) {
    if (pair.test != test) {
      test = pair.test;
      text += fmt::format("\n{} (theirs: {})\n  {:<18} {:>9} {:>9} {:>7}  ours\n", test,
                          pair.their_method, "", "theirs", "ours", "ratio");
    }
    text += pair_line(pair);
  }
  if (!comparison.unpaired.empty()) text += "\nwithout a figure of ours\n";
  for (const UnpairedTest& one : comparison.unpaired) {
    std::string values = one.values == 0 ? ""
                                         : fmt::format(", {} figures from {:.4g} to {:.4g} {}",
                                                       one.values, one.least, one.most, one.unit);
    text += fmt::format("  {} ({}{}): {}\n", one.test, one.status, values, one.why);
  }
  if (!comparison.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : comparison.notes) text += "  " + note + "\n";
  return text;
}

Json nvbandwidth_json(const NvbandwidthComparison& comparison) {
  Json json = Json::object();
  json["nvbandwidth"] = Json::object();
  json["nvbandwidth"]["version"] = comparison.version;
  json["nvbandwidth"]["driver"] = comparison.driver;
  json["pairs"] = Json::array();
  for (const NvbandwidthPair& pair : comparison.pairs) json["pairs"].push_back(pair_json(pair));
  json["unpaired"] = Json::array();
  for (const UnpairedTest& one : comparison.unpaired) {
    Json test = Json::object();
    test["test"] = one.test;
    test["status"] = one.status;
    test["why"] = one.why;
    test["values"] = one.values;
    test["min"] = one.values > 0 ? Json(one.least) : Json();
    test["max"] = one.values > 0 ? Json(one.most) : Json();
    test["unit"] = one.unit;
    json["unpaired"].push_back(std::move(test));
  }
  json["notes"] = Json::array();
  for (const std::string& note : comparison.notes) json["notes"].push_back(note);
  return json;
}

}  // namespace stagecoach
