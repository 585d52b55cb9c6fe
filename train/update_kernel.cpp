#include "train/update_kernel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "core/check.h"
#include "core/flush_denormals.h"
#include "hal/host_access.h"
#include "hal/op_call.h"
#include "memory/split_master.h"
#include "train/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/update_kernel.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "train/simd_byte_floats.h"
#include "train/simd_formats.h"

// Not an anonymous namespace: what is compiled once a target stands in that target's.
#ifndef STAGECOACH_UPDATE_KERNEL_ONCE
#define STAGECOACH_UPDATE_KERNEL_ONCE
namespace stagecoach {

/// What of an update is equal for all elements.
struct UpdateFactors {
  UpdateRule rule;
  AdamWFactors adam;
  float learning_rate;
  float weight_decay;
  uint32_t refused_bits;  ///< magnitudes from here on are refused, as bits
};

constexpr bool has_first_moment(UpdateRule rule) {
  return moment_count(rule) > 0;
}
constexpr bool has_second_moment(UpdateRule rule) {
  return moment_count(rule) > 1;
}

/// Elements whose formats are changed at once: small enough to stay in the first cache.
inline constexpr int64_t kTileElements = 1024;
/// How far ahead memory is asked for: the processor's own prefetching stops at pages and does not
/// keep up with five streams (docs/performance.md).
inline constexpr int64_t kPrefetchElements = 512;
/// What one task of the pool updates: whole tiles, whole scales of 8-bit moments.
inline constexpr int64_t kTaskElements = 64 * 1024;

}  // namespace stagecoach
#endif

HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

struct FloatMaster {
  const float* values;
  float* new_values;

  HWY_ATTR FloatVector load(int64_t i) const { return load_floats(values + i); }
  HWY_ATTR void store(FloatVector vector, int64_t i) const { store_floats(vector, new_values + i); }
  HWY_ATTR void prefetch(int64_t i) const { hwy::Prefetch(values + i); }
  float get(int64_t i) const { return values[i]; }
  void set(float value, int64_t i) const { new_values[i] = value; }
};

struct SplitMaster {
  const BFloat16* high;
  BFloat16* new_high;
  int16_t* remainder;

  HWY_ATTR FloatVector load(int64_t i) const {
    const hn::Rebind<int16_t, Floats> halves;
    WordVector high_bits = hn::ShiftLeft<16>(load_halves(&high[i].bits));
    WordVector low = hn::PromoteTo(Words(), hn::LoadU(halves, remainder + i));
    return hn::BitCast(Floats(), hn::Add(high_bits, low));
  }
  HWY_ATTR void store(FloatVector vector, int64_t i) const {
    const hn::Rebind<int16_t, Floats> halves;
    WordVector bits = hn::BitCast(Words(), vector);
    WordVector high_bits = hn::ShiftRight<16>(hn::Add(bits, hn::Set(Words(), 0x8000)));
    store_halves(hn::And(high_bits, hn::Set(Words(), 0xffff)), &new_high[i].bits);
    WordVector low = hn::ShiftRight<16>(hn::ShiftLeft<16>(bits));
    hn::StoreU(hn::DemoteTo(halves, low), halves, remainder + i);
  }
  HWY_ATTR void prefetch(int64_t i) const {
    hwy::Prefetch(high + i);
    hwy::Prefetch(remainder + i);
  }
  float get(int64_t i) const { return join_float({high[i], remainder[i]}); }
  void set(float value, int64_t i) const {
    SplitFloat parts = split_float(value);
    new_high[i] = parts.high;
    remainder[i] = parts.remainder;
  }
};

