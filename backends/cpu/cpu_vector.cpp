#include "backends/cpu/cpu_vector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/multiversion.h"

namespace stagecoach::vec {

namespace {

/// Sixteen numbers side by side, for sums: compilers may not reorder additions by themselves.
using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;
/// Independent sums of lanes, to hide the latency of an addition. Fixed, so bits are too.
constexpr int64_t kSums = 4;
constexpr int64_t kStep = kLanes * kSums;

STAGECOACH_ALWAYS_INLINE const Lanes& lanes(const float* x) {
  return *reinterpret_cast<const Lanes*>(x);
}

/// Adds lane pairs in a fixed tree.
STAGECOACH_ALWAYS_INLINE float add_lanes(const Lanes (&sums)[kSums]) {
  Lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float tree[kLanes];
  std::memcpy(tree, &all, sizeof(tree));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) tree[i] += tree[i + width];
  }
  return tree[0];
}

/// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, with a polynomial of degree 7.
STAGECOACH_ALWAYS_INLINE float exp_one(float x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  float clamped = x < kLowest ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  float shifted = clamped * 1.44269504f + kRound;
  float n = shifted - kRound;
  float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9841270e-4f;
  p = p * r + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = (p * r) * r + r;
  // p is exp(r) - 1; the integer in shifted's low bits becomes the exponent.
  uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  float power = std::bit_cast<float>(exponent);
  float value = power * p + power;
  return x < kLowest ? 0.0f : value;
}

constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

/// 1 / (1 + exp(-2 u)): (1 + tanh(u)) / 2 without cancellation where u is far below zero.
STAGECOACH_ALWAYS_INLINE float gelu_gate(float x) {
  float u = kGeluScale * (x + kGeluCubic * x * x * x);
  return 1.0f / (1.0f + exp_one(-2.0f * u));
}

STAGECOACH_ALWAYS_INLINE uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return condition ? yes : no;
}

/// The same bits as core's conversions, without branches, so that loops over them vectorise.
STAGECOACH_ALWAYS_INLINE uint16_t bfloat16_bits(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>(select((bits & 0x7fffffffu) > 0x7f800000u, quiet, rounded));
}

STAGECOACH_ALWAYS_INLINE float float_of_half(uint16_t half) {
  uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  // Multiplying by 2^112 moves the exponent and makes subnormals normal; all of it is exact.
  float scaled = std::bit_cast<float>(magnitude) * 0x1.0p112f;
  uint32_t bits = std::bit_cast<uint32_t>(scaled);
  uint32_t special = magnitude | 0x7f800000u;
  bits = select(magnitude >= 0x0f800000u, special, bits);
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

STAGECOACH_ALWAYS_INLINE uint16_t half_bits(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  float aligned = std::bit_cast<float>(select(magnitude < 0x38800000u, magnitude, 0u)) + 0.5f;
  uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - 0x3f000000u;
  uint32_t result = select(magnitude < 0x38800000u, subnormal, normal);
  result = select(magnitude >= 0x477ff000u, 0x7c00u, result);
  result = select(magnitude > 0x7f800000u, 0x7e00u, result);
  return static_cast<uint16_t>(sign | result);
}

STAGECOACH_MULTIVERSION void load_bfloat16(const uint16_t* __restrict src, int64_t count,
                                           float* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) {
    dst[i] = std::bit_cast<float>(static_cast<uint32_t>(src[i]) << 16);
  }
}

STAGECOACH_MULTIVERSION void load_half(const uint16_t* __restrict src, int64_t count,
                                       float* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = float_of_half(src[i]);
}

STAGECOACH_MULTIVERSION void store_bfloat16(const float* __restrict src, int64_t count,
                                            uint16_t* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = bfloat16_bits(src[i]);
}

STAGECOACH_MULTIVERSION void store_half(const float* __restrict src, int64_t count,
                                        uint16_t* __restrict dst) {
  for (int64_t i = 0; i < count; ++i) dst[i] = half_bits(src[i]);
}

}  // namespace

void load(DType dtype, const void* src, int64_t count, float* dst) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kBF16) {
    load_bfloat16(static_cast<const uint16_t*>(src), count, dst);
  } else {
    STAGECOACH_CHECK(dtype == DType::kF16);
    load_half(static_cast<const uint16_t*>(src), count, dst);
  }
}

