#include "backends/gpu/gpu_planned_table.h"

#include <utility>

#include "backends/gpu/gpu_op_launch.h"

namespace stagecoach {

namespace {

class PlannedKernelTable final : public GpuKernelTable {
 public:
  explicit PlannedKernelTable(GpuCode code) : code_(std::move(code)) {}
  const GpuCode& code() const override { return code_; }
  Result<GpuLaunchPlan> plan(const OpCall& call, const GpuArch& arch) override {
    return plan_op(call, arch);
  }
  std::string_view provider(OpKind) const override { return "own kernels"; }

 private:
  const GpuCode code_;
};

}  // namespace

std::shared_ptr<GpuKernelTable> make_planned_kernel_table(GpuCode code) {
  return std::make_shared<PlannedKernelTable>(std::move(code));
}

}  // namespace stagecoach
