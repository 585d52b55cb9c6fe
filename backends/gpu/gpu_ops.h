#pragma once

#include "backends/gpu/gpu_stream.h"
#include "hal/ops.h"

namespace stagecoach {

/// The math of a GPU: looks up the launches that make an op and queues them on its stream.
template <typename Api>
class GpuOps final : public Ops {
 public:
  explicit GpuOps(const GpuKernelTable& table) : table_(table) {}
  std::string_view provider(OpKind kind) const override { return table_.provider(kind); }

 private:
  Status do_run(Stream& stream, const OpCall& call) override {
    return static_cast<GpuStream<Api>&>(stream).run_op(call);
  }

  const GpuKernelTable& table_;
};

}  // namespace stagecoach
