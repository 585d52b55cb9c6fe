#include "backends/cpu/cpu_event.h"

namespace stagecoach {

EventRecordRef CpuEvent::record() const {
  std::lock_guard lock(record_mutex_);
  return record_;
}

void CpuEvent::set_record(EventRecordRef record) {
  // The old recording is let go after the lock, when `record` goes.
  std::lock_guard lock(record_mutex_);
  std::swap(record_, record);
}

Result<bool> CpuEvent::do_query() const {
  EventRecordRef latest = record();
  if (!latest->is_done()) return false;
  STAGECOACH_RETURN_IF_ERROR(latest->status());
  return true;
}

Status CpuEvent::do_synchronize() const {
  EventRecordRef latest = record();
  latest->wait();
  return latest->status();
}

Result<int64_t> CpuEvent::do_timestamp_ns() const {
  if (!options_.timing) {
    return failed_precondition("the event was created without timing; set EventOptions::timing");
  }
  EventRecordRef latest = record();
  if (!latest->is_done()) {
    return failed_precondition("the event has not been passed yet; synchronize first");
  }
  STAGECOACH_RETURN_IF_ERROR(latest->status());
  return latest->passed_ns();
}

}  // namespace stagecoach
