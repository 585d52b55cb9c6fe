#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace stagecoach {

/// What was measured, and the interval it lies in; `low` = `high` = `value` without one. Finite.
struct ChartValue {
  double value = 0, low = 0, high = 0;
};

/// One of a line.
struct ChartPoint {
  double x = 0;
  ChartValue y;
};

/// A line and how it is drawn.
struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  ///< by rising x
  int color = 0;                   ///< from 0; any number
  bool is_dashed = false;
};

/// What the x axis counts: bytes in powers of two, or whole numbers from 1.
enum class ChartAxis : uint8_t { kSize, kCount };

/// Values over sizes or numbers, a line a series, with the band of their intervals.
struct LineChart {
  std::string title, x_label, y_label;
  ChartAxis axis = ChartAxis::kSize;
  std::vector<ChartSeries> series;
  double top = 0;  ///< that the y axis reaches at least, so that charts can be compared
};

/// A thing with a value a series; a `note` stands where a value is missing.
struct ChartBar {
  std::string name;
  std::vector<std::optional<ChartValue>> values;
  std::string note;
};

/// Values of named things.
struct BarChart {
  std::string title, unit;
  std::vector<std::string> series;  ///< at least one
  std::vector<ChartBar> bars;
};

/// A value, or a `note` where there is none; neither: nothing was measured.
struct HeatCell {
  std::optional<double> value;
  std::string note;
  bool is_bad = false;  ///< deserves to be seen first
};

/// Values of pairs.
struct HeatMap {
  std::string title, unit, row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<HeatCell>> cells;  ///< by row
};

using Chart = std::variant<LineChart, BarChart, HeatMap>;

/// "0.0312", "1.25", "55.3", "1240": three digits or more, for people.
std::string chart_number(double value);

/// "55.3 (54.9 to 55.6)"; without the interval where it reads the same.
std::string chart_value_text(const ChartValue& value);

}  // namespace stagecoach
