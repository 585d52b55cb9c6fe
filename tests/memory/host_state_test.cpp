#include "memory/host_state.h"

#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <unistd.h>

#include "backends/register_backends.h"
#include "core/file.h"
#include "core/random.h"
#include "memory/activation_store.h"
#include "memory/split_master.h"

namespace stagecoach {
namespace {

struct HostStateTest : ::testing::Test {
  BackendRegistry registry = built_in_backends();
  std::vector<std::unique_ptr<Device>> devices = registry.open_devices("cpu:1").value();
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);

  std::unique_ptr<HostState> make(DType dtype, int rounds, int sites) {
    return HostState::create(*devices[0], {{"a", 1000, 1}, {"b", 500, sites}},
                             {dtype, rounds, std::min(rounds, 2)})
        .value();
  }
  static void fill_slot(const BufferView& slot, float value, int64_t count) {
    float* data = reinterpret_cast<float*>(slot.host_data());
    for (int64_t i = 0; i < count; ++i) data[i] = value;
  }
  static const float* sum_of(HostState& state, int block) {
    EXPECT_TRUE(state.accumulates());
    return static_cast<const float*>(state.memory(block).gradients.at(0));
  }
};

/// A hundred million parameters in blocks of odd sizes, one of them tied.
std::vector<BlockLayout> hundred_million(bool is_frozen = false) {
  std::vector<BlockLayout> blocks = {{"tied", 31'415'927, 2, is_frozen}};
  for (int layer = 0; layer < 10; ++layer) {
    blocks.push_back({"layer", 7'085'883 + layer, 1, is_frozen});
  }
  return blocks;
}

double parameters_of(const std::vector<BlockLayout>& blocks) {
  double count = 0;
  for (const BlockLayout& block : blocks) count += static_cast<double>(block.element_count);
  return count;
}

// The table of docs/architecture.md, "Memory".
TEST(HostStateBytes, AreThoseOfTheTableForAHundredMillionParameters) {
  struct Row {
    DType dtype;
    double one_round, rounds, frozen, slot;
  };
  for (const Row& row : {Row{DType::kBF16, 14, 16, 2, 2}, Row{DType::kF16, 16, 18, 2, 2},
                         Row{DType::kF32, 16, 16, 4, 4}}) {
    SCOPED_TRACE(dtype_name(row.dtype));
    std::vector<BlockLayout> blocks = hundred_million();
    double parameters = parameters_of(blocks), tied = 31'415'927;
    ASSERT_GE(parameters, 100e6);
    HostStateBytes one = host_state_bytes(blocks, {row.dtype, 1, 1});
    EXPECT_NEAR(static_cast<double>(one.trained) / parameters, row.one_round, 1e-3);
    EXPECT_NEAR(static_cast<double>(one.landing), row.slot * tied, 1e3);
    HostStateBytes two = host_state_bytes(blocks, {row.dtype, 2, 2});
    EXPECT_NEAR(static_cast<double>(two.trained) / parameters, row.rounds, 1e-3);
    EXPECT_NEAR(static_cast<double>(two.landing), 2 * row.slot * (parameters + tied), 1e4);
    HostStateBytes frozen = host_state_bytes(hundred_million(true), {row.dtype, 1, 1});
    EXPECT_NEAR(static_cast<double>(frozen.frozen) / parameters, row.frozen, 1e-3);
    EXPECT_EQ(frozen.trained + frozen.landing, 0);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Bytes of this process that are in memory, which sanitizers take more of.
ByteCount resident_bytes() {
  std::string text = read_file("/proc/self/statm").value();
  std::istringstream words(text);
  ByteCount size = 0, resident = 0;
  words >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Field report 60: what is planned is what is asked for and what is taken, also where a part of it
// is pageable; nothing is rounded up to powers of two.
TEST_F(HostStateTest, PlannedAskedAndResidentAreTheSame) {
  std::vector<BlockLayout> blocks;
  for (int layer = 0; layer < 7; ++layer) blocks.push_back({"layer", 2'200'001 + layer, 1});
  for (const char* text : {"cpu:1", "cpu:1[pinned=50M]"}) {
    for (const HostStateOptions& options :
         {HostStateOptions{DType::kBF16, 1, 1}, HostStateOptions{DType::kF32, 2, 2}}) {
      SCOPED_TRACE(text);
      auto opened = registry.open_devices(text).value();
      ByteCount planned = host_state_bytes(blocks, options).total(), before = resident_bytes();
      ASSERT_GT(planned, 200'000'000);
      auto state = HostState::create(*opened[0], blocks, options).value();
      // Landing places are written to by devices.
      for (int block = 0; block < 7; ++block) {
        for (int round = 0; round < state->slots_per_site(); ++round) {
          BufferView slot = state->gradient_slot(block, 0, round);
          std::memset(slot.host_data(), 1, static_cast<size_t>(slot.size));
        }
      }
      EXPECT_EQ(state->pinning().asked, planned);
      EXPECT_NEAR(static_cast<double>(resident_bytes() - before), static_cast<double>(planned),
                  0.02 * static_cast<double>(planned));
    }
  }
}

#endif

TEST(HostStateBytes, AreFewerWithFewerMoments) {
  std::vector<BlockLayout> blocks = hundred_million();
  for (int count : {0, 1, 2}) {
    HostStateOptions options{DType::kBF16, 1, 1, {count}};
    double bytes = static_cast<double>(host_state_bytes(blocks, options).trained);
    EXPECT_NEAR(bytes / parameters_of(blocks), 6 + 4 * count, 1e-3) << count;
  }
}

TEST(HostStateBytes, AreFewerWithSmallerMoments) {
  std::vector<BlockLayout> blocks = hundred_million();
  struct Row {
    MomentFormat format;
    double bytes;
  };
  for (const Row& row : {Row{MomentFormat::kFloat32, 14}, Row{MomentFormat::kBFloat16, 10},
                         Row{MomentFormat::kBlockwise8, 8 + 2 * 4.0 / 256}}) {
    HostStateOptions options{DType::kBF16, 1, 1, {2, row.format}};
    double bytes = static_cast<double>(host_state_bytes(blocks, options).trained);
    EXPECT_NEAR(bytes / parameters_of(blocks), row.bytes, 1e-3);
  }
}

// A short parameter has a scale of its own, so that its neighbours are updated apart from it.
TEST(MomentScales, BeginAnewWithEveryParameter) {
  std::vector<int64_t> parts = {0, 32, 800, 864};
  EXPECT_EQ(moment_scale_count(parts, 1200), 1 + 3 + 1 + 2);
  EXPECT_EQ(moment_scale_count({}, 1200), 5);
  EXPECT_EQ(moment_scale_count({}, 1024), 4);
  EXPECT_EQ(moment_scale_index(parts, 0), 0);
  EXPECT_EQ(moment_scale_index(parts, 32), 1);
  EXPECT_EQ(moment_scale_index(parts, 32 + 512), 3);
  EXPECT_EQ(moment_scale_index(parts, 800), 4);
  EXPECT_EQ(moment_scale_index(parts, 864 + 256), 6);
  EXPECT_EQ(moment_scale_index({}, 1024), 4);
}

TEST_F(HostStateTest, EightBitMomentsHaveTheScalesOfTheirParameters) {
  HostStateOptions options{DType::kBF16, 1, 1, {2, MomentFormat::kBlockwise8}};
  BlockLayout layout{"a", 1200, 1, false, {0, 32, 800, 864}};
  std::unique_ptr<HostState> state = HostState::create(*devices[0], {layout}, options).value();
  EXPECT_EQ(state->bytes().total(),
            host_state_bytes(std::vector<BlockLayout>{layout}, options).total());
  MomentView middle = state->moment(Moment::kFirst, 0, 32, 768);
  EXPECT_EQ(middle.values.size(), 768u);
  EXPECT_EQ(middle.scales.size(), 3u);
  BlockMemory memory = state->memory(0);
  EXPECT_EQ(middle.scales.data(), memory.first_scales + 1);
  EXPECT_EQ(state->moment(Moment::kSecond, 0, 864, 336).scales.data(), memory.second_scales + 5);
  // What devices may read of a byte: sign, exponent, fraction.
  middle.values[256] = std::byte{0xff};
  middle.values[257] = std::byte{0x01};
  middle.scales[1] = 2;
  std::vector<float> read(768);
  state->read_moment(Moment::kFirst, 0, 32, read);
  EXPECT_EQ(read[256], -2 * 1.875f);
  EXPECT_EQ(read[257], 2 * 0x1p-17f);
}

TEST_F(HostStateTest, KeepsNoArrayForMomentsThatThereAreNot) {
  for (int count : {0, 1, 2}) {
    HostStateOptions options{DType::kBF16, 1, 1, {count}};
    std::unique_ptr<HostState> state =
        HostState::create(*devices[0], {{"a", 1000, 1}}, options).value();
    BlockMemory memory = state->memory(0);
    EXPECT_EQ(memory.first_moment != nullptr, count > 0);
    EXPECT_EQ(memory.second_moment != nullptr, count > 1);
    EXPECT_EQ(state->bytes().total(),
              host_state_bytes(std::vector<BlockLayout>{{"a", 1000, 1}}, options).total());
  }
}

TEST_F(HostStateTest, ParametersComeBackAndDevicesReadThemRounded) {
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_normal({3, 0, 0, 0, 0}, i));
  }
  values[7] = 0x1.008p0f;  // halfway between two bf16
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    std::unique_ptr<HostState> state = make(dtype, 1, 1);
    ASSERT_TRUE(state->write_parameters(0, 700, values).is_ok());
    std::vector<float> whole(1000);
    state->read_parameters(0, 0, whole);
    const std::byte* copy = state->compute_copy(0).host_data();
    for (size_t i = 0; i < whole.size(); ++i) {
      float expected = i < 700 ? 0.0f : values[i - 700];
      ASSERT_EQ(whole[i], expected) << i;
      if (dtype == DType::kF32) {
        ASSERT_EQ(reinterpret_cast<const float*>(copy)[i], expected) << i;
      } else if (dtype == DType::kBF16) {
        ASSERT_EQ(reinterpret_cast<const BFloat16*>(copy)[i].bits, split_float(expected).high.bits);
      } else {
        ASSERT_EQ(reinterpret_cast<const Float16*>(copy)[i].bits, to_float16(expected).bits);
      }
    }
  }
}

TEST_F(HostStateTest, FrozenBlocksKeepOnlyWhatDevicesRead) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::unique_ptr<HostState> state =
        HostState::create(*devices[0], {{"frozen", 64, 1, true}}, {dtype, 1, 1}).value();
    std::vector<float> values(64, 0.375f), read(64);
    ASSERT_TRUE(state->write_parameters(0, 0, values).is_ok());
    state->read_parameters(0, 0, read);
    EXPECT_EQ(read, values);
    EXPECT_EQ(state->bytes().total(), Arena::padded(64 * dtype_size_bytes(dtype)));
  }
}

