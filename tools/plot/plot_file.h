#pragma once

#include <string>

#include "core/status.h"
#include "tools/plot/drawing.h"

namespace stagecoach {

/// Refuses a name of --plot that write_plot_file would refuse: it ends in .svg or .html.
Status check_plot_path(const std::string& path);

/// A drawing and what a page says beside it.
struct PlotPage {
  std::string title;    ///< of the page
  std::string text;     ///< above the drawing, as it stands; may be empty
  std::string caption;  ///< a sentence about the drawing; may be empty
  Drawing drawing;
};

/// Writes it to `path`: .svg the drawing alone, .html a page. Errors: check_plot_path's, and those
/// of writing the file, which is replaced whole or not at all.
Status write_plot_file(const std::string& path, const PlotPage& page);

}  // namespace stagecoach
