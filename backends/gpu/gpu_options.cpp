#include "backends/gpu/gpu_options.h"

#include <charconv>
#include <fmt/format.h>

namespace stagecoach {

namespace {

constexpr const char* kMemoryOption = "memory";
constexpr const char* kLibrariesOption = "libraries";
constexpr const char* kFp16Option = "fp16_accumulate";

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

Status read_memory(const DeviceSpec& spec, const std::string& value, GpuDeviceRequest& request) {
  auto bytes = parse_bytes(value);
  if (!bytes.is_ok()) {
    return spec_error(spec,
                      fmt::format("option '{}': {}", kMemoryOption, bytes.status().message()));
  }
  if (bytes.value() <= 0) {
    return spec_error(spec,
                      fmt::format("option '{}' is {}; it must be above 0", kMemoryOption, value));
  }
  request.memory_bytes = bytes.value();
  return Status::ok();
}

Status read_switch(const DeviceSpec& spec, const std::string& name, const std::string& value,
                   bool& is_on) {
  is_on = value == "on";
  if (is_on || value == "off") return Status::ok();
  return spec_error(spec, fmt::format("option '{}' is '{}'; it takes on or off", name, value));
}

/// What the options say of every device of the element.
Result<GpuDeviceRequest> read_options(const DeviceSpec& spec) {
  GpuDeviceRequest request;
  request.is_deterministic = spec.is_deterministic;
  for (const auto& [name, values] : spec.options) {
    if (name != kMemoryOption && name != kLibrariesOption && name != kFp16Option) {
      return spec_error(spec, fmt::format("unknown option '{}'; there are '{}', '{}' and '{}'",
                                          name, kMemoryOption, kLibrariesOption, kFp16Option));
    }
    if (values.size() != 1) {
      return spec_error(
          spec, fmt::format("option '{}' has {} values; it takes one", name, values.size()));
    }
    const std::string& value = values.front();
    Status read = name == kMemoryOption ? read_memory(spec, value, request)
                  : name == kLibrariesOption
                      ? read_switch(spec, name, value, request.use_libraries)
                      : read_switch(spec, name, value, request.fp16_accumulate);
    STAGECOACH_RETURN_IF_ERROR(read);
  }
  if (request.fp16_accumulate && !request.use_libraries) {
    return spec_error(
        spec, fmt::format("option '{}' needs '{}', which is off", kFp16Option, kLibrariesOption));
  }
  return request;
}

}  // namespace

Result<std::vector<GpuDeviceRequest>> parse_gpu_options(const DeviceSpec& spec, int card_count) {
  STAGECOACH_ASSIGN_OR_RETURN(GpuDeviceRequest request, read_options(spec));
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
      request.ordinal = ordinal;
      request.part = part;
      request.part_count = parts;
      request.index = index++;
      requests.push_back(request);
    }
  }
  return requests;
}

}  // namespace stagecoach
