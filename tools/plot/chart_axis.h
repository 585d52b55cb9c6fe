#pragma once

#include <string>
#include <vector>

#include "tools/plot/chart.h"

namespace stagecoach {

/// A place of an axis that is named.
struct AxisTick {
  double value = 0;
  std::string label;
};

/// Values from `low` to `high`, which differ, as shares of a length, and the places to name.
struct AxisScale {
  double low = 0, high = 1;
  bool is_logarithmic = false;
  std::vector<AxisTick> ticks;

  /// 0 at `low`, 1 at `high`; values beyond are drawn at the ends.
  double share(double value) const;
};

/// From 0 to a round value of at least `top`, with about `ticks` steps of 1, 2 or 5 and zeros.
AxisScale value_axis(double top, int ticks);

/// The x axis of a chart, with at most `ticks` names.
AxisScale x_axis(const LineChart& chart, int ticks);

/// Of the y axis: the largest value or end of an interval, and `chart.top`.
double largest_value(const LineChart& chart);
double largest_value(const BarChart& chart);
/// Of a map's cells; 0 without any.
double largest_value(const HeatMap& map);

}  // namespace stagecoach
