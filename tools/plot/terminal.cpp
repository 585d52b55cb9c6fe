#include "tools/plot/terminal.h"

#include <algorithm>
#include <clocale>
#include <langinfo.h>
#include <locale.h>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/settings.h"

namespace stagecoach {

namespace {

constexpr int kNarrowest = 40, kWidest = 200;

/// Asked of a locale of its own, so that no other output changes.
bool is_locale_unicode() {
  locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  bool is_unicode = std::string_view(::nl_langinfo_l(CODESET, locale)) == "UTF-8";
  ::freelocale(locale);
  return is_unicode;
}

}  // namespace

TerminalStyle terminal_style() {
  TerminalStyle style;
  style.is_unicode = is_locale_unicode();
  if (::isatty(STDOUT_FILENO) != 1) return style;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    style.width = std::clamp<int>(window.ws_col, kNarrowest, kWidest);
  }
  Result<Settings> settings = read_settings();
  style.has_color = settings.is_ok() && !settings->no_color;
  return style;
}

}  // namespace stagecoach
