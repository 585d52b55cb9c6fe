#include "tests/integration/race_check_fixture.h"

#include <cstdlib>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "testing/decorated_backend.h"
#include "testing/happens_before.h"

namespace stagecoach::testing {

namespace {

/// Of host memory: an update of a tiny model then takes longer than a pass.
constexpr double kSlowHostBytesPerS = 60e6;

}  // namespace

CheckedRun train_checked(const TinyRun& run, std::shared_ptr<Interceptor> outer) {
  return train_checked(run, make_cpu_backend(), std::move(outer));
}

CheckedRun train_checked(const TinyRun& run, std::unique_ptr<Backend> inner,
                         std::shared_ptr<Interceptor> outer) {
  auto checker = std::make_shared<HappensBefore>();
  std::unique_ptr<Backend> backend = make_race_checking_backend(std::move(inner), checker);
  if (outer) backend = std::make_unique<DecoratedBackend>(std::move(backend), std::move(outer));
  BackendRegistry registry;
  registry.add(std::move(backend));
  Result<TinyResult> result = train_tiny(run, registry);
  CheckedRun checked;
  checked.status = result.status();
  if (result.is_ok()) checked.weights_sha256 = result->weights_sha256;
  checked.races = checker->race_count();
  checked.accesses = checker->access_count();
  if (checked.races > 0) checked.first = format_race(checker->races()[0]);
  return checked;
}

void expect_clean(const CheckedRun& run, const std::string& what) {
  EXPECT_TRUE(run.status.is_ok()) << what << ": " << run.status.to_string();
  EXPECT_EQ(run.races, 0) << what << ": " << run.first;
  EXPECT_GT(run.accesses, 1000) << what;
}

Verdict Delays::before(const VerbCall& call) {
  Verdict verdict;
  if (!lane_.empty() && !call.stream.starts_with(lane_)) return verdict;
  uint32_t word = random_word({seed_, 0, 0, 0, 0}, count_.fetch_add(1));
  if (!lane_.empty() || word % 8 == 0) verdict.delay_ns = word / 8 % 200'000;
  return verdict;
}

Verdict StateIsNotPinned::before(const VerbCall& call) {
  Verdict verdict;
  std::string_view label = call.label.view();
  bool is_refused = label == "training state" || label == "gradient slots" ||
                    (refuses_rings_ && label == "staging ring");
  if (!is_refused) return verdict;
  if (call.verb == verbs::kAllocatePinned) verdict.kind = Verdict::Kind::kExhaust;
  if (call.verb == verbs::kRegisterHost) {
    verdict.kind = Verdict::Kind::kRefuse;
    verdict.status = resource_exhausted("the state is not pinned");
  }
  return verdict;
}

std::shared_ptr<Interceptor> draw_delays(uint64_t seed, TinyRun& run) {
  switch (seed % 4) {
    case 0:
      return std::make_shared<Delays>(seed, "parameter_up");
    case 1:
      return std::make_shared<Delays>(seed, "gradient_down");
    case 2:
      run.options.host_bytes_per_s = kSlowHostBytesPerS;
      return nullptr;
    default:
      return std::make_shared<Delays>(seed);
  }
}

int64_t count_from_environment(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoll(text);
}

}  // namespace stagecoach::testing