void store(DType dtype, const float* src, int64_t count, void* dst) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kBF16) {
    store_bfloat16(src, count, static_cast<uint16_t*>(dst));
  } else {
    STAGECOACH_CHECK(dtype == DType::kF16);
    store_half(src, count, static_cast<uint16_t*>(dst));
  }
}

STAGECOACH_MULTIVERSION float sum(const float* x, int64_t count) {
  Lanes sums[kSums] = {};
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (int64_t s = 0; s < kSums; ++s) sums[s] += lanes(x + i + s * kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] += lanes(x + i);
  float total = add_lanes(sums);
  for (; i < count; ++i) total += x[i];
  return total;
}

STAGECOACH_MULTIVERSION float dot(const float* x, const float* y, int64_t count) {
  Lanes sums[kSums] = {};
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (int64_t s = 0; s < kSums; ++s) {
      sums[s] += lanes(x + i + s * kLanes) * lanes(y + i + s * kLanes);
    }
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] += lanes(x + i) * lanes(y + i);
  float total = add_lanes(sums);
  for (; i < count; ++i) total += x[i] * y[i];
  return total;
}

STAGECOACH_MULTIVERSION float squared_deviation(const float* x, float center, int64_t count) {
  Lanes sums[kSums] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes d = lanes(x + i) - center;
    sums[i / kLanes % kSums] += d * d;
  }
  float total = add_lanes(sums);
  for (; i < count; ++i) total += (x[i] - center) * (x[i] - center);
  return total;
}

STAGECOACH_MULTIVERSION float max(const float* x, int64_t count) {
  float best[kStep];
  int64_t whole = count / kStep * kStep;
  for (int64_t l = 0; l < kStep; ++l) best[l] = x[0];
  for (int64_t i = 0; i < whole; i += kStep) {
    for (int64_t l = 0; l < kStep; ++l) best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
  }
  float result = x[0];
  for (float candidate : best) result = candidate > result ? candidate : result;
  for (int64_t i = whole; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

STAGECOACH_MULTIVERSION void accumulate(float* __restrict dst, const float* __restrict src,
                                        int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] += src[i];
}

STAGECOACH_MULTIVERSION void add(float* __restrict dst, const float* a, const float* b,
                                 int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = a[i] + b[i];
}

STAGECOACH_MULTIVERSION void multiply(float* __restrict dst, const float* a, const float* b,
                                      int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = a[i] * b[i];
}

STAGECOACH_MULTIVERSION void multiply_into(float* __restrict dst, const float* __restrict factors,
                                           int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] *= factors[i];
}

STAGECOACH_MULTIVERSION void scale(float* __restrict dst, const float* __restrict src, float factor,
                                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = src[i] * factor;
}

STAGECOACH_MULTIVERSION void scaled_difference(float* __restrict dst, const float* a,
                                               const float* b, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = factor * (a[i] - b[i]);
}

STAGECOACH_MULTIVERSION void drop(float* __restrict dst, const float* __restrict src,
                                  const uint32_t* __restrict words, uint32_t threshold,
                                  float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float kept = src[i] * factor;
    dst[i] = words[i] >= threshold ? kept : 0.0f;
  }
}

STAGECOACH_MULTIVERSION void exp(float* __restrict dst, const float* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = exp_one(x[i]);
}

STAGECOACH_MULTIVERSION void exp_shifted(float* __restrict dst, const float* __restrict x,
                                         float shift, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = factor * exp_one(x[i] - shift);
}

STAGECOACH_MULTIVERSION float sum_exp_shifted(const float* x, float shift, int64_t count) {
  Lanes sums[kSums] = {};
  float terms[kStep];
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (int64_t l = 0; l < kStep; ++l) terms[l] = exp_one(x[i + l] - shift);
    for (int64_t s = 0; s < kSums; ++s) sums[s] += lanes(terms + s * kLanes);
  }
  float total = add_lanes(sums);
  for (; i < count; ++i) total += exp_one(x[i] - shift);
  return total;
}

STAGECOACH_MULTIVERSION void gelu(float* __restrict dst, const float* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = x[i] * gelu_gate(x[i]);
}

STAGECOACH_MULTIVERSION void gelu_backward(float* __restrict dst, const float* __restrict out_grad,
                                           const float* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float gate = gelu_gate(x[i]);
    float slope = 2.0f * kGeluScale * (1.0f + 3.0f * kGeluCubic * x[i] * x[i]);
    dst[i] = out_grad[i] * (gate + x[i] * gate * (1.0f - gate) * slope);
  }
}

