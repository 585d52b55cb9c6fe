#include "tools/plot/chart_axis.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/short_size.h"

namespace stagecoach {

namespace {

AxisScale size_axis(double low, double high, int ticks) {
  AxisScale scale;
  scale.is_logarithmic = true;
  // A single size stands in the middle.
  scale.low = low < high ? low : std::max(1.0, low / 2);
  scale.high = low < high ? high : high * 2;
  auto first = static_cast<int>(std::ceil(std::log2(scale.low)));
  auto last = static_cast<int>(std::floor(std::log2(scale.high)));
  int step = std::max(1, (last - first) / std::max(1, ticks - 1) + 1);
  for (int power = first; power <= last; power += step) {
    scale.ticks.push_back({std::exp2(power), short_size(ByteCount{1} << power)});
  }
  return scale;
}

AxisScale count_axis(double high, int ticks) {
  AxisScale scale;
  scale.low = 0.5;
  scale.high = high + 0.5;
  int step = (static_cast<int>(high) - 1) / std::max(1, ticks) + 1;
  for (int count = 1; count <= static_cast<int>(high); count += step) {
    scale.ticks.push_back({static_cast<double>(count), std::to_string(count)});
  }
  return scale;
}

}  // namespace

double AxisScale::share(double value) const {
  double part =
      is_logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return std::clamp(part, 0.0, 1.0);
}

AxisScale value_axis(double top, int ticks) {
  AxisScale scale;
  if (!(top > 0)) top = 1;
  double rough = top / ticks, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {5, 2, 1}) {
    if (factor * power >= rough) step = factor * power;
  }
  auto count = static_cast<int>(std::ceil(top / step - 1e-9));
  scale.high = count * step;
  for (int tick = 0; tick <= count; ++tick) {
    scale.ticks.push_back({tick * step, fmt::format("{:g}", tick * step)});
  }
  return scale;
}

AxisScale x_axis(const LineChart& chart, int ticks) {
  double low = 0, high = 0;
  bool is_first = true;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      low = is_first ? point.x : std::min(low, point.x);
      high = is_first ? point.x : std::max(high, point.x);
      is_first = false;
    }
  }
  low = std::max(1.0, low);
  high = std::max(low, high);
  return chart.axis == ChartAxis::kSize ? size_axis(low, high, ticks) : count_axis(high, ticks);
}

double largest_value(const LineChart& chart) {
  double largest = chart.top;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      largest = std::max({largest, point.y.value, point.y.high});
    }
  }
  return largest;
}

double largest_value(const BarChart& chart) {
  double largest = 0;
  for (const ChartBar& bar : chart.bars) {
    for (const std::optional<ChartValue>& one : bar.values) {
      if (one.has_value()) largest = std::max({largest, one->value, one->high});
    }
  }
  return largest;
}

double largest_value(const HeatMap& map) {
  double largest = 0;
  for (const std::vector<HeatCell>& row : map.cells) {
    for (const HeatCell& cell : row) largest = std::max(largest, cell.value.value_or(0));
  }
  return largest;
}

}  // namespace stagecoach
