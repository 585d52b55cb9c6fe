#include "tools/plot/plot_file.h"

#include <fmt/format.h>

#include "core/file.h"

namespace stagecoach {

namespace {

std::string page_html(const PlotPage& page) {
  std::string html = fmt::format("<!doctype html>\n<meta charset=\"utf-8\">\n<title>{}</title>\n",
                                 escaped_markup(page.title));
  if (!page.text.empty()) html += fmt::format("<pre>{}</pre>\n", escaped_markup(page.text));
  if (!page.caption.empty()) html += fmt::format("<p>{}</p>\n", escaped_markup(page.caption));
  return html + drawing_svg(page.drawing);
}

}  // namespace

Status check_plot_path(const std::string& path) {
  if (path.ends_with(".html") || path.ends_with(".svg")) return Status::ok();
  return invalid_argument(fmt::format("--plot is '{}'; it must end in .svg or .html", path));
}

Status write_plot_file(const std::string& path, const PlotPage& page) {
  STAGECOACH_RETURN_IF_ERROR(check_plot_path(path));
  bool is_page = path.ends_with(".html");
  return write_file_atomically(path, is_page ? page_html(page) : drawing_svg(page.drawing));
}

}  // namespace stagecoach