STAGECOACH_MULTIVERSION void normalize(float* __restrict dst, const float* __restrict x, float mean,
                                       float rstd, const float* __restrict weight,
                                       const float* __restrict bias, int64_t count) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < count; ++i) dst[i] = (x[i] - mean) * rstd * weight[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) dst[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

STAGECOACH_MULTIVERSION void normalize_backward(float* __restrict dst,
                                                const float* __restrict out_grad,
                                                const float* __restrict x, float mean, float rstd,
                                                const float* __restrict weight, int64_t count) {
  Lanes sums[kSums] = {};
  Lanes products[kSums] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes g = lanes(out_grad + i) * lanes(weight + i);
    Lanes normal = (lanes(x + i) - mean) * rstd;
    sums[i / kLanes % kSums] += g;
    products[i / kLanes % kSums] += g * normal;
  }
  float sum_g = add_lanes(sums);
  float sum_product = add_lanes(products);
  for (; i < count; ++i) {
    float g = out_grad[i] * weight[i];
    sum_g += g;
    sum_product += g * ((x[i] - mean) * rstd);
  }
  float mean_g = sum_g / static_cast<float>(count);
  float mean_product = sum_product / static_cast<float>(count);
  for (i = 0; i < count; ++i) {
    float normal = (x[i] - mean) * rstd;
    dst[i] = rstd * (out_grad[i] * weight[i] - mean_g - normal * mean_product);
  }
}

STAGECOACH_MULTIVERSION void normalize_backward_weight(float* __restrict weight_grad,
                                                       float* __restrict bias_grad,
                                                       const float* __restrict out_grad,
                                                       const float* __restrict x, float mean,
                                                       float rstd, int64_t count) {
  for (int64_t i = 0; i < count; ++i) weight_grad[i] += out_grad[i] * ((x[i] - mean) * rstd);
  if (bias_grad == nullptr) return;
  for (int64_t i = 0; i < count; ++i) bias_grad[i] += out_grad[i];
}

STAGECOACH_MULTIVERSION void softmax_columns(float* scores, int64_t count, float* maximum,
                                             float* sum_out) {
  float best[kPanel];
  float total[kPanel];
  for (int64_t l = 0; l < kPanel; ++l) best[l] = scores[l];
  for (int64_t j = 1; j < count; ++j) {
    const float* row = scores + j * kPanel;
    for (int64_t l = 0; l < kPanel; ++l) best[l] = row[l] > best[l] ? row[l] : best[l];
  }
  for (int64_t l = 0; l < kPanel; ++l) total[l] = 0.0f;
  for (int64_t j = 0; j < count; ++j) {
    float* row = scores + j * kPanel;
    for (int64_t l = 0; l < kPanel; ++l) {
      row[l] = exp_one(row[l] - best[l]);
      total[l] += row[l];
    }
  }
  std::copy_n(best, kPanel, maximum);
  std::copy_n(total, kPanel, sum_out);
}

STAGECOACH_MULTIVERSION void keep_columns(const uint32_t* __restrict words, int64_t stride,
                                          int64_t count, uint32_t threshold, float factor,
                                          float* __restrict keep) {
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t l = 0; l < kPanel; ++l) {
      keep[j * kPanel + l] = words[l * stride + j] >= threshold ? factor : 0.0f;
    }
  }
}

STAGECOACH_MULTIVERSION void exp_columns(float* __restrict scores, int64_t count,
                                         const float* __restrict lse) {
  for (int64_t j = 0; j < count; ++j) {
    float* row = scores + j * kPanel;
    for (int64_t l = 0; l < kPanel; ++l) row[l] = exp_one(row[l] - lse[l]);
  }
}

STAGECOACH_MULTIVERSION void softmax_backward_columns(float* __restrict grad,
                                                      const float* __restrict probability,
                                                      int64_t count, const float* __restrict delta,
                                                      float factor) {
  for (int64_t j = 0; j < count; ++j) {
    float* row = grad + j * kPanel;
    const float* p = probability + j * kPanel;
    for (int64_t l = 0; l < kPanel; ++l) row[l] = p[l] * (row[l] - delta[l]) * factor;
  }
}

}  // namespace stagecoach::vec
