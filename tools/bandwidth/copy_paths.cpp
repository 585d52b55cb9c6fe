#include "tools/bandwidth/copy_paths.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <tuple>
#include <utility>

namespace stagecoach {

namespace {

constexpr double kSmallBytes = 4096;
constexpr double kNearSmall = 16384;    ///< a line through sizes up to this is known at 4 KiB
constexpr double kClearlyFaster = 1.1;  ///< than the next one, to be advice

/// A size of a path and what a copy of it takes.
struct TimedSize {
  double bytes = 0, time_us = 0;
};

std::string text_of(const MeasurementRecord& record, const char* key) {
  const Json* value = record.info.params.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

bool is_doubtful(const MeasurementRecord& record) {
  return record.has_flag(SampleFlag::kOverrun) || record.has_flag(SampleFlag::kNoisy);
}

std::optional<TimedSize> timed_size(const MeasurementRecord& record) {
  const Json* size = record.info.params.find("size");
  const Json* depth = record.info.params.find("depth");
  bool is_limited = depth != nullptr && !depth->is_null();
  bool is_copy = record.is_ok() && record.info.group == "copy" && record.median() > 0;
  if (!is_copy || is_limited || size == nullptr || !size->is_integer()) return std::nullopt;
  auto bytes = static_cast<double>(size->as_integer());
  return TimedSize{bytes, bytes / record.median() / 1e3};
}

/// Minimises the squares of (latency + bytes / rate) / time - 1.
void fit_line(const std::vector<TimedSize>& times, CopyPath& path) {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  for (const TimedSize& one : times) {
    double inverse = 1 / one.time_us, slope = one.bytes / one.time_us;
    xx += inverse * inverse;
    xy += inverse * slope;
    yy += slope * slope;
    x += inverse;
    y += slope;
  }
  double determinant = xx * yy - xy * xy;
  double latency_us = (x * yy - y * xy) / determinant;
  double us_a_byte = (y * xx - x * xy) / determinant;
  path.latency_us = std::max(0.0, latency_us);
  path.gb_per_s = 1 / us_a_byte / 1e3;
}

const CopyPath* path_like(const std::vector<CopyPath>& paths, const CopyPath& like,
                          const std::string& engine) {
  auto found = std::find_if(paths.begin(), paths.end(), [&](const CopyPath& one) {
    return one.device == like.device && one.direction == like.direction && one.kind == like.kind &&
           one.engine == engine;
  });
  return found == paths.end() ? nullptr : &*found;
}

/// Whether the first of them, sorted, is known to be the fastest for small copies.
bool is_choice(const std::vector<const CopyPath*>& ways) {
  if (ways.size() < 2) return false;
  bool is_known = std::all_of(ways.begin(), ways.end(), [](const CopyPath* one) {
    return one->is_known_at_4k && !one->is_doubtful;
  });
  return is_known &&
         ways[1]->time_us(kSmallBytes) >= kClearlyFaster * ways[0]->time_us(kSmallBytes);
}

Finding cheapest_of(const std::vector<const CopyPath*>& paths) {
  const CopyPath& best = *paths.front();
  std::string others;
  for (size_t index = 1; index < paths.size(); ++index) {
    others += fmt::format(", {:.3g} {}", paths[index]->time_us(kSmallBytes), paths[index]->words());
  }
  return {Severity::kNote,
          fmt::format("4 KiB {} {} take least {}: {:.3g} us{}", best.device, best.direction,
                      best.words(), best.time_us(kSmallBytes), others),
          "small copies in numbers go that way",
          {}};
}

}  // namespace

std::string CopyPath::words() const {
  return fmt::format("by {} {} {} memory", engine == "kernel" ? "a kernel" : "the copy engine",
                     direction == "up" ? "from" : "to", kind);
}

std::vector<CopyPath> fit_copy_paths(const BandwidthReport& report) {
  std::vector<CopyPath> paths;
  std::vector<std::vector<TimedSize>> times;
  for (const MeasurementRecord& record : report.records) {
    std::optional<TimedSize> timed = timed_size(record);
    if (!timed) continue;
    CopyPath path{text_of(record, "device"), text_of(record, "dir"), text_of(record, "kind"),
                  text_of(record, "engine")};
    const CopyPath* known = path_like(paths, path, path.engine);
    size_t index = known == nullptr ? paths.size() : static_cast<size_t>(known - paths.data());
    if (known == nullptr) {
      paths.push_back(std::move(path));
      times.emplace_back();
    }
    times[index].push_back(*timed);
    bool is_near = timed->bytes <= kNearSmall;
    paths[index].is_known_at_4k = paths[index].is_known_at_4k || is_near;
    paths[index].is_doubtful = paths[index].is_doubtful || is_doubtful(record);
  }
  constexpr size_t kFewestSizes = 3;
  std::vector<CopyPath> fitted;
  for (size_t index = 0; index < paths.size(); ++index) {
    if (times[index].size() < kFewestSizes) continue;
    paths[index].sizes = static_cast<int>(times[index].size());
    fit_line(times[index], paths[index]);
    // Rates that fall with the size, or a single size again and again, have no such line.
    bool is_line = std::isfinite(paths[index].gb_per_s) && paths[index].gb_per_s > 0;
    if (is_line) fitted.push_back(std::move(paths[index]));
  }
  return fitted;
}

std::vector<Finding> find_copy_paths(const BandwidthReport& report) {
  std::vector<CopyPath> paths = fit_copy_paths(report);
  std::vector<Finding> findings;
  for (const CopyPath& first : paths) {
    std::vector<const CopyPath*> ways;
    for (const CopyPath& path : paths) {
      bool is_same = path.device == first.device && path.direction == first.direction;
      if (is_same) ways.push_back(&path);
    }
    if (ways.front() != &first) continue;
    std::stable_sort(ways.begin(), ways.end(), [](const CopyPath* a, const CopyPath* b) {
      return a->time_us(kSmallBytes) < b->time_us(kSmallBytes);
    });
    if (is_choice(ways)) findings.push_back(cheapest_of(ways));
    const CopyPath* kernel = path_like(paths, first, "kernel");
    const CopyPath* engine = path_like(paths, first, "copy");
    if (kernel == nullptr || engine == nullptr || kernel->gb_per_s >= engine->gb_per_s) continue;
    findings.push_back(
        {Severity::kNote,
         fmt::format("{} {}: kernels copy {:.3g} GB/s, the copy engine {:.3g}: no fault",
                     first.device, first.direction, kernel->gb_per_s, engine->gb_per_s),
         "large copies go by the copy engine, which also leaves kernels the card",
         {}});
  }
  return findings;
}

Json copy_path_json(const CopyPath& path) {
  Json json = Json::object();
  json["device"] = path.device;
  json["dir"] = path.direction;
  json["kind"] = path.kind;
  json["engine"] = path.engine;
  json["latency_us"] = path.latency_us;
  json["rate"] = path.gb_per_s;
  json["sizes"] = path.sizes;
  json["time_4k_us"] = path.time_us(kSmallBytes);
  return json;
}

}  // namespace stagecoach
