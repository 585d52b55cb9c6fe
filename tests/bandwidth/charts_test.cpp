#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tools/bandwidth/bandwidth_charts.h"
#include "tools/bandwidth/bandwidth_options.h"
#include "tools/plot/chart_axis.h"
#include "tools/plot/chart_drawing.h"
#include "tools/plot/chart_text.h"
#include "tools/plot/plot_file.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kDevices = 8;

MeasurementRecord record_of(const std::string& id, std::vector<Quantity> quantities,
                            const std::vector<double>& values) {
  MeasurementRecord record;
  record.info.id = id;
  record.info.group = id.substr(0, id.find('/'));
  record.info.quantities = std::move(quantities);
  record.status = MeasurementStatus::kOk;
  for (double value : values) {
    record.samples.push_back({0.9 * value, value, 1.1 * value});
    record.statistics.push_back(summarize(record.samples.back()));
  }
  return record;
}

std::string device_name(int device) {
  return fmt::format("cuda:{}", device);
}

MeasurementRecord copy_of(int device, const std::string& dir, const std::string& kind,
                          ByteCount size, double rate) {
  MeasurementRecord record =
      record_of(fmt::format("copy/{}/{}/{}/{}", device_name(device), dir, kind, short_size(size)),
                {{"rate", "GB/s"}}, {rate});
  record.info.params["device"] = device_name(device);
  record.info.params["dir"] = dir;
  record.info.params["size"] = size;
  return record;
}

MeasurementRecord peer_of(int from, int to, const std::string& route) {
  MeasurementRecord record =
      record_of(fmt::format("p2p/{}/{}/{}/64M", device_name(from), device_name(to), route),
                {{"rate", "GB/s"}}, {10.0 * from + to});
  record.info.params["device"] = device_name(from);
  record.info.params["peer"] = device_name(to);
  return record;
}

MeasurementRecord urgent_of(int device, const std::string& dir, const std::string& way) {
  MeasurementRecord record =
      record_of(fmt::format("urgent/{}/{}/{}", device_name(device), dir, way),
                {{"latency", "ms"}, {"wait", "ms"}}, {2.5, 1});
  record.info.params["device"] = device_name(device);
  record.statistics[0].p99 = 7.5;
  return record;
}

MeasurementRecord set_of(int count, double total, double fairness) {
  std::vector<Quantity> quantities = {{"total", "GB/s"}};
  std::vector<double> values = {total};
  Json active = Json::array();
  std::string names;
  for (int device = 0; device < count; ++device) {
    names += (names.empty() ? "" : "+") + device_name(device);
    active.push_back(device_name(device));
    quantities.push_back({device_name(device), "GB/s"});
    values.push_back(total / count);
  }
  quantities.push_back({"fairness", "1"});
  values.push_back(fairness);
  MeasurementRecord record = record_of("contention/up/" + names, quantities, values);
  record.info.params["dir"] = "up";
  record.info.params["active_set"] = active;
  return record;
}

/// Something of every group, on eight devices.
BandwidthReport eight_devices() {
  BandwidthReport report;
  report.context["suite"] = "full";
  for (int device = 0; device < kDevices; ++device) {
    for (const char* dir : {"up", "down"}) {
      for (ByteCount size = 4 * kKiB; size <= 256 * kMiB; size *= 4) {
        report.records.push_back(copy_of(device, dir, "pinned", size, 55 - device));
      }
      report.records.push_back(copy_of(device, dir, "pageable", 64 * kMiB, 20));
      for (const char* way : {"whole/16M", "alternating/8M", "one_in_flight/8M"}) {
        report.records.push_back(urgent_of(device, dir, way));
      }
    }
    for (int peer = 0; peer < kDevices; ++peer) {
      if (peer == device) continue;
      for (const char* route : {"direct", "staged"}) {
        report.records.push_back(peer_of(device, peer, route));
      }
    }
    report.records.push_back(record_of(fmt::format("overlap/{}/update/both", device_name(device)),
                                       {{"loss", "%"}}, {12}));
  }
  ContentionFit fit;
  fit.direction = "up";
  DeviceSet set = 0;
  for (int device = 0; device < kDevices; ++device) {
    fit.devices.push_back(device_name(device));
    fit.model.links.push_back(50);
    set |= DeviceSet{1} << device;
    double total = std::min(200.0, 50.0 * (device + 1));
    report.records.push_back(set_of(device + 1, total, 0.9));
    fit.packed.push_back({set, total});
    fit.spread.push_back({set, total});
  }
  report.fits.push_back(std::move(fit));
  MeasurementRecord skipped = peer_of(7, 6, "direct");
  skipped.status = MeasurementStatus::kSkipped;
  report.records.push_back(skipped);
  return report;
}

struct Box {
  double left, top, right, bottom;
};

