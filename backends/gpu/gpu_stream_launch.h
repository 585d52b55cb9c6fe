#pragma once

// Bodies of GpuStream that launch kernels, included by gpu_stream_verbs.h alone.

#include <cstring>
#include <limits>

#include "backends/gpu/gpu_stream.h"

namespace stagecoach {

namespace internal {

/// Grid or block as the driver takes it.
inline Status narrow_extent(const std::array<int64_t, 3>& wide, std::array<uint32_t, 3>& narrow) {
  for (size_t axis = 0; axis < wide.size(); ++axis) {
    if (wide[axis] > std::numeric_limits<int32_t>::max()) {
      return invalid_argument(fmt::format(
          "{} blocks or threads on axis {} are more than a card takes", wide[axis], axis));
    }
    narrow[axis] = static_cast<uint32_t>(wide[axis]);
  }
  return Status::ok();
}

/// The value as the 64-bit slot of a kernel's argument.
inline uint64_t argument_word(const KernelArgument& argument) {
  uint64_t word = 0;
  if (argument.kind == KernelArgument::Kind::kPointer) {
    word = gpu_address_of(argument.pointer);
  } else if (argument.kind == KernelArgument::Kind::kInt64) {
    word = static_cast<uint64_t>(argument.integer);
  } else {
    std::memcpy(&word, &argument.real, sizeof(argument.real));
  }
  return word;
}

}  // namespace internal

template <typename Api>
int GpuStream<Api>::launch_kernel(GpuKernel<Api>& kernel, const std::array<uint32_t, 3>& grid,
                                  const std::array<uint32_t, 3>& block, uint32_t shared_bytes,
                                  void** arguments) {
  const Api& api = core_.api();
  int error = kernel.allow_shared_bytes(api, shared_bytes);
  if (error != Api::kSuccess) return error;
  return api.launch(kernel.handle(), grid, block, shared_bytes, handle_, arguments);
}

template <typename Api>
Status GpuStream<Api>::do_launch(const LaunchRequest& request) {
  auto* kernel = dynamic_cast<GpuKernel<Api>*>(request.kernel);
  if (kernel == nullptr || kernel->context() != core_.context()) {
    return invalid_argument("the kernel is of another device; load the executable on this one");
  }
  std::array<uint32_t, 3> grid{}, block{};
  STAGECOACH_RETURN_IF_ERROR(internal::narrow_extent(request.grid, grid));
  STAGECOACH_RETURN_IF_ERROR(internal::narrow_extent(request.block, block));
  std::array<uint64_t, LaunchRequest::kMaxArguments> words{};
  std::array<void*, LaunchRequest::kMaxArguments> pointers{};
  for (int i = 0; i < request.argument_count; ++i) {
    words[i] = internal::argument_word(request.arguments[i]);
    pointers[i] = &words[i];
  }
  STAGECOACH_RETURN_IF_ERROR(
      drive("launch", [&] { return launch_kernel(*kernel, grid, block, 0, pointers.data()); }));
  GpuStreamTotals amount;
  amount.kernels = 1;
  count(amount);
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::run_op(const OpCall& call) {
  STAGECOACH_ASSIGN_OR_RETURN(GpuLaunchPlan plan, core_.table.plan(call, core_.arch));
  STAGECOACH_ASSIGN_OR_RETURN(GpuLibraryUse use, choose_library(plan));
  STAGECOACH_RETURN_IF_ERROR(
      workspace_.reserve(use.workspace_bytes, [this] { return mark_tail(); }));
  if (use.attention) {
    STAGECOACH_RETURN_IF_ERROR(run_attention(*plan.attention, use));
  } else {
    STAGECOACH_RETURN_IF_ERROR(run_launches(call, plan, use));
  }
  GpuStreamTotals amount;
  amount.kernels = 1;
  count(amount);
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::run_launches(const OpCall& call, const GpuLaunchPlan& plan,
                                    const GpuLibraryUse& use) {
  uint64_t* error_word = nullptr;
  for (int i = 0; i < plan.launch_count; ++i) {
    if (plan.launches[i].error_arguments == 0 || error_word != nullptr) continue;
    error_word =
        cell_->error_words().take(submitting_sequence(), op_kind_name(call.kind), call.label);
  }
  for (int64_t round = 0; round < plan.rounds; ++round) {
    for (int i = 0; i < plan.launch_count; ++i) {
      const bool is_first = round == 0 && i == 0;
      const GpuProduct* product = use.product_at(plan, i);
      Status status = product == nullptr ? launch_part(plan.launches[i], round, error_word)
                                         : run_product(*product, round, use);
      if (status.is_ok()) continue;
      // Half an op cannot be taken back: what would be a refusal fails the stream.
      if (!is_first && internal::is_refusal(status.code())) return internal_error(status.message());
      return status;
    }
  }
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::launch_part(const GpuKernelLaunch& launch, int64_t round,
                                   uint64_t* error_word) {
  auto attempt = [&]() -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(GpuKernel<Api> * kernel, core_.kernels.find(launch.kernel));
    std::array<uint64_t, GpuKernelLaunch::kMaxArguments> words = launch.arguments;
    std::array<void*, GpuKernelLaunch::kMaxArguments> pointers{};
    for (int i = 0; i < launch.argument_count; ++i) {
      words[i] += static_cast<uint64_t>(launch.steps[i] * round);
      if ((launch.workspace_arguments >> i & 1u) != 0) words[i] += workspace_.address();
      if ((launch.error_arguments >> i & 1u) != 0) {
        words[i] = reinterpret_cast<uintptr_t>(error_word);
      }
      pointers[i] = &words[i];
    }
    return drive("launch", [&] {
      return launch_kernel(*kernel, launch.grid, launch.block, launch.shared_bytes,
                           pointers.data());
    });
  };
  Status status = attempt();
  if (status.is_ok()) return status;
  return status.with_context(fmt::format("kernel '{}'", launch.kernel));
}

}  // namespace stagecoach
