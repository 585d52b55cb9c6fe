#include "tools/plot/chart.h"

#include <cmath>
#include <fmt/format.h>

namespace stagecoach {

std::string chart_number(double value) {
  double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.3g}", value);
}

std::string chart_value_text(const ChartValue& value) {
  std::string text = chart_number(value.value), low = chart_number(value.low),
              high = chart_number(value.high);
  return low == text && high == text ? text : fmt::format("{} ({} to {})", text, low, high);
}

}  // namespace stagecoach
