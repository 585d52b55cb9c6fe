#pragma once

#include <memory>

#include "backends/sim/sim_machine.h"
#include "backends/sim/sim_record.h"
#include "hal/device.h"

namespace stagecoach {

/// An event of a simulated card: points at its latest recording. Thread rule: one thread.
class SimEvent final : public Event {
 public:
  SimEvent(Device& owner, SimMachine& machine, const EventOptions& options)
      : Event(owner), machine_(machine), options_(options) {}

  const std::shared_ptr<SimRecord>& record() const { return record_; }
  void set_record(std::shared_ptr<SimRecord> record) { record_ = std::move(record); }

 private:
  Result<bool> do_query() const override {
    if (record_->is_settled && !record_->failure.is_ok()) return record_->failure;
    record_->is_asked_about = true;
    return record_->is_settled;
  }
  Status do_synchronize() const override {
    std::shared_ptr<SimRecord> record = record_;
    while (!record->is_settled) {
      if (!machine_.time().advance()) {
        return internal_error("nothing is left to happen, and the event is not passed: a deadlock");
      }
    }
    return record->failure;
  }
  Result<int64_t> do_timestamp_ns() const override {
    if (!options_.timing) {
      return failed_precondition("the event was created without timing; set EventOptions::timing");
    }
    if (!record_->is_settled) return failed_precondition("the event has not been passed yet");
    if (!record_->failure.is_ok()) return record_->failure;
    return record_->time_ns;
  }

  SimMachine& machine_;
  const EventOptions options_;
  std::shared_ptr<SimRecord> record_;
};

}  // namespace stagecoach
