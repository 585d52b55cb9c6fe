#include "tools/report_prediction.h"

#include <algorithm>
#include <map>
#include <string>

namespace stagecoach {

namespace {

/// From the first start to the last end.
class Span {
 public:
  void cover(const FileSlice& slice) {
    start_us_ = any_ ? std::min(start_us_, slice.start_us) : slice.start_us;
    end_us_ = any_ ? std::max(end_us_, slice.end_us()) : slice.end_us();
    any_ = true;
  }
  double length_us() const { return end_us_ - start_us_; }

 private:
  bool any_ = false;
  double start_us_ = 0, end_us_ = 0;
};

struct Both {
  Span measured, predicted;

  bool is_complete() const { return measured.length_us() > 0 && predicted.length_us() > 0; }
};

Json to_json(const Both& both) {
  Json json = Json::object();
  json["measured_us"] = both.measured.length_us();
  json["predicted_us"] = both.predicted.length_us();
  json["difference"] = both.predicted.length_us() / both.measured.length_us() - 1;
  return json;
}

/// The last iteration that is predicted; -1: none.
int64_t predicted_iteration(const TraceContent& content) {
  int64_t iteration = -1;
  for (const FileSlice& slice : content.slices) {
    if (is_predicted(content, slice.thread)) iteration = std::max(iteration, slice.iteration);
  }
  return iteration;
}

}  // namespace

bool is_predicted(const TraceContent& content, int64_t thread) {
  return content.process_of(thread).starts_with(kPredictedPrefix);
}

Json compare_with_prediction(const TraceContent& content) {
  int64_t iteration = predicted_iteration(content);
  if (iteration < 0) return {};
  Both all;
  std::map<std::string, Both> devices;
  for (const FileSlice& slice : content.slices) {
    if (slice.iteration != iteration || !content.is_compute(slice)) continue;
    std::string device(content.process_of(slice.thread));
    bool predicted = is_predicted(content, slice.thread);
    if (predicted) device.erase(0, kPredictedPrefix.size());
    Both& of_device = devices[device];
    (predicted ? all.predicted : all.measured).cover(slice);
    (predicted ? of_device.predicted : of_device.measured).cover(slice);
  }
  if (!all.is_complete()) return {};
  Json json = to_json(all);
  json["iteration"] = iteration + 1;
  json["devices"] = Json::array();
  for (const auto& [device, both] : devices) {
    if (!both.is_complete()) continue;
    Json one = to_json(both);
    one["device"] = device;
    json["devices"].push_back(std::move(one));
  }
  return json;
}

}  // namespace stagecoach
