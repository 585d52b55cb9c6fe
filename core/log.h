#pragma once

#include <string_view>

namespace stagecoach {

/// How much a line matters.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Least level that is printed; "debug", "info", "warning", "error" or "off".
void set_log_level(std::string_view level);

/// Writes one line to stderr. Never called in the hot path. Thread rule: any thread.
void log_line(LogLevel level, std::string_view message);

/// One line of the named level.
inline void log_debug(std::string_view message) {
  log_line(LogLevel::kDebug, message);
}
inline void log_info(std::string_view message) {
  log_line(LogLevel::kInfo, message);
}
inline void log_warning(std::string_view message) {
  log_line(LogLevel::kWarning, message);
}
inline void log_error(std::string_view message) {
  log_line(LogLevel::kError, message);
}

}  // namespace stagecoach
