#include "train/update_kernel.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <limits>
#include <random>

#include "core/flush_denormals.h"
#include "hal/adamw_element.h"
#include "memory/split_master.h"

namespace stagecoach {
namespace {

enum class Master { kFloat, kFloatPublished, kFloatTwo, kSplit, kSplitTwo };

/// What is updated and how; the data follows from the seed.
struct Case {
  UpdateRule rule = UpdateRule::kAdamW;
  Master master = Master::kSplit;
  MomentFormat moments = MomentFormat::kFloat32;
  DType gradient = DType::kBF16;
  int sources = 1;
  DType published = DType::kF16;
};

constexpr UpdateRule kRules[] = {UpdateRule::kAdamW, UpdateRule::kAdam, UpdateRule::kSgd,
                                 UpdateRule::kPlainSgd, UpdateRule::kLion};

bool has_two_moments(UpdateRule rule) {
  return moment_count(rule) == 2;
}

/// Memory of one block: every array starts `shift` elements into poisoned memory and is followed by
/// more of it.
struct Block {
  static constexpr int64_t kGuard = 64;

  Block(const Case& chosen, int64_t elements, uint32_t seed, int64_t shifted = 0)
      : test(chosen), count(elements), shift(shifted) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    float parameter_scale = 0.5f, gradient_scale = 0.02f;
    size_t size = static_cast<size_t>(count + 2 * kGuard);
    parameters.assign(size, -7.0f);
    new_parameters = parameters;
    high.assign(size, BFloat16{0x5a5a});
    new_high = high;
    remainder.assign(size, 0x5a5a);
    published.assign(size, 0x5a5a);
    first.assign(size * 4, 0xee);
    second = first;
    first_scales.assign(size / kMomentScaleElements + 2, 0.0f);
    second_scales = first_scales;
    for (int64_t i = 0; i < count; ++i) {
      float value = parameter_scale * normal(engine);
      SplitFloat halves = split_float(value);
      parameters[at(i)] = value;
      high[at(i)] = halves.high;
      remainder[at(i)] = halves.remainder;
    }
    std::memset(first.data() + at(0) * moment_bytes(), 0, count * moment_bytes());
    std::memset(second.data() + at(0) * moment_bytes(), 0, count * moment_bytes());
    for (int k = 0; k < test.sources; ++k) {
      gradients.emplace_back(size * 4);
      for (int64_t i = 0; i < count; ++i) set_gradient(k, i, gradient_scale * normal(engine));
    }
  }

  size_t at(int64_t i) const { return static_cast<size_t>(i + kGuard / 2 + shift); }
  size_t moment_bytes() const {
    return test.moments == MomentFormat::kFloat32    ? 4
           : test.moments == MomentFormat::kBFloat16 ? 2
                                                     : 1;
  }
  void set_gradient(int source, int64_t i, float value) {
    uint8_t* data = gradients[source].data() + at(i) * dtype_size_bytes(test.gradient);
    BFloat16 brain = to_bfloat16(value);
    Float16 half = to_float16(value);
    if (test.gradient == DType::kF32) std::memcpy(data, &value, 4);
    if (test.gradient == DType::kBF16) std::memcpy(data, &brain, 2);
    if (test.gradient == DType::kF16) std::memcpy(data, &half, 2);
  }
  float gradient(int source, int64_t i) const {
    const uint8_t* data = gradients[source].data() + at(i) * dtype_size_bytes(test.gradient);
    if (test.gradient == DType::kF32) return *reinterpret_cast<const float*>(data);
    if (test.gradient == DType::kBF16) return to_float(*reinterpret_cast<const BFloat16*>(data));
    return to_float(*reinterpret_cast<const Float16*>(data));
  }
  float parameter(int64_t i) const {
    switch (test.master) {
      case Master::kFloat:
      case Master::kFloatPublished:
        return parameters[at(i)];
      case Master::kFloatTwo:
        return new_parameters[at(i)];
      case Master::kSplit:
        return join_float({high[at(i)], remainder[at(i)]});
      case Master::kSplitTwo:
        return join_float({new_high[at(i)], remainder[at(i)]});
    }
    return 0;
  }
  float& first_float(int64_t i) { return reinterpret_cast<float*>(first.data())[at(i)]; }
  float& second_float(int64_t i) { return reinterpret_cast<float*>(second.data())[at(i)]; }

