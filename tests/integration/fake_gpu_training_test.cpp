// Training runs on the template of the GPU backends. The fake driver's kernels are the CPU oracle,
// so every bit of the weights must be the CPU's.
#include <array>

#include "backends/cpu/cpu_backend.h"
#include "testing/decorated_backend.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tests/integration/race_check_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr int kIterations = 5;

class FakeGpuTraining : public ::testing::Test {
 protected:
  FakeGpuTraining() {
    registry_.add(make_cpu_backend());
    registry_.add(machine_.make_backend());
  }

  TinyRun run_on(const std::string& devices) {
    TinyRun run;
    run.devices = devices;
    run.iterations = kIterations;
    return run;
  }
  std::string weights_of(const TinyRun& run) {
    Result<TinyResult> result = train_tiny(run, registry_);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return result.is_ok() ? result->weights_sha256 : "failed";
  }

  FakeGpuMachine machine_;
  BackendRegistry registry_;
};

TEST_F(FakeGpuTraining, OneCardGivesTheCpusBits) {
  EXPECT_EQ(weights_of(run_on("fake_gpu:0")), weights_of(run_on("cpu:1")));
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, CardsLogicalDevicesAndMixedPoolsGiveTheSameBits) {
  const std::string expected = weights_of(run_on("cpu:1"));
  for (const char* devices : {"fake_gpu:all", "fake_gpu:0x2", "cpu:1,fake_gpu:0"}) {
    EXPECT_EQ(weights_of(run_on(devices)), expected) << devices;
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, BoundSchedulesGiveTheSameBits) {
  const std::string expected = weights_of(run_on("cpu:1"));
  for (const char* schedule : {"1f1b", "zb-v"}) {
    for (const char* devices : {"fake_gpu:all", "cpu:1,fake_gpu:0"}) {
      TinyRun run = run_on(devices);
      run.options.schedule = schedule;
      EXPECT_EQ(weights_of(run), expected) << schedule << " on " << devices;
    }
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

/// A system that lets nothing be pinned.
class NothingIsPinned final : public Interceptor {
 public:
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    if (call.verb == verbs::kAllocatePinned) verdict.kind = Verdict::Kind::kExhaust;
    if (call.verb == verbs::kRegisterHost) {
      verdict.kind = Verdict::Kind::kRefuse;
      verdict.status = resource_exhausted("nothing is pinned");
    }
    return verdict;
  }
  void after(const VerbCall&, const Status&) override {}
};

// Field report 59, on cards, streamed and bound.
TEST_F(FakeGpuTraining, PageableHostMemoryGivesTheSameBits) {
  const std::string expected = weights_of(run_on("cpu:1"));
  BackendRegistry unpinned;
  unpinned.add(std::make_unique<DecoratedBackend>(machine_.make_backend(),
                                                  std::make_shared<NothingIsPinned>()));
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = run_on("fake_gpu:all");
    run.options.schedule = schedule;
    Result<TinyResult> result = train_tiny(run, unpinned);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_EQ(result->weights_sha256, expected) << schedule;
    EXPECT_EQ(result->report.pinning.pinned, 0);
    EXPECT_GT(result->report.pinning.slow, 0);
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, AKernelThatFailsEndsTheRunWithItsSite) {
  machine_.driver().fail_next_kernel(FakeGpuError::kLaunchFailed);
  Result<TinyResult> result = train_tiny(run_on("fake_gpu:all"), registry_);
  EXPECT_EQ(result.status().code(), StatusCode::kDeviceLost) << result.status().to_string();
  EXPECT_EQ(result.status().site().device.rfind("fake_gpu:", 0), 0u);
}

// What of the state is pageable travels through the lanes' rings, so that no copy of it is one that
// drivers do not let run beside others; without rings such copies are made, and give the same bits.
TEST_F(FakeGpuTraining, PageableStateTravelsThroughRings) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    TinyRun run = run_on("fake_gpu:all");
    run.dtype = dtype;
    run.options.rounds = 2;
    TinyRun on_cpu = run;
    on_cpu.devices = "cpu:1";
    const std::string expected = weights_of(on_cpu);
    for (bool refuses_rings : {false, true}) {
      FakeGpuMachine machine;
      BackendRegistry registry;
      registry.add(std::make_unique<DecoratedBackend>(
          machine.make_backend(), std::make_shared<StateIsNotPinned>(refuses_rings)));
      Result<TinyResult> result = train_tiny(run, registry);
      ASSERT_TRUE(result.is_ok()) << result.status().to_string();
      EXPECT_EQ(result->weights_sha256, expected);
      EXPECT_GT(result->report.pinning.slow, 0);
      EXPECT_EQ(machine.driver().pageable_copies() > 0, refuses_rings)
          << machine.driver().pageable_copies();
      EXPECT_EQ(machine.driver().leaks(), "");
    }
  }
}

/// A model whose blocks of 1.3 MB are many copies at the fake's limit of two under way.
TinyRun run_of_many_blocks(const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.iterations = 3;
  run.model.n_embd = 128;
  run.model.n_inner = 1024;
  run.model.n_layer = 6;
  return run;
}