Box box_of(const DrawingMark& mark) {
  Box box = {1e9, 1e9, -1e9, -1e9};
  for (const DrawingPoint& point : mark.points) {
    box = {std::min(box.left, point.x), std::min(box.top, point.y), std::max(box.right, point.x),
           std::max(box.bottom, point.y)};
  }
  if (mark.kind != MarkKind::kText) return box;
  double size = mark.font_size > 0 ? mark.font_size : kFontSize;
  double width = text_width(mark.text, size);
  double before = mark.anchor == TextAnchor::kStart    ? 0
                  : mark.anchor == TextAnchor::kMiddle ? width / 2
                                                       : width;
  double x = mark.points[0].x, y = mark.points[0].y;
  if (mark.is_vertical) return {x - 0.8 * size, y - width + before, x + 1, y + before};
  return {x - before, y - 0.8 * size, x - before + width, y + 1};
}

void expect_inside(const Drawing& drawing) {
  for (const DrawingMark& mark : drawing.marks) {
    Box box = box_of(mark);
    bool is_inside =
        box.left >= 0 && box.top >= 0 && box.right <= drawing.width && box.bottom <= drawing.height;
    EXPECT_TRUE(is_inside) << mark.text << mark.tip << ": " << box.left << " to " << box.right
                           << " of " << drawing.width << ", " << box.top << " to " << box.bottom
                           << " of " << drawing.height;
  }
}

void expect_texts_apart(const Drawing& drawing) {
  std::vector<const DrawingMark*> texts;
  for (const DrawingMark& mark : drawing.marks) {
    if (mark.kind == MarkKind::kText && !mark.text.empty()) texts.push_back(&mark);
  }
  for (size_t one = 0; one < texts.size(); ++one) {
    for (size_t other = 0; other < one; ++other) {
      Box a = box_of(*texts[one]), b = box_of(*texts[other]);
      bool is_apart =
          a.left >= b.right || b.left >= a.right || a.top >= b.bottom || b.top >= a.bottom;
      EXPECT_TRUE(is_apart) << texts[one]->text << " over " << texts[other]->text;
    }
  }
}

/// "" where the tags of `text` are closed in order and nothing in it is bare; else what is not.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '&' && text.find(';', at) > at + 6) return "a bare & at " + text.substr(at, 20);
    if (text[at] != '<') {
      ++at;
      continue;
    }
    size_t end = text.find('>', at);
    if (end == std::string::npos) return "an open tag";
    std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos || std::count(tag.begin(), tag.end(), '"') % 2 != 0) {
      return "<" + tag;
    }
    std::string name = tag.substr(tag[0] == '/' ? 1 : 0);
    name = name.substr(0, name.find_first_of(" /"));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return "</" + name;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

template <typename Kind>
const Kind& chart_named(const std::vector<Chart>& charts, const std::string& title) {
  static const Kind none;
  for (const Chart& chart : charts) {
    const auto* one = std::get_if<Kind>(&chart);
    if (one != nullptr && one->title == title) return *one;
  }
  ADD_FAILURE() << "no chart " << title;
  return none;
}

TEST(BandwidthCharts, ShowWhatTheRecordsSay) {
  std::vector<Chart> charts = bandwidth_charts(eight_devices());
  // Copies and urgent copies of each device, two curves, two routes, bars of what has no chart.
  EXPECT_EQ(charts.size(), 8U + 8U + 2U + 2U + 1U);
  const auto& copies = chart_named<LineChart>(charts, "copy: cuda:3 by chunk size");
  ASSERT_EQ(copies.series.size(), 4U);
  EXPECT_EQ(copies.series[0].name, "up pinned");
  EXPECT_EQ(copies.series[0].points.size(), 9U);
  EXPECT_EQ(copies.series[0].points[0].x, 4096);
  EXPECT_EQ(copies.series[0].points[0].y.value, 52);
  EXPECT_EQ(copies.series[2].name, "down pinned");
  EXPECT_EQ(copies.series[2].color, copies.series[0].color);
  EXPECT_TRUE(copies.series[2].is_dashed);
  EXPECT_GT(copies.top, 55);  // the same for all devices
  const auto& totals = chart_named<LineChart>(charts, "contention: total up by devices at once");
  EXPECT_EQ(totals.series[0].points[7].y.value, 200);
  EXPECT_EQ(totals.series[2].points[7].y.value, 400);  // if nothing were shared
  const auto& fairness =
      chart_named<LineChart>(charts, "contention: fairness up (1: all the same)");
  EXPECT_EQ(fairness.series[0].points[0].y.value, 1);
  EXPECT_EQ(fairness.series[0].points[7].y.value, 0.9);
  const auto& urgent = chart_named<BarChart>(charts, "urgent: latency of cuda:0 behind bulk");
  EXPECT_EQ(urgent.bars[1].name, "up alternating 8M");
  EXPECT_EQ(urgent.bars[1].values[0]->value, 2.5);
  EXPECT_EQ(urgent.bars[1].values[1]->value, 7.5);
  const auto& peers = chart_named<HeatMap>(charts, "p2p: direct 64M");
  EXPECT_EQ(*peers.cells[2][5].value, 25);
  EXPECT_FALSE(peers.cells[2][2].value.has_value());
  EXPECT_EQ(chart_named<BarChart>(charts, "overlap: loss").bars.size(), 8U);
}

