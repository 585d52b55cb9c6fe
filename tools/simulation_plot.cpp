#include "tools/simulation_plot.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "tools/plot/plot_file.h"

namespace stagecoach {

namespace {

constexpr double kLeft = 48, kTop = 28, kRowHeight = 26, kMemoryHeight = 22, kRowGap = 12;
constexpr double kWidest = 4000, kNarrowest = 600, kUnitWidth = 18;

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

  Drawing draw() {
    int devices = run_.plan.device_count();
    drawing_.width = kLeft + width_ + 16;
    drawing_.height = kTop + devices * row_pitch() + 8;
    drawing_
        .text(kLeft, 18,
              fmt::format("{}: makespan {:g}{}, idle share {:.4f} by makespan, {:.4f} by span",
                          run_.plan.schedule, makespan_, unit_, run_.measures.bubble_makespan,
                          run_.measures.bubble_span))
        .font_size = 13;
    for (int device = 0; device < devices; ++device) draw_device(device);
    return std::move(drawing_);
  }

 private:
  static constexpr int64_t kLayerBytes = 1 << 16;

  double row_pitch() const { return kRowHeight + kMemoryHeight + kRowGap; }
  double x_of(int64_t time_ns) const {
    return kLeft + width_ * static_cast<double>(time_ns) / static_cast<double>(makespan_ns_);
  }

  void draw_device(int device) {
    double y = kTop + device * row_pitch();
    drawing_.text(6, y + 17, fmt::format("r{}", device));
    drawing_.rectangle(kLeft, y, width_, kRowHeight, "#e8e8e8");
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
    DrawingMark& box = drawing_.rectangle(x, y, width, height,
                                          fill_of(run_.plan.stage_of(action).kind, second_shade));
    box.stroke = "#fff";
    box.stroke_width = 0.5;
    box.tip = fmt::format("{}{} stage {}", kind, action.micro_batch, numbers_[action.stage]);
    std::string label = std::to_string(action.micro_batch);
    if (width < text_width(label) + 1) return;
    drawing_.text(x + width / 2, y + height / 2 + 4, label, TextAnchor::kMiddle);
  }

  void draw_memory(int device, double y) {
    auto level = [&](int64_t bytes) {
      return y + kMemoryHeight * (1 - static_cast<double>(bytes) / static_cast<double>(peak_));
    };
    std::vector<DrawingPoint> path = {{kLeft, level(0)}};
    for (const MemorySample& sample : use_.samples[device]) {
      double x = x_of(sample.time_ns);
      path.push_back({x, path.back().y});
      path.push_back({x, level(sample.bytes)});
    }
    path.push_back({kLeft + width_, path.back().y});
    drawing_.line(std::move(path), "#b03030").tip =
        fmt::format("activations, at most {:g} stage units", run_.peak_activations[device]);
  }

  const ScheduleRun& run_;
  std::vector<int> numbers_;
  int64_t makespan_ns_;
  double makespan_;  ///< in units
  const char* unit_;
  double width_ = 0;
  ActivationUse use_;
  int64_t peak_ = 1;
  Drawing drawing_;
};

}  // namespace

Result<Drawing> draw_simulation(const SimulatedRun& shown) {
  int64_t slots = 0;
  for (const std::vector<int>& order : shown.run.timeline.order) slots += std::ssize(order);
  if (slots <= kMaxPlotSlots) return Plot(shown).draw();
  return invalid_argument(fmt::format(
      "a plot shows at most {} actions; this run has {}: use fewer micro-batches, or --trace",
      kMaxPlotSlots, slots));
}

Status write_plot(const std::string& path, const SimulatedRun& shown) {
  PlotPage page;
  page.title = shown.run.plan.schedule;
  page.text = measures_to_text(shown);
  page.caption =
      "blue: forward; green: backward; orange: its input half; violet: its weight half; darker: "
      "second chunk; grey: idle; red line: activations held";
  STAGECOACH_ASSIGN_OR_RETURN(page.drawing, draw_simulation(shown));
  return write_plot_file(path, page);
}

}  // namespace stagecoach
