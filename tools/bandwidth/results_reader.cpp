#include "tools/bandwidth/results_reader.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

namespace {

/// Reads members and remembers the first that is not there or of another type.
class MemberReader {
 public:
  explicit MemberReader(std::string source) : source_(std::move(source)) {}

  const Status& status() const { return status_; }

  double number(const Json& object, const char* name) {
    const Json* value = object.find(name);
    return is_good(value != nullptr && value->is_number(), name) ? value->as_number() : 0;
  }
  int64_t integer(const Json& object, const char* name) {
    const Json* value = object.find(name);
    return is_good(value != nullptr && value->is_integer(), name) ? value->as_integer() : 0;
  }
  std::string text(const Json& object, const char* name) {
    const Json* value = object.find(name);
    return is_good(value != nullptr && value->is_string(), name) ? value->as_string()
                                                                 : std::string();
  }
  const Json::Array& list(const Json& object, const char* name) {
    static const Json::Array none;
    const Json* value = object.find(name);
    return is_good(value != nullptr && value->is_array(), name) ? value->items() : none;
  }
  const Json& object(const Json& owner, const char* name) {
    static const Json none = Json::object();
    const Json* value = owner.find(name);
    return is_good(value != nullptr && value->is_object(), name) ? *value : none;
  }
  /// Whether `is_so`; else `name` is at fault.
  bool is_good(bool is_so, const char* name) {
    if (!is_so && status_.is_ok()) {
      status_ = invalid_argument(fmt::format(
          "{}: '{}' is missing or not what a bandwidth report has; use a file that --out wrote",
          source_, name));
    }
    return is_so;
  }

