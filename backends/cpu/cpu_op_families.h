#pragma once

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/op_call.h"

namespace stagecoach {

/// Each operation of OpKind, for run_cpu_op: a validated call, computed on the calling thread and
/// the pool before returning. Only data can be wrong (ids, labels): data loss.
Status cpu_embedding_forward(const OpCall& call, TaskPool& pool);
Status cpu_embedding_backward(const OpCall& call, TaskPool& pool);
Status cpu_layer_norm_forward(const OpCall& call, TaskPool& pool);
Status cpu_layer_norm_backward_input(const OpCall& call, TaskPool& pool);
Status cpu_layer_norm_backward_weight(const OpCall& call, TaskPool& pool);
Status cpu_matmul(const OpCall& call, TaskPool& pool);
Status cpu_column_sum(const OpCall& call, TaskPool& pool);
Status cpu_gelu_forward(const OpCall& call, TaskPool& pool);
Status cpu_gelu_backward(const OpCall& call, TaskPool& pool);
Status cpu_attention_forward(const OpCall& call, TaskPool& pool);
Status cpu_attention_backward(const OpCall& call, TaskPool& pool);
Status cpu_attention_sink_backward(const OpCall& call, TaskPool& pool);
Status cpu_add(const OpCall& call, TaskPool& pool);
Status cpu_multiply(const OpCall& call, TaskPool& pool);
Status cpu_dropout(const OpCall& call, TaskPool& pool);
Status cpu_linear_cross_entropy_forward(const OpCall& call, TaskPool& pool);
Status cpu_linear_cross_entropy_backward_input(const OpCall& call, TaskPool& pool);
Status cpu_linear_cross_entropy_backward_weight(const OpCall& call, TaskPool& pool);
Status cpu_squared_error_forward(const OpCall& call, TaskPool& pool);
Status cpu_squared_error_backward(const OpCall& call, TaskPool& pool);
Status cpu_accumulate(const OpCall& call, TaskPool& pool);
Status cpu_convert(const OpCall& call, TaskPool& pool);
Status cpu_sum_of_squares(const OpCall& call, TaskPool& pool);
Status cpu_checksum(const OpCall& call, TaskPool& pool);
Status cpu_rms_norm_forward(const OpCall& call, TaskPool& pool);
Status cpu_rms_norm_backward_input(const OpCall& call, TaskPool& pool);
Status cpu_rms_norm_backward_weight(const OpCall& call, TaskPool& pool);
Status cpu_rotary(const OpCall& call, TaskPool& pool);
Status cpu_qk_norm_forward(const OpCall& call, TaskPool& pool);
Status cpu_qk_norm_backward_input(const OpCall& call, TaskPool& pool);
Status cpu_qk_norm_backward_weight(const OpCall& call, TaskPool& pool);
Status cpu_gated_silu_forward(const OpCall& call, TaskPool& pool);
Status cpu_gated_silu_backward(const OpCall& call, TaskPool& pool);
Status cpu_adamw(const OpCall& call, TaskPool& pool);
Status cpu_finite_check(const OpCall& call, TaskPool& pool);
Status cpu_join_master(const OpCall& call, TaskPool& pool);
Status cpu_split_master(const OpCall& call, TaskPool& pool);
Status cpu_route_forward(const OpCall& call, TaskPool& pool);
Status cpu_route_backward(const OpCall& call, TaskPool& pool);
Status cpu_balance_forward(const OpCall& call, TaskPool& pool);
Status cpu_balance_backward(const OpCall& call, TaskPool& pool);
Status cpu_group_rows(const OpCall& call, TaskPool& pool);
Status cpu_gather_rows(const OpCall& call, TaskPool& pool);
Status cpu_combine_rows(const OpCall& call, TaskPool& pool);
Status cpu_combine_backward(const OpCall& call, TaskPool& pool);
Status cpu_grouped_matmul(const OpCall& call, TaskPool& pool);
Status cpu_grouped_matmul_weight(const OpCall& call, TaskPool& pool);
Status cpu_grouped_column_sum(const OpCall& call, TaskPool& pool);

/// Refuses the first of `count` ids outside [least, limit) as data loss, naming op, row and id.
Status check_ids(const OpCall& call, const char* operand, const int32_t* ids, int64_t count,
                 int64_t least, int64_t limit);

}  // namespace stagecoach
