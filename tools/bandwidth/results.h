#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/capacity_fit.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// Of the JSON; a change that readers must know of makes it one more.
inline constexpr int kBandwidthSchemaVersion = 1;

/// How much a finding matters.
enum class Severity : uint8_t { kNote, kWarning, kError };

/// "note", "warning", "error".
const char* severity_name(Severity severity);

/// Something that the results say about the machine, and what to do about it.
struct Finding {
  Severity severity = Severity::kNote;
  std::string text;
  std::string remedy;
  std::vector<std::string> results;  ///< ids that it follows from
};

/// What a set of devices reached together.
struct CurvePoint {
  DeviceSet devices = 0;
  double total = 0;
};

/// The capacities found for one direction, in GB/s.
struct ContentionFit {
  std::string direction;             ///< "up" or "down"
  std::vector<std::string> devices;  ///< ids; bit i of a set is device i
  CapacityModel model;
  int64_t sets_measured = 0;
  /// One device more in each point: in an order that fills one pool after the other, and in one
  /// that takes a device of each pool in turn.
  std::vector<CurvePoint> packed, spread;
};

/// Everything that a run of `bench bandwidth` found. Plain data.
struct BandwidthReport {
  Json context = Json::object();  ///< machine, devices, options
  std::vector<MeasurementRecord> records;
  std::vector<ContentionFit> fits;
  std::vector<Finding> findings;
  std::vector<std::string> notes;  ///< what was left out, and why
  bool is_interrupted = false;

  /// The record of that id, or null.
  const MeasurementRecord* find(const std::string& id) const;
};

/// The whole report as docs/bandwidth.schema.json says. With `has_samples` every sample is in it.
Json bandwidth_json(const BandwidthReport& report, bool has_samples);

/// A line a quantity of each record: id, group, status, quantity, unit, n, median, p5, p95, min,
/// max, sigma, cv, payload bytes, directions, flags. Columns are frozen for a schema version.
std::string bandwidth_csv(const BandwidthReport& report);

/// For people: a section a group, findings at the end.
std::string bandwidth_table(const BandwidthReport& report);

/// The exit code of the contract: 130 interrupted, 3 wrong data, 5 something failed or ran out of
/// time (and, where `is_strict`, was skipped), else 0.
int bandwidth_exit_code(const BandwidthReport& report, bool is_strict);

}  // namespace stagecoach
