#include "tools/plot/chart_drawing.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "tools/plot/chart_axis.h"

namespace stagecoach {

namespace {

// Okabe and Ito's without yellow, which is hard to see on white.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#56b4e9", "#e69f00", "#000000"};
constexpr const char *kInk = "#222222", *kGrid = "#dddddd", *kAxis = "#888888";
constexpr double kPlotWidth = 460, kPlotHeight = 220;
constexpr double kTitleHeight = 26, kRight = 16, kTitleSize = 13;
constexpr double kTickHeight = 18, kLabelHeight = 18, kKeyHeight = 16;
constexpr double kPageWidth = 1180, kGap = 24, kMargin = 12, kHeadHeight = 48, kHeadSize = 15;

const char* color_of(int number) {
  return kColors[static_cast<size_t>(number) % std::size(kColors)];
}

void draw_title(Drawing& drawing, const std::string& title) {
  DrawingMark& mark = drawing.text(0, 15, title);
  mark.font_size = kTitleSize;
  mark.fill = kInk;
  drawing.width = std::max(drawing.width, text_width(title, kTitleSize));
}

DrawingMark& draw_label(Drawing& drawing, double x, double y, const std::string& text,
                        TextAnchor anchor = TextAnchor::kStart) {
  DrawingMark& mark = drawing.text(x, y, text, anchor);
  mark.fill = kInk;
  return mark;
}

/// Lines over sizes or counts.
class LinePlot {
 public:
  explicit LinePlot(const LineChart& chart)
      : chart_(chart), x_(x_axis(chart, 9)), y_(value_axis(largest_value(chart), 5)) {
    left_ = 24;
    for (const AxisTick& tick : y_.ticks) left_ = std::max(left_, 24 + text_width(tick.label));
  }

  Drawing draw() {
    drawing_.width = left_ + kPlotWidth + kRight;
    draw_title(drawing_, chart_.title);
    draw_axes();
    for (const ChartSeries& series : chart_.series) draw_band(series);
    for (const ChartSeries& series : chart_.series) draw_series(series);
    draw_key();
    return std::move(drawing_);
  }

 private:
  double bottom() const { return kTitleHeight + kPlotHeight; }
  double x_of(double value) const { return left_ + kPlotWidth * x_.share(value); }
  double y_of(double value) const { return bottom() - kPlotHeight * y_.share(value); }

  void draw_axes() {
    for (const AxisTick& tick : y_.ticks) {
      double y = y_of(tick.value);
      drawing_.line({{left_, y}, {left_ + kPlotWidth, y}}, kGrid);
      draw_label(drawing_, left_ - 5, y + 4, tick.label, TextAnchor::kEnd);
    }
    for (const AxisTick& tick : x_.ticks) {
      double x = x_of(tick.value);
      drawing_.line({{x, bottom()}, {x, bottom() + 4}}, kAxis);
      draw_label(drawing_, x, bottom() + 16, tick.label, TextAnchor::kMiddle);
    }
    drawing_.line({{left_, bottom()}, {left_ + kPlotWidth, bottom()}}, kAxis);
    draw_label(drawing_, left_ + kPlotWidth / 2, bottom() + kTickHeight + 14, chart_.x_label,
               TextAnchor::kMiddle);
    draw_label(drawing_, 12, kTitleHeight + kPlotHeight / 2, chart_.y_label, TextAnchor::kMiddle)
        .is_vertical = true;
  }

  void draw_band(const ChartSeries& series) {
    if (series.points.size() < 2) return;
    std::vector<DrawingPoint> outline;
    for (const ChartPoint& one : series.points) outline.push_back({x_of(one.x), y_of(one.y.high)});
    for (size_t index = series.points.size(); index-- > 0;) {
      const ChartPoint& one = series.points[index];
      outline.push_back({x_of(one.x), y_of(one.y.low)});
    }
    drawing_.area(std::move(outline), color_of(series.color), 0.18);
  }

  void draw_series(const ChartSeries& series) {
    const char* color = color_of(series.color);
    std::vector<DrawingPoint> path;
    for (const ChartPoint& one : series.points) path.push_back({x_of(one.x), y_of(one.y.value)});
    if (path.size() > 1) drawing_.line(path, color, 1.8).is_dashed = series.is_dashed;
    for (size_t index = 0; index < path.size(); ++index) {
      const ChartPoint& one = series.points[index];
      // A point alone has no band.
      if (path.size() == 1) {
        drawing_.line({{path[0].x, y_of(one.y.low)}, {path[0].x, y_of(one.y.high)}}, color, 1.8);
      }
      DrawingMark& mark = drawing_.rectangle(path[index].x - 3, path[index].y - 3, 6, 6,
                                             series.is_dashed ? "#ffffff" : color);
      mark.stroke = color;
      mark.tip = fmt::format("{}: {}", series.name, chart_value_text(one.y));
    }
  }