TEST_F(HostStateTest, WhatIsNotFiniteIsNotWritten) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::unique_ptr<HostState> state = make(dtype, 1, 1);
    for (float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> values = {1, 2, bad}, read(3);
      Status status = state->write_parameters(1, 10, values);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("block 'b': parameter 12"), std::string::npos);
      state->read_parameters(1, 10, read);
      EXPECT_EQ(read, std::vector<float>(3));
    }
  }
}

// As a resumed run needs it: the version that devices still read, beside the newest.
TEST_F(HostStateTest, TheVersionBeforeTheNewestCanBeSet) {
  HostStateOptions options{DType::kF32};
  options.versions = 2;
  std::unique_ptr<HostState> state =
      HostState::create(*devices[0], {{"a", 64, 1}}, options).value();
  auto element = [&](int64_t version, int64_t index) {
    return reinterpret_cast<const float*>(state->compute_copy(0, version).host_data())[index];
  };
  state->skip(0);
  ASSERT_TRUE(state->write_parameters(0, 0, std::vector<float>(64, 2)).is_ok());
  EXPECT_EQ(element(0, 5), 2) << "a version that was skipped is as the one before it";
  std::vector<float> previous = {1, 1.5};
  state->write_previous_copy(0, 5, std::as_bytes(std::span(previous)));
  EXPECT_EQ(element(0, 5), 1);
  EXPECT_EQ(element(0, 6), 1.5);
  EXPECT_EQ(element(1, 5), 2);
  // The next update reads the newest and overwrites the other.
  BlockMemory memory = state->memory(0);
  EXPECT_EQ(memory.parameters[5], 2);
  memory.new_parameters[5] = 3;
  state->publish(0);
  EXPECT_EQ(element(1, 5), 2);
  EXPECT_EQ(element(2, 5), 3);
}

