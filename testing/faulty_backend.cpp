#include "testing/faulty_backend.h"

#include <algorithm>
#include <utility>

#include "testing/decorated_backend.h"

namespace stagecoach {

namespace {

Status injected(StatusCode code, const std::string& what, const VerbCall& call) {
  FailureSite site;
  site.device = std::string(call.device);
  site.stream = std::string(call.stream);
  site.verb = std::string(call.verb);
  site.label = std::string(call.label.view());
  return Status(code, what, std::move(site));
}

}  // namespace

FaultInjector::FaultInjector(FaultPlan plan) {
  for (Fault& fault : plan.faults) {
    STAGECOACH_CHECK(fault.nth >= 1 && fault_applies(fault.kind, fault.verb));
    plan_.push_back(Entry{std::move(fault)});
  }
}

Verdict FaultInjector::before(const VerbCall& call) {
  std::lock_guard lock(mutex_);
  Repeat repeat{std::this_thread::get_id(), call.device_index, std::string(call.verb),
                std::string(call.label.view())};
  if (repeats_.erase(repeat) > 0) return Verdict{Verdict::Kind::kExhaust, {}, 0};

  int64_t nth = ++counts_[{call.device_index, std::string(call.verb)}];
  for (Entry& entry : plan_) {
    const Fault& fault = entry.fault;
    bool here = fault.device == Fault::kAnyDevice || fault.device == call.device_index;
    if (entry.fired || !here || fault.verb != call.verb || fault.nth != nth) continue;
    entry.fired = true;
    fired_.push_back(fault);
    if (fault.kind == FaultKind::kExhaust) repeats_.insert(std::move(repeat));
    return take_locked(call, fault, nth);
  }
  if (lost_devices_.contains(call.device_index)) {
    return Verdict{Verdict::Kind::kRefuse,
                   injected(StatusCode::kDeviceLost, "the device was lost before", call), 0};
  }
  return Verdict{};
}

Verdict FaultInjector::take_locked(const VerbCall& call, const Fault& fault, int64_t nth) {
  std::string where = " injected at call " + std::to_string(nth);
  switch (fault.kind) {
    case FaultKind::kFail:
      return {Verdict::Kind::kRefuse, injected(StatusCode::kInternal, "failure" + where, call), 0};
    case FaultKind::kFailLater:
      return {Verdict::Kind::kFailLater,
              injected(StatusCode::kInternal, "late failure" + where, call), 0};
    case FaultKind::kDelay:
      return {Verdict::Kind::kForward, {}, fault.delay_ns};
    case FaultKind::kCorrupt:
      return {Verdict::Kind::kCorrupt, {}, 0};
    case FaultKind::kExhaust:
      return {Verdict::Kind::kExhaust, {}, 0};
    case FaultKind::kDeviceLost:
      lost_devices_.insert(call.device_index);
      return {Verdict::Kind::kRefuse,
              injected(StatusCode::kDeviceLost, "loss of the device" + where, call), 0};
    case FaultKind::kNeverCompletes:
      return {Verdict::Kind::kNeverCompletes, {}, 0};
  }
  return {};
}

void FaultInjector::after(const VerbCall& call, const Status& outcome) {}

CallCounts FaultInjector::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Fault> FaultInjector::fired() const {
  std::lock_guard lock(mutex_);
  return fired_;
}

bool FaultInjector::all_fired() const {
  std::lock_guard lock(mutex_);
  return fired_.size() == plan_.size();
}

std::unique_ptr<Backend> make_faulty_backend(std::unique_ptr<Backend> inner,
                                             std::shared_ptr<FaultInjector> injector) {
  return std::make_unique<DecoratedBackend>(std::move(inner), std::move(injector));
}

}  // namespace stagecoach