/// hal/adamw_element.h and its relatives, on vectors. Products and sums are apart on purpose.
template <UpdateRule kRule>
HWY_ATTR HWY_INLINE void apply_rule(const UpdateFactors& factors, FloatVector gradient,
                                    FloatVector& parameter, FloatVector& first,
                                    FloatVector& second) {
  const Floats d;
  const AdamWFactors& adam = factors.adam;
  gradient = hn::Mul(gradient, hn::Set(d, adam.gradient_scale));
  if constexpr (kRule == UpdateRule::kAdam || kRule == UpdateRule::kSgd ||
                kRule == UpdateRule::kPlainSgd) {
    gradient = hn::Add(gradient, hn::Mul(hn::Set(d, factors.weight_decay), parameter));
  }
  if constexpr (kRule == UpdateRule::kPlainSgd) {
    parameter = hn::Sub(parameter, hn::Mul(hn::Set(d, factors.learning_rate), gradient));
    return;
  }
  if constexpr (kRule == UpdateRule::kSgd) {
    first = hn::Add(hn::Mul(hn::Set(d, adam.beta1), first), gradient);
    parameter = hn::Sub(parameter, hn::Mul(hn::Set(d, factors.learning_rate), first));
    return;
  }
  FloatVector fresh = hn::Mul(hn::Set(d, adam.one_minus_beta1), gradient);
  FloatVector mean = hn::Add(hn::Mul(hn::Set(d, adam.beta1), first), fresh);
  if constexpr (kRule == UpdateRule::kLion) {
    FloatVector step = hn::CopySign(hn::Set(d, factors.learning_rate), mean);
    step = hn::IfThenZeroElse(hn::Eq(mean, hn::Zero(d)), step);
    parameter = hn::Sub(hn::Mul(parameter, hn::Set(d, adam.keep)), step);
    fresh = hn::Mul(hn::Set(d, adam.one_minus_beta2), gradient);
    first = hn::Add(hn::Mul(hn::Set(d, adam.beta2), first), fresh);
    return;
  }
  first = mean;
  FloatVector square = hn::Mul(hn::Mul(hn::Set(d, adam.one_minus_beta2), gradient), gradient);
  second = hn::Add(hn::Mul(hn::Set(d, adam.beta2), second), square);
  FloatVector scale = hn::Mul(hn::Sqrt(second), hn::Set(d, adam.second_correction));
  scale = hn::Add(scale, hn::Set(d, adam.epsilon));
  FloatVector step = hn::Div(hn::Mul(hn::Set(d, adam.step_size), first), scale);
  FloatVector kept =
      kRule == UpdateRule::kAdamW ? hn::Mul(parameter, hn::Set(d, adam.keep)) : parameter;
  parameter = hn::Sub(kept, step);
}

/// Updates one vector of elements; the first `valid` count. Returns how many were refused.
template <UpdateRule kRule, typename Master, typename Moment, typename Gradient>
HWY_ATTR HWY_INLINE int64_t update_vector(const UpdateFactors& factors, const Master& master,
                                          Moment* first_moment, Moment* second_moment,
                                          const Gradient* gradients, int64_t i, size_t valid) {
  const Floats d;
  const Words words;
  FloatVector old_parameter = master.load(i);
  FloatVector old_first = hn::Zero(d), old_second = hn::Zero(d);
  if constexpr (has_first_moment(kRule)) old_first = load_floats(first_moment + i);
  if constexpr (has_second_moment(kRule)) old_second = load_floats(second_moment + i);
  FloatVector parameter = old_parameter, first = old_first, second = old_second;
  apply_rule<kRule>(factors, load_floats(gradients + i), parameter, first, second);
  WordVector largest = hn::Max(magnitude_bits(parameter), magnitude_bits(first));
  if constexpr (has_second_moment(kRule)) largest = hn::Max(largest, magnitude_bits(second));
  auto limit = hn::Set(words, static_cast<int32_t>(factors.refused_bits - 1));
  auto refused = hn::Gt(largest, limit);
  int64_t refused_count = 0;
  if (HWY_UNLIKELY(!hn::AllFalse(words, refused))) {
    auto refused_floats = hn::RebindMask(d, refused);
    parameter = hn::IfThenElse(refused_floats, old_parameter, parameter);
    first = hn::IfThenElse(refused_floats, old_first, first);
    second = hn::IfThenElse(refused_floats, old_second, second);
    auto counted = hn::And(refused, hn::FirstN(words, valid));
    refused_count = static_cast<int64_t>(hn::CountTrue(words, counted));
  }
  master.store(parameter, i);
  if constexpr (has_first_moment(kRule)) store_floats(first, first_moment + i);
  if constexpr (has_second_moment(kRule)) store_floats(second, second_moment + i);
  return refused_count;
}

