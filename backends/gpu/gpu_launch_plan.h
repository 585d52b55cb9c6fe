#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "backends/gpu/gpu_library_work.h"
#include "core/bytes.h"

namespace stagecoach {

/// What launch planning needs to know of a card. Plain data, read once when it is opened.
struct GpuArch {
  /// Set aside at most: what the largest op asks for, logits and their gradients.
  static constexpr ByteCount kMostScratch = 768 * kMiB;

  bool is_amd = false;  ///< the code that runs was compiled for AMD targets
  int major = 0;        ///< compute capability; for AMD the leading digits of the gfx number
  int minor = 0;
  int multiprocessors = 1;
  int warp_size = 32;
  ByteCount shared_bytes = 0;  ///< dynamic shared memory a block may ask for
  /// What the device sets aside for the scratch memory of ops. Whatever grows with a shape is done
  /// in rounds that stay within it, so that memory which was planned beside it is enough.
  ByteCount scratch_bytes = kMostScratch;

  /// Whether kernels are those for NVIDIA cards: also behind HIP functions that are implemented
  /// over CUDA. No AMD card before gfx10 has groups of 32 lanes.
  bool runs_nvidia_code() const { return !is_amd || (warp_size == 32 && major < 10); }
};

/// One kernel launch as plain data. Pointers and numbers alike fill 64-bit slots; a kernel that
/// takes a narrower value reads the low bytes of its slot.
struct GpuKernelLaunch {
  static constexpr int kMaxArguments = 24;

  std::string_view kernel;  ///< static text
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::array<uint64_t, kMaxArguments> arguments = {};
  int argument_count = 0;
  /// Bit i: argument i is an offset into the stream's workspace, not an address.
  uint32_t workspace_arguments = 0;
  /// Bit i: argument i is the address of the stream's error word (null: nothing is reported), where
  /// a kernel leaves the number of the first row whose id or label is outside the vocabulary.
  uint32_t error_arguments = 0;
  /// What argument i grows by from one round to the next.
  std::array<int64_t, kMaxArguments> steps = {};
};

/// Launches, in order, that compute one OpCall; and what of it a vendor's library may compute
/// instead, as data, so that the plan knows no library.
struct GpuLaunchPlan {
  static constexpr int kMaxLaunches = 8;
  static constexpr int kMaxProducts = 2;

  std::array<GpuKernelLaunch, kMaxLaunches> launches;
  int launch_count = 0;
  int64_t rounds = 1;             ///< how often the launches run, one round after another
  ByteCount workspace_bytes = 0;  ///< scratch the launches share; contents are undefined
  /// Each may stand in for its launch.
  std::array<GpuProduct, kMaxProducts> products;
  int product_count = 0;
  /// May stand in for all launches.
  std::optional<GpuAttention> attention;
};

}  // namespace stagecoach
