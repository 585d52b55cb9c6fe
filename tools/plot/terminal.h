#pragma once

namespace stagecoach {

/// What a terminal can show.
struct TerminalStyle {
  int width = 80;
  bool is_unicode = false;
  bool has_color = false;
};

/// That of stdout: width of the window (80 for files and pipes), characters by the locale, colours
/// on terminals where NO_COLOR is not set.
TerminalStyle terminal_style();

}  // namespace stagecoach
