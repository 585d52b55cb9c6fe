#include "backends/gpu/gpu_options.h"

#include <charconv>
#include <fmt/format.h>

namespace stagecoach {

namespace {

constexpr const char* kMemoryOption = "memory";

Status spec_error(const DeviceSpec& spec, std::string_view problem) {
  return invalid_argument(fmt::format("device '{}': {}", spec.text, problem));
}

bool parse_whole(std::string_view text, int& value) {
  auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && next == text.data() + text.size() && value >= 0;
}

Status which_error(const DeviceSpec& spec) {
  return spec_error(spec, fmt::format("'{0}' names no card; write {1}:I, {1}:all, or {1}:IxK for K "
                                      "(1 to {2}) logical devices of card I",
                                      spec.which, spec.backend, kMaxLogicalDevices));
}

Result<ByteCount> read_memory(const DeviceSpec& spec) {
  for (const auto& [name, values] : spec.options) {
    if (name != kMemoryOption) {
      return spec_error(
          spec, fmt::format("unknown option '{}'; the only one is '{}'", name, kMemoryOption));
    }
    if (values.size() != 1) {
      return spec_error(
          spec, fmt::format("option '{}' has {} values; it takes one", name, values.size()));
    }
    auto bytes = parse_bytes(values.front());
    if (!bytes.is_ok()) {
      return spec_error(spec, fmt::format("option '{}': {}", name, bytes.status().message()));
    }
    if (bytes.value() <= 0) {
      return spec_error(spec,
                        fmt::format("option '{}' is {}; it must be above 0", name, values.front()));
    }
    return bytes;
  }
  return ByteCount{0};
}

}  // namespace

Result<std::vector<GpuDeviceRequest>> parse_gpu_options(const DeviceSpec& spec, int card_count) {
  STAGECOACH_ASSIGN_OR_RETURN(ByteCount memory_bytes, read_memory(spec));
  int first = 0, last = card_count - 1, parts = 1;
  if (spec.which != "all") {
    size_t cross = spec.which.find('x');
    std::string_view which = spec.which;
    if (!parse_whole(which.substr(0, cross), first)) return which_error(spec);
    if (cross != std::string::npos &&
        (!parse_whole(which.substr(cross + 1), parts) || parts < 1 || parts > kMaxLogicalDevices)) {
      return which_error(spec);
    }
    if (first >= card_count) {
      return unavailable(fmt::format("'{}': card {} is not there; this machine has {} (0 to {})",
                                     spec.text, first, card_count, card_count - 1));
    }
    last = first;
  }
  std::vector<GpuDeviceRequest> requests;
  int index = spec.first_index;
  for (int ordinal = first; ordinal <= last; ++ordinal) {
    for (int part = 0; part < parts; ++part) {
      requests.push_back({ordinal, part, parts, memory_bytes, index++});
    }
  }
  return requests;
}

}  // namespace stagecoach