/// The elements that do not fill a vector, by way of one that they begin.
template <UpdateRule kRule, typename Master, typename Moment, typename Gradient>
HWY_ATTR int64_t update_tail(const UpdateFactors& factors, const Master& master,
                             Moment* first_moment, Moment* second_moment, const Gradient* gradients,
                             int64_t begin, int64_t count) {
  constexpr size_t kLanes = hn::MaxLanes(Floats());
  float values[kLanes] = {};
  Moment first[kLanes] = {}, second[kLanes] = {};
  Gradient gradient[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) {
    values[k] = master.get(begin + k);
    if constexpr (has_first_moment(kRule)) first[k] = first_moment[begin + k];
    if constexpr (has_second_moment(kRule)) second[k] = second_moment[begin + k];
    gradient[k] = gradients[begin + k];
  }
  int64_t refused = update_vector<kRule>(factors, FloatMaster{values, values}, first, second,
                                         gradient, 0, static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    master.set(values[k], begin + k);
    if constexpr (has_first_moment(kRule)) first_moment[begin + k] = first[k];
    if constexpr (has_second_moment(kRule)) second_moment[begin + k] = second[k];
  }
  return refused;
}

template <UpdateRule kRule, typename Master, typename Moment, typename Gradient>
HWY_ATTR int64_t update_elements(const UpdateFactors& given, const Master& master,
                                 Moment* first_moment, Moment* second_moment,
                                 const Gradient* gradients, int64_t count) {
  const UpdateFactors factors = given;  // a copy: the stores below cannot change it
  int64_t refused = 0, i = 0;
  for (; i + lane_count() <= count; i += lane_count()) {
    int64_t ahead = i + kPrefetchElements;
    master.prefetch(ahead);
    if constexpr (has_first_moment(kRule)) hwy::Prefetch(first_moment + ahead);
    if constexpr (has_second_moment(kRule)) hwy::Prefetch(second_moment + ahead);
    hwy::Prefetch(gradients + ahead);
    refused += update_vector<kRule>(factors, master, first_moment, second_moment, gradients, i,
                                    static_cast<size_t>(lane_count()));
  }
  if (i == count) return refused;
  return refused +
         update_tail<kRule>(factors, master, first_moment, second_moment, gradients, i, count - i);
}

template <typename Master, typename Moment, typename Gradient>
int64_t choose_rule(const UpdateFactors& factors, const Master& master, Moment* first_moment,
                    Moment* second_moment, const Gradient* gradients, int64_t count) {
  auto run = [&](auto function) {
    return function(factors, master, first_moment, second_moment, gradients, count);
  };
  switch (factors.rule) {
    case UpdateRule::kAdamW:
      return run(update_elements<UpdateRule::kAdamW, Master, Moment, Gradient>);
    case UpdateRule::kAdam:
      return run(update_elements<UpdateRule::kAdam, Master, Moment, Gradient>);
    case UpdateRule::kSgd:
      return run(update_elements<UpdateRule::kSgd, Master, Moment, Gradient>);
    case UpdateRule::kPlainSgd:
      return run(update_elements<UpdateRule::kPlainSgd, Master, Moment, Gradient>);
    case UpdateRule::kLion:
      return run(update_elements<UpdateRule::kLion, Master, Moment, Gradient>);
  }
  return 0;
}

/// 8-bit moments from `begin` on as fp32 in `buffer`.
template <bool kSigned>
void open_bytes(const MomentStore& store, int64_t begin, int64_t count, float* buffer) {
  uint8_t codes[kTileElements] = {};
  std::memcpy(codes, static_cast<const uint8_t*>(store.values) + begin, static_cast<size_t>(count));
  for (int64_t at = 0; at < count; at += kMomentScaleElements) {
    decode_bytes<kSigned>(codes + at, std::min(kMomentScaleElements, count - at),
                          store.scales[(begin + at) / kMomentScaleElements], buffer + at);
  }
}

