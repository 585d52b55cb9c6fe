#include "backends/cpu/cpu_ops.h"

#include <array>
#include <fmt/format.h>

#include "backends/cpu/cpu_op_families.h"

namespace stagecoach {

namespace {

using Kernel = Status (*)(const OpCall& call, TaskPool& pool);

struct Entry {
  Kernel kernel;
  std::string_view provider;
};

constexpr std::string_view kOwn = "own loops";
constexpr std::string_view kOneDnn = "oneDNN";

// In the order of OpKind.
constexpr std::array<Entry, kOpKindCount> kEntries = {{
    {cpu_embedding_forward, kOwn},
    {cpu_embedding_backward, kOwn},
    {cpu_layer_norm_forward, kOwn},
    {cpu_layer_norm_backward_input, kOwn},
    {cpu_layer_norm_backward_weight, kOwn},
    {cpu_matmul, kOneDnn},
    {cpu_column_sum, kOwn},
    {cpu_gelu_forward, kOwn},
    {cpu_gelu_backward, kOwn},
    {cpu_attention_forward, kOwn},
    {cpu_attention_backward, kOwn},
    {cpu_attention_sink_backward, kOwn},
    {cpu_add, kOwn},
    {cpu_multiply, kOwn},
    {cpu_dropout, kOwn},
    {cpu_linear_cross_entropy_forward, kOneDnn},
    {cpu_linear_cross_entropy_backward_input, kOneDnn},
    {cpu_linear_cross_entropy_backward_weight, kOneDnn},
    {cpu_squared_error_forward, kOwn},
    {cpu_squared_error_backward, kOwn},
    {cpu_accumulate, kOwn},
    {cpu_convert, kOwn},
    {cpu_sum_of_squares, kOwn},
    {cpu_checksum, kOwn},
    {cpu_rms_norm_forward, kOwn},
    {cpu_rms_norm_backward_input, kOwn},
    {cpu_rms_norm_backward_weight, kOwn},
    {cpu_rotary, kOwn},
    {cpu_qk_norm_forward, kOwn},
    {cpu_qk_norm_backward_input, kOwn},
    {cpu_qk_norm_backward_weight, kOwn},
    {cpu_gated_silu_forward, kOwn},
    {cpu_gated_silu_backward, kOwn},
    {cpu_adamw, kOwn},
    {cpu_finite_check, kOwn},
    {cpu_join_master, kOwn},
    {cpu_split_master, kOwn},
    {cpu_route_forward, kOwn},
    {cpu_route_backward, kOwn},
    {cpu_balance_forward, kOwn},
    {cpu_balance_backward, kOwn},
    {cpu_group_rows, kOwn},
    {cpu_gather_rows, kOwn},
    {cpu_combine_rows, kOwn},
    {cpu_combine_backward, kOwn},
    {cpu_grouped_matmul, kOneDnn},
    {cpu_grouped_matmul_weight, kOneDnn},
    {cpu_grouped_column_sum, kOwn},
}};

}  // namespace

Status run_cpu_op(const OpCall& call, TaskPool& pool) {
  return kEntries[static_cast<size_t>(call.kind)].kernel(call, pool);
}

std::string_view cpu_op_provider(OpKind kind) {
  return kEntries[static_cast<size_t>(kind)].provider;
}

Status check_ids(const OpCall& call, const char* operand, const int32_t* ids, int64_t count,
                 int64_t least, int64_t limit) {
  for (int64_t row = 0; row < count; ++row) {
    if (ids[row] >= least && ids[row] < limit) continue;
    return data_loss(fmt::format("{} '{}': {}[{}] is {}, expected {} to {}",
                                 op_kind_name(call.kind), call.label.view(), operand, row, ids[row],
                                 least, limit - 1));
  }
  return Status::ok();
}

}  // namespace stagecoach