  /// Updates elements [begin, end).
  int64_t update(const UpdateNumbers& numbers, TaskPool& pool, int64_t begin, int64_t end) {
    std::vector<const void*> sources;
    for (const std::vector<uint8_t>& source : gradients) {
      sources.push_back(source.data() + at(begin) * dtype_size_bytes(test.gradient));
    }
    UpdatePiece piece;
    piece.element_count = end - begin;
    piece.gradients = {test.gradient, sources};
    if (test.master == Master::kSplit || test.master == Master::kSplitTwo) {
      piece.high = &high[at(begin)];
      piece.new_high = test.master == Master::kSplit ? &high[at(begin)] : &new_high[at(begin)];
      piece.remainder = &remainder[at(begin)];
    } else {
      piece.parameters = &parameters[at(begin)];
      piece.new_parameters =
          test.master == Master::kFloatTwo ? &new_parameters[at(begin)] : &parameters[at(begin)];
    }
    if (test.master == Master::kFloatPublished) {
      piece.published = &published[at(begin)];
      piece.published_dtype = test.published;
    }
    piece.moment_format = test.moments;
    int64_t scale = begin / kMomentScaleElements;
    if (moment_count(numbers.rule) > 0) {
      piece.first_moment = {first.data() + at(begin) * moment_bytes(), &first_scales[scale]};
    }
    if (has_two_moments(numbers.rule)) {
      piece.second_moment = {second.data() + at(begin) * moment_bytes(), &second_scales[scale]};
    }
    return update_piece(piece, numbers, pool);
  }
  int64_t update(const UpdateNumbers& numbers, TaskPool& pool) {
    return update(numbers, pool, 0, count);
  }

  bool operator==(const Block& other) const {
    auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(parameters, other.parameters) && same(new_parameters, other.new_parameters) &&
           same(high, other.high) && same(new_high, other.new_high) &&
           same(remainder, other.remainder) && same(published, other.published) &&
           same(first, other.first) && same(second, other.second) &&
           same(first_scales, other.first_scales) && same(second_scales, other.second_scales);
  }

  Case test;
  int64_t count;
  int64_t shift;
  std::vector<float> parameters, new_parameters, first_scales, second_scales;
  std::vector<BFloat16> high, new_high;
  std::vector<int16_t> remainder;
  std::vector<uint16_t> published;
  std::vector<uint8_t> first, second;
  std::vector<std::vector<uint8_t>> gradients;
};

UpdateNumbers numbers_of(UpdateRule rule, int64_t step) {
  return {rule, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, step};
}

/// One step of each paper's formula in long double.
struct Reference {
  long double parameter = 0, first = 0, second = 0;

  void apply(const UpdateNumbers& n, long double gradient) {
    long double rate = n.learning_rate, beta1 = n.beta1, beta2 = n.beta2, decay = n.weight_decay;
    gradient *= n.gradient_scale;
    if (n.rule != UpdateRule::kAdamW && n.rule != UpdateRule::kLion) gradient += decay * parameter;
    if (n.rule == UpdateRule::kPlainSgd) {
      parameter -= rate * gradient;
      return;
    }
    if (n.rule == UpdateRule::kSgd) {
      first = beta1 * first + gradient;
      parameter -= rate * first;
      return;
    }
    if (n.rule == UpdateRule::kLion) {
      long double mean = beta1 * first + (1 - beta1) * gradient;
      parameter -= rate * decay * parameter;
      parameter -= rate * static_cast<long double>((mean > 0) - (mean < 0));
      first = beta2 * first + (1 - beta2) * gradient;
      return;
    }
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    long double first_hat = first / (1 - std::pow(beta1, static_cast<long double>(n.step)));
    long double second_hat = second / (1 - std::pow(beta2, static_cast<long double>(n.step)));
    if (n.rule == UpdateRule::kAdamW) parameter -= rate * decay * parameter;
    parameter -= rate * first_hat / (std::sqrt(second_hat) + n.epsilon);
  }
};

struct UpdateKernel : ::testing::Test {
  // Whatever a test has forced, the next one starts with the best target.
  ~UpdateKernel() override { hwy::SetSupportedTargetsForTest(0); }

