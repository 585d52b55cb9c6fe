#include "tools/report_data.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "tools/json_lines.h"
#include "tools/report_prediction.h"
#include "tools/trace_file.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<Json> read_json(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return data_loss(fmt::format("{}: {}", path, json.status().message()));
  return json;
}

/// Every n-th item, the last one always, so that at most `most` remain.
Json::Array thin_out(const Json::Array& items, int64_t most) {
  auto count = static_cast<int64_t>(items.size());
  if (count <= most) return items;
  int64_t step = (count + most - 1) / most;
  Json::Array kept;
  for (int64_t i = (count - 1) % step; i < count; i += step) {
    kept.push_back(items[static_cast<size_t>(i)]);
  }
  return kept;
}

// ---- metrics ---------------------------------------------------------------------------------

Status add_metrics(const std::string& path, Json& data) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  // A crash may leave half a line at the end; a line that ends is whole.
  text.resize(text.rfind('\n') + 1);
  Json::Array points, validation;
  STAGECOACH_RETURN_IF_ERROR(for_each_line(text, [&](std::string_view line, int64_t number) {
    Result<Json> record = Json::parse(line);
    if (!record.is_ok()) {
      return data_loss(fmt::format("{}: line {}: {}", path, number, record.status().message()));
    }
    int64_t iteration = integer_at(*record, "iteration", -1);
    if (record->find("validation_loss") != nullptr) {
      Json::Array point;
      point.emplace_back(iteration);
      point.emplace_back(number_at(*record, "validation_loss"));
      validation.emplace_back(std::move(point));
    } else if (record->find("loss") != nullptr) {
      Json::Array point;
      point.emplace_back(iteration);
      for (const char* key : {"loss", "tokens_per_s", "grad_norm", "lr", "bubble"}) {
        point.emplace_back(number_at(*record, key));
      }
      points.emplace_back(std::move(point));
    }
    return Status::ok();
  }));
  data["points_total"] = static_cast<int64_t>(points.size());
  data["points"] = thin_out(points, kMaxReportPoints);
  data["validation"] = thin_out(validation, kMaxReportPoints);
  return Status::ok();
}

// ---- trace -----------------------------------------------------------------------------------

/// Iterations to show: the last ones that were recorded whole and contain training only. An
/// evaluation, or the end of the recording, gives an iteration an unusual number of slices.
std::pair<int64_t, int64_t> choose_iterations(const TraceContent& content) {
  std::map<int64_t, int64_t> counts;
  std::map<int64_t, bool> is_training;
  for (const FileSlice& slice : content.slices) {
    if (slice.iteration < 0 || is_predicted(content, slice.thread)) continue;
    ++counts[slice.iteration];
    bool backward = slice.name == "B" || slice.name == "FB" || slice.name == "W";
    if (backward) is_training[slice.iteration] = true;
  }
  std::vector<int64_t> sorted;
  for (const auto& [iteration, count] : counts) {
    if (is_training.contains(iteration)) sorted.push_back(count);
  }
  if (sorted.empty()) return {-1, -1};
  auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  int64_t usual = *middle;
  auto is_usual = [&](int64_t iteration) {
    auto count = counts.find(iteration);
    return count != counts.end() && count->second == usual && is_training.contains(iteration);
  };
  int64_t last = counts.rbegin()->first;
  while (last >= 0 && !is_usual(last)) --last;
  if (last < 0) return {-1, -1};
  int64_t first = last;
  while (last - first + 1 < kReportIterations && is_usual(first - 1) &&
         (last - first + 2) * usual <= kMaxReportSlices) {
    --first;
  }
  return {first, last};
}

Json slice_to_json(const FileSlice& slice, int64_t track, double origin_us) {
  Json::Array row;
  row.emplace_back(track);
  row.emplace_back(slice.start_us - origin_us);
  row.emplace_back(slice.duration_us);
  row.emplace_back(slice.name);
  for (int64_t number : {slice.stage, slice.micro_batch, slice.iteration, slice.bytes}) {
    row.emplace_back(number);
  }
  return Json(std::move(row));
}

Status add_trace(const std::string& path, Json& data) {
  STAGECOACH_ASSIGN_OR_RETURN(TraceContent content, read_trace(path));
  auto [first, last] = choose_iterations(content);
  double begin_us = 0, end_us = 0;
  bool any = false;
  for (const FileSlice& slice : content.slices) {
    if (slice.iteration < first || slice.iteration > last || first < 0) continue;
    begin_us = any ? std::min(begin_us, slice.start_us) : slice.start_us;
    end_us = std::max(end_us, slice.end_us());
    any = true;
  }
  Json tracks = Json::array();
  std::map<int64_t, int64_t> track_of_thread;
  for (const auto& [thread, named] : content.threads) {
    track_of_thread[thread] = static_cast<int64_t>(tracks.items().size());
    Json track = Json::object();
    track["process"] = content.processes[named.first];
    track["name"] = named.second;
    tracks.push_back(std::move(track));
  }
  Json rows = Json::array();
  for (const FileSlice& slice : content.slices) {
    auto track = track_of_thread.find(slice.thread);
    bool inside = any && slice.start_us >= begin_us && slice.start_us < end_us;
    bool fits = static_cast<int64_t>(rows.items().size()) < kMaxReportSlices;
    if (track == track_of_thread.end() || !inside || !fits) continue;
    rows.push_back(slice_to_json(slice, track->second, begin_us));
  }
  Json trace = Json::object();
  trace["tracks"] = std::move(tracks);
  trace["shown"] = static_cast<int64_t>(rows.items().size());
  trace["dropped"] = content.dropped;
  trace["limit"] = kMaxReportSlices;
  trace["total"] = static_cast<int64_t>(content.slices.size());
  // Slices count iterations from 0, people and metrics from 1.
  trace["first_iteration"] = first + 1;
  trace["last_iteration"] = last + 1;
  trace["span_us"] = end_us - begin_us;
  trace["prediction"] = compare_with_prediction(content);
  trace["slices"] = std::move(rows);
  data["trace"] = std::move(trace);
  return Status::ok();
}

}  // namespace

Result<Json> gather_report_data(const std::string& folder) {
  std::string metrics = folder + "/metrics.jsonl";
  if (!is_there(metrics)) {
    return not_found(fmt::format(
        "'{}' holds no metrics.jsonl; give the output folder of a training run", folder));
  }
  Json data = Json::object();
  std::error_code ignored;
  fs::path place = fs::weakly_canonical(folder, ignored);
  data["name"] = place.filename().string();
  STAGECOACH_RETURN_IF_ERROR(add_metrics(metrics, data));
  data["summary"] = Json();
  if (std::string path = folder + "/summary.json"; is_there(path)) {
    STAGECOACH_ASSIGN_OR_RETURN(data["summary"], read_json(path));
  }
  data["config"] = Json();
  if (std::string path = folder + "/checkpoint/trainer_state.json"; is_there(path)) {
    STAGECOACH_ASSIGN_OR_RETURN(Json state, read_json(path));
    if (const Json* config = state.find("config")) data["config"] = *config;
    if (const Json* model = state.find("model")) data["model"] = *model;
  }
  data["trace"] = Json();
  if (std::string path = folder + "/trace.json"; is_there(path)) {
    STAGECOACH_RETURN_IF_ERROR(add_trace(path, data));
  }
  return data;
}

}  // namespace stagecoach
