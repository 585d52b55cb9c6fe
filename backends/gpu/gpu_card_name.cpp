#include "backends/gpu/gpu_card_name.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <string_view>
#include <vector>

namespace stagecoach {

namespace {

/// A card as a device string names it.
struct CardName {
  std::string text;   ///< lower case; a PCI address with a domain of four digits
  std::string parts;  ///< "", "x4"
  bool is_uuid = false;
};

bool is_hex(char letter) {
  return std::isxdigit(static_cast<unsigned char>(letter)) != 0;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) letter = static_cast<char>(std::tolower(letter));
  return lower;
}

/// "0000:65:00.0" of that, of "65:00.0" and of "00000000:65:00.0"; empty for what is no address.
std::string normal_address(std::string_view text) {
  constexpr std::string_view kForm = "xxxx:xx:xx.x";
  constexpr size_t kWithoutDomain = 7;
  std::string address = lower_case(text);
  if (address.size() == kWithoutDomain) address = "0000:" + address;
  if (address.size() < kForm.size()) return "";
  address.erase(0, address.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    bool fits = kForm[i] == 'x' ? is_hex(address[i]) : address[i] == kForm[i];
    if (!fits) return "";
  }
  return address;
}

bool is_uuid(std::string_view which) {
  return which.starts_with("GPU-") || which.starts_with("MIG-");
}

Result<CardName> parse_card_name(const DeviceSpec& spec) {
  std::string_view which = spec.which;
  CardName name;
  if (size_t cross = which.find('x'); cross != std::string_view::npos) {
    name.parts = std::string(which.substr(cross));
    which = which.substr(0, cross);
  }
  name.is_uuid = is_uuid(which);
  if (!name.is_uuid) {
    name.text = normal_address(which);
    if (!name.text.empty()) return name;
    return invalid_argument(
        fmt::format("device '{}': '{}' is no PCI address; write one such as {}:0000:65:00.0",
                    spec.text, which, spec.backend));
  }
  constexpr size_t kPrefix = sizeof("GPU-") - 1;
  std::string_view digits = which.substr(kPrefix);
  bool is_readable = !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char letter) {
    return is_hex(letter) || letter == '-';
  });
  name.text = lower_case(which);
  if (is_readable) return name;
  return invalid_argument(
      fmt::format("device '{}': '{}' is no UUID; nvidia-smi -L and 'stagecoach devices --verbose' "
                  "list those of this machine",
                  spec.text, which));
}

bool has_name(const DeviceInfo& card, const CardName& name) {
  if (name.is_uuid) return lower_case(card.uuid).starts_with(name.text);
  return !card.pci_address.empty() && normal_address(card.pci_address) == name.text;
}

std::string list_of(const std::vector<const DeviceInfo*>& cards) {
  std::vector<std::string> words;
  for (const DeviceInfo* card : cards) {
    words.push_back(fmt::format("{} ({} at {})", card->id,
                                card->uuid.empty() ? "without a UUID" : card->uuid,
                                card->pci_address.empty() ? "no address" : card->pci_address));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

bool names_card(const DeviceSpec& spec) {
  return is_uuid(spec.which) || spec.which.find(':') != std::string::npos;
}

Result<DeviceSpec> number_card(const DeviceSpec& spec, std::span<const DeviceInfo> cards) {
  STAGECOACH_ASSIGN_OR_RETURN(CardName name, parse_card_name(spec));
  const char* kind = name.is_uuid ? "UUID" : "PCI address";
  std::vector<const DeviceInfo*> all, found;
  for (const DeviceInfo& card : cards) {
    all.push_back(&card);
    if (has_name(card, name)) found.push_back(&card);
  }
  if (found.empty()) {
    return unavailable(
        fmt::format("'{}': no card has this {}; there are {}", spec.text, kind, list_of(all)));
  }
  if (found.size() > 1) {
    return invalid_argument(fmt::format("device '{}': several have this {}: {}; write a whole UUID",
                                        spec.text, kind, list_of(found)));
  }
  DeviceSpec numbered = spec;
  numbered.which = fmt::format("{}{}", found.front()->index, name.parts);
  return numbered;
}

Result<DeviceSpec> name_first_card(const DeviceSpec& spec) {
  if (!names_card(spec)) return spec;
  STAGECOACH_ASSIGN_OR_RETURN(CardName name, parse_card_name(spec));
  DeviceSpec first = spec;
  first.which = "0" + name.parts;
  return first;
}

std::string gpu_uuid_text(const GpuUuid& uuid, const std::string& name) {
  bool are_digits = std::all_of(uuid.begin(), uuid.end(), [](unsigned char letter) {
    return is_hex(static_cast<char>(letter));
  });
  if (are_digits) return "GPU-" + std::string(uuid.begin(), uuid.end());
  bool is_instance = name.find(" MIG ") != std::string::npos;
  std::string text = is_instance ? "MIG-" : "GPU-";
  constexpr size_t kDashes[] = {4, 6, 8, 10};
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (std::find(std::begin(kDashes), std::end(kDashes), i) != std::end(kDashes)) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace stagecoach
