#pragma once

// Bodies of GpuStream that let libraries compute parts of an op, included by gpu_stream_verbs.h
// alone.

#include "backends/gpu/gpu_stream.h"

namespace stagecoach {

template <typename Api>
template <typename Call>
Status GpuStream<Api>::with_context(Call&& call) const {
  GpuScope<Api> scope(core_.api(), core_.context());
  if (scope.error() != Api::kSuccess) {
    return gpu_status(core_.api(), scope.error(), "set context");
  }
  return call();
}

template <typename Api>
Status GpuStream<Api>::choose_attention(const GpuLaunchPlan& plan, GpuLibraryUse& use) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<ByteCount> scratch,
                              core_.library->find_attention(plan.attention->shape));
  use.attention = scratch.has_value();
  if (use.attention) use.scratch_bytes = *scratch;
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::choose_product(const GpuProduct& product, int64_t rounds,
                                      GpuLibraryUse& use) {
  // The last round may have fewer rows than the others, which are alike.
  for (int64_t round : {int64_t{0}, rounds - 1}) {
    GpuProductShape shape = product_round(product, round, 0).shape;
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<ByteCount> scratch,
                                core_.library->find_product(shape));
    if (!scratch.has_value()) return Status::ok();
    use.scratch_bytes = std::max(use.scratch_bytes, *scratch);
  }
  use.product_launches |= 1u << product.launch;
  return Status::ok();
}

template <typename Api>
Status GpuStream<Api>::choose_parts(const GpuLaunchPlan& plan, GpuLibraryUse& use) {
  if (plan.attention.has_value()) return choose_attention(plan, use);
  for (int i = 0; i < plan.product_count; ++i) {
    STAGECOACH_RETURN_IF_ERROR(
        choose_product(plan.products[static_cast<size_t>(i)], plan.rounds, use));
  }
  return Status::ok();
}

template <typename Api>
Result<GpuLibraryUse> GpuStream<Api>::choose_library(const GpuLaunchPlan& plan) {
  GpuLibraryUse use;
  use.workspace_bytes = plan.workspace_bytes;
  if (core_.library == nullptr) return use;
  if (!plan.attention.has_value() && plan.product_count == 0) return use;
  Status chosen = with_context([&] { return choose_parts(plan, use); });
  if (!chosen.is_ok()) return chosen;
  // The kernels of an attention that the library computes need no memory.
  constexpr ByteCount kAlignment = 256;
  if (use.attention) use.workspace_bytes = 0;
  if (use.scratch_bytes == 0) return use;
  use.scratch_offset = (use.workspace_bytes + kAlignment - 1) / kAlignment * kAlignment;
  use.workspace_bytes = use.scratch_offset + use.scratch_bytes;
  return use;
}

template <typename Api>
GpuLibraryPlace GpuStream<Api>::library_place(const GpuLibraryUse& use) const {
  GpuLibraryPlace place;
  place.stream = handle_;
  if (use.scratch_bytes > 0) {
    place.scratch = workspace_.address() + static_cast<uint64_t>(use.scratch_offset);
  }
  place.scratch_bytes = use.scratch_bytes;
  return place;
}

template <typename Api>
Status GpuStream<Api>::run_attention(const GpuAttention& attention, const GpuLibraryUse& use) {
  return with_context([&] {
    return core_.library->run_attention(attention.shape, attention.operands, library_place(use));
  });
}

template <typename Api>
Status GpuStream<Api>::run_product(const GpuProduct& product, int64_t round,
                                   const GpuLibraryUse& use) {
  GpuProductRound part = product_round(product, round, workspace_.address());
  return with_context(
      [&] { return core_.library->run_product(part.shape, part.operands, library_place(use)); });
}

}  // namespace stagecoach
