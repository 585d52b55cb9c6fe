#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/label.h"
#include "core/status.h"
#include "hal/buffer.h"

namespace stagecoach {

/// One kernel argument: a device pointer or a plain value.
struct KernelArgument {
  enum class Kind : uint8_t { kPointer, kInt64, kFloat } kind = Kind::kInt64;
  BufferView pointer;
  int64_t integer = 0;
  float real = 0;

  static KernelArgument of(BufferView view) { return {Kind::kPointer, view, 0, 0}; }
  static KernelArgument of(int64_t value) { return {Kind::kInt64, {}, value, 0}; }
  static KernelArgument of(float value) { return {Kind::kFloat, {}, 0, value}; }
};

/// A function inside an executable. Lives as long as the executable.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;
};

/// Device code to load: what `bytes` holds depends on the backend (a fatbin, a code object; the CPU
/// backend takes the name of a table of host functions).
struct ExecutableImage {
  std::string name;
  std::span<const std::byte> bytes;
};

/// Loaded device code.
class Executable {
 public:
  virtual ~Executable() = default;
  /// The kernel called `name`; not found otherwise. The executable keeps ownership.
  virtual Result<Kernel*> find_kernel(std::string_view name) = 0;
};

/// A kernel launch. `grid` blocks of `block` threads; the CPU backend runs `grid` x `block`
/// as one loop.
struct LaunchRequest {
  static constexpr int kMaxArguments = 12;
  Kernel* kernel = nullptr;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int64_t, 3> block = {1, 1, 1};
  std::array<KernelArgument, kMaxArguments> arguments;
  int argument_count = 0;
  double flop = 0;  ///< arithmetic, for cost models and pacing
  Label label;
};

}  // namespace stagecoach
