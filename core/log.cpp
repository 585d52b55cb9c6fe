#include "core/log.h"

#include <cstdlib>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/printable.h"

namespace stagecoach {

namespace {

spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    const char* no_color = std::getenv("NO_COLOR");
    bool plain = no_color != nullptr && *no_color != 0;
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
        plain ? spdlog::color_mode::never : spdlog::color_mode::automatic);
    auto made = std::make_shared<spdlog::logger>("stagecoach", sink);
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_level(std::string_view level) {
  LogLevel parsed = LogLevel::kInfo;
  if (level == "debug") parsed = LogLevel::kDebug;
  if (level == "warning") parsed = LogLevel::kWarning;
  if (level == "error") parsed = LogLevel::kError;
  if (level == "off") parsed = LogLevel::kOff;
  logger().set_level(to_spdlog(parsed));
}

void log_line(LogLevel level, std::string_view message) {
  logger().log(to_spdlog(level), "{}", printable(message));
}

}  // namespace stagecoach
