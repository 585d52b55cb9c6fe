#include "tools/stage_time_file.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

#include "core/file.h"

namespace stagecoach {

Result<int64_t> time_to_ns(const std::string& name, double time) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  if (time >= kLeast && time <= kMost) return std::llround(time * kNsPerTimeUnit);
  return invalid_argument(
      fmt::format("{} is {}; a time must be from {} to {} units", name, time, kLeast, kMost));
}

namespace {

Result<StageTimes> parse_line(std::string_view line, size_t& columns) {
  std::vector<int64_t> values;
  std::string_view rest = line;
  while (true) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string_view cell = rest.substr(0, comma);
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\r')) cell.remove_suffix(1);
    double value = 0;
    auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size()) {
      return invalid_argument(fmt::format("'{}' is no time; write F,B or F,I,W", cell));
    }
    STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns,
                                time_to_ns(fmt::format("time {}", values.size() + 1), value));
    values.push_back(time_ns);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  if (values.size() != 2 && values.size() != 3) {
    return invalid_argument(fmt::format("{} times; write F,B or F,I,W", values.size()));
  }
  if (columns != 0 && values.size() != columns) {
    return invalid_argument(
        fmt::format("{} times where lines before have {}", values.size(), columns));
  }
  columns = values.size();
  StageTimes times;
  times.forward_ns = values[0];
  times.input_ns = columns == 3 ? values[1] : values[1] / 2;
  times.weight_ns = columns == 3 ? values[2] : values[1] - times.input_ns;
  times.backward_ns = times.input_ns + times.weight_ns;
  return times;
}

}  // namespace

Result<std::vector<StageTimes>> read_stage_times(const std::string& path, int64_t hop_ns) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  std::vector<StageTimes> stages;
  std::string_view rest = text;
  size_t columns = 0;
  for (int number = 1; !rest.empty(); ++number) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos || line.front() == '#') continue;
    Result<StageTimes> times = parse_line(line, columns);
    if (!times.is_ok())
      return times.status().with_context(fmt::format("{}: line {}", path, number));
    times->hop_ns = hop_ns;
    stages.push_back(*times);
  }
  if (!stages.empty()) return stages;
  return invalid_argument(fmt::format("{}: no times; write a line F,B or F,I,W a stage", path));
}

StageTimes mean_of(const std::vector<StageTimes>& times) {
  StageTimes sum;
  auto count = static_cast<int64_t>(times.size());
  for (const StageTimes& stage : times) {
    sum.forward_ns += stage.forward_ns;
    sum.input_ns += stage.input_ns;
    sum.weight_ns += stage.weight_ns;
  }
  StageTimes mean{sum.forward_ns / count, 0, sum.input_ns / count,
                  sum.weight_ns / count,  0, times.front().hop_ns};
  mean.backward_ns = mean.input_ns + mean.weight_ns;
  return mean;
}

}  // namespace stagecoach
