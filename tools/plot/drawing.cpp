#include "tools/plot/drawing.h"

#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <utility>

namespace stagecoach {

namespace {

/// "12.25", "3": what is written of a place.
std::string number(double value) {
  return fmt::format("{:g}", std::round(value * 100) / 100);
}

std::string paint(const DrawingMark& mark) {
  std::string text = fmt::format(" fill=\"{}\"", escaped_markup(mark.fill));
  if (!mark.stroke.empty()) {
    text += fmt::format(" stroke=\"{}\" stroke-width=\"{}\"", escaped_markup(mark.stroke),
                        number(mark.stroke_width));
  }
  if (mark.is_dashed) text += " stroke-dasharray=\"5 3\"";
  if (mark.opacity < 1) text += fmt::format(" opacity=\"{}\"", number(mark.opacity));
  return text;
}

std::string close(const char* tag, const DrawingMark& mark) {
  if (mark.tip.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", escaped_markup(mark.tip), tag);
}

std::string rectangle_svg(const DrawingMark& mark) {
  const DrawingPoint &from = mark.points[0], &to = mark.points[1];
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}{}", number(from.x),
                     number(from.y), number(to.x - from.x), number(to.y - from.y), paint(mark),
                     close("rect", mark));
}

std::string points_svg(const DrawingMark& mark) {
  const char* tag = mark.kind == MarkKind::kLine ? "polyline" : "polygon";
  std::string text = fmt::format("<{} points=\"", tag);
  for (const DrawingPoint& point : mark.points) {
    text += fmt::format("{}{},{}", text.back() == '"' ? "" : " ", number(point.x), number(point.y));
  }
  return text + "\"" + paint(mark) + close(tag, mark);
}

std::string text_svg(const DrawingMark& mark) {
  std::string x = number(mark.points[0].x), y = number(mark.points[0].y);
  std::string text = fmt::format("<text x=\"{}\" y=\"{}\"", x, y);
  if (mark.anchor != TextAnchor::kStart) {
    text +=
        fmt::format(" text-anchor=\"{}\"", mark.anchor == TextAnchor::kMiddle ? "middle" : "end");
  }
  if (mark.font_size > 0) text += fmt::format(" font-size=\"{}\"", number(mark.font_size));
  if (mark.is_vertical) text += fmt::format(" transform=\"rotate(-90 {} {})\"", x, y);
  if (mark.fill != "none") text += fmt::format(" fill=\"{}\"", escaped_markup(mark.fill));
  return fmt::format("{}>{}</text>\n", text, escaped_markup(mark.text));
}

}  // namespace

double text_width(const std::string& text, double font_size) {
  constexpr double kOfALetter = 0.58;
  return static_cast<double>(text.size()) * font_size * kOfALetter;
}

DrawingMark& Drawing::rectangle(double x, double y, double rectangle_width, double rectangle_height,
                                const std::string& fill) {
  DrawingMark& mark = marks.emplace_back();
  mark.points = {{x, y}, {x + rectangle_width, y + rectangle_height}};
  mark.fill = fill;
  return mark;
}

DrawingMark& Drawing::line(std::vector<DrawingPoint> points, const std::string& stroke,
                           double stroke_width) {
  DrawingMark& mark = marks.emplace_back();
  mark.kind = MarkKind::kLine;
  mark.points = std::move(points);
  mark.stroke = stroke;
  mark.stroke_width = stroke_width;
  return mark;
}

DrawingMark& Drawing::area(std::vector<DrawingPoint> points, const std::string& fill,
                           double opacity) {
  DrawingMark& mark = marks.emplace_back();
  mark.kind = MarkKind::kArea;
  mark.points = std::move(points);
  mark.fill = fill;
  mark.opacity = opacity;
  return mark;
}

DrawingMark& Drawing::text(double x, double y, std::string text, TextAnchor anchor) {
  DrawingMark& mark = marks.emplace_back();
  mark.kind = MarkKind::kText;
  mark.points = {{x, y}};
  mark.text = std::move(text);
  mark.anchor = anchor;
  return mark;
}

void Drawing::add(const Drawing& other, double x, double y) {
  for (DrawingMark mark : other.marks) {
    for (DrawingPoint& point : mark.points) point = {point.x + x, point.y + y};
    marks.push_back(std::move(mark));
  }
}

std::string drawing_svg(const Drawing& drawing) {
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"{2}\" style=\"background:#fff\">\n",
      number(std::ceil(drawing.width)), number(std::ceil(drawing.height)), number(kFontSize));
  for (const DrawingMark& mark : drawing.marks) {
    switch (mark.kind) {
      case MarkKind::kRectangle:
        text += rectangle_svg(mark);
        break;
      case MarkKind::kLine:
      case MarkKind::kArea:
        text += points_svg(mark);
        break;
      case MarkKind::kText:
        text += text_svg(mark);
        break;
    }
  }
  return text + "</svg>\n";
}

std::string escaped_markup(const std::string& text) {
  std::string safe;
  for (char letter : text) {
    switch (letter) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        // Control characters have no place in XML.
        safe += static_cast<unsigned char>(letter) < ' ' && letter != '\n' ? ' ' : letter;
    }
  }
  return safe;
}

}  // namespace stagecoach
