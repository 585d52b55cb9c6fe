#pragma once

#include <vector>

#include "hal/ops.h"

namespace stagecoach {

/// Ops that only write down what they are asked: what layers enqueue, to be priced, counted, or run
/// later by Ops::run. Calls are checked as those of a device are. Thread rule: one thread.
class OpTape final : public Ops {
 public:
  std::string_view provider(OpKind) const override { return "none"; }
  const std::vector<OpCall>& calls() const { return calls_; }
  void clear() { calls_.clear(); }

 private:
  Status do_run(Stream&, const OpCall& call) override {
    calls_.push_back(call);
    return Status::ok();
  }

  std::vector<OpCall> calls_;
};

}  // namespace stagecoach
