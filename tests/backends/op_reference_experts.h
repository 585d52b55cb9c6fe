#pragma once

#include "tests/backends/op_reference.h"

namespace stagecoach::reference {

// The operations of ops.h for experts, in fp64, as op_reference.h. Rows choose experts; grouped
// rows come with the expert of each.

struct Routing {
  Ids choices;     ///< [R, K]
  Values weights;  ///< [R, K]
};
Routing route(const Values& logits, int64_t experts, int64_t count, bool over_chosen);
/// Gradient with respect to the logits, by the softmax's whole matrix of derivatives.
Values route_grad(const Values& weights_grad, const Values& logits, const Ids& choices,
                  int64_t experts, int64_t count, bool over_chosen);

/// A row's part of its sequence's load-balancing loss, times the sequence's targets (see
/// balance_forward), and the gradient of their sum by the logits, with the choices held.
Values balance(const Values& logits, const Ids& choices, const Ids& labels, int64_t experts,
               int64_t count, int64_t sequence);
Values balance_grad(const Values& logits, const Ids& choices, const Ids& labels, int64_t experts,
                    int64_t count, int64_t sequence);

struct Grouping {
  Ids order, places, offsets;
  Ids experts;  ///< of each grouped row
};
Grouping group(const Ids& choices, int64_t experts);

Values gather(const Values& in, const Ids& order, const Values& weights, int64_t columns,
              int64_t count);
/// `weights` and `residual` may be empty.
Values combine(const Values& in, const Ids& places, const Values& weights, const Values& residual,
               int64_t columns, int64_t count);

/// out[N, O] = a[N, C] times b[E, C, O] (or [E, O, C]) of each row's expert, plus its bias.
Values grouped_matmul(const Values& a, const Values& b, const Values& bias, const Ids& experts,
                      int64_t in_columns, int64_t out_columns, bool transpose_b);
/// [E, C, O]: sum over each expert's rows of a[C] b[O].
Values grouped_outer(const Values& a, const Values& b, const Ids& experts, int64_t expert_count,
                     int64_t a_columns, int64_t b_columns);

}  // namespace stagecoach::reference