  std::unique_ptr<TaskPool> one = TaskPool::create(1);
  std::unique_ptr<TaskPool> three = TaskPool::create(3);
};

TEST_F(UpdateKernel, FollowsThePapersOverThreeSteps) {
  for (UpdateRule rule : kRules) {
    for (Master master : {Master::kFloat, Master::kSplit}) {
      for (int sources : {1, 3}) {
        Case test{rule, master, MomentFormat::kFloat32, DType::kF32, sources};
        Block block(test, 3001, static_cast<uint32_t>(sources) + 100);
        std::vector<Reference> expected(block.count);
        for (int64_t i = 0; i < block.count; ++i) expected[i].parameter = block.parameter(i);
        for (int64_t step = 1; step <= 3; ++step) {
          UpdateNumbers numbers = numbers_of(rule, step);
          for (int64_t i = 0; i < block.count; ++i) {
            long double sum = 0;
            for (int k = 0; k < sources; ++k) sum += block.gradient(k, i);
            expected[i].apply(numbers, sum);
          }
          ASSERT_EQ(block.update(numbers, *one), 0);
        }
        for (int64_t i = 0; i < block.count; ++i) {
          ASSERT_NEAR(block.parameter(i), double(expected[i].parameter), 2e-6) << i;
          ASSERT_NEAR(block.first_float(i), double(expected[i].first), 4e-7) << i;
          if (has_two_moments(rule)) {
            double second = double(expected[i].second);
            ASSERT_NEAR(block.second_float(i), second, 1e-6 * second + 1e-11) << i;
          }
        }
      }
    }
  }
}

void expect_element_formula(const Case& test, TaskPool& pool) {
  constexpr int64_t kCount = 5000;
  Block block(test, kCount, 7);
  block.set_gradient(0, 100, 3e-6f);  // a denormal half
  block.set_gradient(0, 101, 1e-20f);
  block.set_gradient(0, 102, -60000.0f);
  std::vector<float> parameter(kCount), first(kCount), second(kCount);
  for (int64_t i = 0; i < kCount; ++i) parameter[i] = block.parameter(i);
  for (int64_t step = 1; step <= 4; ++step) {
    UpdateNumbers numbers = numbers_of(UpdateRule::kAdamW, step);
    OpCall call;
    call.adamw = {numbers.learning_rate, numbers.beta1, numbers.beta2, numbers.weight_decay, step};
    call.scale = numbers.gradient_scale;
    call.epsilon = numbers.epsilon;
    AdamWFactors factors = adamw_factors(call);
    for (int64_t i = 0; i < kCount; ++i) {
      float sum = block.gradient(0, i);
      for (int k = 1; k < test.sources; ++k) sum += block.gradient(k, i);
      FlushDenormals flush;
      update_adamw_element(factors, sum, parameter[i], first[i], second[i]);
    }
    block.update(numbers, pool);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(block.parameter(i), parameter[i]) << i;
    ASSERT_EQ(block.first_float(i), first[i]) << i;
    ASSERT_EQ(block.second_float(i), second[i]) << i;
  }
}

TEST_F(UpdateKernel, AdamWIsTheElementFormulaBitForBit) {
  for (DType gradient : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int sources : {1, 2, 4}) {
      expect_element_formula(
          {UpdateRule::kAdamW, Master::kSplit, MomentFormat::kFloat32, gradient, sources}, *three);
    }
  }
}

/// Two updates from moments of `first` and `second` with gradients far below them.
Block updated_from(const Case& test, float first, float second, TaskPool& pool) {
  Block block(test, 3001, 77);
  for (int64_t i = 0; i < block.count; ++i) {
    block.first_float(i) = i % 2 == 0 ? first : -first;
    block.second_float(i) = second;
  }
  UpdateNumbers numbers = numbers_of(test.rule, 1);
  numbers.gradient_scale = 1e-39f;  // gradients of 1 are no normal numbers either
  for (numbers.step = 1; numbers.step <= 2; ++numbers.step) {
    EXPECT_EQ(block.update(numbers, pool), 0);
  }
  return block;
}