// Parameters and gradients are many more copies than may be under way; activations come on top.
TEST_F(FakeGpuTraining, LimitedLanesGiveTheCpusBits) {
  for (const char* update : {"overlap", "async"}) {
    TinyRun run = run_of_many_blocks("fake_gpu:all");
    run.options.update = update;
    TinyRun on_cpu = run;
    on_cpu.devices = "cpu:1";
    EXPECT_EQ(weights_of(run), weights_of(on_cpu)) << update;
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

// On a slow link what training lets wait in a card's queues is the limit, and activations.
TEST_F(FakeGpuTraining, ParametersDoNotFillTheQueuesOfACard) {
  std::vector<int> most;
  for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kWhole}) {
    FakeGpuOptions slow;
    slow.copy_bytes_per_s = 400e6;
    FakeGpuMachine machine(slow);
    BackendRegistry registry;
    registry.add(machine.make_backend());
    TinyRun run = run_of_many_blocks("fake_gpu:0");
    run.options.bulk = method;
    run.iterations = 2;
    Result<TinyResult> result = train_tiny(run, registry);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    most.push_back(machine.driver().most_copies_queued());
  }
  EXPECT_LT(most[0] * 3 / 2, most[1]);
}

TEST_F(FakeGpuTraining, ACopyThatFailsWhileOthersAreHeldEndsTheRun) {
  for (int run = 0; run < 6; ++run) {
    bool by_rings = run >= 3;
    int nth = std::array{20, 45, 90}[run % 3];
    FakeGpuOptions slow;
    slow.copy_bytes_per_s = 200e6;
    FakeGpuMachine machine(slow);
    std::unique_ptr<Backend> backend = machine.make_backend();
    if (by_rings) {
      backend = std::make_unique<DecoratedBackend>(std::move(backend),
                                                   std::make_shared<StateIsNotPinned>());
    }
    BackendRegistry registry;
    registry.add(std::move(backend));
    machine.driver().fail_call(FakeGpuFunction::copy_async, nth, FakeGpuError::kLaunchFailed);
    Result<TinyResult> result = train_tiny(run_of_many_blocks("fake_gpu:all"), registry);
    EXPECT_EQ(result.status().code(), StatusCode::kDeviceLost) << result.status().to_string();
    EXPECT_EQ(result.status().site().verb, "copy") << result.status().to_string();
  }
}

/// Trains on capped cards whose ops take the scratch memory of real kernels, and evaluates shorter
/// batches between.
class FakeGpuMemory : public FakeGpuTraining {
 protected:
  FakeGpuMemory() { machine_.table().take_workspace_of_kernels(); }

  /// Logits of a whole micro-batch take 6 MB, an eighth of such a card 1 MiB.
  static Gpt2Config wide_vocabulary() {
    Gpt2Config config = tiny_gpt2();
    config.vocab_size = 16'000;
    return config;
  }
  Status step(Trainer& trainer, const Gpt2Config& model, const TrainerOptions& options) {
    Shape shape{options.batch, options.sequence};
    std::vector<int32_t> tokens(options.batch * options.sequence, 1);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i) % 1000;
    EXPECT_LT(1000, model.vocab_size);
    HostTensor batch = HostTensor::of(tokens, shape);
    STAGECOACH_RETURN_IF_FAILED(trainer.forward_backward(batch, batch));
    STAGECOACH_RETURN_IF_ERROR(trainer.step(1e-3));
    int64_t sequences = 1 + trainer.iteration() % options.batch;
    tokens.resize(sequences * options.sequence);
    HostTensor fewer = HostTensor::of(tokens, Shape{sequences, options.sequence});
    return trainer.evaluate(fewer, fewer).status();
  }
};

// Field report 61: what is planned is what is taken, and nothing is allocated on a device after
// warm-up, whatever comes then.
TEST_F(FakeGpuMemory, PlansHoldAndNothingIsAllocatedAfterWarmUp) {
  for (const char* memory : {"9M", "12M"}) {
    SCOPED_TRACE(memory);
    auto devices = registry_.open_devices(std::string("fake_gpu:all[memory=") + memory + "]");
    ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
    TrainerOptions options;
    options.batch = 8;
    options.sequence = 16;
    options.micro_batches = 2;
    Gpt2Config model = wide_vocabulary();
    auto trainer = Trainer::create(make_gpt2(model, NetworkHead::kLoss, DType::kBF16).value(),
                                   {(*devices)[0].get(), (*devices)[1].get()}, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().to_string();
    (*trainer)->initialize_parameters();
    int quiet_steps = 0;
    bool warms_up = true;
    for (int i = 0; i < 40 && quiet_steps < 10; ++i) {
      int64_t allocations = machine_.driver().calls(FakeGpuFunction::allocate);
      Status status = step(**trainer, model, options);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      bool adopted = !(*trainer)->take_notes().empty();  // a plan, at the end of the step
      if (!warms_up && !adopted) {
        EXPECT_EQ(machine_.driver().calls(FakeGpuFunction::allocate), allocations) << i;
        ++quiet_steps;
      }
      warms_up = adopted;
    }
    EXPECT_EQ(quiet_steps, 10);
    TrainerReport report = (*trainer)->report();
    for (size_t device = 0; device < 2; ++device) {
      EXPECT_LE(report.device_peak_bytes[device], report.device_planned_bytes[device]);
      // The plan is not kept by being far too large.
      EXPECT_GE(report.device_peak_bytes[device], report.device_planned_bytes[device] * 9 / 10);
    }
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

}  // namespace
}  // namespace stagecoach::testing
