#include "tools/simulation_plot.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "core/file.h"

namespace stagecoach {

namespace {

constexpr double kLeft = 48, kTop = 28, kRowHeight = 26, kMemoryHeight = 22, kRowGap = 12;
constexpr double kWidest = 4000, kNarrowest = 600, kUnitWidth = 18;

/// Text that may stand in SVG and HTML: a schedule's name may come from a file.
std::string escaped(const std::string& text) {
  std::string safe;
  for (char letter : text) {
    if (letter == '<') {
      safe += "&lt;";
    } else if (letter == '&') {
      safe += "&amp;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

/// Fill by kind; a second shade for every other chunk.
const char* fill_of(ActionKind kind, bool second_shade) {
  switch (kind) {
    case ActionKind::kForward:
      return second_shade ? "#2f6fb2" : "#79aee3";
    case ActionKind::kBackward:
    case ActionKind::kForwardBackward:
      return second_shade ? "#2e8b57" : "#83cfa3";
    case ActionKind::kInputGradient:
      return second_shade ? "#c77a1c" : "#f2b661";
    case ActionKind::kWeightGradient:
      return second_shade ? "#8a5aa8" : "#c6a2dd";
  }
  return "#000";
}

/// Draws one run.
class Plot {
 public:
  explicit Plot(const SimulatedRun& shown)
      : run_(shown.run),
        numbers_(stage_numbers(run_.plan)),
        makespan_ns_(run_.measures.makespan_ns),
        makespan_(static_cast<double>(makespan_ns_) / static_cast<double>(shown.ns_per_unit)),
        unit_(shown.layers ? " ms" : "") {
    width_ = std::clamp(makespan_ * kUnitWidth, kNarrowest, kWidest);
    std::vector<int64_t> layer_bytes(run_.plan.layer_count(), kLayerBytes);
    use_ = activation_use(run_.plan, run_.timeline, layer_bytes, 0);
    peak_ = std::max<int64_t>(1, *std::max_element(use_.peak_bytes.begin(), use_.peak_bytes.end()));
  }

  std::string draw() {
    int devices = run_.plan.device_count();
    double height = kTop + devices * row_pitch() + 8;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"{}\" y=\"18\" "
        "font-size=\"13\">{}: "
        "makespan {:g}{}, idle share {:.4f} by makespan, {:.4f} by span</text>\n",
        kLeft + width_ + 16, height, kLeft, escaped(run_.plan.schedule), makespan_, unit_,
        run_.measures.bubble_makespan, run_.measures.bubble_span);
    for (int device = 0; device < devices; ++device) draw_device(device);
    return text_ + "</svg>\n";
  }

 private:
  static constexpr int64_t kLayerBytes = 1 << 16;

  double row_pitch() const { return kRowHeight + kMemoryHeight + kRowGap; }
  double x_of(int64_t time_ns) const {
    return kLeft + width_ * static_cast<double>(time_ns) / static_cast<double>(makespan_ns_);
  }

  void draw_device(int device) {
    double y = kTop + device * row_pitch();
    text_ += fmt::format(
        "<text x=\"6\" y=\"{:.1f}\">r{}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{}\" fill=\"#e8e8e8\"/>\n",
        y + 17, device, kLeft, y, width_, kRowHeight);
    std::set<int> held;
    const std::vector<Action>& actions = run_.plan.device_actions[device];
    for (const Action& action : actions) held.insert(numbers_[action.stage]);
    bool second_of_pair = false;
    for (int index : run_.timeline.order[device]) {
      bool pair = actions[index].with_next || second_of_pair;
      auto chunk = std::distance(held.begin(), held.find(numbers_[actions[index].stage]));
      draw_action(device, index, y + (second_of_pair ? kRowHeight / 2 : 0),
                  pair ? kRowHeight / 2 : kRowHeight, chunk % 2 == 1);
      second_of_pair = actions[index].with_next;
    }
    draw_memory(device, y + kRowHeight + 2);
  }

  void draw_action(int device, int index, double y, double height, bool second_shade) {
    const Action& action = run_.plan.device_actions[device][index];
    const PlanTimeline::Interval& interval = run_.timeline.actions[device][index];
    double x = x_of(interval.start_ns), width = x_of(interval.end_ns) - x;
    std::string_view kind = action_kind_name(run_.plan.stage_of(action).kind);
    text_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
        "stroke=\"#fff\" stroke-width=\"0.5\"><title>{}{} stage {}</title></rect>\n",
        x, y, width, height, fill_of(run_.plan.stage_of(action).kind, second_shade), kind,
        action.micro_batch, numbers_[action.stage]);
    std::string label = std::to_string(action.micro_batch);
    if (width < 6.5 * static_cast<double>(label.size()) + 1) return;
    text_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         x + width / 2, y + height / 2 + 4, label);
  }

  void draw_memory(int device, double y) {
    auto level = [&](int64_t bytes) {
      return y + kMemoryHeight * (1 - static_cast<double>(bytes) / static_cast<double>(peak_));
    };
    std::string points = fmt::format("{:.2f},{:.1f}", kLeft, level(0));
    double last = level(0);
    for (const MemorySample& sample : use_.samples[device]) {
      double x = x_of(sample.time_ns);
      points += fmt::format(" {:.2f},{:.1f} {:.2f},{:.1f}", x, last, x, level(sample.bytes));
      last = level(sample.bytes);
    }
    text_ += fmt::format(
        "<polyline points=\"{} {:.2f},{:.1f}\" fill=\"none\" "
        "stroke=\"#b03030\"><title>activations, "
        "at most {:g} stage units</title></polyline>\n",
        points, kLeft + width_, last, run_.peak_activations[device]);
  }

  const ScheduleRun& run_;
  std::vector<int> numbers_;
  int64_t makespan_ns_;
  double makespan_;  ///< in units
  const char* unit_;
  double width_ = 0;
  ActivationUse use_;
  int64_t peak_ = 1;
  std::string text_;
};

}  // namespace

Result<std::string> plot_svg(const SimulatedRun& shown) {
  int64_t slots = 0;
  for (const std::vector<int>& order : shown.run.timeline.order) slots += std::ssize(order);
  if (slots <= kMaxPlotSlots) return Plot(shown).draw();
  return invalid_argument(fmt::format(
      "a plot shows at most {} actions; this run has {}: use fewer micro-batches, or --trace",
      kMaxPlotSlots, slots));
}

Status check_plot_path(const std::string& path) {
  if (path.ends_with(".html") || path.ends_with(".svg")) return Status::ok();
  return invalid_argument(fmt::format("--plot is '{}'; it must end in .svg or .html", path));
}

Status write_plot(const std::string& path, const SimulatedRun& shown) {
  STAGECOACH_RETURN_IF_ERROR(check_plot_path(path));
  bool page = path.ends_with(".html");
  STAGECOACH_ASSIGN_OR_RETURN(std::string svg, plot_svg(shown));
  if (!page) return write_file_atomically(path, svg);
  return write_file_atomically(
      path,
      fmt::format("<!doctype html>\n<meta charset=\"utf-8\">\n<title>{}</title>\n<pre>{}</pre>\n"
                  "<p>blue: forward; green: backward; orange: its input half; violet: its "
                  "weight half; darker: second chunk; grey: idle; red line: activations "
                  "held</p>\n{}",
                  escaped(shown.run.plan.schedule), escaped(measures_to_text(shown)), svg));
}

}  // namespace stagecoach
