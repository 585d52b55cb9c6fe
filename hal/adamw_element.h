#pragma once

#include <cmath>

#include "hal/op_call.h"

namespace stagecoach {

/// One element of an AdamW step (Loshchilov & Hutter, 2019): what the update means, for host and
/// devices. Every operation is rounded to fp32 by itself, in this order, with no product fused into
/// the sum after it, denormal operands and results are zero (FlushDenormals), and square root and
/// division are correctly rounded: so whoever computes it gets the same bits. Files that call it
/// are compiled with -ffp-contract=off. Pure.
inline void update_adamw_element(const AdamWFactors& factors, float gradient, float& parameter,
                                 float& first_moment, float& second_moment) {
  float scaled = gradient * factors.gradient_scale;
  float first = factors.beta1 * first_moment + factors.one_minus_beta1 * scaled;
  float second = factors.beta2 * second_moment + factors.one_minus_beta2 * scaled * scaled;
  float scale = std::sqrt(second) * factors.second_correction + factors.epsilon;
  parameter = parameter * factors.keep - factors.step_size * first / scale;
  first_moment = first;
  second_moment = second;
}

}  // namespace stagecoach
