// Part of the updates on devices: no bit depends on it, nothing races, and failures end the run.
#include <atomic>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "core/clock.h"
#include "testing/decorated_backend.h"
#include "testing/faulty_backend.h"
#include "testing/happens_before.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

/// How the updater's work on devices is labelled.
constexpr std::string_view kLabel = "device update";

TinyRun share_run(const char* update, double share, const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.dtype = DType::kBF16;
  run.iterations = 4;
  run.options.times_layers = false;
  run.options.update = update;
  run.options.device_share = share;
  return run;
}

TinyResult train(const TinyRun& run) {
  Result<TinyResult> result = train_tiny(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return result.is_ok() ? std::move(result).value() : TinyResult{};
}

/// Norms of skipped steps are not finite and never equal, so texts are compared.
void expect_same(const TinyResult& one, const TinyResult& other, const std::string& what) {
  ASSERT_FALSE(one.weights_sha256.empty()) << what;
  EXPECT_EQ(one.losses, other.losses) << what;
  EXPECT_EQ(fmt::format("{}", one.norms), fmt::format("{}", other.norms)) << what;
  EXPECT_EQ(one.weights_sha256, other.weights_sha256) << what;
}

void expect_share_changes_no_bit(TinyRun run, const std::string& what) {
  run.options.device_share = 0;
  TinyResult host = train(run);
  EXPECT_EQ(host.report.device_share, 0);
  for (double share : {0.5, 1.0}) {
    run.options.device_share = share;
    TinyResult shared = train(run);
    expect_same(host, shared, fmt::format("{} share {}", what, share));
    EXPECT_NEAR(shared.report.device_share, share, 0.15) << what;
  }
}

TEST(DeviceShare, ChangesNoBit) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16, DType::kF16})) {
      for (const char* devices : {"cpu:1", "cpu:2", "cpu:3"}) {
        TinyRun run = share_run(update, 0, devices);
        run.dtype = dtype;
        expect_share_changes_no_bit(run,
                                    fmt::format("{} {} {}", update, dtype_name(dtype), devices));
      }
    }
  }
}

TEST(SlowShareSweep, ChangesNoBitUngatedInRoundsWithSkipsOrWhereStagesAreBound) {
  for (const char* update : {"overlap", "async"}) {
    TinyRun run = share_run(update, 0, "cpu:2");
    run.options.clip_norm = 0;
    expect_share_changes_no_bit(run, "ungated");
    run.options.rounds = 2;
    expect_share_changes_no_bit(run, "two rounds");
    run = share_run(update, 0, "cpu:2");
    run.passes_per_step = 2;
    expect_share_changes_no_bit(run, "two passes");
    run = share_run(update, 0, "cpu:2");
    run.options.schedule = "1f1b";
    expect_share_changes_no_bit(run, "1f1b");
    run = share_run(update, 0, "cpu:2");
    run.dtype = DType::kF16;
    run.options.loss_scale = 0x1p40;
    run.iterations = 24;
    expect_share_changes_no_bit(run, "fp16 with skipped steps");
  }
}

constexpr ByteCount kScratchBytes = 256;

TEST(DeviceShare, ItsMemoryOnGpusIsPlanned) {
  FakeGpuMachine machine;
  BackendRegistry registry;
  registry.add(machine.make_backend());
  Result<TinyResult> shared = train_tiny(share_run("overlap", 0.5, "fake_gpu:all"), registry);
  ASSERT_TRUE(shared.is_ok()) << shared.status().to_string();
  EXPECT_GT(shared->report.device_share, 0.3);
  for (size_t device = 0; device < shared->report.devices.size(); ++device) {
    ByteCount left =
        shared->report.device_planned_bytes[device] - shared->report.device_peak_bytes[device];
    EXPECT_GE(left, 0);
    EXPECT_LE(left, kScratchBytes);
  }
}

