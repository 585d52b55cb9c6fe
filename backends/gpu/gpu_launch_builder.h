#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/gpu/gpu_launch_plan.h"
#include "core/check.h"
#include "hal/tensor.h"

namespace stagecoach {

/// Tiles of `size` that cover `count`.
inline int64_t tiles_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// First byte of an operand; 0 for none.
inline uint64_t tensor_address(const TensorView& tensor) {
  if (tensor.is_none()) return 0;
  return static_cast<uint64_t>(tensor.memory.buffer->device_address()) +
         static_cast<uint64_t>(tensor.memory.offset);
}

/// Appends launches to a plan and arguments to the last of them, in the order of the kernel's
/// parameters.
class GpuLaunchBuilder {
 public:
  /// Most blocks of a kernel that walks over its work: enough for any card, and within every limit.
  static constexpr int64_t kMostBlocks = 1 << 16;
  static constexpr int64_t kThreads = 256;

  explicit GpuLaunchBuilder(GpuLaunchPlan& plan) : plan_(plan) {}

  /// `blocks` may be any number: such kernels walk over what a smaller grid leaves.
  GpuLaunchBuilder& launch_walking(std::string_view kernel, int64_t blocks,
                                   int64_t threads = kThreads) {
    return launch(kernel, std::clamp(blocks, int64_t{1}, kMostBlocks), 1, threads);
  }
  /// A thread to an element, or to eight of them.
  GpuLaunchBuilder& launch_elements(std::string_view kernel, int64_t count) {
    return launch_walking(kernel, tiles_of(count, kThreads * 4));
  }
  /// Exactly these blocks; the caller keeps them within what cards take.
  GpuLaunchBuilder& launch(std::string_view kernel, int64_t blocks, int64_t blocks_y,
                           int64_t threads, int64_t shared_bytes = 0) {
    STAGECOACH_CHECK(plan_.launch_count < GpuLaunchPlan::kMaxLaunches);
    launch_ = &plan_.launches[static_cast<size_t>(plan_.launch_count++)];
    launch_->kernel = kernel;
    launch_->grid = {static_cast<uint32_t>(blocks), static_cast<uint32_t>(blocks_y), 1};
    launch_->block = {static_cast<uint32_t>(threads), 1, 1};
    launch_->shared_bytes = static_cast<uint32_t>(shared_bytes);
    return *this;
  }

  /// `step`: bytes the address grows by each round.
  GpuLaunchBuilder& tensor(const TensorView& operand, int64_t step = 0) {
    return word(tensor_address(operand), operand.is_none() ? 0 : step);
  }
  GpuLaunchBuilder& integer(int64_t value, int64_t step = 0) {
    return word(static_cast<uint64_t>(value), step);
  }
  GpuLaunchBuilder& real(float value) { return word(std::bit_cast<uint32_t>(value)); }
  GpuLaunchBuilder& flag(bool value) { return word(value ? 1 : 0); }
  GpuLaunchBuilder& unsigned_word(uint64_t value) { return word(value); }
  /// What `reserve` returned.
  GpuLaunchBuilder& workspace(ByteCount offset) {
    launch_->workspace_arguments |= 1u << launch_->argument_count;
    return word(static_cast<uint64_t>(offset));
  }
  GpuLaunchBuilder& error_word() {
    launch_->error_arguments |= 1u << launch_->argument_count;
    return word(0);
  }

  /// Takes `bytes` of the workspace; its offset.
  ByteCount reserve(ByteCount bytes) {
    constexpr ByteCount kAlignment = 256;
    ByteCount offset = plan_.workspace_bytes;
    plan_.workspace_bytes += tiles_of(bytes, kAlignment) * kAlignment;
    return offset;
  }
  /// Says what the last launch computes, for libraries to stand in.
  void describe_product(GpuProduct product) {
    STAGECOACH_CHECK(plan_.product_count < GpuLaunchPlan::kMaxProducts);
    product.launch = plan_.launch_count - 1;
    plan_.products[static_cast<size_t>(plan_.product_count++)] = product;
  }
  void describe_attention(const GpuAttention& attention) { plan_.attention = attention; }
  void set_rounds(int64_t rounds) { plan_.rounds = rounds; }

 private:
  GpuLaunchBuilder& word(uint64_t value, int64_t step = 0) {
    STAGECOACH_CHECK(launch_->argument_count < GpuKernelLaunch::kMaxArguments);
    size_t index = static_cast<size_t>(launch_->argument_count++);
    launch_->arguments[index] = value;
    launch_->steps[index] = step;
    return *this;
  }

  GpuLaunchPlan& plan_;
  GpuKernelLaunch* launch_ = nullptr;
};

}  // namespace stagecoach
