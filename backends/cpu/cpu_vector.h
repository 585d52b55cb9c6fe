#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace stagecoach {

/// The inner loops of the CPU operations: contiguous fp32, compiled for several instruction sets,
/// in one fixed order of additions each. Inputs and outputs do not overlap unless said otherwise.
/// Pure; any thread.
namespace vec {

/// dst[i] = src[i], from or to storage (fp32, bf16 or fp16; nearest, ties to even).
void load(DType dtype, const void* src, int64_t count, float* dst);
void store(DType dtype, const float* src, int64_t count, void* dst);

/// Sum of x[i]; of x[i] * y[i].
float sum(const float* x, int64_t count);
float dot(const float* x, const float* y, int64_t count);
/// Sum of (x[i] - center)^2.
float squared_deviation(const float* x, float center, int64_t count);
float max(const float* x, int64_t count);

/// dst[i] += src[i]; dst[i] = a[i] + b[i]; a[i] * b[i].
void accumulate(float* dst, const float* src, int64_t count);
void add(float* dst, const float* a, const float* b, int64_t count);
void multiply(float* dst, const float* a, const float* b, int64_t count);
/// dst[i] *= factors[i].
void multiply_into(float* dst, const float* factors, int64_t count);
/// dst[i] = src[i] * factor.
void scale(float* dst, const float* src, float factor, int64_t count);
/// dst[i] = factor * (a[i] - b[i]).
void scaled_difference(float* dst, const float* a, const float* b, float factor, int64_t count);
/// dst[i] = words[i] >= threshold ? src[i] * factor : 0. dst may be src.
void drop(float* dst, const float* src, const uint32_t* words, uint32_t threshold, float factor,
          int64_t count);

/// dst[i] = exp(x[i]); relative error <= 1e-7, 0 below -87.3, 1.7e38 at most.
void exp(float* dst, const float* x, int64_t count);
/// dst[i] = factor * exp(x[i] - shift).
void exp_shifted(float* dst, const float* x, float shift, float factor, int64_t count);
/// Sum of exp(x[i] - shift).
float sum_exp_shifted(const float* x, float shift, int64_t count);

/// GELU (tanh approximation); out_grad * its derivative.
void gelu(float* dst, const float* x, int64_t count);
void gelu_backward(float* dst, const float* out_grad, const float* x, int64_t count);

/// dst = (x - mean) * rstd * weight + bias; bias may be null.
void normalize(float* dst, const float* x, float mean, float rstd, const float* weight,
               const float* bias, int64_t count);
/// dst = gradient of one row of layer norm with respect to x.
void normalize_backward(float* dst, const float* out_grad, const float* x, float mean, float rstd,
                        const float* weight, int64_t count);
/// weight_grad += out_grad * (x - mean) * rstd; bias_grad += out_grad, unless null.
void normalize_backward_weight(float* weight_grad, float* bias_grad, const float* out_grad,
                               const float* x, float mean, float rstd, int64_t count);

/// Columns of the score panels below: queries side by side, keys downwards.
inline constexpr int64_t kPanel = 64;

/// c[m,n] (+)= a[m,k] * b[k,n]; a is read at a[i * a_row + p * a_column], b and c are row-major.
void block_matmul(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_column,
                  const float* b, int64_t ldb, float* c, int64_t ldc, bool add_to);
/// Softmax down each column of scores[count, kPanel], in place and not divided:
/// scores = exp(scores - maximum[column]); sum[column] of those.
void softmax_columns(float* scores, int64_t count, float* maximum, float* sum);
/// keep[count, kPanel] = words[column * stride + row] >= threshold ? factor : 0.
void keep_columns(const uint32_t* words, int64_t stride, int64_t count, uint32_t threshold,
                  float factor, float* keep);
/// scores[count, kPanel] = exp(scores - lse[column]), in place.
void exp_columns(float* scores, int64_t count, const float* lse);
/// grad = probability * (grad - delta[column]) * factor, in place on grad[count, kPanel].
void softmax_backward_columns(float* grad, const float* probability, int64_t count,
                              const float* delta, float factor);

}  // namespace vec

}  // namespace stagecoach
