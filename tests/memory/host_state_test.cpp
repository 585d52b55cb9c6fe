#include "memory/host_state.h"

#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "memory/activation_store.h"

namespace stagecoach {
namespace {

struct HostStateTest : ::testing::Test {
  BackendRegistry registry = built_in_backends();
  std::vector<std::unique_ptr<Device>> devices = registry.open_devices("cpu:1").value();
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);

  std::unique_ptr<HostState> make(DType dtype, int slots, int sites) {
    return HostState::create(*devices[0], {{"a", 1000, 1}, {"b", 500, sites}}, dtype, slots)
        .value();
  }
  static void fill_slot(const BufferView& slot, float value, int64_t count) {
    float* data = reinterpret_cast<float*>(slot.host_data());
    for (int64_t i = 0; i < count; ++i) data[i] = value;
  }
};

TEST_F(HostStateTest, OneRoundOfFp32TakesSixteenBytesAParameter) {
  std::unique_ptr<HostState> state = make(DType::kF32, 1, 1);
  EXPECT_LE(state->total_bytes(), 1500 * 16 + 8 * Arena::kAlignment);
  // The landing slot is the sum: nothing is copied.
  fill_slot(state->gradient_slot(0, 0, 0), 3, 1000);
  state->accumulate_round(0, 0, *pool);
  EXPECT_EQ(state->gradients(0)[999], 3);
}

TEST_F(HostStateTest, SitesAndRoundsAddUp) {
  std::unique_ptr<HostState> state = make(DType::kF32, 2, 2);
  for (int round = 0; round < 3; ++round) {
    for (int site = 0; site < 2; ++site) {
      fill_slot(state->gradient_slot(1, site, round), static_cast<float>(1 + site + 10 * round),
                500);
    }
    state->accumulate_round(1, round, *pool);
  }
  EXPECT_EQ(state->gradients(1)[0], 3 + 23 + 43);
  // A new step starts a new sum.
  state->clear_gradients();
  fill_slot(state->gradient_slot(1, 0, 0), 5, 500);
  fill_slot(state->gradient_slot(1, 1, 0), 6, 500);
  state->accumulate_round(1, 0, *pool);
  EXPECT_EQ(state->gradients(1)[499], 11);
}

TEST_F(HostStateTest, KeptGradientsAreAddedTo) {
  std::unique_ptr<HostState> state = make(DType::kF32, 1, 1);
  fill_slot(state->gradient_slot(0, 0, 0), 2, 1000);
  state->accumulate_round(0, 0, *pool);
  ASSERT_TRUE(state->keep_gradients().is_ok());
  fill_slot(state->gradient_slot(0, 0, 0), 5, 1000);
  state->accumulate_round(0, 0, *pool);
  EXPECT_EQ(state->gradients(0)[500], 7);
}

TEST_F(HostStateTest, PublishRoundsIntoTheComputeCopy) {
  std::unique_ptr<HostState> state = make(DType::kBF16, 1, 1);
  for (int i = 0; i < 1000; ++i) state->parameters(0)[i] = 1.0f + static_cast<float>(i) * 1e-3f;
  state->publish(0, *pool);
  const auto* copy = reinterpret_cast<const BFloat16*>(state->compute_copy(0).host_data());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(copy[i].bits, to_bfloat16(state->parameters(0)[i]).bits);
  }
}

TEST_F(HostStateTest, ActivationStorePiecesAreApart) {
  ActivationStore store = ActivationStore::create(*devices[0], {0, 300, 0, 500}, 3).value();
  std::vector<BufferView> pieces;
  for (int boundary : {1, 3}) {
    for (int m = 0; m < 3; ++m) {
      pieces.push_back(store.activation(boundary, m));
      pieces.push_back(store.gradient(boundary, m));
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(pieces[j].offset + pieces[j].size <= pieces[i].offset ||
                  pieces[i].offset + pieces[i].size <= pieces[j].offset);
    }
  }
  EXPECT_TRUE(store.activation(0, 0).is_none());
}

}  // namespace
}  // namespace stagecoach
