#include "tools/report_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "core/file.h"

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

Status for_each_line(std::string_view text,
                     const std::function<Status(std::string_view, int64_t)>& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    STAGECOACH_RETURN_IF_ERROR(visit(text.substr(0, end), number));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return Status::ok();
}

double number_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_number() ? value->as_number() : 0.0;
}

int64_t integer_at(const Json& object, std::string_view key, int64_t otherwise) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_integer() ? value->as_integer() : otherwise;
}

std::string text_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
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

struct Slice {
  int64_t thread = 0;
  double start_us = 0;
  double duration_us = 0;
  std::string name;
  int64_t stage = -1;
  int64_t micro_batch = -1;
  int64_t iteration = -1;
  int64_t bytes = -1;
};

struct TraceContent {
  std::map<int64_t, std::string> processes;
  std::map<int64_t, std::pair<int64_t, std::string>> threads;  ///< id -> process, name
  std::vector<Slice> slices;
  int64_t dropped = 0;  ///< slices that the recorder had no room for
};

void add_event(const Json& event, TraceContent& content) {
  std::string phase = text_at(event, "ph");
  const Json* arguments = event.find("args");
  int64_t process = integer_at(event, "pid", 0), thread = integer_at(event, "tid", 0);
  if (phase == "M" && arguments != nullptr) {
    std::string name = text_at(event, "name");
    if (name == "process_name") content.processes[process] = text_at(*arguments, "name");
    if (name == "thread_name") content.threads[thread] = {process, text_at(*arguments, "name")};
    return;
  }
  if (phase != "X") return;
  Slice slice;
  slice.thread = thread;
  slice.start_us = number_at(event, "ts");
  slice.duration_us = number_at(event, "dur");
  slice.name = text_at(event, "name");
  if (arguments != nullptr) {
    slice.stage = integer_at(*arguments, "stage", -1);
    slice.micro_batch = integer_at(*arguments, "micro_batch", -1);
    slice.iteration = integer_at(*arguments, "iteration", -1);
    slice.bytes = integer_at(*arguments, "bytes", -1);
  }
  content.slices.push_back(std::move(slice));
}

/// The count that the first line of a trace carries.
int64_t dropped_slices(std::string_view first_line) {
  constexpr std::string_view kKey = "\"dropped_slices\":";
  size_t at = first_line.find(kKey);
  int64_t count = 0;
  if (at == std::string_view::npos) return count;
  first_line.remove_prefix(at + kKey.size());
  std::from_chars(first_line.data(), first_line.data() + first_line.size(), count);
  return count;
}

/// A trace holds one event a line; reading them one by one takes a tenth of the memory.
Result<TraceContent> read_trace(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  TraceContent content;
  STAGECOACH_RETURN_IF_ERROR(for_each_line(text, [&](std::string_view line, int64_t number) {
    if (number == 1) content.dropped = dropped_slices(line);
    if (line.ends_with(',')) line.remove_suffix(1);
    bool is_event = line.starts_with('{') && line.ends_with('}') && number > 1;
    if (!is_event) return Status::ok();
    Result<Json> event = Json::parse(line);
    if (!event.is_ok()) {
      return data_loss(fmt::format("{}: line {}: {}", path, number, event.status().message()));
    }
    add_event(*event, content);
    return Status::ok();
  }));
  if (content.threads.empty()) {
    return data_loss(fmt::format("{}: holds no named tracks; was it written by train?", path));
  }
  return content;
}

/// Iterations to show: the last ones that were recorded whole and contain training only. An
/// evaluation, or the end of the recording, gives an iteration an unusual number of slices.
std::pair<int64_t, int64_t> choose_iterations(const std::vector<Slice>& slices) {
  std::map<int64_t, int64_t> counts;
  std::map<int64_t, bool> is_training;
  for (const Slice& slice : slices) {
    if (slice.iteration < 0) continue;
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

Json slice_to_json(const Slice& slice, int64_t track, double origin_us) {
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
  auto [first, last] = choose_iterations(content.slices);
  double begin_us = 0, end_us = 0;
  bool any = false;
  for (const Slice& slice : content.slices) {
    if (slice.iteration < first || slice.iteration > last || first < 0) continue;
    begin_us = any ? std::min(begin_us, slice.start_us) : slice.start_us;
    end_us = std::max(end_us, slice.start_us + slice.duration_us);
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
  for (const Slice& slice : content.slices) {
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
