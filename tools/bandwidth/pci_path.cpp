#include "tools/bandwidth/pci_path.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/// "16.0 GT/s PCIe", "16", "Unknown": the number, or 0.
double number_in(const fs::path& path) {
  std::istringstream text(first_word(path));
  double number = 0;
  // Where there is no link some kernels say 255 lanes.
  constexpr double kNoLink = 255;
  return text >> number && number < kNoLink ? number : 0;
}

/// "0000:3b:00.0".
bool is_address(const std::string& name) {
  constexpr std::string_view kForm = "xxxx:xx:xx.x";
  if (name.size() < kForm.size()) return false;
  std::string_view tail = std::string_view(name).substr(name.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    bool fits = kForm[i] == 'x' ? std::isxdigit(static_cast<unsigned char>(tail[i])) != 0
                                : tail[i] == kForm[i];
    if (!fits) return false;
  }
  return true;
}

PciHop read_hop(const fs::path& folder) {
  PciHop hop;
  hop.address = folder.filename().string();
  hop.speed_gt_per_s = number_in(folder / "current_link_speed");
  hop.max_speed_gt_per_s = number_in(folder / "max_link_speed");
  hop.width = static_cast<int>(number_in(folder / "current_link_width"));
  hop.max_width = static_cast<int>(number_in(folder / "max_link_width"));
  return hop;
}

/// Lines of `resource` are "first last flags" in hexadecimal.
ByteCount read_largest_bar(const fs::path& folder) {
  std::ifstream file(folder / "resource");
  ByteCount largest = 0;
  uint64_t first = 0, last = 0, flags = 0;
  while (file >> std::hex >> first >> last >> flags) {
    if (last > first) largest = std::max(largest, static_cast<ByteCount>(last - first + 1));
  }
  return largest;
}

/// Whether the access control services of a bridge redirect requests or completions of devices
/// below it upwards; nothing where the extended part of its configuration is not shown.
std::optional<bool> read_acs_redirect(const fs::path& folder) {
  std::ifstream file(folder / "config", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr size_t kFirstExtended = 0x100, kWhole = 0x1000, kControl = 6;
  constexpr unsigned kAcs = 0x0d, kRedirects = 0x04 | 0x08, kOfId = 0xffff, kEnd = 0;
  if (bytes.size() < kWhole) return std::nullopt;
  auto word = [&](size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(bytes[at])) |
           static_cast<unsigned>(static_cast<unsigned char>(bytes[at + 1])) << 8;
  };
  size_t at = kFirstExtended;
  // Each names the next; a broken list must end too.
  for (int steps = 0; steps < 256 && at >= kFirstExtended && at + 8 <= kWhole; ++steps) {
    unsigned id = word(at);
    if (id == kAcs) return (word(at + kControl) & kRedirects) != 0;
    if (id == kOfId || id == kEnd) break;
    at = word(at + 2) >> 4 & ~size_t{3};
  }
  return false;
}

}  // namespace

double pci_link_bytes_per_s(double speed_gt_per_s, int width) {
  constexpr double kLastWithOldEncoding = 5, kLastWithoutFlit = 32, kBitsOfAByte = 8;
  double efficiency = speed_gt_per_s <= kLastWithOldEncoding ? 8.0 / 10
                      : speed_gt_per_s <= kLastWithoutFlit   ? 128.0 / 130
                                                             : 242.0 / 256;
  return speed_gt_per_s * 1e9 * width * efficiency / kBitsOfAByte;
}

double PciPath::bytes_per_s() const {
  double least = 0;
  for (const PciHop& hop : hops) {
    double rate = pci_link_bytes_per_s(hop.speed_gt_per_s, hop.width);
    if (rate > 0) least = least > 0 ? std::min(least, rate) : rate;
  }
  return least;
}

double PciPath::max_bytes_per_s() const {
  double least = 0;
  for (const PciHop& hop : hops) {
    double rate = pci_link_bytes_per_s(hop.max_speed_gt_per_s, hop.max_width);
    if (rate > 0) least = least > 0 ? std::min(least, rate) : rate;
  }
  return least;
}

void PciPath::keep_fastest(const PciPath& other) {
  for (size_t index = 0; index < std::min(hops.size(), other.hops.size()); ++index) {
    hops[index].speed_gt_per_s =
        std::max(hops[index].speed_gt_per_s, other.hops[index].speed_gt_per_s);
    hops[index].width = std::max(hops[index].width, other.hops[index].width);
  }
}

std::optional<PciPath> read_pci_path(const std::string& address, const std::string& sysfs) {
  // Drivers print capitals and at times a longer domain than sysfs.
  std::string name = address;
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  constexpr size_t kSysfsLength = sizeof("0000:00:00.0") - 1;
  if (name.size() > kSysfsLength) name.erase(0, name.size() - kSysfsLength);
  if (!is_address(name)) return std::nullopt;
  std::error_code error;
  fs::path device = fs::canonical(fs::path(sysfs) / "bus/pci/devices" / name, error);
  if (error) return std::nullopt;
  PciPath path;
  fs::path folder;
  for (const fs::path& part : device) {
    folder /= part;
    std::string text = part.string();
    if (is_address(text)) {
      path.hops.push_back(read_hop(folder));
      std::optional<bool> redirects = read_acs_redirect(folder);
      if (redirects.has_value()) {
        path.acs_redirects = path.acs_redirects.value_or(false) || *redirects;
      }
    } else if (text.starts_with("pci")) {
      path.host_bridge = text;
    }
  }
  if (path.hops.empty()) return std::nullopt;
  std::istringstream node(first_word(device / "numa_node"));
  if (int number = -1; node >> number) path.numa_node = number;
  path.iommu_type = first_word(device / "iommu_group/type");
  path.largest_bar = read_largest_bar(device);
  path.near_threads = first_word(device / "local_cpulist");
  return path;
}

const char* pci_relation(const PciPath& one, const PciPath& other) {
  if (one.host_bridge != other.host_bridge) {
    bool is_one_node = one.numa_node >= 0 && one.numa_node == other.numa_node;
    return is_one_node ? "NODE" : "SYS";
  }
  size_t common = 0;
  while (common < std::min(one.hops.size(), other.hops.size()) &&
         one.hops[common].address == other.hops[common].address) {
    ++common;
  }
  if (common == 0) return "PHB";
  // Below what they share: a port of the switch and the device.
  constexpr size_t kOfOneSwitch = 2;
  bool is_one_switch =
      one.hops.size() - common <= kOfOneSwitch && other.hops.size() - common <= kOfOneSwitch;
  return is_one_switch ? "PIX" : "PXB";
}

}  // namespace stagecoach
