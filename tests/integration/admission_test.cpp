// What the budgeter admits stays within what was planned, on devices and the host; what it refuses
// allocates nothing.
#include <array>
#include <atomic>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <optional>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "memory/budget.h"
#include "scheduler/network_state.h"
#include "scheduler/stage_memory.h"
#include "testing/decorated_backend.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

/// Counts what is allocated; memory that is given back stays counted.
class AllocationCounter final : public Interceptor {
 public:
  Verdict before(const VerbCall&) override { return {}; }
  void after(const VerbCall& call, const Status& outcome) override {
    if (!outcome.is_ok()) return;
    if (call.verb == verbs::kAllocate) device_ += call.size_bytes;
    bool pins = call.verb == verbs::kAllocatePinned || call.verb == verbs::kRegisterHost;
    if (pins) pinned_ += call.size_bytes;
  }
  ByteCount device() const { return device_; }
  ByteCount pinned() const { return pinned_; }

 private:
  std::atomic<ByteCount> device_{0}, pinned_{0};
};

/// A small model, how it is trained, and what there is for it.
struct RandomRun {
  explicit RandomRun(uint64_t seed) : random(seed) {
    model.n_head = pick(1, 3);
    model.n_embd = model.n_head * 8 * pick(1, 3);
    model.n_inner = 8 * pick(2, 16);
    model.n_layer = pick(1, 5);
    model.vocab_size = pick(17, 700);
    options.sequence = pick(4, 24);
    model.n_positions = options.sequence;
    dtype = std::array{DType::kF32, DType::kBF16, DType::kF16}[pick(0, 2)];
    options.rounds = pick(1, 2);
    options.micro_batches = options.rounds * pick(1, 3);
    options.batch = options.micro_batches * pick(1, 3);
    device_count = static_cast<int>(pick(1, 3));
    const char* schedules[] = {"roundpipe", "roundpipe", "gpipe", "1f1b"};
    options.schedule = schedules[pick(0, 3)];
    if (device_count == 1) options.schedule = "single";
  }
  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }
  /// Between a `low` and a `high` multiple of `size`.
  ByteCount around(ByteCount size, double low, double high) {
    return static_cast<ByteCount>(static_cast<double>(size) *
                                  std::uniform_real_distribution<double>(low, high)(random));
  }
  Network network() const { return make_gpt2(model, NetworkHead::kLoss, dtype).value(); }

  std::mt19937_64 random;
  Gpt2Config model;
  DType dtype = DType::kF32;
  TrainerOptions options;
  int device_count = 1;
};

/// One attempt to train on devices and a host of such memory.
struct Attempt {
  Status status;
  std::optional<TrainerReport> report;
  ByteCount device_bytes = 0, pinned_bytes = 0;  ///< allocated by the end of creation
  ByteCount pinned_in_the_end = 0;
};

Attempt attempt(const RandomRun& run, ByteCount device_memory, ByteCount host_memory) {
  auto counter = std::make_shared<AllocationCounter>();
  BackendRegistry registry;
  registry.add(std::make_unique<DecoratedBackend>(make_cpu_backend(), counter));
  auto devices =
      registry.open_devices(fmt::format("cpu:{}[memory={}]", run.device_count, device_memory))
          .value();
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  TrainerOptions options = run.options;
  options.host_limits = [host_memory]() -> Result<HostLimits> {
    return HostLimits{host_memory, "the test", {}};
  };
  Attempt result;
  auto trainer = Trainer::create(run.network(), pointers, options);
  result.device_bytes = counter->device();
  result.pinned_bytes = counter->pinned();
  result.status = trainer.status();
  if (!trainer.is_ok()) return result;
  (*trainer)->initialize_parameters();
  Shape shape{options.batch, options.sequence};
  std::vector<int32_t> tokens(options.batch * options.sequence);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = synthetic_token(3, static_cast<int64_t>(i), run.model.vocab_size);
  }
  HostTensor batch = HostTensor::of(tokens, shape);
  result.status = (*trainer)->forward_backward(batch, batch).status();
  if (result.status.is_ok()) result.status = (*trainer)->step(1e-3);
  if (result.status.is_ok()) result.status = (*trainer)->evaluate(batch, batch).status();
  result.report = (*trainer)->report();
  result.pinned_in_the_end = counter->pinned();
  return result;
}