template <bool kSigned>
void close_bytes(const MomentStore& store, int64_t begin, int64_t count, const float* buffer) {
  uint8_t codes[kTileElements];
  for (int64_t at = 0; at < count; at += kMomentScaleElements) {
    encode_bytes<kSigned>(buffer + at, std::min(kMomentScaleElements, count - at), codes + at,
                          &store.scales[(begin + at) / kMomentScaleElements]);
  }
  std::memcpy(static_cast<uint8_t*>(store.values) + begin, codes, static_cast<size_t>(count));
}

/// Gradients and master of at most kTileElements elements from `begin` on, with their moments.
template <typename Moment>
int64_t update_with(const UpdatePiece& piece, const UpdateFactors& factors, int64_t begin,
                    int64_t count, Moment* first, Moment* second) {
  alignas(64) float summed[kTileElements];
  DType dtype = piece.gradients.dtype;
  const void* gradients = piece.gradients.sources[0];
  int64_t gradient_begin = begin;
  if (piece.gradients.sources.size() > 1) {
    add_up(piece.gradients, begin, count, summed);
    dtype = DType::kF32;
    gradients = summed;
    gradient_begin = 0;
  }
  return with_type(dtype, gradients, gradient_begin, [&](auto* typed) {
    if (piece.parameters == nullptr) {
      SplitMaster master{piece.high + begin, piece.new_high + begin, piece.remainder + begin};
      return choose_rule(factors, master, first, second, typed, count);
    }
    FloatMaster master{piece.parameters + begin, piece.new_parameters + begin};
    return choose_rule(factors, master, first, second, typed, count);
  });
}

int64_t update_bytes(const UpdatePiece& piece, const UpdateFactors& factors, int64_t begin,
                     int64_t count) {
  // Zeros behind the last element: they are read in whole vectors.
  alignas(64) float first[kTileElements], second[kTileElements];
  if (count < kTileElements) {
    std::memset(first, 0, sizeof(first));
    std::memset(second, 0, sizeof(second));
  }
  bool one = has_first_moment(factors.rule), two = has_second_moment(factors.rule);
  if (one) open_bytes<true>(piece.first_moment, begin, count, first);
  if (two) open_bytes<false>(piece.second_moment, begin, count, second);
  int64_t refused = update_with(piece, factors, begin, count, first, second);
  if (one) close_bytes<true>(piece.first_moment, begin, count, first);
  if (two) close_bytes<false>(piece.second_moment, begin, count, second);
  return refused;
}

/// Where moments that are updated in place lie from `begin` on.
template <typename Moment>
Moment* moments_at(const MomentStore& store, int64_t begin) {
  return store.values == nullptr ? nullptr : static_cast<Moment*>(store.values) + begin;
}

template <typename Moment>
int64_t update_in_place(const UpdatePiece& piece, const UpdateFactors& factors, int64_t begin,
                        int64_t count) {
  return update_with(piece, factors, begin, count, moments_at<Moment>(piece.first_moment, begin),
                     moments_at<Moment>(piece.second_moment, begin));
}

int64_t update_tile(const UpdatePiece& piece, const UpdateFactors& factors, int64_t begin,
                    int64_t count) {
  int64_t refused = 0;
  switch (piece.moment_format) {
    case MomentFormat::kFloat32:
      refused = update_in_place<float>(piece, factors, begin, count);
      break;
    case MomentFormat::kBFloat16:
      refused = update_in_place<BFloat16>(piece, factors, begin, count);
      break;
    case MomentFormat::kBlockwise8:
      refused = update_bytes(piece, factors, begin, count);
      break;
  }
  if (piece.published != nullptr) {
    with_type(piece.published_dtype, piece.published, begin, [&](auto* typed) {
      using Storage = std::remove_cv_t<std::remove_pointer_t<decltype(typed)>>;
      encode_floats(piece.new_parameters + begin, count, const_cast<Storage*>(typed));
    });
  }
  return refused;
}

int64_t update_range(const UpdatePiece& piece, const UpdateFactors& factors, int64_t begin,
                     int64_t end) {
  int64_t refused = 0;
  for (int64_t at = begin; at < end; at += kTileElements) {
    refused += update_tile(piece, factors, at, std::min(kTileElements, end - at));
  }
  return refused;
}

}  // namespace stagecoach::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach {

