#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hal/backend.h"
#include "testing/fault_plan.h"
#include "testing/interceptor.h"

namespace stagecoach {

/// Counts calls and makes those that a plan names go wrong, each fault at most once.
/// Thread rule: any thread.
class FaultInjector final : public Interceptor {
 public:
  /// Every fault of `plan` must apply to its verb. With an empty plan it only counts.
  explicit FaultInjector(FaultPlan plan = {});

  Verdict before(const VerbCall& call) override;
  void after(const VerbCall& call, const Status& outcome) override;

  /// Calls so far: what `random_fault` draws from.
  CallCounts counts() const;
  /// Faults that have happened, in the order in which they did.
  std::vector<Fault> fired() const;
  /// Whether every fault of the plan has happened.
  bool all_fired() const;

 private:
  struct Entry {
    Fault fault;
    bool fired = false;
  };
  /// An exhausted allocation, which the front repeats once on the same thread.
  struct Repeat {
    std::thread::id thread;
    int device = 0;
    std::string verb;
    std::string label;
    friend auto operator<=>(const Repeat&, const Repeat&) = default;
  };
  Verdict take_locked(const VerbCall& call, const Fault& fault, int64_t nth);

  mutable std::mutex mutex_;
  std::vector<Entry> plan_;
  std::vector<Fault> fired_;
  CallCounts counts_;
  std::set<int> lost_devices_;
  std::set<Repeat> repeats_;
};

/// `inner`, whose devices fail as `injector` says. Among nested decorators it goes outermost: every
/// front asks an exhausted allocation twice, and kExhaust answers for one front only.
std::unique_ptr<Backend> make_faulty_backend(std::unique_ptr<Backend> inner,
                                             std::shared_ptr<FaultInjector> injector);

}  // namespace stagecoach
