#include "hal/backend_registry.h"

#include <fmt/format.h>
#include <map>

#include "core/suggest.h"

namespace stagecoach {

namespace {

/// Backends that exist but need a build option.
struct OptionalBackend {
  std::string_view name;
  std::string_view build_flag;
};
constexpr OptionalBackend kOptionalBackends[] = {
    {"cuda", "-DSTAGECOACH_CUDA=ON"},
    {"hip", "-DSTAGECOACH_HIP=ON"},
};
constexpr std::string_view kSimulatedBackend = "sim";

Status explain_missing(const DeviceSpec& spec,
                       const std::vector<std::unique_ptr<Backend>>& backends) {
  FailureSite site;
  site.device = spec.text;
  site.verb = "open";
  if (spec.backend == kSimulatedBackend) {
    return invalid_argument(fmt::format("'{}' is a simulated device, which runs only in `simulate` "
                                        "and `plan`; use one such as cpu:4 here",
                                        spec.text))
        .with_site(site);
  }
  for (const OptionalBackend& optional : kOptionalBackends) {
    if (spec.backend != optional.name) continue;
    return unavailable(fmt::format("'{}' needs the {} backend, which is not built in; configure "
                                   "with {}",
                                   spec.text, optional.name, optional.build_flag))
        .with_site(site);
  }
  std::vector<std::string> known = {std::string(kSimulatedBackend)};
  for (const OptionalBackend& optional : kOptionalBackends) known.emplace_back(optional.name);
  for (const auto& backend : backends) known.emplace_back(backend->name());
  std::string nearest = nearest_name(spec.backend, known);
  std::string advice = nearest.empty() ? "use one such as cpu:4"
                                       : fmt::format("did you mean '{}:{}'?", nearest, spec.which);
  return invalid_argument(fmt::format("'{}' names backend '{}', which does not exist; {}",
                                      spec.text, spec.backend, advice))
      .with_site(site);
}

}  // namespace

void BackendRegistry::add(std::unique_ptr<Backend> backend) {
  backends_.push_back(std::move(backend));
}

Backend* BackendRegistry::find(std::string_view name) const {
  for (const auto& backend : backends_) {
    if (backend->name() == name) return backend.get();
  }
  return nullptr;
}

Result<std::vector<std::unique_ptr<Device>>> BackendRegistry::open_devices(
    std::string_view text, const OpenOptions& options) const {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<DeviceSpec> specs, parse_device_specs(text));
  // Every name is checked before any device is opened: a typing error costs nothing.
  for (const DeviceSpec& spec : specs) {
    if (find(spec.backend) == nullptr) return explain_missing(spec, backends_);
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::map<std::string, int> opened;
  for (DeviceSpec& spec : specs) {
    Backend& backend = *find(spec.backend);
    STAGECOACH_RETURN_IF_ERROR(backend.check(spec));
    Status available = backend.availability();
    // One of several devices: which.
    if (!available.is_ok()) return available.with_context(fmt::format("device '{}'", spec.text));
    spec.first_index = opened[spec.backend];
    spec.is_deterministic = options.is_deterministic;
    STAGECOACH_ASSIGN_OR_RETURN(auto part, backend.open(spec));
    opened[spec.backend] += static_cast<int>(part.size());
    for (auto& device : part) devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace stagecoach
