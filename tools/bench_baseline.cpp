#include "tools/bench_baseline.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/file.h"
#include "tools/bandwidth/id_filter.h"
#include "tools/bandwidth/results_reader.h"

namespace stagecoach {

Result<BandwidthReport> read_bandwidth_report(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  return read_bandwidth_json(*json, path);
}

Result<BandwidthReport> read_baseline(const BenchOptions& options, const BandwidthSuite& suite) {
  STAGECOACH_ASSIGN_OR_RETURN(BandwidthReport baseline, read_bandwidth_report(options.baseline));
  STAGECOACH_ASSIGN_OR_RETURN(IdFilter filter, IdFilter::parse(options.filter));
  std::erase_if(baseline.records, [&](const MeasurementRecord& record) {
    const std::string& group = record.info.group;
    bool is_of_suite =
        std::find(suite.groups.begin(), suite.groups.end(), group) != suite.groups.end();
    bool is_wanted = options.group.empty() || group == options.group;
    return !is_of_suite || !is_wanted || !filter.matches(record.info.id);
  });
  return baseline;
}

Status check_baseline_meets(const BandwidthReport& baseline, const std::string& path,
                            const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const MeasurementRecord* known = baseline.find(id);
    if (known != nullptr && known->is_ok()) return Status::ok();
  }
  return invalid_argument(
      fmt::format("--baseline is '{}', which has no result that is measured here; measure the "
                  "same suite, devices and sizes, --list prints ids",
                  path));
}

}  // namespace stagecoach