void expect_within_plan(const Attempt& result, ByteCount device_memory, ByteCount host_memory) {
  ASSERT_TRUE(result.status.is_ok()) << result.status.to_string();
  const TrainerReport& report = *result.report;
  ByteCount planned = 0, peak = 0;
  for (size_t device = 0; device < report.devices.size(); ++device) {
    EXPECT_LE(report.device_peak_bytes[device], report.device_planned_bytes[device]);
    EXPECT_LE(report.device_planned_bytes[device], device_memory);
    planned += report.device_planned_bytes[device];
    peak += report.device_peak_bytes[device];
  }
  EXPECT_EQ(result.pinned_in_the_end, result.pinned_bytes) << "more was pinned on the way";
  EXPECT_LE(result.pinned_in_the_end + peak, report.host_planned_bytes);
  EXPECT_EQ(report.pinning.asked, result.pinned_bytes);
  // Plans are not kept by being far too large.
  EXPECT_GE(result.pinned_in_the_end + planned, report.host_planned_bytes - 1024);
  EXPECT_LE(report.host_planned_bytes + kHostReserve, host_memory);
}

void expect_refused(const Attempt& result) {
  EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted) << result.status.to_string();
  EXPECT_EQ(result.device_bytes, 0);
  EXPECT_EQ(result.pinned_bytes, 0);
  EXPECT_THAT(result.status.message(), HasSubstr(" bytes)"));
  EXPECT_TRUE(result.status.message().find("for stage memory") != std::string::npos ||
              result.status.message().find("of host memory") != std::string::npos)
      << result.status.to_string();
}

TEST(Admission, WhatIsAdmittedStaysWithinItsPlanAndWhatIsRefusedAllocatesNothing) {
  constexpr int kRuns = 200;
  constexpr ByteCount kPlenty = 8 * kGiB;
  int admitted = 0, refused_by_device = 0, refused_by_host = 0;
  for (uint64_t seed = 1; admitted + refused_by_device + refused_by_host < kRuns; ++seed) {
    ASSERT_LT(seed, 2000u) << "hardly any random run can be planned";
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomRun run(seed);
    Network network = run.network();
    MicroBatchShape shape{run.options.batch / run.options.micro_batches, run.options.sequence};
    ByteCount least = device_memory_need(
                          network, narrowest_stages(static_cast<int>(network.layers.size())), shape)
                          .total();
    ByteCount device_memory = run.around(least, 0.8, 3);
    ByteCount state =
        host_state_bytes(state_layouts(network),
                         state_options(network, static_cast<int>(run.options.rounds),
                                       Residence::kStreamed, UpdateMode::kOverlap, {}))
            .total();
    ByteCount host_memory =
        run.pick(0, 3) == 0 ? kPlenty : kHostReserve + run.around(state + 2 * least, 0.7, 2.5);
    Attempt result = attempt(run, device_memory, host_memory);
    // Sizes outside a schedule are no runs.
    if (result.status.code() == StatusCode::kInvalidArgument) continue;
    if (result.report) {
      ++admitted;
      expect_within_plan(result, device_memory, host_memory);
    } else {
      expect_refused(result);
      bool by_host = result.status.message().find("of host memory") != std::string::npos;
      ++(by_host ? refused_by_host : refused_by_device);
    }
    if (HasFailure()) return;
  }
  EXPECT_GE(admitted, 40);
  EXPECT_GE(refused_by_device, 20);
  EXPECT_GE(refused_by_host, 20);
  RecordProperty("admitted", admitted);
  RecordProperty("refused_by_device", refused_by_device);
  RecordProperty("refused_by_host", refused_by_host);
}

// Several passes before a step keep sums, for which there must be room too.
TEST(Admission, PassesBeforeAStepTakeMoreAndAreCheckedToo) {
  for (ByteCount spare : {ByteCount{0}, kMiB}) {
    SCOPED_TRACE(spare);
    auto counter = std::make_shared<AllocationCounter>();
    BackendRegistry registry;
    registry.add(std::make_unique<DecoratedBackend>(make_cpu_backend(), counter));
    auto devices = registry.open_devices("cpu:1").value();
    TinyRun run;
    ByteCount host_memory = 8 * kGiB, planned = 0;
    run.options.host_limits = [&]() -> Result<HostLimits> {
      return HostLimits{host_memory, "the test", {}};
    };
    auto make = [&] {
      Network network = make_gpt2(run.model, NetworkHead::kLoss, DType::kBF16).value();
      return Trainer::create(std::move(network), {devices[0].get()}, run.options).value();
    };
    planned = make()->report().host_planned_bytes;
    host_memory = planned + kHostReserve + spare;
    auto trainer = make();
    trainer->initialize_parameters();
    std::vector<int32_t> tokens(run.options.batch * run.options.sequence, 3);
    HostTensor batch = HostTensor::of(tokens, Shape{run.options.batch, run.options.sequence});
    ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
    ByteCount pinned = counter->pinned();
    Status second = trainer->forward_backward(batch, batch).status();
    if (spare == 0) {
      EXPECT_EQ(second.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(second.message(), HasSubstr("where more gradients land"));
      EXPECT_EQ(counter->pinned(), pinned);
    } else {
      EXPECT_TRUE(second.is_ok()) << second.to_string();
      EXPECT_EQ(trainer->report().host_planned_bytes, planned + counter->pinned() - pinned);
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
