#include "tools/plot/chart_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "tools/plot/chart_axis.h"

namespace stagecoach {

namespace {

constexpr const char* kUnicodeMarks[] = {"●", "○", "■", "□", "▲", "△", "◆", "◇"};
constexpr const char* kPlainMarks[] = {"o", "x", "*", "+", "#", "@", "%", "&"};
constexpr int kTerminalColors[] = {34, 31, 32,
                                   35, 36, 33};  // ANSI: blue, red, green, magenta, cyan, yellow
constexpr size_t kMarks = std::size(kUnicodeMarks);
constexpr int kPlotRows = 12, kMostColumns = 100;

std::string colored(const std::string& text, size_t number, const TerminalStyle& style) {
  if (!style.has_color) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kTerminalColors[number % std::size(kTerminalColors)],
                     text);
}

std::string mark_of(size_t series, const TerminalStyle& style) {
  return colored((style.is_unicode ? kUnicodeMarks : kPlainMarks)[series % kMarks], series, style);
}

/// Without blanks at the end.
std::string line_of(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

/// A field of characters that lines are drawn in.
class Field {
 public:
  Field(size_t columns, size_t rows) : columns_(columns), cells_(columns * rows) {}

  std::string& at(double x_share, double y_share) {
    size_t rows = cells_.size() / columns_;
    return cells_[place(1 - y_share, rows) * columns_ + place(x_share, columns_)];
  }
  std::string row(size_t number) const {
    std::string text;
    for (size_t column = 0; column < columns_; ++column) {
      const std::string& cell = cells_[number * columns_ + column];
      text += cell.empty() ? " " : cell;
    }
    return text;
  }
  size_t columns() const { return columns_; }

 private:
  static size_t place(double share, size_t count) {
    return static_cast<size_t>(std::lround(share * static_cast<double>(count - 1)));
  }

  size_t columns_;
  std::vector<std::string> cells_;
};

void draw_path(Field& field, const ChartSeries& series, size_t number, const AxisScale& x,
               const AxisScale& y, const TerminalStyle& style) {
  for (size_t index = 0; index + 1 < series.points.size(); ++index) {
    const ChartPoint &from = series.points[index], &to = series.points[index + 1];
    double x0 = x.share(from.x), x1 = x.share(to.x);
    double y0 = y.share(from.y.value), y1 = y.share(to.y.value);
    int steps = std::max(1, static_cast<int>(2 * (x1 - x0) * static_cast<double>(field.columns())));
    for (int step = 0; step <= steps; ++step) {
      double part = static_cast<double>(step) / steps;
      std::string& cell = field.at(x0 + part * (x1 - x0), y0 + part * (y1 - y0));
      if (cell.empty()) cell = colored(style.is_unicode ? "·" : ".", number, style);
    }
  }
}

std::string x_names(const AxisScale& x, size_t columns) {
  std::string names(columns, ' ');
  size_t free = 0;
  for (const AxisTick& tick : x.ticks) {
    auto middle =
        static_cast<size_t>(std::lround(x.share(tick.value) * static_cast<double>(columns - 1)));
    size_t begin = middle - std::min(middle, tick.label.size() / 2);
    begin = std::min(begin, names.size() - std::min(names.size(), tick.label.size()));
    if (begin < free) continue;
    names.replace(begin, tick.label.size(), tick.label);
    free = begin + tick.label.size() + 1;
  }
  return names;
}

std::string line_text(const LineChart& chart, const TerminalStyle& style) {
  constexpr int kLeft = 9;
  AxisScale x = x_axis(chart, 9), y = value_axis(largest_value(chart), 4);
  Field field(static_cast<size_t>(std::clamp(style.width - kLeft - 1, 20, kMostColumns)),
              kPlotRows);
  for (size_t index = 0; index < chart.series.size(); ++index) {
    draw_path(field, chart.series[index], index, x, y, style);
  }
  for (size_t index = 0; index < chart.series.size(); ++index) {
    for (const ChartPoint& one : chart.series[index].points) {
      field.at(x.share(one.x), y.share(one.y.value)) = mark_of(index, style);
    }
  }
  std::vector<std::string> names(kPlotRows);
  for (const AxisTick& tick : y.ticks) {
    auto row = static_cast<size_t>(std::lround((1 - y.share(tick.value)) * (kPlotRows - 1)));
    names[row] = tick.label;
  }
  std::string text = fmt::format("{} ({})\n", chart.title, chart.y_label);
  for (size_t row = 0; row < kPlotRows; ++row) {
    text += line_of(fmt::format("{:>{}} {}{}", names[row], kLeft - 2, style.is_unicode ? "│" : "|",
                                field.row(row)));
  }
  std::string indent(kLeft, ' ');
  text += line_of(indent + x_names(x, field.columns()));
  text += line_of(indent + chart.x_label);
  std::string key = indent;
  int used = kLeft;
  for (size_t index = 0; index < chart.series.size(); ++index) {
    int width = static_cast<int>(chart.series[index].name.size()) + 4;
    if (used > kLeft && used + width > style.width) {
      text += line_of(key);
      key = indent;
      used = kLeft;
    }
    key += fmt::format("{} {}  ", mark_of(index, style), chart.series[index].name);
    used += width;
  }
  return text + line_of(key);
}

/// A bar of `cells` characters, in eighths where the terminal has them.
std::string bar_of(double cells, size_t series, const TerminalStyle& style) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  if (!style.is_unicode) {
    text.assign(static_cast<size_t>(std::lround(cells)), "#=+-"[series % 4]);
    return colored(text, series, style);
  }
  const char* whole = series % 2 == 0 ? "█" : "▒";
  auto eighths = static_cast<int>(std::lround(cells * 8));
  for (int cell = 0; cell < eighths / 8; ++cell) text += whole;
  if (series % 2 == 0) text += kEighths[eighths % 8];
  return colored(text, series, style);
}

std::string bar_text(const BarChart& chart, const TerminalStyle& style) {
  constexpr int kValueWidth = 26, kLeastBar = 10;
  size_t name_width = 0;
  for (const ChartBar& bar : chart.bars) name_width = std::max(name_width, bar.name.size());
  int room = std::clamp(style.width - static_cast<int>(name_width) - kValueWidth - 4, kLeastBar,
                        kMostColumns);
  double most = std::max(largest_value(chart), 1e-300);
  std::string text = fmt::format("{} ({}", chart.title, chart.unit);
  for (size_t index = 0; chart.series.size() > 1 && index < chart.series.size(); ++index) {
    text += fmt::format("; {} {}", bar_of(2, index, style), chart.series[index]);
  }
  text += ")\n";
  for (const ChartBar& bar : chart.bars) {
    bool is_first = true;
    for (size_t index = 0; index < bar.values.size(); ++index) {
      if (!bar.values[index].has_value()) continue;
      const ChartValue& one = *bar.values[index];
      text += line_of(fmt::format("  {:<{}} {} {}", is_first ? bar.name : "", name_width,
                                  bar_of(one.value / most * room, index, style),
                                  chart_value_text(one)));
      is_first = false;
    }
    if (is_first) text += line_of(fmt::format("  {:<{}} {}", bar.name, name_width, bar.note));
  }
  return text;
}

std::string heat_text(const HeatMap& map, const TerminalStyle& style) {
  constexpr const char* kUnicodeShades[] = {" ", "░", "▒", "▓", "█"};
  constexpr const char* kPlainShades[] = {" ", ".", "-", "+", "#"};
  size_t name_width = map.row_label.size(), cell_width = 6;
  for (const std::string& row : map.rows) name_width = std::max(name_width, row.size());
  for (const std::string& column : map.columns) cell_width = std::max(cell_width, column.size());
  for (const std::vector<HeatCell>& row : map.cells) {
    for (const HeatCell& cell : row) cell_width = std::max(cell_width, cell.note.size());
  }
  double most = std::max(largest_value(map), 1e-300);
  std::string text = fmt::format("{} ({}); columns: {}\n", map.title, map.unit, map.column_label);
  std::string head = fmt::format("  {:<{}}", map.row_label, name_width);
  for (const std::string& column : map.columns) {
    head += fmt::format(" {:>{}} ", column, cell_width);
  }
  text += line_of(head);
  for (size_t row = 0; row < map.rows.size(); ++row) {
    std::string line = fmt::format("  {:<{}}", map.rows[row], name_width);
    for (const HeatCell& cell : map.cells[row]) {
      size_t level = cell.value.has_value() ? static_cast<size_t>(*cell.value / most * 4 + 0.5) : 0;
      line +=
          fmt::format(" {:>{}}{}", cell.value.has_value() ? chart_number(*cell.value) : cell.note,
                      cell_width, (style.is_unicode ? kUnicodeShades : kPlainShades)[level]);
    }
    text += line_of(line);
  }
  return text;
}

}  // namespace

std::string chart_text(const Chart& chart, const TerminalStyle& style) {
  if (const auto* lines = std::get_if<LineChart>(&chart)) return line_text(*lines, style);
  if (const auto* bars = std::get_if<BarChart>(&chart)) return bar_text(*bars, style);
  return heat_text(std::get<HeatMap>(chart), style);
}

std::string charts_text(std::span<const Chart> charts, const TerminalStyle& style) {
  if (charts.empty()) return "\nnothing was measured that could be shown\n";
  std::string text;
  for (const Chart& chart : charts) text += "\n" + chart_text(chart, style);
  return text;
}

}  // namespace stagecoach
