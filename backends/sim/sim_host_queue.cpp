#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "backends/sim/sim_machine.h"
#include "core/check.h"

namespace stagecoach {

namespace {

constexpr const char* kVerb = "host work";

class SimHostQueue final : public HostQueue {
 public:
  SimHostQueue(SimMachine& machine, std::string name)
      : HostQueue(std::move(name)), machine_(machine) {}
  ~SimHostQueue() override {
    *is_alive_ = false;
    leave_directory();
  }

  Result<Timepoint> submit_after(Timepoint after, Label, HostWorkCost cost, Job) override {
    if (!failure_.is_ok()) return failure_;
    if (!after.is_none()) {
      STAGECOACH_ASSIGN_OR_RETURN(bool over, stagecoach::reached(after));
      if (!over) {
        return unimplemented("simulated host work that waits by itself; await the timepoint first");
      }
    }
    Timepoint timepoint{id(), ++submitted_};
    waiting_.push_back(static_cast<double>(cost.bytes_touched));
    if (waiting_.size() == 1) begin();
    return timepoint;
  }
  Timepoint last_submitted() const override { return Timepoint{id(), submitted_}; }
  void abandon(const Status& status) override {
    STAGECOACH_CHECK(!status.is_ok());
    if (failure_.is_ok()) {
      failure_ = status.with_site(FailureSite{"host", name(), kVerb, "", completed_ + 1});
    }
  }
  Result<bool> reached(uint64_t sequence) override {
    if (sequence <= completed_) return true;
    if (!failure_.is_ok()) return failure_;
    return false;
  }
  Status wait_until_reached(uint64_t sequence) override {
    while (sequence > completed_ && failure_.is_ok()) {
      if (!machine_.time().advance()) return internal_error("host work that never ends");
    }
    return sequence <= completed_ ? Status::ok() : failure_;
  }
  Status status() const override { return failure_; }

 private:
  void begin() {
    EventOrder order{EventOrder::Kind::kFlow, -1, id(), completed_ + 1};
    machine_.network().start(waiting_.front(), machine_.host_path(), order,
                             [alive = is_alive_, this] {
                               if (*alive) end();
                             });
  }
  void end() {
    ++completed_;
    machine_.time().note_completion();
    waiting_.erase(waiting_.begin());
    if (!waiting_.empty()) begin();
  }

  SimMachine& machine_;
  std::vector<double> waiting_;  ///< bytes of each job, the running one first
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  Status failure_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<HostQueue> make_sim_host_queue(SimMachine& machine, std::string name) {
  return std::make_unique<SimHostQueue>(machine, std::move(name));
}

}  // namespace stagecoach
