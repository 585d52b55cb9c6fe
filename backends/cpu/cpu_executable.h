#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "hal/executable.h"

namespace stagecoach {

/// A kernel argument as a CPU kernel sees it: device pointers are plain addresses.
struct CpuKernelArgument {
  std::byte* pointer = nullptr;
  ByteCount size = 0;  ///< bytes behind `pointer`
  int64_t integer = 0;
  float real = 0;
};

/// Everything a CPU kernel is called with.
struct CpuKernelCall {
  std::array<int64_t, 3> grid;
  std::array<int64_t, 3> block;
  std::array<CpuKernelArgument, LaunchRequest::kMaxArguments> arguments;
};

/// One host function of a table. `signature` has a letter an argument: 'p' pointer, 'i' int64,
/// 'f' float.
struct CpuKernelEntry {
  std::string_view name;
  std::string_view signature;
  Status (*function)(const CpuKernelCall& call);
};

/// A kernel of a CPU executable.
class CpuKernel final : public Kernel {
 public:
  explicit CpuKernel(const CpuKernelEntry& entry) : entry_(entry) {}
  std::string_view name() const override { return entry_.name; }
  /// Whether the arguments of `request` are of the kinds the kernel takes.
  Status check(const LaunchRequest& request) const;
  /// Runs the kernel on the calling thread.
  Status run(const LaunchRequest& request) const;

 private:
  const CpuKernelEntry& entry_;
};

/// The executable called `image.name`; not found when the backend has no such table.
Result<std::unique_ptr<Executable>> load_cpu_executable(const ExecutableImage& image);

/// Name of the built-in table that tests and examples use: `fill_f32(out, n, value)`,
/// `axpy_f32(out, in, n, factor)`, `checksum_u32(out, in, n)`, `busy_wait(ns)`.
inline constexpr std::string_view kTestKernelsName = "stagecoach_test_kernels";
std::span<const CpuKernelEntry> cpu_test_kernels();

}  // namespace stagecoach