 private:
  std::string source_;
  Status status_;
};

SampleStatistics read_statistics(const Json& json, MemberReader& reader) {
  SampleStatistics one;
  one.n = reader.integer(json, "n");
  if (one.n == 0) return one;
  one.median = reader.number(json, "median");
  one.p5 = reader.number(json, "p5");
  one.p95 = reader.number(json, "p95");
  one.p99 = reader.number(json, "p99");
  one.min = reader.number(json, "min");
  one.max = reader.number(json, "max");
  one.sigma = reader.number(json, "sigma");
  one.cv = reader.number(json, "cv");
  one.median_low = reader.number(json, "median_low");
  one.median_high = reader.number(json, "median_high");
  return one;
}

template <typename Value, typename Name>
Value named_value(const std::string& text, Value last, Name name, MemberReader& reader,
                  const char* member) {
  for (int number = 0; number <= static_cast<int>(last); ++number) {
    if (name(static_cast<Value>(number)) == text) return static_cast<Value>(number);
  }
  reader.is_good(false, member);
  return last;
}

DataCheck read_check(const Json& json, MemberReader& reader) {
  DataCheck check;
  check.bytes = reader.integer(json, "bytes");
  if (reader.text(json, "status") != "mismatch") return check;
  check.wrong_bytes = reader.integer(json, "wrong_bytes");
  check.first_wrong = reader.integer(json, "first_wrong");
  check.flipped_bits = static_cast<uint8_t>(reader.integer(json, "flipped_bits"));
  return check;
}

MeasurementRecord read_record(const Json& json, MemberReader& reader) {
  MeasurementRecord record;
  MeasurementInfo& info = record.info;
  info.id = reader.text(json, "id");
  info.group = reader.text(json, "group");
  info.params = reader.object(json, "params");
  const Json& counted = reader.object(json, "counted");
  info.payload_bytes = reader.integer(counted, "payload_bytes");
  info.directions = static_cast<int>(reader.integer(counted, "directions"));
  const Json* limit = json.find("limit");
  if (limit != nullptr && limit->is_number()) info.limit = limit->as_number();
  record.status = named_value(reader.text(json, "status"), MeasurementStatus::kNotRun,
                              measurement_status_name, reader, "status");
  const Json* reason = json.find("reason");
  if (reason != nullptr && reason->is_string()) record.reason = reason->as_string();
  for (const Json& one : reader.list(json, "quantities")) {
    info.quantities.push_back({reader.text(one, "name"), reader.text(one, "unit")});
    record.statistics.push_back(read_statistics(reader.object(one, "stats"), reader));
    std::vector<double>& samples = record.samples.emplace_back();
    const Json* written = one.find("samples");
    if (written == nullptr || !written->is_array()) continue;
    for (const Json& sample : written->items()) {
      if (reader.is_good(sample.is_number(), "samples")) samples.push_back(sample.as_number());
    }
  }
  reader.is_good(!info.quantities.empty(), "quantities");
  for (const Json& flag : reader.list(json, "flags")) {
    if (!reader.is_good(flag.is_string(), "flags")) break;
    record.add_flag(
        named_value(flag.as_string(), SampleFlag::kInterrupted, sample_flag_name, reader, "flags"));
  }
  record.check = read_check(reader.object(json, "verify"), reader);
  return record;
}

/// The set of the devices whose ids are listed under `devices`.
DeviceSet read_set(const Json& json, const ContentionFit& fit, MemberReader& reader) {
  DeviceSet set = 0;
  for (const Json& id : reader.list(json, "devices")) {
    auto found = std::find_if(fit.devices.begin(), fit.devices.end(), [&](const std::string& one) {
      return id.is_string() && one == id.as_string();
    });
    if (!reader.is_good(found != fit.devices.end(), "devices")) return set;
    set |= DeviceSet{1} << (found - fit.devices.begin());
  }
  return set;
}

std::vector<CurvePoint> read_curve(const Json::Array& curve, const ContentionFit& fit,
                                   MemberReader& reader) {
  std::vector<CurvePoint> points;
  for (const Json& one : curve) {
    points.push_back({read_set(one, fit, reader), reader.number(one, "total")});
  }
  return points;
}

ContentionFit read_fit(const Json& json, MemberReader& reader) {
  ContentionFit fit;
  fit.direction = reader.text(json, "direction");
  for (const Json& link : reader.list(json, "links")) {
    fit.devices.push_back(reader.text(link, "device"));
    fit.model.links.push_back(reader.number(link, "rate"));
  }
  for (const Json& pool : reader.list(json, "pools")) {
    fit.model.pools.push_back({read_set(pool, fit, reader), reader.number(pool, "capacity")});
  }
  fit.model.residual = reader.number(json, "residual");
  const Json* is_complete = json.find("is_complete");
  if (reader.is_good(is_complete != nullptr && is_complete->is_bool(), "is_complete")) {
    fit.model.is_complete = is_complete->as_bool();
  }
  fit.sets_measured = reader.integer(json, "sets_measured");
  fit.packed = read_curve(reader.list(json, "packed"), fit, reader);
  fit.spread = read_curve(reader.list(json, "spread"), fit, reader);
  return fit;
}

}  // namespace

Result<BandwidthReport> read_bandwidth_json(const Json& json, const std::string& source) {
  MemberReader reader(source);
  BandwidthReport report;
  int64_t version = reader.integer(json, "schema_version");
  STAGECOACH_RETURN_IF_ERROR(reader.status());
  if (version != kBandwidthSchemaVersion) {
    return invalid_argument(
        fmt::format("{}: schema_version is {}; it must be {}: measure again with this version",
                    source, version, kBandwidthSchemaVersion));
  }
  report.context = reader.object(json, "context");
  const Json* is_interrupted = json.find("is_interrupted");
  if (reader.is_good(is_interrupted != nullptr && is_interrupted->is_bool(), "is_interrupted")) {
    report.is_interrupted = is_interrupted->as_bool();
  }
  for (const Json& one : reader.list(json, "results")) {
    report.records.push_back(read_record(one, reader));
  }
  for (const Json& one : reader.list(json, "fits")) report.fits.push_back(read_fit(one, reader));
  for (const Json& one : reader.list(json, "notes")) {
    if (reader.is_good(one.is_string(), "notes")) report.notes.push_back(one.as_string());
  }
  STAGECOACH_RETURN_IF_ERROR(reader.status());
  return report;
}

}  // namespace stagecoach