namespace {

HWY_EXPORT(update_range);

UpdateFactors factors_of(const UpdatePiece& piece, const UpdateNumbers& numbers) {
  OpCall call;
  call.kind = OpKind::kAdamW;
  call.adamw = {numbers.learning_rate, numbers.beta1, numbers.beta2, numbers.weight_decay,
                numbers.step};
  call.scale = numbers.gradient_scale;
  call.epsilon = numbers.epsilon;
  // From 0x7f7f8000 on, rounding to bf16 gives infinity.
  bool is_float = piece.moment_format != MomentFormat::kBFloat16;
  return {numbers.rule, adamw_factors(call), numbers.learning_rate, numbers.weight_decay,
          is_float ? 0x7f800000u : 0x7f7f8000u};
}

void check_piece(const UpdatePiece& piece, UpdateRule rule) {
  bool is_split = piece.high != nullptr;
  STAGECOACH_CHECK(piece.element_count >= 0 && !piece.gradients.sources.empty());
  STAGECOACH_CHECK(is_split != (piece.parameters != nullptr));
  if (is_split) {
    STAGECOACH_CHECK(piece.new_high != nullptr && piece.remainder != nullptr);
    STAGECOACH_CHECK(piece.published == nullptr);
  } else {
    STAGECOACH_CHECK(piece.new_parameters != nullptr);
  }
  bool needs_scales = piece.moment_format == MomentFormat::kBlockwise8;
  auto is_whole = [&](const MomentStore& store) {
    return store.values != nullptr && (!needs_scales || store.scales != nullptr);
  };
  STAGECOACH_CHECK(!has_first_moment(rule) || is_whole(piece.first_moment));
  STAGECOACH_CHECK(!has_second_moment(rule) || is_whole(piece.second_moment));
}

/// What devices may reach of a piece.
void note_accesses(const UpdatePiece& piece) {
  const Label label = "update";
  int64_t count = piece.element_count;
  for (const void* source : piece.gradients.sources) {
    note_host_read(source, count * dtype_size_bytes(piece.gradients.dtype), label);
  }
  if (piece.high != nullptr) {
    note_host_read(piece.high, count * 2, label);
    note_host_write(piece.new_high, count * 2, label);
  } else {
    note_host_read(piece.parameters, count * 4, label);
    note_host_write(piece.new_parameters, count * 4, label);
  }
  if (piece.published == nullptr) return;
  note_host_write(piece.published, count * dtype_size_bytes(piece.published_dtype), label);
}

}  // namespace

int64_t update_piece(const UpdatePiece& piece, const UpdateNumbers& numbers, TaskPool& pool) {
  check_piece(piece, numbers.rule);
  note_accesses(piece);
  const UpdateFactors factors = factors_of(piece, numbers);
  int64_t tasks = (piece.element_count + kTaskElements - 1) / kTaskElements;
  std::atomic<int64_t> refused = 0;
  pool.parallel_for(tasks, [&](int64_t task) {
    FlushDenormals flush;
    int64_t begin = task * kTaskElements;
    int64_t end = std::min(piece.element_count, begin + kTaskElements);
    refused += HWY_DYNAMIC_DISPATCH(update_range)(piece, factors, begin, end);
  });
  return refused;
}

double update_bytes_per_element(const UpdatePiece& piece, UpdateRule rule) {
  double gradients = static_cast<double>(piece.gradients.sources.size()) *
                     static_cast<double>(dtype_size_bytes(piece.gradients.dtype));
  double moments = moment_count(rule) * moment_bytes_per_element(piece.moment_format);
  double published =
      piece.published == nullptr ? 0 : static_cast<double>(dtype_size_bytes(piece.published_dtype));
  constexpr double kMaster = 4;
  return gradients + 2 * (kMaster + moments) + published;
}

std::string_view simd_target_name() {
  return hwy::TargetName(simd_targets().front());
}

std::vector<int64_t> simd_targets() {
  return hwy::SupportedAndGeneratedTargets();
}

}  // namespace stagecoach
#endif