// Field report 70. Numbers below 2^-126 count as zero, in whatever an update reads, computes or
// keeps: so the effect of each is at most 2^-126 in a moment, and in a parameter at most the
// learning rate times 2^-126 / epsilon a step. That they cost no time is bench/optimizer's row
// subnormal_moments.
TEST_F(UpdateKernel, SubnormalsAreZeroAndNothingElseDependsOnThem) {
  constexpr double kLeastNormal = 0x1p-126;
  for (UpdateRule rule : {UpdateRule::kAdamW, UpdateRule::kAdam}) {
    for (Master master : {Master::kFloat, Master::kSplit}) {
      Case test{rule, master, MomentFormat::kFloat32, DType::kF32, 1};
      Block small = updated_from(test, 1e-40f, 1e-40f, *three);
      Block zero = updated_from(test, 0, 0, *three);
      EXPECT_TRUE(small == zero);
      // As exact arithmetic would have it from the subnormal moments.
      UpdateNumbers numbers = numbers_of(rule, 1);
      Block start(test, 3001, 77);
      double bound = numbers.learning_rate * kLeastNormal / double{numbers.epsilon};
      EXPECT_LT(bound, 1e-31);
      for (int64_t i = 0; i < start.count; ++i) {
        Reference exact{start.parameter(i), i % 2 == 0 ? 1e-40 : -1e-40, 1e-40};
        for (numbers.step = 1; numbers.step <= 2; ++numbers.step) {
          exact.apply(numbers, start.gradient(0, i) * 1e-39L);
        }
        double parameter = static_cast<double>(exact.parameter);
        // Adam's decay is a gradient of normal size; rounding is relative.
        ASSERT_NEAR(small.parameter(i), parameter, 2e-6) << i;
        if (rule == UpdateRule::kAdam) continue;
        ASSERT_NEAR(small.first_float(i), static_cast<double>(exact.first), 2 * kLeastNormal) << i;
        ASSERT_NEAR(small.second_float(i), static_cast<double>(exact.second), 2 * kLeastNormal);
        // Nothing that a checkpoint keeps is subnormal.
        ASSERT_TRUE(small.first_float(i) == 0 || std::isnormal(small.first_float(i)));
        ASSERT_TRUE(small.second_float(i) == 0 || std::isnormal(small.second_float(i)));
      }
    }
  }
}

std::vector<Case> all_formats() {
  std::vector<Case> cases;
  for (UpdateRule rule : kRules) {
    for (Master master : {Master::kFloat, Master::kFloatPublished, Master::kFloatTwo,
                          Master::kSplit, Master::kSplitTwo}) {
      for (MomentFormat moments :
           {MomentFormat::kFloat32, MomentFormat::kBFloat16, MomentFormat::kBlockwise8}) {
        for (DType gradient : {DType::kF32, DType::kBF16, DType::kF16}) {
          int sources = 1 + static_cast<int>(cases.size()) % 3;
          DType published = cases.size() % 2 == 0 ? DType::kF16 : DType::kBF16;
          cases.push_back({rule, master, moments, gradient, sources, published});
        }
      }
    }
  }
  return cases;
}