  void draw_key() {
    double x = left_, y = bottom() + kTickHeight + kLabelHeight + kKeyHeight;
    for (const ChartSeries& series : chart_.series) {
      double width = 34 + text_width(series.name);
      if (x > left_ && x + width > left_ + kPlotWidth) {
        x = left_;
        y += kKeyHeight;
      }
      const char* color = color_of(series.color);
      drawing_.line({{x, y - 4}, {x + 20, y - 4}}, color, 1.8).is_dashed = series.is_dashed;
      drawing_.rectangle(x + 7, y - 7, 6, 6, series.is_dashed ? "#ffffff" : color).stroke = color;
      draw_label(drawing_, x + 24, y, series.name);
      drawing_.width = std::max(drawing_.width, x + width);
      x += width;
    }
    drawing_.height = y + 8;
  }

  const LineChart& chart_;
  AxisScale x_, y_;
  double left_ = 0;
  Drawing drawing_;
};

/// Bars from left to right, so that names of any length have room.
class BarPlot {
 public:
  explicit BarPlot(const BarChart& chart) : chart_(chart), x_(value_axis(largest_value(chart), 5)) {
    for (const ChartBar& bar : chart_.bars) left_ = std::max(left_, 10 + text_width(bar.name));
    bar_height_ = chart_.series.size() > 1 ? 11 : 14;
  }

  Drawing draw() {
    draw_title(drawing_, chart_.title);
    // Without a key the bars begin where it would stand.
    double top = kTitleHeight + (chart_.series.size() > 1 ? kKeyHeight : 0);
    double row_height = bar_height_ * static_cast<double>(chart_.series.size()) + 6;
    double bottom = top + row_height * static_cast<double>(chart_.bars.size());
    draw_axis(top, bottom);
    for (size_t row = 0; row < chart_.bars.size(); ++row) {
      draw_row(chart_.bars[row], top + row_height * static_cast<double>(row) + 3);
    }
    if (chart_.series.size() > 1) draw_key();
    drawing_.width = std::max(drawing_.width, left_ + kBarWidth + kValueWidth);
    drawing_.height = bottom + kTickHeight + kLabelHeight + 8;
    return std::move(drawing_);
  }

 private:
  static constexpr double kBarWidth = 320, kValueWidth = 64;

  double x_of(double value) const { return left_ + kBarWidth * x_.share(value); }

  void draw_axis(double top, double bottom) {
    for (const AxisTick& tick : x_.ticks) {
      double x = x_of(tick.value);
      drawing_.line({{x, top}, {x, bottom + 4}}, tick.value == 0 ? kAxis : kGrid);
      draw_label(drawing_, x, bottom + 16, tick.label, TextAnchor::kMiddle);
    }
    draw_label(drawing_, left_ + kBarWidth / 2, bottom + kTickHeight + 14, chart_.unit,
               TextAnchor::kMiddle);
  }

  void draw_row(const ChartBar& bar, double y) {
    double middle = y + bar_height_ * static_cast<double>(chart_.series.size()) / 2;
    draw_label(drawing_, left_ - 6, middle + 4, bar.name, TextAnchor::kEnd);
    bool has_value = false;
    for (size_t index = 0; index < bar.values.size(); ++index) {
      if (!bar.values[index].has_value()) continue;
      has_value = true;
      double top = y + bar_height_ * static_cast<double>(index);
      draw_bar(bar, index, top);
    }
    if (!has_value) draw_label(drawing_, left_ + 5, middle + 4, bar.note);
  }

  void draw_bar(const ChartBar& bar, size_t index, double top) {
    const ChartValue& one = *bar.values[index];
    DrawingMark& mark = drawing_.rectangle(left_, top, x_of(one.value) - left_, bar_height_ - 1,
                                           color_of(static_cast<int>(index)));
    mark.tip = fmt::format("{}, {}: {}", bar.name, chart_.series[index], chart_value_text(one));
    double middle = top + (bar_height_ - 1) / 2, end = x_of(std::max(one.value, one.high));
    if (one.high > one.low) {
      double low = x_of(one.low), high = x_of(one.high);
      drawing_.line({{low, middle}, {high, middle}}, kInk);
      for (double x : {low, high}) drawing_.line({{x, middle - 3}, {x, middle + 3}}, kInk);
    }
    draw_label(drawing_, end + 5, middle + 4, chart_number(one.value));
  }

  void draw_key() {
    double x = left_;
    for (size_t index = 0; index < chart_.series.size(); ++index) {
      drawing_.rectangle(x, kTitleHeight, 10, 10, color_of(static_cast<int>(index)));
      draw_label(drawing_, x + 14, kTitleHeight + 9, chart_.series[index]);
      x += 30 + text_width(chart_.series[index]);
    }
    drawing_.width = std::max(drawing_.width, x);
  }

