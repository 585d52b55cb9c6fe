#pragma once

#include <span>
#include <string>

#include "core/status.h"

namespace stagecoach {

/// One environment variable the program reads. Nothing else reads the environment.
struct SettingInfo {
  const char* name;
  const char* values;  ///< what it may hold, for people
  const char* default_value;
  const char* meaning;
};

/// Every variable, in one table; `stagecoach --help-environment` and docs/settings.md print it.
std::span<const SettingInfo> all_settings();

/// Parsed values. Values are parsed, not tested for presence: "0" means off.
struct Settings {
  int threads = 0;                 ///< STAGECOACH_THREADS; 0 = as many as usable
  std::string log_level = "info";  ///< STAGECOACH_LOG
  std::string cuda_library;        ///< STAGECOACH_CUDA_LIBRARY; empty = the usual names
  std::string hip_library;         ///< STAGECOACH_HIP_LIBRARY; empty = the usual names
  std::string nvml_library;        ///< STAGECOACH_NVML_LIBRARY; empty = the usual names
  std::string rocm_smi_library;    ///< STAGECOACH_ROCM_SMI_LIBRARY; empty = the usual names
  std::string peer = "auto";       ///< STAGECOACH_PEER: auto, on or off
  bool no_color = false;           ///< NO_COLOR (set and not empty)
};

/// Reads the environment once. A value that cannot be parsed is refused, naming variable, value
/// found and values allowed.
Result<Settings> read_settings();

}  // namespace stagecoach
