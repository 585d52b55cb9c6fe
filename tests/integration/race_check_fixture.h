#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "testing/interceptor.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {

/// What the checker saw of one run.
struct CheckedRun {
  Status status;
  std::string weights_sha256;
  int64_t races = 0;
  int64_t accesses = 0;
  std::string first;  ///< race
};

/// Trains on CPU devices under the happens-before checker; `outer`, when given, sees every verb
/// before the checker.
CheckedRun train_checked(const TinyRun& run, std::shared_ptr<Interceptor> outer = nullptr);
/// The same on the devices of `inner`.
CheckedRun train_checked(const TinyRun& run, std::unique_ptr<Backend> inner,
                         std::shared_ptr<Interceptor> outer);

void expect_clean(const CheckedRun& run, const std::string& what);

/// Delays random verbs of streams, so that what is not ordered is more likely to go wrong. With a
/// lane, only work on streams whose name begins with it is delayed, every piece of it.
class Delays final : public Interceptor {
 public:
  explicit Delays(uint64_t seed, std::string_view lane = {}) : seed_(seed), lane_(lane) {}
  Verdict before(const VerbCall& call) override;
  void after(const VerbCall& call, const Status& outcome) override {}

 private:
  uint64_t seed_;
  std::string lane_;
  std::atomic<uint64_t> count_ = 0;
};

/// A system that lets the state of a run not be pinned, nor the rings of lanes where it says so.
class StateIsNotPinned final : public Interceptor {
 public:
  explicit StateIsNotPinned(bool refuses_rings = false) : refuses_rings_(refuses_rings) {}
  Verdict before(const VerbCall& call) override;
  void after(const VerbCall&, const Status&) override {}

 private:
  bool refuses_rings_;
};

/// What seed `seed` delays: random verbs, uploads of parameters, downloads of gradients, or host
/// work, which `run` is made to do slowly.
std::shared_ptr<Interceptor> draw_delays(uint64_t seed, TinyRun& run);

/// The number in the environment's variable `name`; `fallback` where there is none.
int64_t count_from_environment(const char* name, int64_t fallback);

}  // namespace stagecoach::testing
