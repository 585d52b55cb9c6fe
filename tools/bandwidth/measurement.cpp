#include "tools/bandwidth/measurement.h"

#include <algorithm>

namespace stagecoach {

void DataCheck::add(const DataCheck& other) {
  if (first_wrong < 0) first_wrong = other.first_wrong;
  bytes += other.bytes;
  wrong_bytes += other.wrong_bytes;
  flipped_bits |= other.flipped_bits;
}

void Batch::flag_overrun(int64_t overrun_ns) {
  constexpr double kMost = 0.01;
  bool is_late = static_cast<double>(overrun_ns) > kMost * static_cast<double>(duration_ns);
  if (is_late) flags.push_back(SampleFlag::kOverrun);
}

std::string_view measurement_status_name(MeasurementStatus status) {
  switch (status) {
    case MeasurementStatus::kOk:
      return "ok";
    case MeasurementStatus::kSkipped:
      return "skipped";
    case MeasurementStatus::kFailed:
      return "failed";
    case MeasurementStatus::kMismatch:
      return "mismatch";
    case MeasurementStatus::kTimeout:
      return "timeout";
    case MeasurementStatus::kNotRun:
      return "not_run";
  }
  return "unknown";
}

bool MeasurementRecord::has_flag(SampleFlag flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

void MeasurementRecord::add_flag(SampleFlag flag) {
  if (!has_flag(flag)) flags.push_back(flag);
}

double MeasurementRecord::median(size_t index) const {
  return index < statistics.size() ? statistics[index].median : 0;
}

}  // namespace stagecoach
