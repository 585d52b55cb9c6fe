#include "tools/simulation_output.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "core/trace.h"

namespace stagecoach {

namespace {

double units(const SimulatedRun& shown, int64_t time_ns) {
  return static_cast<double>(time_ns) / static_cast<double>(shown.ns_per_unit);
}

template <typename T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(Json(value));
  return list;
}

template <typename T>
Json table_of(const std::vector<std::vector<T>>& rows) {
  Json list = Json::array();
  for (const std::vector<T>& row : rows) list.push_back(list_of(row));
  return list;
}

bool is_asynchronous(const Plan& plan) {
  return plan.version_rule != VersionRule::kFlush;
}

/// What both one run and a row of a comparison say.
Json measures_to_json(const SimulatedRun& shown) {
  const ScheduleRun& run = shown.run;
  const TimelineMeasures& measures = run.measures;
  Json json = Json::object();
  json["schedule"] = run.plan.schedule;
  json["makespan"] = units(shown, measures.makespan_ns);
  json["span"] = units(shown, measures.span_ns);
  json["bubble_makespan"] = measures.bubble_makespan;
  json["bubble_span"] = measures.bubble_span;
  json["closed_form"] = run.closed_form ? Json(run.closed_form->bubble) : Json();
  json["closed_form_definition"] =
      run.closed_form ? Json(bubble_definition_name(run.closed_form->definition)) : Json();
  json["idle"]["fill"] = units(shown, measures.idle.fill_ns);
  json["idle"]["steady"] = units(shown, measures.idle.steady_ns);
  json["idle"]["drain"] = units(shown, measures.idle.drain_ns);
  json["peak_activations"] = list_of(run.peak_activations);
  json["weight_versions"] = list_of(run.versions.kept);
  if (is_asynchronous(run.plan)) {
    json["drift"]["max"] = list_of(run.drift.max);
    json["drift"]["mean"] = list_of(run.drift.mean);
  }
  if (!shown.layers) return json;
  const LayerFigures& layers = *shown.layers;
  json["bubble"] = layers.bubble;
  json["step_s"] = layers.step_ns / 1e9;
  if (layers.tokens_per_s > 0) json["tokens_per_s"] = layers.tokens_per_s;
  json["bottleneck"] = layers.bottleneck;
  for (const auto& [name, value] : layers.details.members()) json[name] = value;
  return json;
}

std::string closed_form_text(const ScheduleRun& run) {
  if (!run.closed_form) return "none";
  return fmt::format("{:.4f} by {}", run.closed_form->bubble,
                     bubble_definition_name(run.closed_form->definition));
}

/// One slot of the timeline: what runs, from which entry of the list.
std::string slot_name(const Plan& plan, const std::vector<Action>& actions, int first) {
  std::string name(action_kind_name(plan.stage_of(actions[first]).kind));
  for (int index = first; actions[index].with_next; ++index) {
    name += fmt::format("+{}", action_kind_name(plan.stage_of(actions[index + 1]).kind));
  }
  return name;
}

}  // namespace

Json run_to_json(const SimulatedRun& shown) {
  const ScheduleRun& run = shown.run;
  Json json = measures_to_json(shown);
  if (is_asynchronous(run.plan)) {
    json["versions"]["forward"] = table_of(run.versions.forward);
    json["versions"]["backward"] = table_of(run.versions.backward);
  }
  json["order"] = table_of(run.order);
  return json;
}

std::string measures_to_text(const SimulatedRun& shown) {
  const ScheduleRun& run = shown.run;
  const TimelineMeasures& measures = run.measures;
  const char* unit = shown.layers ? " ms" : "";
  std::string text = fmt::format(
      "schedule {}\nmakespan {:g}{}, longest span of a device {:g}{}\n"
      "idle share by makespan {:.4f}, by span {:.4f}, closed form {}\n"
      "idle time: fill {:g}, steady {:g}, drain {:g}\n"
      "peak activations (stage units): {:g}\nweight versions: {}\n",
      run.plan.schedule, units(shown, measures.makespan_ns), unit, units(shown, measures.span_ns),
      unit, measures.bubble_makespan, measures.bubble_span, closed_form_text(run),
      units(shown, measures.idle.fill_ns), units(shown, measures.idle.steady_ns),
      units(shown, measures.idle.drain_ns), fmt::join(run.peak_activations, " "),
      fmt::join(run.versions.kept, " "));
  if (is_asynchronous(run.plan)) {
    text += fmt::format("drift by stage: largest {}, mean {:.3g}\n", fmt::join(run.drift.max, " "),
                        fmt::join(run.drift.mean, " "));
  }
  if (!shown.layers) return text;
  const LayerFigures& layers = *shown.layers;
  text += fmt::format("{:.6g} ms a step, idle share {:.4f}, bound by {}\n", layers.step_ns / 1e6,
                      layers.bubble, layers.bottleneck);
  if (layers.tokens_per_s > 0) text += fmt::format("{:.6g} tokens/s\n", layers.tokens_per_s);
  return text + layers.text;
}

