#include "train/optimizer.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include "backends/register_backends.h"
#include "core/random.h"
#include "memory/split_master.h"
#include "scheduler/update_cost.h"
#include "train/gradient_sources.h"
#include "train/step_optimizer.h"

namespace stagecoach {
namespace {

constexpr int64_t kCount = 70'001;  // more than a task, and a tail

std::vector<float> normals(uint32_t site, double scale) {
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    values[i] =
        static_cast<float>(scale * random_normal({5, 0, 0, 0, site}, static_cast<uint64_t>(i)));
  }
  return values;
}

/// Rounds to `dtype` in place and stores that at `target`.
void land(std::vector<float>& values, DType dtype, void* target) {
  for (int64_t i = 0; i < kCount; ++i) {
    if (dtype == DType::kBF16) {
      static_cast<BFloat16*>(target)[i] = to_bfloat16(values[i]);
      values[i] = to_float(to_bfloat16(values[i]));
    } else if (dtype == DType::kF16) {
      static_cast<Float16*>(target)[i] = to_float16(values[i]);
      values[i] = to_float(to_float16(values[i]));
    } else {
      static_cast<float*>(target)[i] = values[i];
    }
  }
}

/// Parameters and moments that are plain fp32 arrays, updated with one fp32 gradient.
struct PlainState {
  std::vector<float> parameters, first = std::vector<float>(kCount), second = first;

  void update(const std::vector<float>& gradients, const UpdateNumbers& numbers, TaskPool& pool) {
    const void* source = gradients.data();
    UpdatePiece piece;
    piece.element_count = kCount;
    piece.gradients = {DType::kF32, {&source, 1}};
    piece.parameters = piece.new_parameters = parameters.data();
    piece.first_moment.values = first.data();
    piece.second_moment.values = second.data();
    EXPECT_EQ(update_piece(piece, numbers, pool), 0);
  }
};

struct Optimizer : ::testing::Test {
  std::vector<std::unique_ptr<Device>> devices = built_in_backends().open_devices("cpu:1").value();
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
  UpdateNumbers numbers{UpdateRule::kAdamW, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 1};

  std::unique_ptr<HostState> make(DType dtype, int rounds, int sites) {
    return HostState::create(*devices[0], {{"block", kCount, sites}},
                             {dtype, rounds, std::min(rounds, 2)})
        .value();
  }
  /// Lands gradients of every site and round; returns their sum in fp32, sites first.
  std::vector<float> land_gradients(HostState& state, int rounds, int sites) {
    std::vector<float> sum;
    for (int round = 0; round < rounds; ++round) {
      for (int site = 0; site < sites; ++site) {
        std::vector<float> gradients = normals(static_cast<uint32_t>(10 + 2 * round + site), 0.1);
        land(gradients, state.gradient_dtype(), state.gradient_slot(0, site, round).host_data());
        if (sum.empty()) sum.resize(kCount);
        for (int64_t i = 0; i < kCount; ++i) {
          sum[i] = round + site == 0 ? gradients[i] : sum[i] + gradients[i];
        }
      }
      state.accumulate_round(0, round, *pool);
    }
    return sum;
  }
};

void expect_equal(const HostState& state, const PlainState& plain) {
  std::vector<float> read(kCount);
  state.read_parameters(0, 0, read);
  EXPECT_EQ(read, plain.parameters);
  state.read_moment(Moment::kFirst, 0, 0, read);
  EXPECT_EQ(read, plain.first);
  state.read_moment(Moment::kSecond, 0, 0, read);
  EXPECT_EQ(read, plain.second);
}

TEST_F(Optimizer, EveryLayoutGivesTheBitsOfPlainArrays) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int rounds : {1, 3}) {
      for (int sites : {1, 2}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(rounds) + " rounds, " +
                     std::to_string(sites) + " sites");
        std::unique_ptr<HostState> state = make(dtype, rounds, sites);
        PlainState plain{normals(1, 1.0)};
        ASSERT_TRUE(state->write_parameters(0, 0, plain.parameters).is_ok());
        for (int64_t step = 1; step <= 2; ++step) {
          std::vector<float> sum = land_gradients(*state, rounds, sites);
          const void* source = sum.data();
          EXPECT_EQ(gradient_sum_of_squares(*state, 0, *pool),
                    sum_of_squares({DType::kF32, {&source, 1}}, kCount, *pool));
          numbers.step = step;
          // In two ranges, as parameters of different groups are.
          constexpr int64_t kCut = 66'016;
          EXPECT_EQ(update_parameters(*state, 0, 0, kCut, numbers, *pool), 0);
          EXPECT_EQ(update_parameters(*state, 0, kCut, kCount - kCut, numbers, *pool), 0);
          plain.update(sum, numbers, *pool);
          state->publish(0);
        }
        expect_equal(*state, plain);
        const std::byte* copy = state->compute_copy(0).host_data();
        for (int64_t i = 0; i < kCount; ++i) {
          uint16_t bits = 0;
          if (dtype == DType::kF32) {
            ASSERT_EQ(reinterpret_cast<const float*>(copy)[i], plain.parameters[i]);
            continue;
          }
          std::memcpy(&bits, copy + 2 * i, sizeof(bits));
          ASSERT_EQ(bits, dtype == DType::kBF16 ? split_float(plain.parameters[i]).high.bits
                                                : to_float16(plain.parameters[i]).bits)
              << i;
        }
      }
    }
  }
}

