#include "tools/bandwidth/results.h"

#include <fmt/format.h>

#include "core/printable.h"
#include "tools/bandwidth/copy_paths.h"
#include "tools/exit_code.h"

namespace stagecoach {

namespace {

Json statistics_json(const SampleStatistics& statistics) {
  Json json = Json::object();
  json["n"] = statistics.n;
  if (statistics.n == 0) return json;
  json["median"] = statistics.median;
  json["p5"] = statistics.p5;
  json["p95"] = statistics.p95;
  json["p99"] = statistics.p99;
  json["min"] = statistics.min;
  json["max"] = statistics.max;
  json["sigma"] = statistics.sigma;
  json["cv"] = statistics.cv;
  json["median_low"] = statistics.median_low;
  json["median_high"] = statistics.median_high;
  return json;
}

Json list_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (double value : values) list.push_back(value);
  return list;
}

Json quantity_json(const MeasurementRecord& record, size_t index, bool has_samples) {
  const Quantity& quantity = record.info.quantities[index];
  Json json = Json::object();
  json["name"] = quantity.name;
  json["unit"] = quantity.unit;
  json["stats"] = index < record.statistics.size() ? statistics_json(record.statistics[index])
                                                   : statistics_json({});
  if (has_samples) json["samples"] = list_of(record.samples[index]);
  return json;
}

Json verify_json(const MeasurementRecord& record) {
  Json json = Json::object();
  const DataCheck& check = record.check;
  json["status"] = check.bytes == 0 ? "not_checked" : check.wrong_bytes > 0 ? "mismatch" : "ok";
  json["bytes"] = check.bytes;
  if (check.wrong_bytes == 0) return json;
  json["wrong_bytes"] = check.wrong_bytes;
  json["first_wrong"] = check.first_wrong;
  json["flipped_bits"] = static_cast<int>(check.flipped_bits);
  return json;
}

Json record_json(const MeasurementRecord& record, bool has_samples) {
  const MeasurementInfo& info = record.info;
  Json json = Json::object();
  json["id"] = info.id;
  json["group"] = info.group;
  json["params"] = info.params;
  json["status"] = measurement_status_name(record.status);
  json["reason"] = record.is_ok() ? Json() : Json(record.reason);
  json["unit"] = info.quantities.front().unit;
  json["stats"] =
      record.statistics.empty() ? statistics_json({}) : statistics_json(record.statistics.front());
  json["quantities"] = Json::array();
  for (size_t index = 0; index < info.quantities.size(); ++index) {
    json["quantities"].push_back(quantity_json(record, index, has_samples));
  }
  json["limit"] = info.limit > 0 ? Json(info.limit) : Json();
  Json counted = Json::object();
  counted["payload_bytes"] = info.payload_bytes;
  counted["directions"] = info.directions;
  json["counted"] = std::move(counted);
  json["flags"] = Json::array();
  for (SampleFlag flag : record.flags) json["flags"].push_back(sample_flag_name(flag));
  json["verify"] = verify_json(record);
  return json;
}

Json finding_json(const Finding& finding) {
  Json json = Json::object();
  json["severity"] = severity_name(finding.severity);
  json["text"] = finding.text;
  json["remedy"] = finding.remedy;
  json["results"] = Json::array();
  for (const std::string& id : finding.results) json["results"].push_back(id);
  return json;
}

Json members_json(const ContentionFit& fit, DeviceSet members) {
  Json list = Json::array();
  for (size_t device = 0; device < fit.devices.size(); ++device) {
    if ((members >> device & 1) != 0) list.push_back(fit.devices[device]);
  }
  return list;
}

Json curve_json(const ContentionFit& fit, const std::vector<CurvePoint>& points) {
  Json curve = Json::array();
  for (const CurvePoint& one : points) {
    Json point = Json::object();
    point["devices"] = members_json(fit, one.devices);
    point["total"] = one.total;
    curve.push_back(std::move(point));
  }
  return curve;
}

Json fit_json(const ContentionFit& fit) {
  Json json = Json::object();
  json["direction"] = fit.direction;
  json["unit"] = "GB/s";
  json["links"] = Json::array();
  for (size_t device = 0; device < fit.devices.size(); ++device) {
    Json link = Json::object();
    link["device"] = fit.devices[device];
    link["rate"] = fit.model.links[device];
    json["links"].push_back(std::move(link));
  }
  json["pools"] = Json::array();
  for (const CapacityPool& pool : fit.model.pools) {
    Json one = Json::object();
    one["devices"] = members_json(fit, pool.members);
    one["capacity"] = pool.capacity;
    json["pools"].push_back(std::move(one));
  }
  json["residual"] = fit.model.residual;
  json["is_complete"] = fit.model.is_complete;
  json["sets_measured"] = fit.sets_measured;
  json["packed"] = curve_json(fit, fit.packed);
  json["spread"] = curve_json(fit, fit.spread);
  return json;
}

std::string flag_list(const MeasurementRecord& record) {
  std::string text;
  for (SampleFlag flag : record.flags) {
    text += (text.empty() ? "" : " ") + std::string(sample_flag_name(flag));
  }
  return text;
}

/// "88 % of 63.0" where it is known what the first quantity cannot exceed.
std::string expectation(const MeasurementRecord& record) {
  if (record.info.limit <= 0) return "";
  return fmt::format("{:.0f} % of {:.1f}", 100 * record.median() / record.info.limit,
                     record.info.limit);
}

std::string record_lines(const MeasurementRecord& record) {
  const MeasurementInfo& info = record.info;
  if (!record.is_ok()) {
    return printable(fmt::format("  {:<44} {}: {}", info.id, measurement_status_name(record.status),
                                 record.reason)) +
           "\n";
  }
  std::string text;
  for (size_t index = 0; index < info.quantities.size(); ++index) {
    const SampleStatistics& one = record.statistics[index];
    bool is_first = index == 0;
    std::string name = is_first ? info.id : "    " + info.quantities[index].name;
    std::string line =
        fmt::format("  {:<44} {:>9.4g} {:>9.4g} {:>9.4g} {:>5}  {:<5} {:<14} {}", name, one.median,
                    one.p5, one.p95, one.n, info.quantities[index].unit,
                    is_first ? expectation(record) : "", is_first ? flag_list(record) : "");
    text += printable(line.substr(0, line.find_last_not_of(' ') + 1)) + "\n";
  }
  return text;
}

std::string fit_lines(const ContentionFit& fit) {
  std::string text =
      fmt::format("\ncapacities {} (GB/s), error of the fit {:.1f} %{}\n", fit.direction,
                  100 * fit.model.residual, fit.model.is_complete ? "" : ", incomplete");
  for (size_t device = 0; device < fit.devices.size(); ++device) {
    text += fmt::format("  {:<44} {:>9.4g}\n", fit.devices[device], fit.model.links[device]);
  }
  for (const CapacityPool& pool : fit.model.pools) {
    std::string names;
    for (size_t device = 0; device < fit.devices.size(); ++device) {
      if ((pool.members >> device & 1) == 0) continue;
      names += (names.empty() ? "" : " + ") + fit.devices[device];
    }
    text += fmt::format("  {:<44} {:>9.4g}  shared\n", names, pool.capacity);
  }
  return text;
}

}  // namespace

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "unknown";
}

