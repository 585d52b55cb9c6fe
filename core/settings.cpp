#include "core/settings.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

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
    {"NO_COLOR", "any text", "unset", "no colour and no cursor movement in what is printed"},
};

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
  if (const char* text = std::getenv("STAGECOACH_LOG"); text != nullptr && *text != 0) {
    settings.log_level = text;
    static constexpr const char* kLevels[] = {"debug", "info", "warning", "error", "off"};
    bool known = false;
    for (const char* level : kLevels) known = known || settings.log_level == level;
    if (!known) {
      return invalid_argument(fmt::format(
          "STAGECOACH_LOG is '{}'; set debug, info, warning, error or off", settings.log_level));
    }
  }
  if (const char* text = std::getenv("STAGECOACH_CUDA_LIBRARY")) settings.cuda_library = text;
  if (const char* text = std::getenv("STAGECOACH_HIP_LIBRARY")) settings.hip_library = text;
  const char* no_color = std::getenv("NO_COLOR");
  settings.no_color = no_color != nullptr && *no_color != 0;
  return settings;
}

}  // namespace stagecoach