TEST_F(UpdateKernel, EverySimdTargetGivesTheSameBits) {
  ASSERT_GE(simd_targets().size(), 2u) << simd_target_name();
  std::vector<int64_t> targets = simd_targets();
  uint32_t seed = 1000;
  for (const Case& test : all_formats()) {
    ++seed;
    std::optional<Block> expected;
    for (int64_t target : targets) {
      hwy::SetSupportedTargetsForTest(target);
      Block block(test, 1800, seed);
      // Denormals, infinities and zeros take the paths that differ between processors.
      if (test.gradient == DType::kF32) block.set_gradient(0, 5, 1e-41f);
      block.set_gradient(0, 6, 1e-20f);
      block.set_gradient(0, 7, 0.0f);
      block.set_gradient(0, 8, INFINITY);
      block.set_gradient(0, 9, NAN);
      block.set_gradient(0, 10, 3e-6f);  // a denormal half
      for (int64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(block.update(numbers_of(test.rule, step), *one), 2);
      }
      if (!expected) expected = block;
      ASSERT_TRUE(block == *expected) << hwy::TargetName(target) << ", case " << seed - 1001;
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST_F(UpdateKernel, CutsThreadsAndAlignmentsChangeNothing) {
  uint32_t seed = 2000;
  for (const Case& test : all_formats()) {
    ++seed;
    constexpr int64_t kCount = 2309;
    UpdateNumbers numbers = numbers_of(test.rule, 1);
    Block whole(test, kCount, seed);
    whole.update(numbers, *one);
    Block pieces(test, kCount, seed);
    bool by_scales = test.moments == MomentFormat::kBlockwise8;
    std::mt19937 engine(seed);
    for (int64_t begin = 0; begin < kCount;) {
      int64_t size = by_scales ? kMomentScaleElements * (1 + engine() % 4) : 1 + engine() % 700;
      int64_t end = std::min(kCount, begin + size);
      pieces.update(numbers, *three, begin, end);
      begin = end;
    }
    ASSERT_TRUE(pieces == whole) << seed;
    for (int64_t shift : {1, 2, 5, 15}) {
      Block moved(test, kCount, seed, shift);
      moved.update(numbers, *one);
      for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(moved.parameter(i), whole.parameter(i));
      ASSERT_EQ(moved.first_scales, whole.first_scales);
      ASSERT_EQ(moved.second_scales, whole.second_scales);
    }
  }
}

TEST_F(UpdateKernel, ManyTasksGiveTheBitsOfOneThread) {
  constexpr int64_t kCount = 200'003;
  Case test;
  Block one_thread(test, kCount, 5), more(test, kCount, 5);
  one_thread.update(numbers_of(test.rule, 1), *one);
  more.update(numbers_of(test.rule, 1), *three);
  EXPECT_TRUE(one_thread == more);
}

TEST_F(UpdateKernel, NothingOutsideThePieceIsTouched) {
  for (const Case& test : all_formats()) {
    for (int64_t count : {0, 1, 17, 300}) {
      Block before(test, 400, 31), after(test, 400, 31);
      after.update(numbers_of(test.rule, 1), *one, 0, count);
      for (int64_t i = -32; i < 432; ++i) {
        if (i >= 0 && i < count) continue;
        size_t at = before.at(i);
        ASSERT_EQ(after.parameters[at], before.parameters[at]);
        ASSERT_EQ(after.new_parameters[at], before.new_parameters[at]);
        ASSERT_EQ(after.high[at].bits, before.high[at].bits);
        ASSERT_EQ(after.new_high[at].bits, before.new_high[at].bits);
        ASSERT_EQ(after.remainder[at], before.remainder[at]);
        ASSERT_EQ(after.published[at], before.published[at]);
        for (size_t byte = 0; byte < before.moment_bytes(); ++byte) {
          size_t offset = at * before.moment_bytes() + byte;
          ASSERT_EQ(after.first[offset], before.first[offset]);
          ASSERT_EQ(after.second[offset], before.second[offset]);
        }
      }
    }
  }
}

TEST_F(UpdateKernel, PublishesTheRoundedNewParametersAndKeepsTheOldVersion) {
  for (DType published : {DType::kF16, DType::kBF16}) {
    Case test{UpdateRule::kAdamW, Master::kFloatPublished, MomentFormat::kFloat32, DType::kBF16, 1,
              published};
    Block block(test, 1000, 41);
    block.parameters[block.at(3)] = 3e-6f;    // a denormal half
    block.parameters[block.at(4)] = 70000.f;  // past the largest half
    block.update(numbers_of(test.rule, 1), *one);
    for (int64_t i = 0; i < 1000; ++i) {
      float value = block.parameter(i);
      uint16_t expected =
          published == DType::kF16 ? to_float16(value).bits : to_bfloat16(value).bits;
      ASSERT_EQ(block.published[block.at(i)], expected) << i;
    }
  }
  Case test;
  test.master = Master::kSplitTwo;
  Block block(test, 1000, 42), same(Case{}, 1000, 42);
  std::vector<BFloat16> old = block.high;
  block.update(numbers_of(test.rule, 1), *one);
  same.update(numbers_of(test.rule, 1), *one);
  EXPECT_EQ(std::memcmp(block.high.data(), old.data(), old.size() * sizeof(old[0])), 0);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(block.parameter(i), same.parameter(i));
}

/// Publishes `values` by an update that changes nothing and compares with rounding one by one.
template <typename Storage>
void expect_published(const std::vector<float>& values, TaskPool& pool) {
  auto count = static_cast<int64_t>(values.size());
  std::vector<float> parameters = values, first(values.size()), second(values.size());
  std::vector<BFloat16> gradients(values.size());
  std::vector<Storage> published(values.size(), Storage{0x5a5a});
  const void* source = gradients.data();
  UpdatePiece piece;
  piece.element_count = count;
  piece.gradients = {DType::kBF16, {&source, 1}};
  piece.parameters = piece.new_parameters = parameters.data();
  piece.published = published.data();
  piece.published_dtype = dtype_of<Storage>::value;
  piece.first_moment.values = first.data();
  piece.second_moment.values = second.data();
  UpdateNumbers numbers;  // a learning rate of zero
  ASSERT_EQ(update_piece(piece, numbers, pool), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(parameters[i], values[i]);
    ASSERT_EQ(published[i].bits, from_float<Storage>(values[i]).bits) << values[i];
  }
}

TEST_F(UpdateKernel, EveryTieIsRoundedToEven) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::vector<float> brain_ties, half_ties;
    auto add = [](std::vector<float>& values, uint32_t bits) {
      // Denormals count as zero, and what is not finite is refused.
      uint32_t exponent = bits >> 23 & 0xff;
      if (exponent != 0 && exponent != 0xff) values.push_back(std::bit_cast<float>(bits));
    };
    for (uint32_t top = 0; top < 1 << 16; ++top) {
      for (uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) add(brain_ties, top << 16 | low);
    }
    // fp16 has ties in bit 12 where it is normal and in higher ones where it is subnormal.
    for (uint32_t top = 0; top < 1 << 19; ++top) {
      for (uint32_t low : {0u, 0xfffu, 0x1000u, 0x1001u}) {
        uint32_t exponent = top >> 10 & 0xff;
        if (exponent > 95 && exponent < 150) add(half_ties, top << 13 | low);
      }
    }
    expect_published<BFloat16>(brain_ties, *one);
    expect_published<Float16>(half_ties, *one);
  }
}

TEST_F(UpdateKernel, ElementsThatWouldNotBeFiniteStayAsTheyAre) {
  for (UpdateRule rule : kRules) {
    for (float bad : {INFINITY, -INFINITY, NAN, std::numeric_limits<float>::max()}) {
      // The largest number overflows where it is squared, or scaled up.
      Case test{rule, Master::kSplit, MomentFormat::kFloat32, DType::kF32, 1};
      UpdateNumbers numbers = numbers_of(rule, 1);
      numbers.gradient_scale = 4.0f;
      Block block(test, 100, 51), before = block;
      for (int64_t i : {0, 33, 99}) block.set_gradient(0, i, bad);
      EXPECT_EQ(block.update(numbers, *one), 3);
      for (int64_t i = 0; i < 100; ++i) {
        bool kept = i == 0 || i == 33 || i == 99;
        EXPECT_EQ(block.parameter(i) == before.parameter(i), kept) << i;
        if (moment_count(rule) > 0) {
          EXPECT_EQ(block.first_float(i) == 0.0f, kept);
        }
        EXPECT_TRUE(std::isfinite(block.parameter(i)));
      }
    }
  }
}

TEST_F(UpdateKernel, DenormalsCountAsZero) {
  Case test{UpdateRule::kAdamW, Master::kFloat, MomentFormat::kFloat32, DType::kF32, 1};
  Block block(test, 64, 61);
  for (int64_t i = 0; i < 64; ++i) {
    block.set_gradient(0, i, 0.0f);
    block.first_float(i) = std::numeric_limits<float>::min();
    block.second_float(i) = std::numeric_limits<float>::min();
  }
  block.set_gradient(0, 1, 1e-40f);
  float before = block.parameter(1);
  UpdateNumbers numbers = numbers_of(test.rule, 1);
  numbers.weight_decay = 0;
  block.update(numbers, *one);
  EXPECT_EQ(block.first_float(0), 0.0f);  // 0.9 of the least normal number
  EXPECT_EQ(block.second_float(0), 0.0f);
  EXPECT_EQ(block.first_float(1), 0.0f);
  EXPECT_EQ(block.parameter(1), before);
}

/// What MomentFormat says of a code: `exponents` of them, 3 bits of fraction, 1.875 the largest.
double byte_value(int code, int exponents) {
  int exponent = code >> 3, fraction = code & 7;
  if (exponent == 0) return std::ldexp(fraction / 8.0, 2 - exponents);
  return std::ldexp(1 + fraction / 8.0, exponent - (exponents - 1));
}

TEST_F(UpdateKernel, EveryByteCodeSurvivesAnUpdateThatChangesNothing) {
  Case test{UpdateRule::kSgd, Master::kSplit, MomentFormat::kBlockwise8, DType::kBF16, 1};
  Block block(test, 256, 71);
  for (int64_t i = 0; i < 256; ++i) {
    block.first[block.at(i)] = static_cast<uint8_t>(i);
    block.second[block.at(i)] = static_cast<uint8_t>(i);
    block.set_gradient(0, i, 0.0f);
  }
  block.first[block.at(128)] = 0;  // adding 0 to -0 gives 0
  block.first_scales[0] = block.second_scales[0] = 0.125f;
  Block before = block;
  UpdateNumbers numbers = numbers_of(UpdateRule::kSgd, 1);
  numbers.beta1 = 1.0f;
  numbers.weight_decay = numbers.learning_rate = 0;
  EXPECT_EQ(block.update(numbers, *one), 0);
  EXPECT_TRUE(block == before);
  // With the factor 1 a bias correction is infinite, which only a second moment of zero notices.
  numbers = numbers_of(UpdateRule::kAdamW, 1);
  numbers.beta2 = 1.0f;
  EXPECT_EQ(block.update(numbers, *one), 1);
  EXPECT_EQ(block.second, before.second);
  EXPECT_EQ(block.second_scales, before.second_scales);
}

TEST_F(UpdateKernel, ByteMomentsAreNearAndSecondOnesNeverVanish) {
  Case test{UpdateRule::kAdamW, Master::kSplit, MomentFormat::kBlockwise8, DType::kF32, 1};
  Block block(test, 1000, 81);
  std::mt19937 engine(82);
  std::uniform_real_distribution<float> power(-30.0f, 0.0f);
  std::vector<float> gradients(1000);
  for (int64_t i = 0; i < 1000; ++i) {
    gradients[i] = std::exp2(power(engine)) * (i % 2 == 0 ? 1.0f : -1.0f);
    block.set_gradient(0, i, i % 50 == 0 ? 0.0f : gradients[i]);
  }
  UpdateNumbers numbers = numbers_of(test.rule, 1);
  numbers.gradient_scale = 1;
  block.update(numbers, *one);
  for (int64_t i = 0; i < 1000; ++i) {
    double gradient = i % 50 == 0 ? 0.0 : gradients[i];
    int first_code = block.first[block.at(i)], second_code = block.second[block.at(i)];
    double scale = block.first_scales[i / 256];
    double first = byte_value(first_code & 127, 16) * scale * (first_code > 127 ? -1 : 1);
    ASSERT_NEAR(first, 0.1 * gradient, std::abs(0.1 * gradient) / 15 + 0.51 * scale / (1 << 17));
    scale = block.second_scales[i / 256];
    double expected = 0.05 * gradient * gradient;
    double second = byte_value(second_code, 32) * scale;
    ASSERT_NEAR(second, expected, expected / 15 + 1.01 * scale / (int64_t{1} << 33));
    ASSERT_EQ(second > 0, gradient != 0) << i;
  }
}

TEST(FlushDenormals, FlushesInItsScopeOnly) {
  volatile float least = std::numeric_limits<float>::min();
  volatile float half = 0.5f;
  EXPECT_GT(least * half, 0.0f);
  {
    FlushDenormals flush;
    EXPECT_EQ(least * half, 0.0f);
    {
      FlushDenormals nested;
      EXPECT_EQ(least * half, 0.0f);
    }
    EXPECT_EQ(least * half, 0.0f);
    volatile float denormal = std::numeric_limits<float>::denorm_min();
    volatile float large = 1e38f;
    EXPECT_EQ(denormal * large, 0.0f);
  }
  EXPECT_GT(least * half, 0.0f);
}

}  // namespace
}  // namespace stagecoach