// The memory is in the plan, so nothing beyond it is taken; with less than that there is no run.
TEST(DeviceShare, ItsMemoryIsPlanned) {
  TinyResult shared = train(share_run("overlap", 0.5, "cpu:2"));
  TinyResult host = train(share_run("overlap", 0, "cpu:2"));
  for (size_t device = 0; device < 2; ++device) {
    // CPU devices need no scratch memory for it.
    EXPECT_EQ(shared.report.device_peak_bytes[device] + kScratchBytes,
              shared.report.device_planned_bytes[device]);
    EXPECT_GT(shared.report.device_planned_bytes[device], host.report.device_planned_bytes[device]);
  }
  EXPECT_GT(shared.report.host_planned_bytes, host.report.host_planned_bytes);
  ByteCount needed = shared.report.device_planned_bytes[0];
  EXPECT_TRUE(
      train_tiny(share_run("overlap", 0.5, fmt::format("cpu:2[memory={}]", needed))).is_ok());
  Result<TinyResult> refused = train_tiny(share_run("overlap", 0.5, "cpu:2[memory=64K]"));
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("optimizer.device_share"));
}

TEST(DeviceShare, WhatDevicesCannotUpdateIsRefusedByName) {
  for (const char* optimizer : {"adam", "sgd", "lion"}) {
    TinyRun run = share_run("overlap", 0.5, "cpu:1");
    run.options.optimizer = optimizer;
    Result<TinyResult> result = train_tiny(run);
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr("optimizer.device_share"));
    EXPECT_THAT(result.status().message(), HasSubstr(optimizer));
  }
  for (const char* moments : {"bf16", "8bit"}) {
    TinyRun run = share_run("overlap", 0.5, "cpu:1");
    run.options.moments = moments;
    Result<TinyResult> result = train_tiny(run);
    ASSERT_FALSE(result.is_ok());
    EXPECT_THAT(result.status().message(), HasSubstr("optimizer.device_share"));
    EXPECT_THAT(result.status().message(), HasSubstr(moments));
  }
  for (double share : {-0.1, 1.5}) {
    EXPECT_FALSE(train_tiny(share_run("overlap", share, "cpu:1")).is_ok());
  }
}

// Half of the elements on devices leaves the host half of the updates and all of the norms: of 28
// bytes a parameter, 26 of them the update's, 15 are left. Here the host takes about 100 ms of
// sleep for them, devices next to nothing.
TEST(SlowDeviceShare, ShortensStepsThatHostUpdatesBound) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    double step_ns[2] = {};
    for (int half : {0, 1}) {
      TinyRun run = share_run(update, 0.5 * half, "cpu:2[h2d=1G,d2h=1G]");
      run.options.host_bytes_per_s = 10e6;
      run.iterations = 8;
      TinyResult result = train(run);
      step_ns[half] = result.report.step_ns;
    }
    double ratio = step_ns[1] / step_ns[0];
    EXPECT_GT(ratio, 0.4) << update;
    EXPECT_LT(ratio, 0.75) << update;
    fmt::print("{}: {:.1f} ms a step, with half of the updates on devices {:.1f} ms: {:.2f}\n",
               update, step_ns[0] / 1e6, step_ns[1] / 1e6, ratio);
  }
}

// The same, as the run decides by itself; with a host that is not slow it leaves devices alone.
TEST(SlowDeviceShare, AutoIsAShareWhereHostUpdatesBoundAndNoneElsewhere) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    TinyRun run = share_run(update, 0, "cpu:2[h2d=1G,d2h=1G]");
    run.options.times_layers = true;
    run.iterations = 8;
    TinyResult host = train(run);
    run.options.device_share = kAutoShare;
    TinyResult fast = train(run);
    EXPECT_EQ(fast.report.device_share, 0) << update;
    expect_same(host, fast, update);
    run.options.host_bytes_per_s = 10e6;
    TinyResult slow = train(run);
    EXPECT_GT(slow.report.device_share, 0.5) << update;
    expect_same(host, slow, update);
    for (size_t device = 0; device < 2; ++device) {
      EXPECT_LE(slow.report.device_peak_bytes[device], slow.report.device_planned_bytes[device]);
    }
  }
}

/// Delays random verbs, so that what is not ordered is more likely to go wrong.
class RandomDelays final : public Interceptor {
 public:
  explicit RandomDelays(uint64_t seed) : seed_(seed) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    uint32_t word = random_word({seed_, 0, 0, 0, 0}, count_.fetch_add(1));
    if (word % 8 == 0) verdict.delay_ns = word / 8 % 100'000;
    return verdict;
  }
  void after(const VerbCall& call, const Status& outcome) override {}

 private:
  uint64_t seed_;
  std::atomic<uint64_t> count_ = 0;
};

