// The host's state and its updates as training uses them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <unistd.h>

#include "backends/sim/sim_backend.h"
#include "scheduler/network_state.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

/// A trainer of the tiny model with one batch to train on.
struct HostUpdate : ::testing::Test {
  std::vector<std::unique_ptr<Device>> devices = built_in_backends().open_devices("cpu:2").value();
  std::unique_ptr<Trainer> trainer;
  std::vector<int32_t> tokens;
  HostTensor batch;

  void make(DType dtype, double clip_norm, const char* update = "overlap") {
    TinyRun run;
    run.options.clip_norm = clip_norm;
    run.options.update = update;
    run.options.loss_scale = 1;  // of fp16: nothing is skipped
    run.model.attn_pdrop = run.model.embd_pdrop = run.model.resid_pdrop = 0;
    trainer = Trainer::create(make_gpt2(run.model, NetworkHead::kLoss, dtype).value(),
                              {devices[0].get(), devices[1].get()}, run.options)
                  .value();
    trainer->initialize_parameters();
    tokens.assign(static_cast<size_t>(run.options.batch * run.options.sequence), 5);
    batch = HostTensor::of(tokens, Shape{run.options.batch, run.options.sequence});
  }
  Status step_and_synchronize(double learning_rate) {
    STAGECOACH_RETURN_IF_ERROR(trainer->step(learning_rate));
    return trainer->synchronize();
  }
  /// Of a step that changes nothing.
  double norm_of_step() {
    EXPECT_TRUE(step_and_synchronize(0).is_ok());
    return trainer->take_updates().back().gradient_norm;
  }
  /// Sets all elements of the parameter whose name ends with `suffix`.
  void set(const std::string& suffix, float value) {
    for (size_t block = 0; block < trainer->network().blocks.size(); ++block) {
      for (const ParameterInfo& parameter : trainer->network().blocks[block].parameters) {
        if (!parameter.name.ends_with(suffix)) continue;
        std::vector<float> values(static_cast<size_t>(parameter.shape.element_count()), value);
        ASSERT_TRUE(
            trainer->write_parameters(static_cast<int>(block), parameter.offset, values).is_ok());
      }
    }
  }
  bool moments_are_zero() const {
    for (size_t block = 0; block < trainer->network().blocks.size(); ++block) {
      std::vector<float> read(static_cast<size_t>(trainer->network().blocks[block].element_count));
      for (Moment moment : {Moment::kFirst, Moment::kSecond}) {
        trainer->read_moment(moment, static_cast<int>(block), 0, read);
        if (std::any_of(read.begin(), read.end(), [](float v) { return v != 0; })) return false;
      }
    }
    return true;
  }
};

// P4: the verdict is there before the first update, so nothing at all has changed.
TEST_F(HostUpdate, GradientsThatAreNotFiniteChangeNothing) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    make(DType::kF32, 1.0, update);
    // Zero times huge: the loss is finite, the gradients of h.1.mlp.c_fc.weight are not.
    set("h.1.ln_2.bias", 3e38f);
    set("h.1.mlp.c_fc.weight", 0);
    set("h.1.mlp.c_proj.weight", 1e20f);
    std::string before = trainer->weights_sha256();
    Result<StepLoss> loss = trainer->forward_backward(batch, batch);
    ASSERT_TRUE(loss.is_ok()) << loss.status().to_string();
    Status status = step_and_synchronize(1e-2);
    ASSERT_FALSE(status.is_ok());
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("the gradient norm is"), std::string::npos);
    EXPECT_EQ(trainer->weights_sha256(), before);
    EXPECT_TRUE(moments_are_zero());
  }
}

TEST_F(HostUpdate, UpdatesThatWouldNotBeFiniteAreRefusedBeforeTheStore) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16, DType::kF16})) {
    make(dtype, 1.0);
    ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
    ASSERT_TRUE(trainer->synchronize().is_ok());
    std::string before = trainer->weights_sha256();
    Status status = step_and_synchronize(std::numeric_limits<double>::infinity());
    ASSERT_FALSE(status.is_ok());
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("would not be finite"), std::string::npos);
    EXPECT_EQ(trainer->weights_sha256(), before);
  }
}

// Where two passes make a step, their gradients are added up in fp32 whatever comes home.
TEST_F(HostUpdate, TwoPassesOfOneRoundAreAddedUp) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    make(dtype, 0);
    ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
    double one = norm_of_step();
    ByteCount state = trainer->report().state_bytes;
    for (int pass = 0; pass < 2; ++pass) {
      ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
    }
    EXPECT_NEAR(norm_of_step(), 2 * one, 1e-6 * one);
    EXPECT_GE(trainer->report().state_bytes, state);
    ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
    EXPECT_NEAR(norm_of_step(), one, 1e-6 * one);
  }
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// GPT-2's 124 million parameters, really allocated: the process grows by the table's bytes.
// The table of docs/architecture.md, "Memory", by what is allocated for the 124 million parameters
// of GPT-2, on a simulated device, whose host memory is address space alone.
TEST(HostStateOfGpt2, AllocatesTheBytesOfTheTable) {
  SimMachineProfile profile;
  profile.cards = {find_sim_card("h200").value()};
  auto devices = open_sim_devices(std::make_shared<SimMachine>(profile));
  struct Row {
    DType dtype;
    double one_round, two_rounds;
  };
  for (const Row& row :
       {Row{DType::kBF16, 14, 16}, Row{DType::kF16, 16, 18}, Row{DType::kF32, 16, 16}}) {
    Network network = make_gpt2(gpt2_preset("gpt2").value(), NetworkHead::kLoss, row.dtype).value();
    auto parameters = static_cast<double>(network.parameter_count());
    EXPECT_EQ(network.parameter_count(), 124'439'808);  // the tied embedding once
    for (int rounds : {1, 2}) {
      SCOPED_TRACE(std::string(dtype_name(row.dtype)) + ", rounds " + std::to_string(rounds));
      auto state = HostState::create(*devices[0], state_layouts(network),
                                     state_options(network, rounds, Residence::kStreamed,
                                                   UpdateMode::kOverlap, {}))
                       .value();
      double expected = rounds == 1 ? row.one_round : row.two_rounds;
      auto bytes = static_cast<double>(state->bytes().state());
      EXPECT_NEAR(bytes / parameters, expected, 0.01 * expected);
      EXPECT_EQ(state->pinning().asked, state->bytes().total());
    }
  }
}

TEST(SlowHostState, GrowsTheProcessByFourteenBytesAParameter) {
  Network network =
      make_gpt2(gpt2_preset("gpt2").value(), NetworkHead::kLoss, DType::kBF16).value();
  auto parameters = static_cast<double>(network.parameter_count());
  ASSERT_GE(parameters, 100e6);
  auto devices = built_in_backends().open_devices("cpu:1").value();
  int64_t before = resident_bytes();
  auto state =
      HostState::create(*devices[0], state_layouts(network),
                        state_options(network, 1, Residence::kStreamed, UpdateMode::kBarrier, {}))
          .value();
  auto grown = static_cast<double>(resident_bytes() - before);
  auto landing = static_cast<double>(state->bytes().landing);
  EXPECT_NEAR(static_cast<double>(state->bytes().state()), 14 * parameters, 0.01 * 14 * parameters);
  // Where the tied gradient's second site lands need not be resident before it does.
  EXPECT_GE(grown, 0.99 * 14 * parameters);
  EXPECT_LE(grown, 1.01 * 14 * parameters + landing);
}

}  // namespace
}  // namespace stagecoach::testing
