#include "core/trace.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <tuple>

#include "core/file.h"

namespace stagecoach {

namespace {

/// Largest overlap that rounding can cause: device timers tick every half microsecond, and both
/// ends are rounded.
constexpr int64_t kRoundingOverlapNs = 1000;

/// Viewers treat process and thread 0 as the kernel's idle task, hence the 1.
int viewer_process(int process) {
  return process + 1;
}
/// Viewers look threads up by number alone, so a track's number is unique over all processes.
int viewer_thread(int process, int track) {
  return (process + 1) * 1000 + track;
}

/// Nanoseconds as microseconds. Perfetto multiplies by 1000 and truncates, so a value whose product
/// would fall short of the whole nanosecond is nudged up; else neighbours would overlap.
double to_microseconds(int64_t time_ns) {
  double value = static_cast<double>(time_ns) / 1000.0;
  while (static_cast<int64_t>(value * 1000.0) < time_ns) value = std::nextafter(value, INFINITY);
  return value;
}

std::string describe(const TraceSlice& slice) {
  return fmt::format("'{}' [{}, {}] ns on process {} track {}", slice.name.view(), slice.start_ns,
                     slice.end_ns, slice.process, slice.track);
}

/// Makes the slices of one track (sorted) nest or be disjoint, trimming what rounding caused.
Status separate_track(std::vector<TraceSlice*>& track) {
  std::vector<TraceSlice*> open;
  for (TraceSlice* slice : track) {
    // A trimmed start can lie behind the start of the next slice in order.
    if (!open.empty()) slice->start_ns = std::max(slice->start_ns, open.back()->start_ns);
    slice->end_ns = std::max(slice->end_ns, slice->start_ns);
    while (!open.empty()) {
      TraceSlice* outer = open.back();
      if (outer->end_ns <= slice->start_ns) {
        open.pop_back();
      } else if (slice->end_ns <= outer->end_ns) {
        break;  // nested
      } else if (outer->end_ns - slice->start_ns <= kRoundingOverlapNs) {
        slice->start_ns = outer->end_ns;
      } else if (slice->end_ns - outer->end_ns <= kRoundingOverlapNs) {
        slice->end_ns = outer->end_ns;
      } else {
        return internal_error(fmt::format("trace slices overlap by {} ns: {} and {}",
                                          outer->end_ns - slice->start_ns, describe(*outer),
                                          describe(*slice)));
      }
    }
    open.push_back(slice);
  }
  return Status::ok();
}

/// Sorts by track and time and applies the overlap rule.
Result<std::vector<TraceSlice>> arrange(std::vector<TraceSlice> slices) {
  for (const TraceSlice& slice : slices) {
    if (slice.end_ns < slice.start_ns) {
      return internal_error("trace slice ends before it starts: " + describe(slice));
    }
  }
  std::stable_sort(slices.begin(), slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
    return std::tuple(a.process, a.track, a.start_ns, -a.end_ns) <
           std::tuple(b.process, b.track, b.start_ns, -b.end_ns);
  });
  for (size_t begin = 0; begin < slices.size();) {
    std::vector<TraceSlice*> track;
    size_t end = begin;
    while (end < slices.size() && slices[end].process == slices[begin].process &&
           slices[end].track == slices[begin].track) {
      track.push_back(&slices[end++]);
    }
    STAGECOACH_RETURN_IF_ERROR(separate_track(track));
    begin = end;
  }
  return slices;
}

Json slice_event(const TraceSlice& slice, int64_t origin_ns) {
  Json event = Json::object();
  event["name"] = slice.name.view();
  event["cat"] = slice.category;
  event["ph"] = "X";
  event["ts"] = to_microseconds(slice.start_ns - origin_ns);
  event["dur"] = to_microseconds(slice.end_ns - slice.start_ns);
  event["pid"] = viewer_process(slice.process);
  event["tid"] = viewer_thread(slice.process, slice.track);
  Json args = Json::object();
  if (slice.micro_batch >= 0) args["micro_batch"] = slice.micro_batch;
  if (slice.stage >= 0) args["stage"] = slice.stage;
  if (slice.iteration >= 0) args["iteration"] = slice.iteration;
  if (slice.bytes >= 0) args["bytes"] = slice.bytes;
  if (!args.members().empty()) event["args"] = std::move(args);
  return event;
}

Json metadata_event(const char* kind, int process, int track, const char* key, Json value) {
  Json event = Json::object();
  event["name"] = kind;
  event["ph"] = "M";
  event["pid"] = viewer_process(process);
  if (track >= 0) event["tid"] = viewer_thread(process, track);
  event["args"][key] = std::move(value);
  return event;
}

}  // namespace

Trace::Trace(size_t capacity) : capacity_(capacity) {
  slices_.reserve(capacity);
}

void Trace::name_process(int process, std::string name) {
  name_track(process, -1, std::move(name));
}

void Trace::name_track(int process, int track, std::string name) {
  std::lock_guard lock(mutex_);
  for (TrackName& known : names_) {
    if (known.process == process && known.track == track) {
      known.name = std::move(name);
      return;
    }
  }
  names_.push_back({process, track, std::move(name)});
}

void Trace::add(const TraceSlice& slice) {
  std::lock_guard lock(mutex_);
  if (slices_.size() < capacity_) {
    slices_.push_back(slice);
  } else {
    ++dropped_;
  }
}

int64_t Trace::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

std::vector<TraceSlice> Trace::slices() const {
  std::lock_guard lock(mutex_);
  return slices_;
}

std::vector<Json> Trace::name_events() const {
  std::lock_guard lock(mutex_);
  std::vector<Json> events;
  for (const TrackName& entry : names_) {
    bool is_process = entry.track < 0;
    events.push_back(metadata_event(is_process ? "process_name" : "thread_name", entry.process,
                                    entry.track, "name", entry.name));
    events.push_back(metadata_event(is_process ? "process_sort_index" : "thread_sort_index",
                                    entry.process, entry.track, "sort_index",
                                    is_process ? entry.process : entry.track));
  }
  return events;
}

Status Trace::for_each_event(const std::function<void(Json)>& visit) const {
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<TraceSlice> arranged, arrange(slices()));
  int64_t origin_ns = arranged.empty() ? 0 : arranged.front().start_ns;
  for (const TraceSlice& slice : arranged) origin_ns = std::min(origin_ns, slice.start_ns);
  for (Json& event : name_events()) visit(std::move(event));
  for (const TraceSlice& slice : arranged) visit(slice_event(slice, origin_ns));
  return Status::ok();
}

Status Trace::write_perfetto(const std::string& path) const {
  // Event by event: the whole trace as values would take ten times the memory of its text.
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_slices\":" + std::to_string(dropped()) +
      "},\"traceEvents\":[";
  bool first = true;
  STAGECOACH_RETURN_IF_ERROR(for_each_event([&](Json event) {
    text += first ? "\n" : ",\n";
    first = false;
    text += event.dump();
  }));
  text += "\n]}\n";
  return write_file_atomically(path, text);
}

Result<Json> Trace::to_perfetto() const {
  Json::Array events;
  STAGECOACH_RETURN_IF_ERROR(
      for_each_event([&events](Json event) { events.push_back(std::move(event)); }));
  Json trace = Json::object();
  trace["displayTimeUnit"] = "ns";
  trace["otherData"]["dropped_slices"] = dropped();
  trace["traceEvents"] = std::move(events);
  return trace;
}

}  // namespace stagecoach
