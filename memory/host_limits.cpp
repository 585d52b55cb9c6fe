#include "memory/host_limits.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <sys/resource.h>

#include "core/control_groups.h"
#include "core/file.h"

namespace stagecoach {

namespace internal {

namespace {

/// The number behind `key` in lines of "key value …"; nothing without such a line.
std::optional<ByteCount> value_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    ByteCount value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

std::optional<ByteCount> read_bytes(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.is_ok()) return std::nullopt;
  ByteCount bytes = 0;  // "max" is no number: there is no limit
  if (!(std::istringstream(*text) >> bytes)) return std::nullopt;
  return bytes;
}

/// What `group` leaves; nothing when it sets no limit.
std::optional<ByteCount> left_by(const ControlGroup& group) {
  const char* limit_file = group.version_2 ? "/memory.max" : "/memory.limit_in_bytes";
  const char* usage_file = group.version_2 ? "/memory.current" : "/memory.usage_in_bytes";
  const char* cache_key = group.version_2 ? "inactive_file" : "total_inactive_file";
  std::optional<ByteCount> limit = read_bytes(group.folder + limit_file);
  std::optional<ByteCount> usage = read_bytes(group.folder + usage_file);
  if (!limit || !usage) return std::nullopt;
  Result<std::string> statistics = read_file(group.folder + "/memory.stat");
  ByteCount cache = statistics.is_ok() ? value_of(*statistics, cache_key).value_or(0) : 0;
  return std::max<ByteCount>(0, *limit - std::max<ByteCount>(0, *usage - cache));
}

}  // namespace

Result<HostLimits> host_limits(const HostLimitInputs& inputs) {
  std::optional<ByteCount> available = value_of(inputs.meminfo, "MemAvailable:");
  if (!available)
    return data_loss("/proc/meminfo has no MemAvailable; is this Linux 3.14 or later?");
  HostLimits limits;
  limits.free_bytes = *available * kKiB;
  limits.free_source = "MemAvailable of /proc/meminfo";
  limits.lockable_bytes = inputs.lockable;
  auto apply = [&limits](std::optional<ByteCount> bytes, const std::string& source) {
    if (!bytes) return;
    limits.limited_bytes = std::min(*bytes, limits.limited_bytes.value_or(*bytes));
    if (*bytes >= limits.free_bytes) return;
    limits.free_bytes = *bytes;
    limits.free_source = source;
  };
  for (const ControlGroup& group :
       control_groups(inputs.cgroup, inputs.mountinfo, "memory", inputs.root)) {
    apply(left_by(group), "the control group " + group.folder);
  }
  apply(inputs.address_space, "ulimit -v");
  apply(inputs.data_segment, "ulimit -d");
  return limits;
}

namespace {

/// Of the address space, for what is no memory of a run: stacks of threads to come, which take 8
/// MiB each whatever they use of it, and libraries and kernels that are loaded or made later.
constexpr ByteCount kStackBytes = 256 * kMiB;

/// What a limit leaves of `resource` when `used` bytes are taken.
std::optional<ByteCount> left_by_limit(int resource, ByteCount used) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return std::max<ByteCount>(0, static_cast<ByteCount>(limit.rlim_cur) - used);
}

}  // namespace

}  // namespace internal

namespace {

Result<HostLimits> read_limits(ByteCount address_space_kept) {
  internal::HostLimitInputs inputs;
  STAGECOACH_ASSIGN_OR_RETURN(inputs.meminfo, read_file("/proc/meminfo"));
  STAGECOACH_ASSIGN_OR_RETURN(std::string status, read_file("/proc/self/status"));
  // Without control groups (a kernel built so) there is nothing they could limit.
  Result<std::string> cgroup = read_file("/proc/self/cgroup");
  Result<std::string> mountinfo = read_file("/proc/self/mountinfo");
  if (cgroup.is_ok() && mountinfo.is_ok()) {
    inputs.cgroup = *cgroup;
    inputs.mountinfo = *mountinfo;
  }
  auto taken = [&status](const char* key) {
    return internal::value_of(status, key).value_or(0) * kKiB;
  };
  inputs.address_space = internal::left_by_limit(RLIMIT_AS, taken("VmSize:") + address_space_kept);
  inputs.data_segment = internal::left_by_limit(RLIMIT_DATA, taken("VmData:"));
  inputs.lockable = internal::left_by_limit(RLIMIT_MEMLOCK, taken("VmLck:"));
  return internal::host_limits(inputs);
}

}  // namespace

Result<ByteCount> peak_host_bytes() {
  STAGECOACH_ASSIGN_OR_RETURN(std::string status, read_file("/proc/self/status"));
  std::optional<ByteCount> peak = internal::value_of(status, "VmHWM:");
  if (!peak) return data_loss("/proc/self/status has no VmHWM; is this Linux 2.6.33 or later?");
  return *peak * kKiB;
}

Result<HostLimits> read_host_limits() {
  return read_limits(0);
}

Result<HostLimits> read_host_limits_before_threads() {
  return read_limits(internal::kStackBytes);
}

}  // namespace stagecoach
