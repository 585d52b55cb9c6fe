#pragma once

#include <span>
#include <string>

#include "tools/plot/chart.h"
#include "tools/plot/drawing.h"

namespace stagecoach {

/// One chart with title, axes and key. Colours are those that people of any colour vision can tell
/// apart (Okabe and Ito, 2008), and dashes and places say the same. Pure.
Drawing draw_chart(const Chart& chart);

/// Charts side by side and below each other under a title and a sentence about all of them; without
/// charts it says that there is nothing to show. Pure.
Drawing draw_charts(const std::string& title, const std::string& caption,
                    std::span<const Chart> charts);

}  // namespace stagecoach