void expect_no_race(const TinyRun& run, std::unique_ptr<Backend> backend, const char* what) {
  auto checker = std::make_shared<HappensBefore>();
  BackendRegistry registry;
  registry.add(std::make_unique<DecoratedBackend>(
      make_race_checking_backend(std::move(backend), checker), std::make_shared<RandomDelays>(5)));
  Result<TinyResult> result = train_tiny(run, registry);
  ASSERT_TRUE(result.is_ok()) << what << ": " << result.status().to_string();
  EXPECT_EQ(checker->race_count(), 0)
      << what << ": " << (checker->races().empty() ? "" : format_race(checker->races()[0]));
  EXPECT_GT(checker->access_count(), 1000) << what;
  EXPECT_GT(result->report.device_share, 0.3) << what;
}

TEST(DeviceShare, IsFreeOfRaces) {
  for (const char* update : {"overlap", "async"}) {
    for (double clip_norm : {0.0, 0.5}) {
      for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16, DType::kF16})) {
        TinyRun run = share_run(update, 0.5, "cpu:2");
        run.options.clip_norm = clip_norm;
        run.dtype = dtype;
        expect_no_race(run, make_cpu_backend(), update);
      }
    }
    FakeGpuMachine machine;
    expect_no_race(share_run(update, 0.5, "fake_gpu:all"), machine.make_backend(), update);
  }
}

/// Lets something happen to one verb of the devices' updates, and counts those verbs.
class UpdateFault final : public Interceptor {
 public:
  UpdateFault(Verdict verdict, std::string_view verb, int64_t nth)
      : verdict_(std::move(verdict)), verb_(verb), nth_(nth) {}
  Verdict before(const VerbCall& call) override {
    bool counts = call.label.view() == kLabel && call.verb == verb_;
    return counts && count_.fetch_add(1) + 1 == nth_ ? verdict_ : Verdict{};
  }
  void after(const VerbCall& call, const Status& outcome) override {}
  bool has_happened() const { return count_ >= nth_; }

 private:
  Verdict verdict_;
  std::string_view verb_;
  int64_t nth_;
  std::atomic<int64_t> count_ = 0;
};

