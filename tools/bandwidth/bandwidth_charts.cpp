#include "tools/bandwidth/bandwidth_charts.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

#include "core/short_size.h"

namespace stagecoach {

namespace {

using ChartRecords = std::vector<const MeasurementRecord*>;

/// A parameter that is text; empty where there is none.
std::string text_of(const MeasurementRecord& record, const char* name) {
  const Json* value = record.info.params.find(name);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

ByteCount size_of(const MeasurementRecord& record) {
  const Json* value = record.info.params.find("size");
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

/// The id without its group and `parts`, each of which is left out once: "up pinned".
std::string short_name(const MeasurementRecord& record, std::vector<std::string> parts) {
  parts.push_back(record.info.group);
  std::string name, id = record.info.id + "/";
  for (size_t begin = 0, end; (end = id.find('/', begin)) != std::string::npos; begin = end + 1) {
    std::string part = id.substr(begin, end - begin);
    auto left_out = std::find(parts.begin(), parts.end(), part);
    if (left_out != parts.end()) {
      parts.erase(left_out);
    } else {
      name += (name.empty() ? "" : " ") + part;
    }
  }
  return name;
}

/// Quantity `index` with p5 and p95; none where it was not measured or is no number.
std::optional<ChartValue> value_of(const MeasurementRecord& record, size_t index = 0) {
  if (!record.is_ok() || index >= record.statistics.size()) return std::nullopt;
  const SampleStatistics& one = record.statistics[index];
  bool is_number = std::isfinite(one.median) && std::isfinite(one.p5) && std::isfinite(one.p95);
  if (one.n == 0 || !is_number) return std::nullopt;
  return ChartValue{one.median, one.p5, one.p95};
}

std::string status_text(const MeasurementRecord& record) {
  if (record.status == MeasurementStatus::kMismatch) return "wrong";
  std::string text(measurement_status_name(record.status));
  std::replace(text.begin(), text.end(), '_', ' ');
  return record.is_ok() ? "no figure" : text;
}

/// A chart a quantity and unit that comes first in a record.
void add_bars(const ChartRecords& records, std::vector<Chart>& charts) {
  std::vector<std::pair<Quantity, BarChart>> found;
  for (const MeasurementRecord* record : records) {
    const Quantity& first = record->info.quantities.front();
    auto chart = std::find_if(found.begin(), found.end(), [&](const auto& one) {
      return one.first.name == first.name && one.first.unit == first.unit;
    });
    if (chart == found.end()) {
      BarChart bars;
      bars.title = fmt::format("{}: {}", record->info.group, first.name);
      bars.unit = first.unit;
      bars.series = {"median"};
      found.emplace_back(first, std::move(bars));
      chart = found.end() - 1;
    }
    chart->second.bars.push_back(
        {short_name(*record, {}), {value_of(*record)}, status_text(*record)});
  }
  for (auto& [quantity, chart] : found) charts.emplace_back(std::move(chart));
}

/// The point of a copy, in the line of those that differ from it in size alone.
void add_copy_point(const MeasurementRecord& record, const ChartValue& value,
                    std::vector<std::string>& colors, LineChart& chart) {
  std::string size = short_size(size_of(record)), device = text_of(record, "device");
  std::string name = short_name(record, {device, size});
  auto line = std::find_if(chart.series.begin(), chart.series.end(),
                           [&](const ChartSeries& one) { return one.name == name; });
  if (line == chart.series.end()) {
    // Directions of one kind have one colour.
    std::string kind = short_name(record, {device, size, text_of(record, "dir")});
    auto color = std::find(colors.begin(), colors.end(), kind);
    ChartSeries series;
    series.name = name;
    series.color = static_cast<int>(color - colors.begin());
    series.is_dashed = text_of(record, "dir") == "down";
    if (color == colors.end()) colors.push_back(kind);
    chart.series.push_back(std::move(series));
    line = chart.series.end() - 1;
  }
  line->points.push_back({static_cast<double>(size_of(record)), value});
}

void add_copies_by_size(const BandwidthReport& /*report*/, const ChartRecords& records,
                        std::vector<Chart>& charts) {
  std::set<ByteCount> sizes;
  for (const MeasurementRecord* record : records) sizes.insert(size_of(*record));
  if (sizes.size() < 2 || sizes.contains(0)) {
    add_bars(records, charts);
    return;
  }
  std::vector<std::pair<std::string, LineChart>> found;
  std::vector<std::string> colors;
  ChartRecords left_out;
  double top = 0;
  for (const MeasurementRecord* record : records) {
    std::optional<ChartValue> value = value_of(*record);
    if (!value.has_value()) {
      left_out.push_back(record);
      continue;
    }
    std::string device = text_of(*record, "device");
    auto chart = std::find_if(found.begin(), found.end(),
                              [&](const auto& one) { return one.first == device; });
    if (chart == found.end()) {
      LineChart lines;
      lines.title = fmt::format("copy: {} by chunk size", device);
      lines.x_label = "bytes of a chunk";
      lines.y_label = record->info.quantities.front().unit;
      found.emplace_back(device, std::move(lines));
      chart = found.end() - 1;
    }
    add_copy_point(*record, *value, colors, chart->second);
    top = std::max(top, value->high);
  }
  for (auto& [device, chart] : found) {
    chart.top = top;
    for (ChartSeries& series : chart.series) {
      std::stable_sort(series.points.begin(), series.points.end(),
                       [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    }
    charts.emplace_back(std::move(chart));
  }
  if (!left_out.empty()) add_bars(left_out, charts);
}

/// ChartRecords of sets of devices, by direction and devices.
using SetRecords =
    std::map<std::pair<std::string, std::set<std::string>>, const MeasurementRecord*>;

SetRecords records_of_sets(const ChartRecords& records) {
  SetRecords sets;
  for (const MeasurementRecord* record : records) {
    std::set<std::string> active;
    const Json* list = record->info.params.find("active_set");
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& id : list->items()) {
      if (id.is_string()) active.insert(id.as_string());
    }
    sets[{text_of(*record, "dir"), std::move(active)}] = record;
  }
  return sets;
}

/// The values of the points' sets: of their totals, or of their fairness.
ChartSeries curve_series(const ContentionFit& fit, const std::vector<CurvePoint>& curve,
                         const SetRecords& sets, bool is_fairness) {
  ChartSeries series;
  for (const CurvePoint& point : curve) {
    std::set<std::string> active;
    for (size_t device = 0; device < fit.devices.size(); ++device) {
      if ((point.devices >> device & 1) != 0) active.insert(fit.devices[device]);
    }
    auto found = sets.find({fit.direction, active});
    std::optional<ChartValue> value;
    if (!is_fairness) value = ChartValue{point.total, point.total, point.total};
    if (found != sets.end()) {
      const std::vector<Quantity>& quantities = found->second->info.quantities;
      size_t index = 0;
      if (is_fairness) {
        while (index < quantities.size() && quantities[index].name != "fairness") ++index;
      }
      std::optional<ChartValue> measured = value_of(*found->second, index);
      if (is_fairness) {
        value = active.size() == 1 ? ChartValue{1, 1, 1} : measured;
      } else if (measured.has_value()) {
        value = measured;
      }
    }
    if (value.has_value()) series.points.push_back({static_cast<double>(active.size()), *value});
  }
  return series;
}

/// What the devices of a curve would reach together if they shared nothing.
ChartSeries unshared_series(const ContentionFit& fit) {
  ChartSeries series;
  for (const CurvePoint& point : fit.packed) {
    double sum = 0, count = 0;
    for (size_t device = 0; device < fit.model.links.size(); ++device) {
      if ((point.devices >> device & 1) == 0) continue;
      sum += fit.model.links[device];
      ++count;
    }
    series.points.push_back({count, {sum, sum, sum}});
  }
  return series;
}

void add_curves(const BandwidthReport& report, const ChartRecords& records,
                std::vector<Chart>& charts) {
  SetRecords sets = records_of_sets(records);
  bool has_curve = false;
  for (const ContentionFit& fit : report.fits) {
    LineChart totals, shares;
    totals.title = fmt::format("contention: total {} by devices at once", fit.direction);
    shares.title = fmt::format("contention: fairness {} (1: all the same)", fit.direction);
    totals.y_label = "GB/s";
    shares.y_label = "Jain's index";
    shares.top = 1;
    for (LineChart* chart : {&totals, &shares}) {
      chart->axis = ChartAxis::kCount;
      chart->x_label = "devices at once";
      for (const auto* curve : {&fit.packed, &fit.spread}) {
        ChartSeries series = curve_series(fit, *curve, sets, chart == &shares);
        series.name = curve == &fit.packed ? "packed" : "spread";
        series.color = curve == &fit.packed ? 0 : 1;
        series.is_dashed = curve == &fit.spread;
        if (!series.points.empty()) chart->series.push_back(std::move(series));
      }
    }
    if (totals.series.empty()) continue;
    ChartSeries unshared = unshared_series(fit);
    unshared.name = "if nothing were shared";
    unshared.color = 6;
    unshared.is_dashed = true;
    if (!unshared.points.empty()) totals.series.push_back(std::move(unshared));
    charts.emplace_back(std::move(totals));
    if (!shares.series.empty()) charts.emplace_back(std::move(shares));
    has_curve = true;
  }
  if (!has_curve) add_bars(records, charts);
}

/// p50 and p99 by method and chunk, a chart a device: what is late now and then is what hurts.
void add_latencies(const BandwidthReport& /*report*/, const ChartRecords& records,
                   std::vector<Chart>& charts) {
  std::vector<std::pair<std::string, BarChart>> found;
  for (const MeasurementRecord* record : records) {
    const Quantity& first = record->info.quantities.front();
    std::string device = text_of(*record, "device");
    auto chart = std::find_if(found.begin(), found.end(),
                              [&](const auto& one) { return one.first == device; });
    if (chart == found.end()) {
      BarChart bars;
      bars.title = fmt::format("urgent: {} of {} behind bulk", first.name, device);
      bars.unit = first.unit;
      bars.series = {"p50", "p99"};
      found.emplace_back(device, std::move(bars));
      chart = found.end() - 1;
    }
    std::optional<ChartValue> median = value_of(*record), late;
    if (median.has_value() && std::isfinite(record->statistics[0].p99)) {
      double p99 = record->statistics[0].p99;
      late = ChartValue{p99, p99, p99};
      median = ChartValue{median->value, median->value, median->value};
    }
    chart->second.bars.push_back(
        {short_name(*record, {device}), {median, late}, status_text(*record)});
  }
  for (auto& [device, chart] : found) charts.emplace_back(std::move(chart));
}

size_t index_of(const std::string& name, std::vector<std::string>& names) {
  auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) found = names.insert(names.end(), name);
  return static_cast<size_t>(found - names.begin());
}

HeatCell cell_of(const MeasurementRecord& record) {
  HeatCell cell;
  if (std::optional<ChartValue> value = value_of(record)) {
    cell.value = value->value;
    return cell;
  }
  cell.note = status_text(record);
  cell.is_bad = !record.is_ok() && record.status != MeasurementStatus::kSkipped &&
                record.status != MeasurementStatus::kNotRun;
  return cell;
}

/// A map of pairs for whatever differs beyond the pair, such as the route.
void add_pairs(const BandwidthReport& /*report*/, const ChartRecords& records,
               std::vector<Chart>& charts) {
  std::vector<std::pair<std::string, HeatMap>> found;
  std::vector<std::string> devices;
  ChartRecords others;
  for (const MeasurementRecord* record : records) {
    for (const char* end : {"device", "peer"}) {
      std::string id = text_of(*record, end);
      if (!id.empty()) index_of(id, devices);
    }
  }
  for (const MeasurementRecord* record : records) {
    std::string from = text_of(*record, "device"), to = text_of(*record, "peer");
    if (from.empty() || to.empty()) {
      others.push_back(record);
      continue;
    }
    std::string key = short_name(*record, {from, to});
    auto map =
        std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.first == key; });
    if (map == found.end()) {
      HeatMap pairs;
      pairs.title = "p2p: " + key;
      pairs.unit = record->info.quantities.front().unit;
      pairs.row_label = "from";
      pairs.column_label = "to";
      pairs.rows = pairs.columns = devices;
      pairs.cells.assign(devices.size(), std::vector<HeatCell>(devices.size()));
      found.emplace_back(key, std::move(pairs));
      map = found.end() - 1;
    }
    map->second.cells[index_of(from, devices)][index_of(to, devices)] = cell_of(*record);
  }
  for (auto& [key, map] : found) charts.emplace_back(std::move(map));
  if (!others.empty()) add_bars(others, charts);
}

/// Groups that have a chart of their own; the others are bars.
struct GroupCharts {
  const char* group;
  void (*add)(const BandwidthReport& report, const ChartRecords& records,
              std::vector<Chart>& charts);
};

constexpr GroupCharts kGroupCharts[] = {{"copy", add_copies_by_size},
                                        {"contention", add_curves},
                                        {"urgent", add_latencies},
                                        {"p2p", add_pairs}};

}  // namespace

std::vector<Chart> bandwidth_charts(const BandwidthReport& report) {
  std::vector<std::pair<std::string, ChartRecords>> groups;
  for (const MeasurementRecord& record : report.records) {
    if (record.info.quantities.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& one) { return one.first == record.info.group; });
    if (group == groups.end()) {
      groups.emplace_back(record.info.group, ChartRecords());
      group = groups.end() - 1;
    }
    group->second.push_back(&record);
  }
  std::vector<Chart> charts;
  for (const auto& group : groups) {
    const ChartRecords& records = group.second;
    const auto* own =
        std::find_if(std::begin(kGroupCharts), std::end(kGroupCharts),
                     [&](const GroupCharts& one) { return one.group == group.first; });
    if (own != std::end(kGroupCharts)) {
      own->add(report, records, charts);
    } else {
      add_bars(records, charts);
    }
  }
  return charts;
}

std::string bandwidth_plot_title(const BandwidthReport& report) {
  auto member = [&](const char* name) {
    const Json* value = report.context.find(name);
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  std::string title = "stagecoach bench bandwidth", host = member("host"), time = member("time");
  if (!member("suite").empty()) title += " " + member("suite");
  if (!host.empty()) title += " on " + host;
  if (!time.empty()) title += ", " + time;
  return title;
}

std::string bandwidth_plot_caption(const BandwidthReport& report) {
  std::string text = "Medians, with bands and whiskers from p5 to p95.";
  const Json* devices = report.context.find("devices");
  bool has_mock = false;
  if (devices != nullptr && devices->is_array()) {
    for (const Json& device : devices->items()) {
      const Json* is_real = device.find("is_real_hardware");
      has_mock = has_mock || (is_real != nullptr && is_real->is_bool() && !is_real->as_bool());
    }
  }
  if (has_mock) text += " Figures of mock devices say nothing about a card.";
  if (report.is_interrupted) text += " Interrupted: not all was measured.";
  return text;
}

}  // namespace stagecoach
