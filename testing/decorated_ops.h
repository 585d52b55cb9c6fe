#pragma once

#include "hal/ops.h"

namespace stagecoach {

/// The math of a decorated device: hands calls to the stream, which asks the interceptor.
/// Thread rule: any thread.
class DecoratedOps final : public Ops {
 public:
  explicit DecoratedOps(Ops& inner) : inner_(inner) {}

  std::string_view provider(OpKind kind) const override { return inner_.provider(kind); }

 private:
  Status do_run(Stream& stream, const OpCall& call) override;

  Ops& inner_;
};

}  // namespace stagecoach