TEST(BandwidthCharts, NameWhatWasNotMeasured) {
  BandwidthReport report;
  report.records = {copy_of(0, "up", "pinned", kMiB, 55), copy_of(0, "up", "pinned", 4 * kMiB, 56),
                    copy_of(0, "down", "pinned", kMiB, 1), peer_of(0, 1, "direct"),
                    peer_of(1, 0, "direct")};
  report.records[2].status = MeasurementStatus::kSkipped;
  report.records[3].status = MeasurementStatus::kMismatch;
  report.records[4].statistics[0].median = std::numeric_limits<double>::quiet_NaN();
  std::vector<Chart> charts = bandwidth_charts(report);
  ASSERT_EQ(charts.size(), 3U);
  EXPECT_EQ(std::get<LineChart>(charts[0]).series.size(), 1U);
  const auto& bars = std::get<BarChart>(charts[1]);
  EXPECT_FALSE(bars.bars[0].values[0].has_value());
  EXPECT_EQ(bars.bars[0].note, "skipped");
  const auto& map = std::get<HeatMap>(charts[2]);
  EXPECT_EQ(map.cells[0][1].note, "wrong");
  EXPECT_TRUE(map.cells[0][1].is_bad);
  EXPECT_EQ(map.cells[1][0].note, "no figure");
  std::string svg = drawing_svg(draw_charts("t", "c", charts));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("wrong"));
  EXPECT_THAT(svg, HasSubstr("skipped"));
}

TEST(ChartDrawing, EightDevicesAreLegible) {
  std::vector<Chart> charts = bandwidth_charts(eight_devices());
  Drawing drawing = draw_charts("bench <full> & more", "\"caption\"", charts);
  expect_inside(drawing);
  expect_texts_apart(drawing);
  std::string svg = drawing_svg(drawing);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf\"")));
  EXPECT_THAT(svg, HasSubstr("bench &lt;full&gt; &amp; more"));
}

TEST(ChartDrawing, TheCheckOfXmlFindsFaults) {
  EXPECT_EQ(xml_fault("<a><b c=\"1\"/>&lt;</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a b=\"></a>", "<a>x & y and so on</a>", "<a"}) {
    EXPECT_NE(xml_fault(bad), "") << bad;
  }
}

// Sizes are logarithmic: each four times the one before is as far from it; rates start at 0.
TEST(ChartDrawing, PointsAreWhereTheDataSays) {
  LineChart chart;
  chart.title = "t";
  chart.series = {{"one", {{4096, {10, 10, 10}}, {16384, {20, 15, 30}}, {65536, {40, 40, 40}}}}};
  Drawing drawing = draw_chart(chart);
  std::vector<DrawingPoint> centers;
  for (const DrawingMark& mark : drawing.marks) {
    if (mark.tip.empty()) continue;
    centers.push_back(
        {(mark.points[0].x + mark.points[1].x) / 2, (mark.points[0].y + mark.points[1].y) / 2});
  }
  ASSERT_EQ(centers.size(), 3U);
  EXPECT_NEAR(centers[1].x - centers[0].x, centers[2].x - centers[1].x, 0.01);
  EXPECT_GT(centers[1].x, centers[0].x);
  EXPECT_NEAR(centers[1].y - centers[2].y, 2 * (centers[0].y - centers[1].y), 0.01);
  const auto band =
      std::find_if(drawing.marks.begin(), drawing.marks.end(),
                   [](const DrawingMark& mark) { return mark.kind == MarkKind::kArea; });
  ASSERT_NE(band, drawing.marks.end());
  // High by rising sizes, then low by falling ones.
  ASSERT_EQ(band->points.size(), 6U);
  EXPECT_NEAR(band->points[4].y - band->points[1].y, 1.5 * (centers[0].y - centers[1].y), 0.01);
}

TEST(ChartDrawing, BarsAreAsLongAsTheirValues) {
  BarChart chart{"t", "GB/s", {"median"}, {}};
  chart.bars = {{"a", {ChartValue{10, 10, 10}}, ""}, {"b", {ChartValue{30, 20, 35}}, ""}};
  Drawing drawing = draw_chart(chart);
  std::vector<double> lengths;
  for (const DrawingMark& mark : drawing.marks) {
    if (!mark.tip.empty()) lengths.push_back(mark.points[1].x - mark.points[0].x);
  }
  ASSERT_EQ(lengths.size(), 2U);
  EXPECT_NEAR(lengths[1], 3 * lengths[0], 0.01);
  expect_inside(drawing);
}