const MeasurementRecord* BandwidthReport::find(const std::string& id) const {
  for (const MeasurementRecord& record : records) {
    if (record.info.id == id) return &record;
  }
  return nullptr;
}

Json bandwidth_json(const BandwidthReport& report, bool has_samples) {
  Json json = Json::object();
  json["schema_version"] = kBandwidthSchemaVersion;
  json["context"] = report.context;
  json["is_interrupted"] = report.is_interrupted;
  json["results"] = Json::array();
  for (const MeasurementRecord& record : report.records) {
    json["results"].push_back(record_json(record, has_samples));
  }
  json["fits"] = Json::array();
  for (const ContentionFit& fit : report.fits) json["fits"].push_back(fit_json(fit));
  json["copy_paths"] = Json::array();
  for (const CopyPath& path : fit_copy_paths(report)) {
    json["copy_paths"].push_back(copy_path_json(path));
  }
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) json["findings"].push_back(finding_json(finding));
  json["notes"] = Json::array();
  for (const std::string& note : report.notes) json["notes"].push_back(note);
  return json;
}

std::string bandwidth_csv(const BandwidthReport& report) {
  std::string text =
      "id,group,status,quantity,unit,n,median,p5,p95,min,max,sigma,cv,payload_bytes,directions,"
      "flags\n";
  for (const MeasurementRecord& record : report.records) {
    const MeasurementInfo& info = record.info;
    for (size_t index = 0; index < info.quantities.size(); ++index) {
      SampleStatistics one;
      if (index < record.statistics.size()) one = record.statistics[index];
      text += fmt::format("{},{},{},{},{},{},", info.id, info.group,
                          measurement_status_name(record.status), info.quantities[index].name,
                          info.quantities[index].unit, one.n);
      text += one.n == 0 ? ",,,,,,,"
                         : fmt::format("{},{},{},{},{},{},{},", one.median, one.p5, one.p95,
                                       one.min, one.max, one.sigma, one.cv);
      text += fmt::format("{},{},{}\n", info.payload_bytes, info.directions, flag_list(record));
    }
  }
  return text;
}

std::string bandwidth_table(const BandwidthReport& report) {
  std::string text, group;
  for (const MeasurementRecord& record : report.records) {
    if (record.info.group != group) {
      group = record.info.group;
      text += fmt::format("{}{:<46} {:>9} {:>9} {:>9} {:>5}  {:<5} {}\n", text.empty() ? "" : "\n",
                          group, "median", "p5", "p95", "n", "unit", "of what is possible");
    }
    text += record_lines(record);
  }
  for (const ContentionFit& fit : report.fits) text += fit_lines(fit);
  if (!report.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : report.notes) text += "  " + printable(note) + "\n";
  if (!report.findings.empty()) text += "\nfindings\n";
  for (const Finding& finding : report.findings) {
    text += printable(fmt::format("  {}: {}; {}", severity_name(finding.severity), finding.text,
                                  finding.remedy)) +
            "\n";
  }
  return text;
}

int bandwidth_exit_code(const BandwidthReport& report, bool is_strict) {
  if (report.is_interrupted) return kExitInterrupted;
  int code = kExitOk;
  for (const MeasurementRecord& record : report.records) {
    if (record.status == MeasurementStatus::kMismatch) return kExitData;
    bool is_partial = record.status == MeasurementStatus::kFailed ||
                      record.status == MeasurementStatus::kTimeout ||
                      record.status == MeasurementStatus::kNotRun ||
                      (is_strict && record.status == MeasurementStatus::kSkipped);
    if (is_partial) code = kExitPartial;
  }
  return code;
}

}  // namespace stagecoach