TEST_F(Optimizer, TheVerdictOnGradientsComesFromTheSlots) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::unique_ptr<HostState> state = make(dtype, 1, 2);
    land_gradients(*state, 1, 2);
    EXPECT_TRUE(std::isfinite(gradient_sum_of_squares(*state, 0, *pool)));
    std::vector<float> gradients = normals(3, 1);
    gradients[kCount - 1] = std::numeric_limits<float>::infinity();
    land(gradients, dtype, state->gradient_slot(0, 1, 0).host_data());
    EXPECT_FALSE(std::isfinite(gradient_sum_of_squares(*state, 0, *pool)));
  }
}

TEST_F(Optimizer, ElementsThatWouldNotBeFiniteStayAsTheyAre) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::unique_ptr<HostState> state = make(dtype, 1, 1);
    std::vector<float> parameters = normals(1, 1.0), gradients = normals(2, 0.1), read(kCount);
    ASSERT_TRUE(state->write_parameters(0, 0, parameters).is_ok());
    gradients[5] = 1e30f;  // finite, but its square is not in fp32
    land(gradients, dtype, state->gradient_slot(0, 0, 0).host_data());
    EXPECT_TRUE(std::isfinite(gradient_sum_of_squares(*state, 0, *pool)));
    EXPECT_EQ(update_parameters(*state, 0, 0, kCount, numbers, *pool), 1);
    state->read_parameters(0, 0, read);
    EXPECT_EQ(read[5], parameters[5]);
    EXPECT_NE(read[4], parameters[4]);
    state->read_moment(Moment::kFirst, 0, 0, read);
    EXPECT_EQ(read[5], 0);
  }
}

// What a checkpoint or a person reads of a byte is what the update computes with.
TEST_F(Optimizer, SmallMomentsReadAsTheUpdateReadsThem) {
  for (MomentFormat format : {MomentFormat::kBFloat16, MomentFormat::kBlockwise8}) {
    HostStateOptions options{DType::kF32, 1, 1, {1, format}};
    BlockLayout layout{"block", kCount, 1, false, {0, 96, 64'032}};
    auto state = HostState::create(*devices[0], {layout}, options).value();
    auto update = [&](float beta1) {
      UpdateNumbers momentum{UpdateRule::kSgd, 1.0f, beta1, 0, 1e-8f, 0, 1.0f, 1};
      for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 70},
                                {96, 64'000},
                                {64'032, 64'032 + 512},
                                {64'032 + 512, kCount}}) {
        EXPECT_EQ(update_parameters(*state, 0, begin, end - begin, momentum, *pool), 0);
      }
    };
    std::vector<float> gradients = normals(5, 0.1), zeros(kCount), read(kCount), moments(kCount);
    land(gradients, DType::kF32, state->gradient_slot(0, 0, 0).host_data());
    update(0);
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 70}, {96, 64'000}, {64'032, kCount}}) {
      state->read_moment(Moment::kFirst, 0, begin, std::span(moments).subspan(begin, end - begin));
    }
    // Nothing but half the moment moves parameters from zero.
    ASSERT_TRUE(state->write_parameters(0, 0, zeros).is_ok());
    land(zeros, DType::kF32, state->gradient_slot(0, 0, 0).host_data());
    update(0.5f);
    state->read_parameters(0, 0, read);
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(-2 * read[i], moments[i]) << i;
      ASSERT_NEAR(moments[i], i < 70 || (i >= 96 && i < 64'000) || i >= 64'032 ? gradients[i] : 0,
                  0.04)
          << i;
    }
  }
}

TEST_F(Optimizer, CountsTheBytesItTouches) {
  EXPECT_EQ(update_bytes(*make(DType::kBF16, 1, 1), 0, UpdateRule::kAdamW), 26 * kCount);
  EXPECT_EQ(update_bytes(*make(DType::kF32, 1, 1), 0, UpdateRule::kAdamW), 28 * kCount);
  EXPECT_EQ(update_bytes(*make(DType::kBF16, 3, 1), 0, UpdateRule::kAdamW), 28 * kCount);
  EXPECT_EQ(gradient_bytes(*make(DType::kBF16, 1, 2), 0), 4 * kCount);
  // Planning knows the same figure before there is a state.
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int rounds : {1, 2}) {
      for (UpdateRule rule : {UpdateRule::kAdamW, UpdateRule::kLion, UpdateRule::kPlainSgd}) {
        HostStateOptions options{dtype, rounds, rounds, {moment_count(rule)}};
        auto state = HostState::create(*devices[0], {{"block", kCount, 1}}, options).value();
        EXPECT_EQ(static_cast<double>(update_bytes(*state, 0, rule)),
                  update_bytes_per_parameter(dtype, rounds, options.moments) * double{kCount});
      }
    }
  }
}

// Field report 38: blocks whose gradients have norms 3 and 4 are scaled by their norm together.
TEST(StepOptimizer, ClipsByTheNormOfAllGradientsTogether) {
  auto scale_of = [](double clip_norm, double sum_of_squares) {
    StepOptimizer::Setup setup;
    setup.clip_norm = clip_norm;
    return StepOptimizer(setup).judge(sum_of_squares)->gradient_scale;
  };
  EXPECT_NEAR(scale_of(1, 3.0 * 3 + 4.0 * 4), 0.2, 1e-6);
  EXPECT_EQ(scale_of(6, 25), 1);
  EXPECT_EQ(scale_of(0, 25), 1);
}

}  // namespace
}  // namespace stagecoach