TEST(ChartDrawing, ExtremesStayInside) {
  LineChart one_point{"t", "x", "y", ChartAxis::kSize, {{"s", {{8, {0, 0, 0}}}}}};
  LineChart one_device{"t", "x", "y", ChartAxis::kCount, {{"s", {{1, {5e5, 5e5, 5e5}}}}}};
  LineChart none{"t", "x", "y"};
  BarChart tiny{"t", "s", {"a"}, {{std::string(80, 'n'), {ChartValue{1e-9, 1e-9, 1e-9}}, ""}}};
  BarChart empty{"t", "s", {"a"}, {}};
  HeatMap map{"t", "GB/s", "from", "to", {"a"}, {"a"}, {{HeatCell{}}}};
  for (const Chart& chart : std::vector<Chart>{one_point, one_device, none, tiny, empty, map}) {
    Drawing drawing = draw_chart(chart);
    expect_inside(drawing);
    EXPECT_EQ(xml_fault(drawing_svg(drawing)), "");
    EXPECT_THAT(drawing_svg(drawing), Not(HasSubstr("nan")));
    EXPECT_FALSE(chart_text(chart, {}).empty());
  }
  Drawing nothing = draw_charts("title", "caption", {});
  expect_inside(nothing);
  EXPECT_THAT(drawing_svg(nothing), HasSubstr("nothing was measured"));
}

TEST(ChartAxes, AreRound) {
  for (double top : {1e-6, 0.3, 0.999, 1.0, 55.5, 96.8, 440.0, 7e8}) {
    AxisScale scale = value_axis(top, 5);
    EXPECT_GE(scale.high, top * (1 - 1e-9)) << top;
    EXPECT_LE(scale.high, top * 2.01) << top;
    EXPECT_LE(scale.ticks.size(), 8U) << top;
    EXPECT_EQ(scale.share(scale.high), 1) << top;
  }
  EXPECT_EQ(value_axis(55.5, 5).ticks.back().label, "60");
}

int columns_of(const std::string& line) {
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0) != 0x80;
  }));
}

TEST(ChartText, FitsTheTerminalAndItsCharacters) {
  std::vector<Chart> charts = bandwidth_charts(eight_devices());
  for (int width : {80, 132}) {
    for (bool is_unicode : {false, true}) {
      std::string text = charts_text(charts, {width, is_unicode, false});
      EXPECT_THAT(text, Not(HasSubstr("\x1b")));
      bool is_ascii = std::all_of(text.begin(), text.end(), [](char letter) {
        return static_cast<unsigned char>(letter) < 128;
      });
      EXPECT_EQ(is_ascii, !is_unicode);
      for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
           begin = end + 1) {
        EXPECT_LE(columns_of(text.substr(begin, end - begin)), width)
            << text.substr(begin, end - begin);
      }
    }
  }
  EXPECT_THAT(charts_text(charts, {80, true, true}), HasSubstr("\x1b[34m"));
  EXPECT_THAT(charts_text({}, {}), HasSubstr("nothing was measured"));
}

TEST(ChartText, BarsAreAsLongAsTheirValues) {
  BarChart chart{"t", "GB/s", {"median"}, {}};
  chart.bars = {{"a", {ChartValue{10, 10, 10}}, ""}, {"b", {ChartValue{30, 20, 35}}, ""}};
  std::string text = chart_text(chart, {});
  size_t second = text.find("\n  b");
  auto marks = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(second), '#');
  auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(second), text.end(), '#');
  EXPECT_GT(marks, 5);
  EXPECT_NEAR(static_cast<double>(more), 3.0 * static_cast<double>(marks), 2);
  EXPECT_THAT(text, HasSubstr("30.0 (20.0 to 35.0)"));
}

TEST(PlotFiles, ArePagesOrDrawings) {
  TemporaryFolder folder;
  PlotPage page{"a <title>", "rows & columns", "caption", draw_charts("t", "c", {})};
  ASSERT_TRUE(write_plot_file(folder.file("a.svg"), page).is_ok());
  ASSERT_TRUE(write_plot_file(folder.file("a.html"), page).is_ok());
  EXPECT_EQ(read_file(folder.file("a.svg"))->find("<svg"), 0U);
  std::string html = *read_file(folder.file("a.html"));
  EXPECT_THAT(html, HasSubstr("<title>a &lt;title&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("rows &amp; columns"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_FALSE(write_plot_file(folder.file("a.png"), page).is_ok());
}

}  // namespace
}  // namespace stagecoach
