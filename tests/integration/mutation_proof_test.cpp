// Each ordering left out in turn: where it is independent the result goes wrong, where others imply
// it nothing changes. The table is that of docs/consistency.md.
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <tuple>

#include "hal/host_worker.h"
#include "tests/integration/race_check_fixture.h"
#include "tests/integration/untied_network.h"

namespace stagecoach::testing {
namespace {

/// Who reads blocks.
enum class Readers { kPlain, kTied, kBound };

/// A cell of the table.
struct Cell {
  Ordering ordering;
  std::string update;
  int rounds;
  Readers readers;
};

/// Whether leaving the ordering out can go wrong; the reasons are in docs/consistency.md.
bool is_independent(const Cell& cell) {
  if (cell.ordering == Ordering::kReadBeforeOverwrite) return false;
  // A streamed pass keeps slots of two rounds: with more, rounds wait for each other.
  if (cell.ordering == Ordering::kSlotBeforeLanding && cell.rounds > 2 &&
      cell.readers != Readers::kBound) {
    return true;
  }
  if (cell.update == "barrier") return false;
  bool is_async = cell.update == "async";
  switch (cell.ordering) {
    case Ordering::kReadBeforeOverwrite:
      return false;
    case Ordering::kVersionBeforeRead:
      // Bound devices close the gradients of their blocks, for which P5 wants the update that makes
      // the version, before they begin the next pass.
      return !(is_async && cell.rounds == 1 && cell.readers == Readers::kBound);
    case Ordering::kGradientsBeforeUpdate:
      return true;
    case Ordering::kSlotBeforeLanding:
      return is_async && cell.rounds > 1;
    case Ordering::kUpdateBeforeStorage:
      return is_async;
    case Ordering::kCopyBeforeOverwrite:
      return false;  // nobody copies here; SaveCopy.* look at it
  }
  return false;
}

/// With `async` and one round, P5 holds passes up until few updates are left: of `table`, where
/// blocks have one site each, and of positions, where the embedding is tied.
bool is_narrow(const Cell& cell) {
  return cell.ordering == Ordering::kVersionBeforeRead && cell.update == "async" &&
         cell.rounds == 1;
}

TinyRun run_of(const Cell& cell) {
  TinyRun run;
  run.devices = "cpu:2";
  run.iterations = 4;
  run.options.times_layers = false;
  run.options.clip_norm = 0;  // a gate would imply much of what is to be left out
  run.options.update = cell.update;
  run.options.rounds = cell.rounds;
  if (cell.readers == Readers::kPlain) run.make_network = make_untied_chain;
  if (is_narrow(cell)) {
    run.model.n_positions = 512;
    run.iterations = 8;  // each of them may go wrong, and one that does is enough
  }
  if (cell.readers == Readers::kBound) run.options.schedule = "1f1b";
  return run;
}

/// Makes what the ordering prevents likely, or certain: work that must have ended takes long.
std::shared_ptr<Interceptor> delay_for(const Cell& cell, uint64_t seed, TinyRun& run) {
  if (!is_independent(cell)) return draw_delays(seed, run);
  if (cell.ordering == Ordering::kGradientsBeforeUpdate) {
    run.devices = "cpu:2[d2h=3M]";
  } else {
    run.options.host_bytes_per_s = cell.readers == Readers::kPlain ? 6e6 : 30e6;
    // Those take slower work, so that a busy machine does not close the gap.
    if (cell.update == "async") {
      bool is_slot = cell.ordering == Ordering::kSlotBeforeLanding;
      run.options.host_bytes_per_s /= is_slot ? (cell.readers == Readers::kPlain ? 4 : 10) : 4;
    }
  }
  return nullptr;
}

/// The number of runs in which leaving it out was noticed.
int caught_of(const Cell& cell, int64_t runs, std::string& example) {
  const std::string expected = train_checked(run_of(cell)).weights_sha256;
  EXPECT_FALSE(expected.empty());
  int caught = 0;
  for (int64_t seed = 1; seed <= runs; ++seed) {
    TinyRun run = run_of(cell);
    auto delays = delay_for(cell, static_cast<uint64_t>(seed), run);
    run.options.left_out = {cell.ordering};
    CheckedRun mutated = train_checked(run, delays);
    EXPECT_NE(mutated.status.code(), StatusCode::kInvalidArgument) << mutated.status.to_string();
    bool differs = !mutated.status.is_ok() || mutated.weights_sha256 != expected;
    if (differs || mutated.races > 0) ++caught;
    if (!mutated.status.is_ok()) {
      example = mutated.status.to_string();
    } else if (mutated.races > 0) {
      example = mutated.first;
    } else if (differs) {
      example = "other weights";
    }
  }
  return caught;
}

class SlowMutationProof
    : public ::testing::TestWithParam<std::tuple<int, const char*, int, Readers>> {};

std::string cell_name(const ::testing::TestParamInfo<SlowMutationProof::ParamType>& info) {
  constexpr const char* kReaders[] = {"plain", "tied", "bound"};
  auto [ordering, update, rounds, readers] = info.param;
  return fmt::format("P{}_{}_rounds{}_{}", ordering + 1, update, rounds,
                     kReaders[static_cast<int>(readers)]);
}

INSTANTIATE_TEST_SUITE_P(
    Cells, SlowMutationProof,
    ::testing::Combine(::testing::Range(0, static_cast<int>(Ordering::kCopyBeforeOverwrite)),
                       ::testing::Values("barrier", "overlap", "async"), ::testing::Values(1, 2),
                       ::testing::Values(Readers::kPlain, Readers::kTied, Readers::kBound)),
    cell_name);

INSTANTIATE_TEST_SUITE_P(
    CellsOfFourRounds, SlowMutationProof,
    ::testing::Combine(::testing::Values(static_cast<int>(Ordering::kSlotBeforeLanding)),
                       ::testing::Values("barrier", "overlap", "async"), ::testing::Values(4),
                       ::testing::Values(Readers::kPlain, Readers::kTied, Readers::kBound)),
    cell_name);

// tests/proof/mutation_proof.sh asks for 200 runs of each cell.
TEST_P(SlowMutationProof, IsNoticedWhereItIsIndependentAndOnlyThere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it races on purpose: ThreadSanitizer would end it";
#endif
  auto [ordering, update, rounds, readers] = GetParam();
  Cell cell{static_cast<Ordering>(ordering), update, rounds, readers};
  int64_t asked = count_from_environment("STAGECOACH_PROOF_RUNS", 0);
  int64_t runs = asked > 0 ? asked : 2;
  std::string example;
  int caught = caught_of(cell, runs, example);
  bool independent = is_independent(cell);
  std::printf("%s: noticed in %d of %lld; %s\n", independent ? "independent" : "implied", caught,
              static_cast<long long>(runs), example.c_str());
  if (!independent) {
    EXPECT_EQ(caught, 0) << example;
  } else {
    // Unless it is asked for, not in each: on a busy machine what is delayed may come in time.
    EXPECT_GE(caught, asked > 0 ? asked : 1);
  }
}

/// Reads like a save whose disk is slow: nothing before `go` is set, or a time has passed.
class WaitingReader final : public BlockReader {
 public:
  WaitingReader(const Trainer& trainer, std::chrono::milliseconds limit)
      : trainer_(trainer),
        limit_(limit),
        seen_(trainer.network().blocks.size()),
        pool_(TaskPool::create(1)),
        worker_("reader", *pool_) {}
  HostQueue& queue() override { return worker_; }
  int piece_count(int) const override { return 1; }
  void read(int block, int, bool) override {
    auto end = std::chrono::steady_clock::now() + limit_;
    while (!go && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    go = true;
    std::vector<float>& values = seen_[static_cast<size_t>(block)];
    values.resize(static_cast<size_t>(trainer_.host_state().element_count(block)));
    trainer_.host_state().read_parameters(block, 0, values);
  }
  void finish() override {}
  std::vector<std::vector<float>> seen() {
    EXPECT_TRUE(wait_until_reached(worker_.last_submitted()).is_ok());
    return seen_;
  }

  std::atomic<bool> go = false;

 private:
  const Trainer& trainer_;
  std::chrono::milliseconds limit_;
  std::vector<std::vector<float>> seen_;
  std::unique_ptr<TaskPool> pool_;
  HostWorker worker_;
};

/// The weights after two steps, read while two more are made.
std::vector<std::vector<float>> read_beside(const TinyRun& run, std::chrono::milliseconds limit) {
  auto devices = built_in_backends().open_devices(run.devices).value();
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  auto trainer =
      Trainer::create(run.make_network(run.model, run.dtype).value(), pointers, run.options)
          .value();
  trainer->initialize_parameters();
  TinyBatches batches(run);
  auto iterate = [&] {
    batches.next();
    EXPECT_TRUE(trainer->forward_backward(batches.inputs(), batches.labels()).is_ok());
    EXPECT_TRUE(trainer->step(3e-3).is_ok());
  };
  for (int i = 0; i < 2; ++i) iterate();
  auto reader = std::make_shared<WaitingReader>(*trainer, limit);
  EXPECT_TRUE(trainer->begin_reading(reader).is_ok());
  for (int i = 0; i < 2; ++i) iterate();
  // Without P1 all updates end here; with it they wait for the reader.
  EXPECT_TRUE(trainer->synchronize().is_ok());
  reader->go = true;
  EXPECT_TRUE(trainer->finish_reading().is_ok());
  return reader->seen();
}

class SlowMutationProofOfSaving
    : public ::testing::TestWithParam<std::tuple<const char*, int, Readers>> {};
INSTANTIATE_TEST_SUITE_P(
    Cells, SlowMutationProofOfSaving,
    ::testing::Combine(::testing::Values("barrier", "overlap", "async"), ::testing::Values(1, 2),
                       ::testing::Values(Readers::kPlain, Readers::kTied, Readers::kBound)));

// Who saves reads what updates overwrite: of all readers the one that P1 alone holds.
TEST_P(SlowMutationProofOfSaving, ReadBeforeOverwriteIsIndependent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it races on purpose: ThreadSanitizer would end it";
#endif
  auto [update, rounds, readers] = GetParam();
  TinyRun run = run_of({Ordering::kReadBeforeOverwrite, update, rounds, readers});
  auto expected = read_beside(run, std::chrono::milliseconds(20));
  run.options.left_out = {Ordering::kReadBeforeOverwrite};
  int64_t runs = std::max<int64_t>(2, count_from_environment("STAGECOACH_PROOF_RUNS", 0));
  int64_t caught = 0;
  for (int64_t i = 0; i < runs; ++i) {
    caught += read_beside(run, std::chrono::seconds(20)) != expected ? 1 : 0;
  }
  std::printf("independent: noticed in %lld of %lld\n", static_cast<long long>(caught),
              static_cast<long long>(runs));
  EXPECT_EQ(caught, runs);
}

}  // namespace
}  // namespace stagecoach::testing
