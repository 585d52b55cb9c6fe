#include <algorithm>
#include <fmt/format.h>

#include "backends/cpu/cpu_executable.h"
#include "core/clock.h"

namespace stagecoach {

namespace {

constexpr uint32_t kFnvStart = 2166136261u;
constexpr uint32_t kFnvFactor = 16777619u;

/// A kernel told to touch more than its buffer holds must not: on this device that is caught.
Status check_bytes(const CpuKernelArgument& argument, int64_t count, ByteCount element_bytes) {
  if (count >= 0 && count <= argument.size / element_bytes) return Status::ok();
  return invalid_argument(fmt::format("{} elements of {} bytes asked for in a buffer of {} bytes",
                                      count, element_bytes, argument.size));
}

Status fill_f32(const CpuKernelCall& call) {
  const CpuKernelArgument& out = call.arguments[0];
  int64_t count = call.arguments[1].integer;
  STAGECOACH_RETURN_IF_ERROR(check_bytes(out, count, sizeof(float)));
  std::fill_n(reinterpret_cast<float*>(out.pointer), count, call.arguments[2].real);
  return Status::ok();
}

Status axpy_f32(const CpuKernelCall& call) {
  const CpuKernelArgument& out = call.arguments[0];
  const CpuKernelArgument& in = call.arguments[1];
  int64_t count = call.arguments[2].integer;
  float factor = call.arguments[3].real;
  STAGECOACH_RETURN_IF_ERROR(check_bytes(out, count, sizeof(float)));
  STAGECOACH_RETURN_IF_ERROR(check_bytes(in, count, sizeof(float)));
  auto* target = reinterpret_cast<float*>(out.pointer);
  auto* source = reinterpret_cast<const float*>(in.pointer);
  for (int64_t i = 0; i < count; ++i) target[i] += factor * source[i];
  return Status::ok();
}

Status checksum_u32(const CpuKernelCall& call) {
  const CpuKernelArgument& out = call.arguments[0];
  const CpuKernelArgument& in = call.arguments[1];
  int64_t count = call.arguments[2].integer;
  STAGECOACH_RETURN_IF_ERROR(check_bytes(out, 1, sizeof(uint32_t)));
  STAGECOACH_RETURN_IF_ERROR(check_bytes(in, count, sizeof(uint32_t)));
  auto* source = reinterpret_cast<const uint32_t*>(in.pointer);
  uint32_t hash = kFnvStart;
  for (int64_t i = 0; i < count; ++i) hash = (hash ^ source[i]) * kFnvFactor;
  *reinterpret_cast<uint32_t*>(out.pointer) = hash;
  return Status::ok();
}

Status busy_wait(const CpuKernelCall& call) {
  RealClock& clock = RealClock::instance();
  int64_t end_ns = clock.now_ns() + call.arguments[0].integer;
  while (clock.now_ns() < end_ns) {
  }
  return Status::ok();
}

constexpr CpuKernelEntry kEntries[] = {
    {"fill_f32", "pif", fill_f32},
    {"axpy_f32", "ppif", axpy_f32},
    {"checksum_u32", "ppi", checksum_u32},
    {"busy_wait", "i", busy_wait},
};

}  // namespace

std::span<const CpuKernelEntry> cpu_test_kernels() {
  return kEntries;
}

}  // namespace stagecoach
