#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

/// A place in a drawing, in pixels from its upper left corner.
struct DrawingPoint {
  double x = 0, y = 0;
};

/// What a mark is; an area is filled, a line is not.
enum class MarkKind : uint8_t { kRectangle, kLine, kArea, kText };
/// Which end of a text stands at its place.
enum class TextAnchor : uint8_t { kStart, kMiddle, kEnd };

/// One mark. Plain data.
struct DrawingMark {
  MarkKind kind = MarkKind::kRectangle;
  std::vector<DrawingPoint> points;  ///< rectangle: opposite corners; text: where it is anchored
  std::string fill = "none", stroke;
  double stroke_width = 1, opacity = 1;
  bool is_dashed = false;
  std::string text;  ///< what a text says
  std::string tip;   ///< shown by viewers where the pointer rests; may be empty
  TextAnchor anchor = TextAnchor::kStart;
  double font_size = 0;      ///< 0: the drawing's
  bool is_vertical = false;  ///< text reads upwards
};

inline constexpr double kFontSize = 11;  ///< of a drawing

/// Width of a text in pixels, rather too much than too little: fonts differ.
double text_width(const std::string& text, double font_size = kFontSize);

/// A picture as a list of marks, later ones above earlier ones.
class Drawing {
 public:
  double width = 0, height = 0;  ///< pixels; every mark lies inside
  std::vector<DrawingMark> marks;

  /// They add a mark and return it for what is not usual.
  DrawingMark& rectangle(double x, double y, double rectangle_width, double rectangle_height,
                         const std::string& fill);
  DrawingMark& line(std::vector<DrawingPoint> points, const std::string& stroke,
                    double stroke_width = 1);
  DrawingMark& area(std::vector<DrawingPoint> points, const std::string& fill, double opacity);
  DrawingMark& text(double x, double y, std::string text, TextAnchor anchor = TextAnchor::kStart);

  /// Adds the marks of another drawing with its corner at (x, y).
  void add(const Drawing& other, double x, double y);
};

/// The drawing as an SVG document that needs nothing else. Pure.
std::string drawing_svg(const Drawing& drawing);

/// Text that may stand in SVG and HTML, in attributes too.
std::string escaped_markup(const std::string& text);

}  // namespace stagecoach
