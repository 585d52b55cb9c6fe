#pragma once

#include <mutex>

#include "backends/cpu/event_record.h"
#include "hal/event.h"

namespace stagecoach {

/// An event of a CPU device: points at its latest recording.
/// Thread rule: as Event.
class CpuEvent final : public Event {
 public:
  CpuEvent(Device& owner, const EventOptions& options) : Event(owner), options_(options) {}

  /// The latest recording; empty before the first.
  EventRecordRef record() const;
  void set_record(EventRecordRef record);

 private:
  Result<bool> do_query() const override;
  Status do_synchronize() const override;
  Result<int64_t> do_timestamp_ns() const override;

  const EventOptions options_;
  mutable std::mutex record_mutex_;
  EventRecordRef record_;
};

}  // namespace stagecoach
