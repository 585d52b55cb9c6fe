#include "tools/bandwidth/card_management.h"

#include <charconv>

#include "core/settings.h"

namespace stagecoach {

CardManagement CardManagement::open(const std::string& nvml, const std::string& rocm_smi) {
  CardManagement management;
  auto take = [&management](Result<std::unique_ptr<ManagementLibrary>> library) {
    if (library.is_ok()) {
      management.libraries_.push_back(std::move(*library));
    } else {
      management.absent_.push_back(library.status().message());
    }
  };
  take(open_nvml(nvml));
  take(open_rocm_smi(rocm_smi));
  return management;
}

Result<CardManagement> CardManagement::open() {
  STAGECOACH_ASSIGN_OR_RETURN(Settings settings, read_settings());
  return open(settings.nvml_library, settings.rocm_smi_library);
}

std::optional<CardState> CardManagement::read(const DeviceInfo& device) {
  if (device.uuid.empty() && device.pci_address.empty()) return std::nullopt;
  for (const std::unique_ptr<ManagementLibrary>& library : libraries_) {
    std::optional<CardState> state = library->read(device);
    if (state.has_value()) return state;
  }
  return std::nullopt;
}

std::optional<uint64_t> pci_number(const std::string& address) {
  // "xxxx:xx:xx.x", with more digits of the domain at times.
  constexpr size_t kBehindDomain = sizeof(":00:00.0") - 1, kMostDomain = 8;
  if (address.size() <= kBehindDomain || address.size() > kBehindDomain + kMostDomain) {
    return std::nullopt;
  }
  size_t domain_size = address.size() - kBehindDomain;
  auto number = [&address](size_t at, size_t size) -> std::optional<uint64_t> {
    uint64_t value = 0;
    const char* end = address.data() + at + size;
    auto [next, error] = std::from_chars(address.data() + at, end, value, 16);
    return error == std::errc() && next == end ? std::optional<uint64_t>(value) : std::nullopt;
  };
  bool is_separated = address[domain_size] == ':' && address[domain_size + 3] == ':' &&
                      address[domain_size + 6] == '.';
  std::optional<uint64_t> domain = number(0, domain_size), bus = number(domain_size + 1, 2);
  std::optional<uint64_t> device = number(domain_size + 4, 2);
  std::optional<uint64_t> function = number(domain_size + 7, 1);
  if (!is_separated || !domain || !bus || !device || !function) return std::nullopt;
  constexpr uint64_t kMostDevice = 0x1f, kMostFunction = 7;
  if (*device > kMostDevice || *function > kMostFunction) return std::nullopt;
  return *domain << 32 | *bus << 8 | *device << 3 | *function;
}

}  // namespace stagecoach