TEST_F(HostStateTest, MomentsComeBack) {
  std::unique_ptr<HostState> state = make(DType::kBF16, 1, 1);
  std::vector<float> first = {1, 2}, second = {3, 4}, read(2);
  auto write = [&](Moment moment, const std::vector<float>& values) {
    std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    std::copy(bytes.begin(), bytes.end(), state->moment(moment, 1, 498, 2).values.begin());
  };
  write(Moment::kFirst, first);
  write(Moment::kSecond, second);
  state->read_moment(Moment::kFirst, 1, 498, read);
  EXPECT_EQ(read, first);
  state->read_moment(Moment::kSecond, 1, 498, read);
  EXPECT_EQ(read, second);
}

TEST_F(HostStateTest, OneRoundIsReadWhereItLands) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::unique_ptr<HostState> state = make(dtype, 1, 2);
    EXPECT_FALSE(state->accumulates());
    BlockMemory memory = state->memory(1);
    EXPECT_EQ(memory.gradient_dtype, dtype);
    std::vector<const void*> slots = {state->gradient_slot(1, 0, 0).host_data(),
                                      state->gradient_slot(1, 1, 0).host_data()};
    EXPECT_EQ(memory.gradients, slots);
    EXPECT_EQ(state->bytes().landing, Arena::padded(500 * dtype_size_bytes(dtype)));
  }
}

