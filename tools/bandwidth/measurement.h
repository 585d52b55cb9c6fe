#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/json.h"
#include "core/status.h"
#include "tools/bandwidth/statistics.h"

namespace stagecoach {

/// What a measurement yields: "rate" in "GB/s". The first of several decides about noise.
struct Quantity {
  std::string name;
  std::string unit;
};

/// What a measurement is. Plain data.
struct MeasurementInfo {
  std::string id;     ///< "copy/cuda:0/up/pinned/64M": unique, and the same in every run
  std::string group;  ///< "copy"
  Json params = Json::object();
  std::vector<Quantity> quantities;
  ByteCount payload_bytes = 0;  ///< of one repeat, in all directions
  int directions = 1;           ///< that `payload_bytes` adds up
  double limit = 0;             ///< what the first quantity cannot exceed, by theory; 0: unknown
};

/// Whether bytes arrived as they were sent.
struct DataCheck {
  ByteCount bytes = 0;        ///< compared; 0: nothing was
  ByteCount wrong_bytes = 0;  ///< that differ
  ByteCount first_wrong = -1;
  uint8_t flipped_bits = 0;  ///< all that differ somewhere

  void add(const DataCheck& other);
};

/// What one batch gave.
struct Batch {
  int64_t duration_ns = 0;                   ///< for the choice of repeats
  std::vector<std::vector<double>> samples;  ///< per quantity; usually one each
  std::vector<SampleFlag> flags;

  /// Flags it where a mock was this much slower than its pace, and that is more than 1 % of it.
  void flag_overrun(int64_t overrun_ns);
};

/// Something that can be measured again and again. Errors of all members: the device's; deadline
/// exceeded once `deadline_ns` of RealClock is past, after which it is not used any more.
/// Thread rule: one thread.
class Measurement {
 public:
  explicit Measurement(MeasurementInfo info) : info_(std::move(info)) {}
  virtual ~Measurement() = default;

  const MeasurementInfo& info() const { return info_; }
  /// Gets what it needs. Resource exhausted: it is skipped.
  virtual Status prepare() { return Status::ok(); }
  /// Measures `repeats` (above 0) units of work, whatever one is.
  virtual Result<Batch> run(int64_t repeats, int64_t deadline_ns) = 0;
  /// Spoils what the next batch is to write.
  virtual Status poison() { return Status::ok(); }
  /// Compares what the last batch wrote.
  virtual Result<DataCheck> check(int64_t /*deadline_ns*/) { return DataCheck{}; }
  /// What only measuring has shown, for the record's params, by name; null: nothing.
  virtual Json details() const { return {}; }
  /// Most repeats a batch may have.
  virtual int64_t most_repeats() const { return int64_t{1} << 16; }

 protected:
  /// For `prepare`: says what turned out only then.
  void set_param(const char* name, Json value) { info_.params[name] = std::move(value); }

 private:
  MeasurementInfo info_;
};

/// How a measurement ended.
enum class MeasurementStatus : uint8_t {
  kOk,
  kSkipped,   ///< cannot be had here; `reason` says why
  kFailed,    ///< the device or the system failed
  kMismatch,  ///< bytes arrived wrong
  kTimeout,   ///< no end within its time limit
  kNotRun     ///< interrupted before it had a sample
};

/// "ok", "skipped", "failed", "mismatch", "timeout", "not_run".
std::string_view measurement_status_name(MeasurementStatus status);

/// A measurement and what came of it. Plain data.
struct MeasurementRecord {
  MeasurementInfo info;
  MeasurementStatus status = MeasurementStatus::kNotRun;
  std::string reason;                        ///< where it is not ok
  std::vector<std::vector<double>> samples;  ///< per quantity, in the order of time
  std::vector<SampleStatistics> statistics;  ///< per quantity
  std::vector<SampleFlag> flags;             ///< each once
  DataCheck check;
  int64_t repeats = 0;  ///< of a batch

  bool is_ok() const { return status == MeasurementStatus::kOk; }
  bool has_flag(SampleFlag flag) const;
  void add_flag(SampleFlag flag);
  /// The median of quantity `index`; 0 where it was not measured.
  double median(size_t index = 0) const;
};

}  // namespace stagecoach
