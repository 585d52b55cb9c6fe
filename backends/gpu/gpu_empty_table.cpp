#include "backends/gpu/gpu_empty_table.h"

#include <fmt/format.h>
#include <utility>

namespace stagecoach {

namespace {

class EmptyKernelTable final : public GpuKernelTable {
 public:
  explicit EmptyKernelTable(std::string build_flag) { code_.build_flag = std::move(build_flag); }
  const GpuCode& code() const override { return code_; }
  Result<GpuLaunchPlan> plan(const OpCall& call, const GpuArch&) override {
    return unimplemented(fmt::format("this build holds no kernel for {}", op_kind_name(call.kind)));
  }
  std::string_view provider(OpKind) const override { return "none"; }

 private:
  GpuCode code_;
};

}  // namespace

std::shared_ptr<GpuKernelTable> make_empty_kernel_table(std::string build_flag) {
  return std::make_shared<EmptyKernelTable>(std::move(build_flag));
}

}  // namespace stagecoach
