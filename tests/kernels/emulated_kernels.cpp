// The kernels, compiled for the host, and a table of them by name.

#include "tests/kernels/emulated_kernels.h"

#include <map>
#include <string_view>
#include <utility>

#include "tests/kernels/gpu_language.h"
// After the language it is written in.
#include "backends/gpu/kernels/all_kernels.gpu.cu"

namespace stagecoach::emulation {

namespace {

/// Calls a kernel with the low bytes of its slots, as a driver does.
template <auto Kernel>
struct Invoke;
template <typename... Parameters, void (*Kernel)(Parameters...)>
struct Invoke<Kernel> {
  static constexpr int kCount = sizeof...(Parameters);

  template <typename Parameter>
  static Parameter read(uint64_t slot) {
    Parameter value;
    std::memcpy(&value, &slot, sizeof(value));
    return value;
  }
  template <size_t... Indices>
  static void call(const uint64_t* slots, std::index_sequence<Indices...>) {
    Kernel(read<Parameters>(slots[Indices])...);
  }
  static void run(const uint64_t* slots) { call(slots, std::index_sequence_for<Parameters...>()); }
};

#define STAGECOACH_KERNEL(space, name)                                          \
  {                                                                             \
#name, {                                                                    \
      Invoke<space##_kernels::name>::run, Invoke<space##_kernels::name>::kCount \
    }                                                                           \
  }
#define STAGECOACH_KERNELS(space, name)                                         \
  STAGECOACH_KERNEL(space, name##_fp32), STAGECOACH_KERNEL(space, name##_bf16), \
      STAGECOACH_KERNEL(space, name##_fp16)
#define STAGECOACH_HEAD_KERNELS(space, name)                                     \
  STAGECOACH_KERNELS(space, name##_d64), STAGECOACH_KERNELS(space, name##_d128), \
      STAGECOACH_KERNELS(space, name##_d256)

#define STAGECOACH_PASS_KERNELS(space, name) \
  STAGECOACH_KERNELS(space, name##_forward), STAGECOACH_KERNELS(space, name##_backward)

// Exist for matrix units only; here their names and arguments are checked.
#define STAGECOACH_GENERAL_KERNELS(space, name)                                         \
  STAGECOACH_KERNEL(space, name##_d64_bf16), STAGECOACH_KERNEL(space, name##_d64_fp16), \
      STAGECOACH_KERNEL(space, name##_d128_bf16), STAGECOACH_KERNEL(space, name##_d128_fp16)

#define STAGECOACH_ATTENTION_KERNELS(space, name) \
  STAGECOACH_HEAD_KERNELS(space, name), STAGECOACH_GENERAL_KERNELS(space, name##_general)

const std::map<std::string_view, EmulatedKernel>& table() {
  static const std::map<std::string_view, EmulatedKernel> kernels = {
      STAGECOACH_KERNELS(elementwise, gelu_forward),
      STAGECOACH_KERNELS(elementwise, gelu_backward),
      STAGECOACH_KERNELS(elementwise, add),
      STAGECOACH_KERNELS(elementwise, multiply),
      STAGECOACH_KERNELS(elementwise, dropout),
      STAGECOACH_KERNELS(elementwise, accumulate),
      STAGECOACH_KERNELS(elementwise, convert_fp32),
      STAGECOACH_KERNELS(elementwise, convert_bf16),
      STAGECOACH_KERNELS(elementwise, convert_fp16),
      STAGECOACH_KERNELS(elementwise, gated_silu_forward),
      STAGECOACH_KERNELS(elementwise, gated_silu_backward),
      STAGECOACH_KERNELS(elementwise, gated_pairs_forward),
      STAGECOACH_KERNELS(elementwise, gated_pairs_backward),
      STAGECOACH_KERNELS(elementwise, squared_error_backward),
      STAGECOACH_KERNELS(norm, layer_norm_forward),
      STAGECOACH_KERNELS(norm, norm_backward_input),
      STAGECOACH_KERNELS(norm, norm_weight_partials),
      STAGECOACH_KERNELS(norm, rms_norm_forward),
      STAGECOACH_KERNELS(heads, rotary),
      STAGECOACH_KERNELS(heads, qk_norm_forward),
      STAGECOACH_KERNELS(heads, qk_norm_backward_input),
      STAGECOACH_KERNELS(heads, qk_norm_weight_partials),
      STAGECOACH_KERNELS(embedding, embedding_forward),
      STAGECOACH_KERNELS(embedding, embedding_backward),
      STAGECOACH_KERNELS(embedding, positions_backward),
      STAGECOACH_KERNELS(reduce, column_sum_partials),
      STAGECOACH_KERNELS(reduce, square_pieces),
      STAGECOACH_KERNELS(reduce, finite_counts),
      STAGECOACH_KERNEL(reduce, sum_tiles),
      STAGECOACH_KERNEL(reduce, sum_pieces),
      STAGECOACH_KERNEL(reduce, sum_counts),
      STAGECOACH_KERNEL(reduce, checksum),
      STAGECOACH_KERNELS(loss, logit_grads),
      STAGECOACH_KERNELS(loss, squared_error_forward),
      STAGECOACH_KERNEL(loss, cross_entropy_rows),
      STAGECOACH_KERNEL(embedding, check_rows),
      STAGECOACH_KERNEL(embedding, check_document_starts),
      STAGECOACH_KERNELS(optimizer, adamw),
      STAGECOACH_KERNEL(optimizer, join_master),
      STAGECOACH_KERNEL(optimizer, split_master),
      STAGECOACH_KERNELS(matmul, matmul_nn),
      STAGECOACH_KERNELS(matmul, matmul_nt),
      STAGECOACH_KERNELS(matmul, matmul_tn),
      STAGECOACH_KERNELS(matmul, matmul_tt),
      STAGECOACH_PASS_KERNELS(experts, route),
      STAGECOACH_PASS_KERNELS(experts, balance),
      STAGECOACH_KERNELS(experts, gather_rows),
      STAGECOACH_KERNELS(experts, combine_rows),
      STAGECOACH_KERNELS(experts, combine_backward),
      STAGECOACH_KERNELS(experts, grouped_column_sum),
      STAGECOACH_KERNEL(experts, group_rows),
      STAGECOACH_KERNELS(grouped_matmul, grouped_matmul_n),
      STAGECOACH_KERNELS(grouped_matmul, grouped_matmul_t),
      STAGECOACH_KERNELS(grouped_matmul, grouped_matmul_weight),
      STAGECOACH_ATTENTION_KERNELS(attention, attention_forward),
      STAGECOACH_KERNELS(attention_rows, attention_row_numbers),
      STAGECOACH_KERNELS(attention_rows, attention_sink_terms),
      STAGECOACH_KERNEL(attention_rows, attention_sink_sums),
      STAGECOACH_ATTENTION_KERNELS(attention_backward, attention_backward_keys),
      STAGECOACH_ATTENTION_KERNELS(attention_backward, attention_backward_queries),
      STAGECOACH_KERNEL(device_tests, fill_f32),
      STAGECOACH_KERNEL(device_tests, axpy_f32),
      STAGECOACH_KERNEL(device_tests, checksum_u32),
      STAGECOACH_KERNEL(device_tests, busy_wait),
      STAGECOACH_KERNEL(device_tests, fill_pattern),
  };
  return kernels;
}

}  // namespace

const EmulatedKernel* find_emulated_kernel(std::string_view name) {
  auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace stagecoach::emulation
