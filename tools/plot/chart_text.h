#pragma once

#include <span>
#include <string>

#include "tools/plot/chart.h"
#include "tools/plot/terminal.h"

namespace stagecoach {

/// One chart in characters, no line wider than the terminal unless names leave no room. Pure.
std::string chart_text(const Chart& chart, const TerminalStyle& style);

/// All of them, each after an empty line; without charts it says that there is nothing to show.
std::string charts_text(std::span<const Chart> charts, const TerminalStyle& style);

}  // namespace stagecoach