TEST_F(HostStateTest, SitesAndRoundsAddUp) {
  std::unique_ptr<HostState> state = make(DType::kF32, 3, 2);
  for (int round = 0; round < 3; ++round) {
    for (int site = 0; site < 2; ++site) {
      fill_slot(state->gradient_slot(1, site, round), static_cast<float>(1 + site + 10 * round),
                500);
    }
    state->accumulate_round(1, round, *pool);
  }
  EXPECT_EQ(sum_of(*state, 1)[0], 3 + 23 + 43);
  // A new step starts a new sum.
  for (int block = 0; block < state->block_count(); ++block) state->publish(block);
  fill_slot(state->gradient_slot(1, 0, 0), 5, 500);
  fill_slot(state->gradient_slot(1, 1, 0), 6, 500);
  state->accumulate_round(1, 0, *pool);
  EXPECT_EQ(sum_of(*state, 1)[499], 11);
}

TEST_F(HostStateTest, KeptGradientsAreAddedTo) {
  std::unique_ptr<HostState> state = make(DType::kF32, 1, 2);
  HostStateBytes before = state->bytes();
  for (int site : {0, 1}) fill_slot(state->gradient_slot(1, site, 0), 2, 500);
  state->accumulate_round(1, 0, *pool);
  ASSERT_TRUE(state->keep_gradients(*pool).is_ok());
  EXPECT_EQ(sum_of(*state, 1)[250], 4);
  for (int site : {0, 1}) fill_slot(state->gradient_slot(1, site, 0), 5, 500);
  state->accumulate_round(1, 0, *pool);
  EXPECT_EQ(sum_of(*state, 1)[250], 14);
  EXPECT_EQ(state->bytes().total(), before.total() + Arena::padded(4000) + Arena::padded(2000));
  for (int block = 0; block < state->block_count(); ++block) state->publish(block);
  state->accumulate_round(1, 0, *pool);
  EXPECT_EQ(sum_of(*state, 1)[250], 10);
}

TEST_F(HostStateTest, ActivationStorePiecesAreApart) {
  ActivationStore store = ActivationStore::create(*devices[0], {0, 300, 0, 500}, 3).value();
  std::vector<BufferView> pieces;
  for (int boundary : {1, 3}) {
    for (int m = 0; m < 3; ++m) {
      pieces.push_back(store.piece(boundary, m));
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(pieces[j].offset + pieces[j].size <= pieces[i].offset ||
                  pieces[i].offset + pieces[i].size <= pieces[j].offset);
    }
  }
  EXPECT_TRUE(store.piece(0, 0).is_none());
  EXPECT_EQ(store.size(), ActivationStore::bytes({0, 300, 0, 500}, 3));
  EXPECT_EQ(store.size(), 3 * (Arena::padded(300) + Arena::padded(500)));
}

}  // namespace
}  // namespace stagecoach
