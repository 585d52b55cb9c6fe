#include "testing/recording_backend.h"

#include <set>
#include <sstream>
#include <utility>

#include "testing/decorated_backend.h"
#include "testing/fault_plan.h"

namespace stagecoach {

namespace {

std::string lane_of(const LogEntry& entry) {
  return entry.stream.empty() ? entry.device : entry.device + "/" + entry.stream;
}

/// Work is what can be corrupted: it writes memory on a stream.
bool is_wanted(const LogEntry& entry, LogDetail detail) {
  return detail == LogDetail::kAll || fault_applies(FaultKind::kCorrupt, entry.verb);
}

std::string format_entry(const LogEntry& entry) {
  std::string line = entry.verb + " '" + entry.label + "' " + std::to_string(entry.size_bytes);
  if (entry.outcome != StatusCode::kOk) {
    line += " -> " + std::string(status_code_name(entry.outcome));
  }
  return line;
}

/// The next line of `text`, or "nothing" at its end.
std::string next_line(std::istringstream& text) {
  std::string line;
  return std::getline(text, line) ? line : "nothing";
}

std::string lane_difference(const std::string& lane, const std::string& left,
                            const std::string& right) {
  std::istringstream left_lines(left), right_lines(right);
  for (int position = 1;; ++position) {
    std::string left_line = next_line(left_lines);
    std::string right_line = next_line(right_lines);
    if (left_line == right_line) continue;
    return lane + ", operation " + std::to_string(position) + ": " + left_line + " against " +
           right_line;
  }
}

}  // namespace

void OperationLog::append(LogEntry entry) {
  std::lock_guard lock(mutex_);
  entry.sequence = entries_.size() + 1;
  entries_.push_back(std::move(entry));
}

std::vector<LogEntry> OperationLog::entries() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

std::vector<std::string> OperationLog::lanes() const {
  std::set<std::string> lanes;
  for (const LogEntry& entry : entries()) lanes.insert(lane_of(entry));
  return {lanes.begin(), lanes.end()};
}

std::string OperationLog::format_lane(const std::string& lane, LogDetail detail) const {
  std::string text;
  for (const LogEntry& entry : entries()) {
    if (lane_of(entry) != lane || !is_wanted(entry, detail)) continue;
    text += format_entry(entry) + "\n";
  }
  return text;
}

std::string OperationLog::format(LogDetail detail) const {
  std::string text;
  for (const std::string& lane : lanes()) {
    std::string lines = format_lane(lane, detail);
    if (!lines.empty()) text += lane + "\n" + lines;
  }
  return text;
}

std::string first_difference(const OperationLog& left, const OperationLog& right) {
  std::set<std::string> lanes;
  for (const OperationLog* log : {&left, &right}) {
    for (std::string& lane : log->lanes()) lanes.insert(std::move(lane));
  }
  for (const std::string& lane : lanes) {
    std::string left_text = left.format_lane(lane);
    std::string right_text = right.format_lane(lane);
    if (left_text != right_text) return lane_difference(lane, left_text, right_text);
  }
  return "";
}

void Recorder::after(const VerbCall& call, const Status& outcome) {
  LogEntry entry;
  entry.device = std::string(call.device);
  entry.stream = std::string(call.stream);
  entry.verb = std::string(call.verb);
  entry.label = std::string(call.label.view());
  entry.size_bytes = call.size_bytes;
  entry.outcome = outcome.code();
  log_->append(std::move(entry));
}

std::unique_ptr<Backend> make_recording_backend(std::unique_ptr<Backend> inner,
                                                std::shared_ptr<OperationLog> log) {
  return std::make_unique<DecoratedBackend>(std::move(inner),
                                            std::make_shared<Recorder>(std::move(log)));
}

}  // namespace stagecoach
