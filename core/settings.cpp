#include "core/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fmt/ranges.h>
#include <string_view>

namespace stagecoach {

namespace {

constexpr int kMaxThreads = 1024;

constexpr SettingInfo kSettings[] = {
    {"STAGECOACH_THREADS", "1 to 1024", "all usable", "host threads for math and optimizer"},
    {"STAGECOACH_LOG", "debug, info, warning, error, off", "info", "least level that is printed"},
    {"STAGECOACH_CUDA_LIBRARY", "a library's name or path", "libcuda.so.1, libcuda.so",
     "CUDA driver library to open instead"},
    {"STAGECOACH_HIP_LIBRARY", "a library's name or path",
     "libamdhip64.so.7, .6, .5, libamdhip64.so", "HIP runtime library to open instead"},
    {"STAGECOACH_NVML_LIBRARY", "a library's name or path", "libnvidia-ml.so.1, libnvidia-ml.so",
     "NVIDIA's management library to open instead: clocks, power, replays"},
    {"STAGECOACH_ROCM_SMI_LIBRARY", "a library's name or path",
     "librocm_smi64.so.1, .7, .6, .5, librocm_smi64.so",
     "AMD's management library to open instead"},
    {"STAGECOACH_PEER", "auto, on, off", "auto",
     "copies between two cards: tested first, trusted as the driver claims, or through the host"},
    {"NO_COLOR", "any text", "unset", "no colour and no cursor movement in what is printed"},
};

constexpr const char* kLogLevels[] = {"debug", "info", "warning", "error", "off"};
constexpr const char* kPeerChoices[] = {"auto", "on", "off"};

/// A variable that holds one of `allowed`; unset or empty leaves `value`.
Status read_word(const char* name, std::span<const char* const> allowed, std::string& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return Status::ok();
  if (std::find(allowed.begin(), allowed.end(), std::string_view(text)) == allowed.end()) {
    return invalid_argument(
        fmt::format("{} is '{}'; set one of {}", name, text, fmt::join(allowed, ", ")));
  }
  value = text;
  return Status::ok();
}

}  // namespace

std::span<const SettingInfo> all_settings() {
  return kSettings;
}

Result<Settings> read_settings() {
  Settings settings;
  if (const char* text = std::getenv("STAGECOACH_THREADS"); text != nullptr && *text != 0) {
    const char* end = text + std::strlen(text);
    auto [next, error] = std::from_chars(text, end, settings.threads);
    if (error != std::errc() || next != end || settings.threads < 1 ||
        settings.threads > kMaxThreads) {
      return invalid_argument(
          fmt::format("STAGECOACH_THREADS is '{}'; set a number from 1 to {}", text, kMaxThreads));
    }
  }
  STAGECOACH_RETURN_IF_ERROR(read_word("STAGECOACH_LOG", kLogLevels, settings.log_level));
  STAGECOACH_RETURN_IF_ERROR(read_word("STAGECOACH_PEER", kPeerChoices, settings.peer));
  if (const char* text = std::getenv("STAGECOACH_CUDA_LIBRARY")) settings.cuda_library = text;
  if (const char* text = std::getenv("STAGECOACH_HIP_LIBRARY")) settings.hip_library = text;
  if (const char* text = std::getenv("STAGECOACH_NVML_LIBRARY")) settings.nvml_library = text;
  if (const char* text = std::getenv("STAGECOACH_ROCM_SMI_LIBRARY")) {
    settings.rocm_smi_library = text;
  }
  const char* no_color = std::getenv("NO_COLOR");
  settings.no_color = no_color != nullptr && *no_color != 0;
  return settings;
}

}  // namespace stagecoach
