#include "tools/bandwidth/common_window.h"

#include <algorithm>

#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

/// Bytes that had arrived at `time_ns`, which is between the first mark and the last.
double bytes_until(const FlowMarks& marks, int64_t time_ns) {
  auto after = std::lower_bound(marks.begin(), marks.end(), time_ns,
                                [](const FlowMark& mark, int64_t t) { return mark.time_ns < t; });
  if (after == marks.begin() || after == marks.end() || after->time_ns == time_ns) {
    return after == marks.end() ? marks.back().bytes : after->bytes;
  }
  const FlowMark& before = *(after - 1);
  double part = static_cast<double>(time_ns - before.time_ns) /
                static_cast<double>(after->time_ns - before.time_ns);
  return before.bytes + part * (after->bytes - before.bytes);
}

}  // namespace

double WindowRates::fairness() const {
  double sum = 0, squares = 0;
  for (double rate : bytes_per_s) {
    sum += rate;
    squares += rate * rate;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(bytes_per_s.size()) * squares) : 0;
}

WindowRates common_window(std::span<const FlowMarks> flows) {
  WindowRates window;
  if (flows.empty()) return window;
  int64_t first_ns = flows.front().front().time_ns, last_ns = flows.front().back().time_ns;
  window.start_ns = first_ns;
  window.end_ns = last_ns;
  for (const FlowMarks& marks : flows) {
    window.start_ns = std::max(window.start_ns, marks.front().time_ns);
    window.end_ns = std::min(window.end_ns, marks.back().time_ns);
    first_ns = std::min(first_ns, marks.front().time_ns);
    last_ns = std::max(last_ns, marks.back().time_ns);
  }
  window.bytes_per_s.assign(flows.size(), 0);
  if (window.is_empty()) return window;
  auto length_ns = static_cast<double>(window.end_ns - window.start_ns);
  window.coverage = length_ns / static_cast<double>(last_ns - first_ns);
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    double bytes =
        bytes_until(flows[flow], window.end_ns) - bytes_until(flows[flow], window.start_ns);
    window.bytes_per_s[flow] = bytes / length_ns * kNsPerSecond;
    window.total_bytes_per_s += window.bytes_per_s[flow];
  }
  return window;
}

WindowRates window_or_whole_time(std::span<const FlowMarks> flows) {
  constexpr double kTakesTurns = 0.1;
  WindowRates rates = common_window(flows);
  if (flows.empty() || rates.coverage >= kTakesTurns) return rates;
  size_t earliest = 0;
  int64_t end_ns = 0;
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    if (flows[flow].front().time_ns < flows[earliest].front().time_ns) earliest = flow;
    end_ns = std::max(end_ns, flows[flow].back().time_ns);
  }
  // Clocks have ticks: what took none has taken one at most.
  int64_t start_ns = flows[earliest].front().time_ns;
  auto length_ns = static_cast<double>(std::max<int64_t>(1, end_ns - start_ns));
  rates.start_ns = start_ns;
  rates.end_ns = std::max(end_ns, start_ns + 1);
  rates.total_bytes_per_s = 0;
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    double before = flow == earliest ? flows[flow].front().bytes : 0;
    rates.bytes_per_s[flow] = (flows[flow].back().bytes - before) / length_ns * kNsPerSecond;
    rates.total_bytes_per_s += rates.bytes_per_s[flow];
  }
  return rates;
}

}  // namespace stagecoach
