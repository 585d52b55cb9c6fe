#include "tools/trace_file.h"

#include <charconv>
#include <fmt/format.h>
#include <string_view>

#include "core/file.h"
#include "core/json.h"
#include "tools/json_lines.h"

namespace stagecoach {

namespace {

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
  FileSlice slice;
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

}  // namespace

std::string_view TraceContent::process_of(int64_t thread) const {
  auto named = threads.find(thread);
  if (named == threads.end()) return {};
  auto process = processes.find(named->second.first);
  return process == processes.end() ? std::string_view() : process->second;
}

bool TraceContent::is_compute(const FileSlice& slice) const {
  auto named = threads.find(slice.thread);
  return named != threads.end() && named->second.second == "compute";
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
  size_t last = text.find_last_not_of(" \n\r\t");
  if (last == std::string::npos || text[last] != '}' || text.find("]}", last - 1) != last - 1) {
    return data_loss(fmt::format(
        "{}: ends in the middle: it was cut; write it again by another run, or remove it for a "
        "report without a timeline",
        path));
  }
  if (content.threads.empty()) {
    return data_loss(fmt::format("{}: holds no named tracks; was it written by train?", path));
  }
  return content;
}

}  // namespace stagecoach
