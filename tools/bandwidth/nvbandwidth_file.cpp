#include "tools/bandwidth/nvbandwidth_file.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <regex>
#include <utility>

namespace stagecoach {

namespace {

constexpr double kMostValue = 1e9;  ///< GB/s or ns: more than any machine has
constexpr size_t kMostColumns = 256, kMostRows = 3 * kMostColumns, kMostTests = 1000;

/// Where something in the file is.
class Place {
 public:
  explicit Place(std::string path) : path_(std::move(path)) {}

  Place operator/(const std::string& name) const { return Place(path_ + ": " + name); }
  Status refusal(const Json& found, const char* allowed) const {
    constexpr size_t kMostText = 60;
    std::string text = found.dump();
    if (text.size() > kMostText) text = text.substr(0, kMostText) + "...";
    return invalid_argument(
        fmt::format("{} is {}; it must be {}: give what 'nvbandwidth -j' wrote to stdout", path_,
                    text, allowed));
  }
  Status missing(const char* name, const char* allowed) const {
    return invalid_argument(fmt::format(
        "{}: '{}' is missing; it must be {}: give what 'nvbandwidth -j' wrote to stdout", path_,
        name, allowed));
  }

 private:
  std::string path_;
};

/// A text, or empty where the field is missing; some versions write versions as numbers.
Result<std::string> read_text(const Json& object, const char* name, const Place& place) {
  const Json* value = object.find(name);
  if (value == nullptr || value->is_null()) return std::string();
  if (value->is_string()) return value->as_string();
  if (value->is_number()) return value->dump();
  return (place / name).refusal(*value, "text");
}

/// A cell: a number as text, or as a number; "N/A" or null for none.
Result<std::optional<double>> read_cell(const Json& cell, const Place& place) {
  constexpr const char* kAllowed = "a number from 0 to 1e9, or \"N/A\"";
  double value = -1;
  if (cell.is_null()) return std::optional<double>();
  if (cell.is_string()) {
    const std::string& text = cell.as_string();
    if (text == "N/A") return std::optional<double>();
    const char* end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) return place.refusal(cell, kAllowed);
  } else if (cell.is_number()) {
    value = cell.as_number();
  }
  if (!(value >= 0 && value <= kMostValue)) return place.refusal(cell, kAllowed);
  return std::optional<double>(value);
}

Status read_matrix(const Json& json, const Place& place, NvbandwidthTest& test) {
  if (json.is_null()) return Status::ok();
  if (!json.is_array() || json.items().size() > kMostRows) {
    return place.refusal(json, "a list of at most 768 rows");
  }
  for (size_t row = 0; row < json.items().size(); ++row) {
    const Json& cells = json.items()[row];
    Place where = place / fmt::format("row {}", row);
    bool is_list = cells.is_array() && cells.items().size() <= kMostColumns;
    if (cells.is_null()) continue;  // of no device
    if (!is_list) return where.refusal(cells, "a list of at most 256 cells");
    std::vector<std::optional<double>>& values = test.matrix.emplace_back();
    for (size_t column = 0; column < cells.items().size(); ++column) {
      STAGECOACH_ASSIGN_OR_RETURN(
          std::optional<double> value,
          read_cell(cells.items()[column], where / fmt::format("column {}", column)));
      values.push_back(value);
    }
    if (values.size() != test.matrix.front().size()) {
      return where.refusal(cells, "as long as the first row");
    }
  }
  return Status::ok();
}

Result<NvbandwidthTest> read_test(const Json& json, const Place& place) {
  if (!json.is_object()) return place.refusal(json, "a table");
  NvbandwidthTest test;
  STAGECOACH_ASSIGN_OR_RETURN(test.name, read_text(json, "name", place));
  STAGECOACH_ASSIGN_OR_RETURN(test.status, read_text(json, "status", place));
  if (test.name.empty()) return place.missing("name", "the test's name");
  if (test.status.empty()) return place.missing("status", "Passed, Waived or Error");
  STAGECOACH_ASSIGN_OR_RETURN(test.reason, read_text(json, "error", place));
  STAGECOACH_ASSIGN_OR_RETURN(test.description, read_text(json, "bandwidth_description", place));
  test.unit = test.description.find("(ns)") == std::string::npos ? "GB/s" : "ns";
  const Json* matrix = json.find("bandwidth_matrix");
  if (matrix != nullptr) {
    STAGECOACH_RETURN_IF_ERROR(read_matrix(*matrix, place / "bandwidth_matrix", test));
  }
  return test;
}

Status read_devices(const Json& root, const Place& place, NvbandwidthFile& file) {
  for (const char* name : {"GPU Device list", "GPU Device info"}) {
    const Json* list = root.find(name);
    if (list == nullptr || list->is_null()) continue;
    if (!list->is_array()) return (place / name).refusal(*list, "a list of texts");
    for (const Json& device : list->items()) {
      if (!device.is_string()) return (place / name).refusal(device, "text");
      file.devices.push_back(device.as_string());
    }
  }
  return Status::ok();
}

}  // namespace

Result<NvbandwidthFile> read_nvbandwidth(const Json& json, const std::string& source) {
  Place top(source), place = top / "nvbandwidth";
  const Json* root = json.find("nvbandwidth");
  if (root == nullptr) return top.missing("nvbandwidth", "a table");
  if (!root->is_object()) return place.refusal(*root, "a table");
  NvbandwidthFile file;
  STAGECOACH_ASSIGN_OR_RETURN(file.version, read_text(*root, "version", place));
  STAGECOACH_ASSIGN_OR_RETURN(file.driver, read_text(*root, "Driver Version", place));
  STAGECOACH_RETURN_IF_ERROR(read_devices(*root, place, file));
  for (const char* name : {"error", "warning"}) {
    STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_text(*root, name, place));
    if (!text.empty()) file.notes.push_back(fmt::format("nvbandwidth's {}: {}", name, text));
  }
  const Json* tests = root->find("testcases");
  if (tests == nullptr || tests->is_null()) {
    // Where it could not start, it tells why and no test.
    if (!file.notes.empty()) return file;
    return place.missing("testcases", "a list of tests");
  }
  if (!tests->is_array() || tests->items().size() > kMostTests) {
    return (place / "testcases").refusal(*tests, "a list of at most 1000 tests");
  }
  for (size_t index = 0; index < tests->items().size(); ++index) {
    STAGECOACH_ASSIGN_OR_RETURN(
        NvbandwidthTest test,
        read_test(tests->items()[index], place / fmt::format("testcases[{}]", index)));
    bool is_its_end = !file.tests.empty() && file.tests.back().name == test.name &&
                      file.tests.back().status == "Running";
    if (is_its_end) file.tests.pop_back();
    file.tests.push_back(std::move(test));
  }
  return file;
}

std::string nvbandwidth_pci_address(const std::string& device) {
  static const std::regex pattern("\\(([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})");
  std::smatch found;
  if (!std::regex_search(device, found, pattern)) return "";
  auto part = [&](size_t index) { return std::stoul(found[index].str(), nullptr, 16); };
  return fmt::format("{:04x}:{:02x}:{:02x}", part(1), part(2), part(3));
}

}  // namespace stagecoach