std::string run_to_text(const SimulatedRun& shown) {
  constexpr size_t kShownActions = 200;
  std::string text = measures_to_text(shown);
  for (size_t device = 0; device < shown.run.order.size(); ++device) {
    const std::vector<std::string>& order = shown.run.order[device];
    auto end = order.begin() + static_cast<int64_t>(std::min(order.size(), kShownActions));
    text += fmt::format("r{}| {}", device, fmt::join(order.begin(), end, " "));
    if (end != order.end()) text += fmt::format(" … {} more (--json)", order.end() - end);
    text += "\n";
  }
  return text;
}

Json rows_to_json(const std::vector<ComparedRun>& rows) {
  Json list = Json::array();
  for (const ComparedRun& row : rows) {
    if (row.run.is_ok()) {
      list.push_back(measures_to_json(*row.run));
      continue;
    }
    Json refused = Json::object();
    refused["schedule"] = row.name;
    refused["refused"] = row.run.status().message();
    list.push_back(std::move(refused));
  }
  Json json = Json::object();
  json["schedules"] = std::move(list);
  return json;
}

std::string rows_to_text(const std::vector<ComparedRun>& rows) {
  std::string text = fmt::format("{:<14} {:>10} {:>10} {:>9} {:>9} {:>18} {:>6} {:>9} {:>6}",
                                 "schedule", "makespan", "span", "bubble", "bubble", "closed form",
                                 "peak", "versions", "drift");
  bool has_layers = std::any_of(rows.begin(), rows.end(), [](const ComparedRun& row) {
    return row.run.is_ok() && row.run->layers.has_value();
  });
  if (has_layers) text += fmt::format(" {:>10} {:>8} {:>10}", "step", "bubble", "tokens/s");
  text += fmt::format("\n{:<14} {:>10} {:>10} {:>9} {:>9}\n", "", has_layers ? "ms" : "",
                      has_layers ? "ms" : "", "makespan", "span");
  auto largest = [](const auto& values) { return *std::max_element(values.begin(), values.end()); };
  for (const ComparedRun& row : rows) {
    if (!row.run.is_ok()) {
      text += fmt::format("{:<14} refused: {}\n", row.name, row.run.status().message());
      continue;
    }
    const ScheduleRun& run = row.run->run;
    text += fmt::format(
        "{:<14} {:>10.6g} {:>10.6g} {:>9.4f} {:>9.4f} {:>18} {:>6.4g} {:>9} {:>6}", row.name,
        units(*row.run, run.measures.makespan_ns), units(*row.run, run.measures.span_ns),
        run.measures.bubble_makespan, run.measures.bubble_span, closed_form_text(run),
        largest(run.peak_activations), largest(run.versions.kept), largest(run.drift.max));
    if (const std::optional<LayerFigures>& layers = row.run->layers) {
      text += fmt::format(" {:>10.6g} {:>8.4f} {:>10.6g}", layers->step_ns / 1e6, layers->bubble,
                          layers->tokens_per_s);
    }
    text += "\n";
  }
  return text;
}

Status write_simulation_trace(const std::string& path, const SimulatedRun& shown) {
  const ScheduleRun& run = shown.run;
  constexpr int64_t kShownNs = 1'000'000;
  auto shown_ns = [unit = shown.ns_per_unit](int64_t time_ns) {
    // In two parts: the product of a long run would not fit 64 bits.
    return time_ns / unit * kShownNs + time_ns % unit * kShownNs / unit;
  };
  size_t count = 0;
  for (const std::vector<int>& order : run.timeline.order) count += order.size();
  Trace trace(count + 1);
  std::vector<int> numbers = stage_numbers(run.plan);
  for (int device = 0; device < run.plan.device_count(); ++device) {
    trace.name_process(device, fmt::format("rank {}", device));
    trace.name_track(device, 0, "compute");
    const std::vector<Action>& actions = run.plan.device_actions[device];
    bool inside = false;  // the second of a pair is in the slice of the first
    for (int index : run.timeline.order[device]) {
      const PlanTimeline::Interval& interval = run.timeline.actions[device][index];
      bool starts = !inside;
      inside = actions[index].with_next;
      if (!starts) continue;
      TraceSlice slice;
      slice.name = slot_name(run.plan, actions, index);
      slice.category = "compute";
      slice.process = device;
      slice.start_ns = shown_ns(interval.start_ns);
      slice.end_ns = shown_ns(interval.end_ns);
      slice.micro_batch = actions[index].micro_batch;
      slice.stage = numbers[actions[index].stage];
      slice.iteration = run.plan.window_of(actions[index].micro_batch);
      trace.add(slice);
    }
  }
  return trace.write_perfetto(path);
}

int stages_per_device(const Plan& plan) {
  std::vector<int> numbers = stage_numbers(plan);
  std::set<int> distinct(numbers.begin(), numbers.end());
  return std::max(1, static_cast<int>(distinct.size()) / std::max(1, plan.device_count()));
}

}  // namespace stagecoach
