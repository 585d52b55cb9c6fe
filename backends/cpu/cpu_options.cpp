#include "backends/cpu/cpu_options.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/suggest.h"

namespace stagecoach {

namespace {

const std::vector<std::string>& known_options() {
  static const std::vector<std::string> names = {"memory", "pinned", "flops",  "speed",
                                                 "h2d",    "d2h",    "latency"};
  return names;
}

Status spec_error(const DeviceSpec& spec, std::string_view problem) {
  return invalid_argument(fmt::format("device '{}': {}", spec.text, problem));
}

Result<int> parse_count(const DeviceSpec& spec) {
  int count = 0;
  const char* end = spec.which.data() + spec.which.size();
  auto [next, error] = std::from_chars(spec.which.data(), end, count);
  if (error != std::errc() || next != end || count < 1 || count > kMaxCpuDevices) {
    return spec_error(spec, fmt::format("'{}' is not a number of CPU devices; write cpu:N with N "
                                        "from 1 to {}",
                                        spec.which, kMaxCpuDevices));
  }
  return count;
}

Status check_names(const DeviceSpec& spec) {
  for (const auto& [name, values] : spec.options) {
    bool known = false;
    for (const std::string& candidate : known_options()) known = known || candidate == name;
    if (!known) {
      std::string nearest = nearest_name(name, known_options());
      std::string advice = nearest.empty()
                               ? fmt::format("the options are {}", fmt::join(known_options(), ", "))
                               : fmt::format("did you mean '{}'?", nearest);
      return spec_error(spec, fmt::format("unknown option '{}'; {}", name, advice));
    }
    if (name != "speed" && values.size() > 1) {
      return spec_error(
          spec, fmt::format("option '{}' has {} values; it takes one", name, values.size()));
    }
  }
  return Status::ok();
}

/// What a device can be told to be. Beyond these, times are no numbers any more.
struct Range {
  double least = 0, most = 0;
};
constexpr Range kSpeeds{1e-3, 1e3};
constexpr Range kFlopPerS{1e3, 1e18};
constexpr Range kBytesPerS{1e3, 1e15};
constexpr Range kBytes{1, 1e15};
constexpr Range kLatencyNs{1, 1e11};

/// Reads option `name` with `parse` into `target` when it is given; it must lie in `range`.
template <typename T, typename Parse>
Status read_positive(const DeviceSpec& spec, const char* name, Parse parse, Range range,
                     T& target) {
  auto found = spec.options.find(name);
  if (found == spec.options.end()) return Status::ok();
  const std::string& text = found->second.front();
  auto value = parse(text);
  if (!value.is_ok()) {
    return spec_error(spec, fmt::format("option '{}': {}", name, value.status().message()));
  }
  if (!(value.value() > 0)) {
    return spec_error(spec, fmt::format("option '{}' is {}; it must be above 0", name, text));
  }
  if (!(value.value() >= range.least && value.value() <= range.most)) {
    return spec_error(spec, fmt::format("option '{}' is {}; it must be from {:g} to {:g}", name,
                                        text, range.least, range.most));
  }
  target = static_cast<T>(value.value());
  return Status::ok();
}

Status read_speeds(const DeviceSpec& spec, bool has_flops, std::vector<CpuDeviceOptions>& devices) {
  auto found = spec.options.find("speed");
  if (found == spec.options.end()) return Status::ok();
  const std::vector<std::string>& texts = found->second;
  if (texts.size() != 1 && texts.size() != devices.size()) {
    return spec_error(spec, fmt::format("option 'speed' has {} values for {} devices; give one for "
                                        "all or one each",
                                        texts.size(), devices.size()));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string& text = texts[texts.size() == 1 ? 0 : i];
    double speed = 0;
    const char* end = text.data() + text.size();
    auto [next, error] = std::from_chars(text.data(), end, speed);
    if (error != std::errc() || next != end || !std::isfinite(speed) || speed <= 0) {
      return spec_error(spec, fmt::format("option 'speed' holds '{}'; give numbers above 0", text));
    }
    if (speed < kSpeeds.least || speed > kSpeeds.most) {
      return spec_error(spec, fmt::format("option 'speed' holds '{}'; it must be from {:g} to {:g}",
                                          text, kSpeeds.least, kSpeeds.most));
    }
    if (speed > 1 && !has_flops) {
      return spec_error(spec, fmt::format("speed {} needs flops=: without it a kernel takes its "
                                          "real time / speed, which cannot be shorter than real; "
                                          "use speeds up to 1 or add flops=",
                                          text));
    }
    devices[i].pacing.speed = speed;
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<CpuDeviceOptions>> parse_cpu_options(const DeviceSpec& spec) {
  STAGECOACH_ASSIGN_OR_RETURN(int count, parse_count(spec));
  STAGECOACH_RETURN_IF_ERROR(check_names(spec));
  CpuDeviceOptions common;
  CpuPacing& pacing = common.pacing;
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "memory", parse_bytes, kBytes, common.memory_bytes));
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "pinned", parse_bytes, kBytes, common.pinned_bytes));
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "flops", parse_rate, kFlopPerS, pacing.flop_per_s));
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "h2d", parse_bytes, kBytesPerS, pacing.up_bytes_per_s));
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "d2h", parse_bytes, kBytesPerS, pacing.down_bytes_per_s));
  STAGECOACH_RETURN_IF_ERROR(
      read_positive(spec, "latency", parse_duration_ns, kLatencyNs, pacing.latency_ns));
  std::vector<CpuDeviceOptions> devices(static_cast<size_t>(count), common);
  STAGECOACH_RETURN_IF_ERROR(read_speeds(spec, pacing.flop_per_s > 0, devices));
  return devices;
}

std::string cpu_device_name(const CpuPacing& pacing) {
  if (pacing.flop_per_s > 0) {
    return fmt::format("CPU device (paced {:g} GFLOP/s)", pacing.flop_per_s * pacing.speed / 1e9);
  }
  return pacing.is_paced() ? "CPU device (paced)" : "CPU device";
}

}  // namespace stagecoach
