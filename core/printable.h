#pragma once

#include <string>
#include <string_view>

namespace stagecoach {

/// `text` as one line that a terminal shows and does not obey: control characters, line ends among
/// them, and bytes that are no UTF-8 become "\x1b" and the like. Everything that is printed for
/// people and may quote a name out of a file goes through it. Pure.
std::string printable(std::string_view text);

}  // namespace stagecoach
