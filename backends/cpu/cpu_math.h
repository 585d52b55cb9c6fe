#pragma once

#include "hal/ops.h"

namespace stagecoach {

/// The math of a CPU device: queues calls on its streams, whose workers run them (cpu_ops.h).
/// Thread rule: as Ops.
class CpuMath final : public Ops {
 public:
  std::string_view provider(OpKind kind) const override;

 private:
  Status do_run(Stream& stream, const OpCall& call) override;
};

}  // namespace stagecoach