/// How a run ended in which that happened.
Status status_with_fault(const TinyRun& run, std::shared_ptr<UpdateFault> fault) {
  BackendRegistry registry;
  registry.add(std::make_unique<DecoratedBackend>(make_cpu_backend(), fault));
  int64_t start_ns = RealClock::instance().now_ns();
  Result<TinyResult> result = train_tiny(run, registry);
  EXPECT_TRUE(fault->has_happened());
  EXPECT_LT(RealClock::instance().now_ns() - start_ns, 10'000'000'000);
  return result.status();
}

TEST(DeviceShare, ADeviceThatFailsInAnUpdateEndsTheRunWithItsCause) {
  for (const char* update : {"barrier", "overlap", "async"}) {
    for (std::string_view verb : {std::string_view("copy"), std::string_view("adamw")}) {
      for (auto kind : {Verdict::Kind::kRefuse, Verdict::Kind::kFailLater}) {
        for (int64_t nth : {1, 40}) {
          Verdict verdict{kind, internal_error("the update broke"), 0};
          TinyRun run = share_run(update, 0.5, "cpu:2");
          Status status = status_with_fault(run, std::make_shared<UpdateFault>(verdict, verb, nth));
          EXPECT_EQ(status.code(), StatusCode::kInternal) << update;
          EXPECT_THAT(status.to_string(), HasSubstr("the update broke")) << update;
          EXPECT_THAT(status.site().device, HasSubstr("cpu:")) << update;
          EXPECT_THAT(status.site().stream, HasSubstr("update_")) << update;
        }
      }
    }
  }
}

TEST(DeviceShare, ADeviceThatHangsInAnUpdateEndsTheRun) {
  for (const char* update : {"overlap", "async"}) {
    TinyRun run = share_run(update, 0.5, "cpu:2");
    run.options.timeout_ns = 500'000'000;
    Verdict verdict{Verdict::Kind::kNeverCompletes, Status::ok(), 0};
    Status status = status_with_fault(run, std::make_shared<UpdateFault>(verdict, "adamw", 5));
    ASSERT_FALSE(status.is_ok()) << update;
    EXPECT_THAT(status.to_string(), HasSubstr(std::string(kLabel))) << update;
  }
}

/// The first update on a device never ends; meanwhile product number `failing` breaks (0: none).
class HangAndFailure final : public Interceptor {
 public:
  explicit HangAndFailure(int64_t failing) : failing_(failing) {}
  Verdict before(const VerbCall& call) override {
    if (call.verb == "matmul" && products_.fetch_add(1) + 1 == failing_) {
      return {Verdict::Kind::kFailLater, internal_error("the product broke"), 0};
    }
    bool hangs = failing_ > 0 && call.verb == "adamw" && call.label.view() == kLabel;
    if (!hangs || has_hung_.exchange(true)) return {};
    return {Verdict::Kind::kNeverCompletes, Status::ok(), 0};
  }
  void after(const VerbCall& call, const Status& outcome) override {}
  int64_t products() const { return products_; }
  bool has_hung() const { return has_hung_; }

 private:
  int64_t failing_;
  std::atomic<int64_t> products_ = 0;
  std::atomic<bool> has_hung_ = false;
};

Status status_with(const TinyRun& run, std::shared_ptr<Interceptor> faults) {
  BackendRegistry registry;
  registry.add(std::make_unique<DecoratedBackend>(make_cpu_backend(), std::move(faults)));
  return train_tiny(run, registry).status();
}

TEST(DeviceShare, AFailureElsewhereEndsUpdatesOnDevices) {
  TinyRun run = share_run("async", 0.5, "cpu:2[flops=40M]");
  run.iterations = 1;
  auto count = std::make_shared<HangAndFailure>(0);
  ASSERT_TRUE(status_with(run, count).is_ok());
  // Late in the forward of the second pass, a quarter of its products: with async it waits for no
  // update, and the first pass's gradients have been home for long when it is computed.
  run.iterations = 4;
  auto faults = std::make_shared<HangAndFailure>(count->products() * 7 / 6);
  int64_t start_ns = RealClock::instance().now_ns();
  Status status = status_with(run, faults);
  // Long before the watchdog would have ended the update.
  EXPECT_LT(RealClock::instance().now_ns() - start_ns, 8'000'000'000);
  EXPECT_TRUE(faults->has_hung());
  EXPECT_THAT(status.to_string(), HasSubstr("the product broke"));
}

/// How a run of one fault ended.
struct Faulted {
  Status status;
  std::string weights_sha256;
  CallCounts counts;
};

Faulted train_with(const TinyRun& run, const FaultPlan& plan) {
  auto injector = std::make_shared<FaultInjector>(plan);
  BackendRegistry registry;
  registry.add(make_faulty_backend(make_cpu_backend(), injector));
  Result<TinyResult> result = train_tiny(run, registry);
  Faulted faulted{result.status(), "", injector->counts()};
  if (result.is_ok()) faulted.weights_sha256 = result->weights_sha256;
  return faulted;
}

// Whatever breaks, in passes or updates: the run fails in time, or its result is what it would be.
TEST(SlowShareSweep, RandomFaultsEndTheRunOrChangeNothing) {
  for (const char* update : {"overlap", "async"}) {
    TinyRun run = share_run(update, 0.5, "cpu:2");
    run.iterations = 2;
    Faulted whole = train_with(run, {});
    ASSERT_TRUE(whole.status.is_ok());
    constexpr FaultKind kKinds[] = {FaultKind::kFail, FaultKind::kFailLater, FaultKind::kDelay,
                                    FaultKind::kDeviceLost, FaultKind::kNeverCompletes};
    run.options.timeout_ns = 300'000'000;
    int failed = 0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      FaultPlan plan = random_fault(seed, whole.counts, kKinds);
      int64_t start_ns = RealClock::instance().now_ns();
      Faulted faulted = train_with(run, plan);
      EXPECT_LT(RealClock::instance().now_ns() - start_ns, 8'000'000'000)
          << format_fault_plan(plan);
      failed += faulted.status.is_ok() ? 0 : 1;
      if (!faulted.status.is_ok()) continue;
      EXPECT_EQ(faulted.weights_sha256, whole.weights_sha256) << format_fault_plan(plan);
    }
    EXPECT_GT(failed, 12) << update;
  }
}

}  // namespace
}  // namespace stagecoach::testing
