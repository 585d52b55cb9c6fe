#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/gpu_launch_plan.h"
#include "core/status.h"
#include "hal/op_call.h"

namespace stagecoach {

/// Device code that a program carries. Does not own the bytes.
struct GpuCode {
  std::span<const std::byte> image;  ///< a fatbin or a bundle of code objects; empty: none built in
  std::vector<std::string> targets;  ///< "sm_90", "compute_80 (PTX)", "gfx1030": for messages
  std::string build_flag;            ///< what to set to build for other cards
  int toolkit_version = 0;           ///< as the driver counts (13000 for 13.0); 0: not compared
};

/// The kernels that serve Ops on one kind of card: their code, and which launches make an op.
/// Thread rule: any thread.
class GpuKernelTable {
 public:
  virtual ~GpuKernelTable() = default;
  virtual const GpuCode& code() const = 0;
  /// Pure apart from tables that run their kernels on the host. Unimplemented when no kernel
  /// serves the call on `arch`.
  virtual Result<GpuLaunchPlan> plan(const OpCall& call, const GpuArch& arch) = 0;
  /// For `devices --verbose`.
  virtual std::string_view provider(OpKind kind) const = 0;
};

}  // namespace stagecoach