  const BarChart& chart_;
  AxisScale x_;
  double left_ = 24, bar_height_ = 0;
  Drawing drawing_;
};

/// From white to dark blue: also in grey the larger is the darker.
std::string shade(double share) {
  constexpr double kLight[] = {0xf2, 0xf7, 0xfc}, kDark[] = {0x08, 0x45, 0x8c};
  auto mix = [&](int part) {
    return static_cast<int>(kLight[part] + share * (kDark[part] - kLight[part]));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2));
}

Drawing draw_heat_map(const HeatMap& map) {
  constexpr double kRowHeight = 24, kLeastCell = 52, kBad = 18;
  Drawing drawing;
  draw_title(drawing, fmt::format("{} ({})", map.title, map.unit));
  double left = text_width(map.row_label) + 8, cell_width = kLeastCell;
  for (const std::string& row : map.rows) left = std::max(left, 8 + text_width(row));
  for (const std::string& column : map.columns) {
    cell_width = std::max(cell_width, 10 + text_width(column));
  }
  for (const std::vector<HeatCell>& row : map.cells) {
    for (const HeatCell& cell : row) {
      cell_width = std::max(cell_width, 10 + text_width(cell.note));
    }
  }
  double top = kTitleHeight + 2 * kBad, most = largest_value(map);
  double cells_width = cell_width * static_cast<double>(map.columns.size());
  draw_label(drawing, left + cells_width / 2, kTitleHeight + 10, map.column_label,
             TextAnchor::kMiddle);
  draw_label(drawing, left - 6, top - 6, map.row_label, TextAnchor::kEnd);
  for (size_t column = 0; column < map.columns.size(); ++column) {
    draw_label(drawing, left + cell_width * (static_cast<double>(column) + 0.5), top - 6,
               map.columns[column], TextAnchor::kMiddle);
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    double y = top + kRowHeight * static_cast<double>(row);
    draw_label(drawing, left - 6, y + 16, map.rows[row], TextAnchor::kEnd);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const HeatCell& cell = map.cells[row][column];
      double share = cell.value.has_value() && most > 0 ? *cell.value / most : 0;
      double x = left + cell_width * static_cast<double>(column);
      drawing
          .rectangle(x, y, cell_width, kRowHeight,
                     cell.is_bad              ? "#e69f00"
                     : cell.value.has_value() ? shade(share)
                                              : "#eeeeee")
          .stroke = "#ffffff";
      std::string text = cell.value.has_value() ? chart_number(*cell.value) : cell.note;
      draw_label(drawing, x + cell_width / 2, y + 16, text, TextAnchor::kMiddle).fill =
          share > 0.55 && !cell.is_bad ? "#ffffff" : kInk;
    }
  }
  drawing.width = std::max(drawing.width, left + cells_width + kRight);
  drawing.height = top + kRowHeight * static_cast<double>(map.rows.size()) + 12;
  return drawing;
}

}  // namespace

Drawing draw_chart(const Chart& chart) {
  if (const auto* lines = std::get_if<LineChart>(&chart)) return LinePlot(*lines).draw();
  if (const auto* bars = std::get_if<BarChart>(&chart)) return BarPlot(*bars).draw();
  return draw_heat_map(std::get<HeatMap>(chart));
}

Drawing draw_charts(const std::string& title, const std::string& caption,
                    std::span<const Chart> charts) {
  Drawing page;
  DrawingMark& head = page.text(kMargin, kMargin + 14, title);
  head.font_size = kHeadSize;
  head.fill = kInk;
  draw_label(page, kMargin, kMargin + 32, caption);
  page.width = std::max(text_width(title, kHeadSize), text_width(caption)) + 2 * kMargin;
  double x = kMargin, y = kMargin + kHeadHeight, row_height = 0;
  if (charts.empty()) {
    const char* text = "nothing was measured that could be shown";
    draw_label(page, kMargin, y + 10, text);
    page.width = std::max(page.width, text_width(text) + 2 * kMargin);
    row_height = 20;
  }
  for (const Chart& chart : charts) {
    Drawing drawing = draw_chart(chart);
    if (x > kMargin && x + drawing.width + kMargin > kPageWidth) {
      x = kMargin;
      y += row_height + kGap;
      row_height = 0;
    }
    page.add(drawing, x, y);
    page.width = std::max(page.width, x + drawing.width + kMargin);
    row_height = std::max(row_height, drawing.height);
    x += drawing.width + kGap;
  }
  page.height = y + row_height + kMargin;
  return page;
}

}  // namespace stagecoach
