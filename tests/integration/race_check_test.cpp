// Training under the happens-before checker: the program as it is has no race, and where a wait is
// left out the checker says so whether or not the weights came out wrong.
#include <gtest/gtest.h>

#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tests/integration/race_check_fixture.h"

namespace stagecoach::testing {
namespace {

TinyRun small_run(const std::string& schedule, const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.options.schedule = schedule;
  run.iterations = 2;
  return run;
}

TEST(RaceCheck, EveryScheduleIsFreeOfRaces) {
  for (std::string_view name : trained_schedules()) {
    for (const char* devices : {"cpu:1", "cpu:2", "cpu:3"}) {
      if (name == "single" && devices != std::string("cpu:1")) continue;
      for (int rounds : {1, 2}) {
        TinyRun run = small_run(std::string(name), devices);
        run.options.rounds = rounds;
        run.dtype = rounds == 1 ? DType::kF32 : DType::kBF16;
        CheckedRun checked = train_checked(run);
        // Schedules have minima of their own (interleaved: micro-batches by devices).
        if (checked.status.code() == StatusCode::kInvalidArgument) continue;
        expect_clean(checked, std::string(name) + " on " + devices);
      }
    }
  }
}

// Blocks of 1.3 MB travel in chunks over a paced link, whichever way chunks are issued.
TEST(RaceCheck, ChunksAreFreeOfRaces) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kSharedStream,
                              BulkMethod::kOneInFlight, BulkMethod::kWhole}) {
      TinyRun run = small_run(schedule, "cpu:2[h2d=2G,d2h=2G]");
      run.model.n_embd = 128;
      run.model.n_inner = 1024;
      run.options.bulk = method;
      expect_clean(train_checked(run), std::string(schedule) + ", " + bulk_method_name(method));
    }
  }
}

TEST(RaceCheck, CheckingChangesNoBit) {
  TinyRun run = small_run("roundpipe", "cpu:2");
  EXPECT_EQ(train_checked(run).weights_sha256, train_tiny(run)->weights_sha256);
}

TEST(RaceCheck, GpuTemplateIsFreeOfRaces) {
  for (const char* schedule : {"roundpipe", "1f1b", "zb-v"}) {
    FakeGpuMachine machine;
    expect_clean(
        train_checked(small_run(schedule, "fake_gpu:all"), machine.make_backend(), nullptr),
        schedule);
  }
}

// The fake's lanes hold back what its limit of two copies under way does not let them issue.
TEST(RaceCheck, LimitedLanesAreFreeOfRacesInDelayedRuns) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = small_run(schedule, "fake_gpu:all");
    run.dtype = DType::kBF16;
    std::string expected;
    for (uint64_t seed = 0; seed <= 8; ++seed) {
      FakeGpuMachine machine;
      std::shared_ptr<Interceptor> delays;
      if (seed > 0) delays = draw_delays(seed, run);
      CheckedRun checked = train_checked(run, machine.make_backend(), delays);
      expect_clean(checked, std::string(schedule) + ", " + std::to_string(seed));
      if (seed == 0) expected = checked.weights_sha256;
      EXPECT_EQ(checked.weights_sha256, expected) << seed;
    }
  }
}

// Host copies from and to rings are accesses of the host beside those of the card.
TEST(RaceCheck, RingsAreFreeOfRaces) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = small_run(schedule, "fake_gpu:all");
    FakeGpuMachine pinned, unpinned;
    CheckedRun expected = train_checked(run, pinned.make_backend(), nullptr);
    CheckedRun checked =
        train_checked(run, unpinned.make_backend(), std::make_shared<StateIsNotPinned>());
    expect_clean(checked, schedule);
    EXPECT_EQ(checked.weights_sha256, expected.weights_sha256);
    EXPECT_EQ(unpinned.driver().pageable_copies(), 0);
  }
}

TEST(RaceCheck, DelayedRunsAreFreeOfRacesAndGiveTheSameBits) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = small_run(schedule, "cpu:3");
    const std::string expected = train_checked(run).weights_sha256;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      CheckedRun checked = train_checked(run, std::make_shared<Delays>(seed));
      expect_clean(checked, schedule);
      EXPECT_EQ(checked.weights_sha256, expected) << seed;
    }
  }
}

/// Leaves out one call of a verb, or all; the first is number 1. A question to an event that is
/// left out is answered with yes.
class Without final : public Interceptor {
 public:
  static constexpr int kAll = -1;
  Without(std::string_view verb, int number) : verb_(verb), number_(number) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    if (call.verb != verb_) return verdict;
    int seen = ++count_;
    if (number_ == kAll || seen == number_) verdict.kind = Verdict::Kind::kSkip;
    return verdict;
  }
  void after(const VerbCall& call, const Status& outcome) override {}
  int count() const { return count_; }

 private:
  std::string_view verb_;
  int number_;
  std::atomic<int> count_ = 0;
};

TEST(RaceCheck, AProgramWithoutItsWaitsIsFound) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it races on purpose: ThreadSanitizer would end it";
#endif
  for (const char* schedule : {"roundpipe", "gpipe", "1f1b", "zb-h1"}) {
    auto mutation = std::make_shared<Without>(verbs::kWait, Without::kAll);
    CheckedRun checked = train_checked(small_run(schedule, "cpu:2"), mutation);
    EXPECT_GT(mutation->count(), 0) << schedule;
    EXPECT_GT(checked.races, 0) << schedule;
    EXPECT_NE(checked.first, "");
  }
}

// A wait that is implied by others may be left out, so not every mutation is a race; but whatever
// changes the result must have been one.
TEST(SlowRaceCheck, LeavingOutOneWaitIsFoundUnlessOthersImplyIt) {
  for (const char* schedule : {"roundpipe", "1f1b"}) {
    TinyRun run = small_run(schedule, "cpu:2");
    run.model.n_layer = 2;
    run.iterations = 1;
    auto counter = std::make_shared<Without>(verbs::kWait, 0);
    CheckedRun whole = train_checked(run, counter);
    expect_clean(whole, schedule);
    int found = 0, tried = 0;
    for (int number = 1; number <= counter->count(); ++number) {
      auto mutation = std::make_shared<Without>(verbs::kWait, number);
      CheckedRun mutated = train_checked(run, mutation);
      // Waits for what is known to be done are not made, so runs differ in how many there are.
      if (mutation->count() < number) break;
      ++tried;
      if (mutated.races > 0) ++found;
      bool differs = !mutated.status.is_ok() || mutated.weights_sha256 != whole.weights_sha256;
      EXPECT_TRUE(!differs || mutated.races > 0) << schedule << ", wait " << number;
    }
    std::printf("%s: %d of %d waits left out are races\n", schedule, found, tried);
    EXPECT_GT(4 * found, tried) << schedule;
  }
}

TEST(SlowRaceCheck, AHostThatDoesNotWaitIsFound) {
  TinyRun run = small_run("roundpipe", "cpu:2");
  run.model.n_layer = 2;
  run.iterations = 1;
  CheckedRun whole = train_checked(run);
  int found = 0, differing = 0;
  for (int number = 1; number <= 40; ++number) {
    CheckedRun mutated = train_checked(run, std::make_shared<Without>(verbs::kQueryEvent, number));
    if (mutated.races > 0) ++found;
    bool differs = !mutated.status.is_ok() || mutated.weights_sha256 != whole.weights_sha256;
    if (differs) ++differing;
    EXPECT_TRUE(!differs || mutated.races > 0)
        << "question " << number << mutated.status.to_string();
  }
  std::printf("%d of 40 questions left out are races, %d changed the result\n", found, differing);
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace stagecoach::testing
