// What does it cost to get memory and give it back, warm? README.md says how to read the rows.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "core/clock.h"
#include "hal/device.h"
#include "memory/arena.h"
#include "memory/range_pool.h"
#include "scheduler/staging_ring.h"

namespace stagecoach {
namespace {

constexpr int kTurns = 15;
constexpr int kPieces = 256;  // of a turn: as many as a pass carves from its arena
constexpr int kRounds = 20;   // that one reading of the clock covers
constexpr ByteCount kLargest = 256 * kKiB;

/// Sizes as boundaries, parameters and workspaces of a small model have them.
std::vector<ByteCount> piece_sizes() {
  std::mt19937_64 generator(7);
  std::uniform_int_distribution<ByteCount> size(1, kLargest / 256);
  std::vector<ByteCount> sizes;
  for (int piece = 0; piece < kPieces; ++piece) sizes.push_back(256 * size(generator));
  return sizes;
}

std::unique_ptr<Device> open_device() {
  auto devices = built_in_backends().open_devices("cpu:1");
  STAGECOACH_CHECK(devices.is_ok());
  return std::move(devices->front());
}

template <typename Work>
double time_ns(Work work) {
  int64_t start_ns = RealClock::instance().now_ns();
  for (int round = 0; round < kRounds; ++round) work();
  return static_cast<double>(RealClock::instance().now_ns() - start_ns) / (kRounds * kPieces);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
  return values[kTurns / 2];
}

/// The same pieces by malloc and free, without touching them.
void use_malloc(const std::vector<ByteCount>& sizes) {
  static std::vector<void*> pieces(kPieces);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    pieces[piece] = std::malloc(static_cast<size_t>(sizes[piece]));
    benchmark::DoNotOptimize(pieces[piece]);
  }
  for (void* piece : pieces) std::free(piece);
}

/// Ours and malloc by turns: the time is ours for one piece, got and given back.
template <typename Work>
void compare(benchmark::State& state, const std::vector<ByteCount>& sizes, Work work) {
  std::vector<double> ours_ns, ratios;
  work();
  use_malloc(sizes);
  for (auto _ : state) {
    ours_ns.clear();
    ratios.clear();
    for (int turn = 0; turn < kTurns; ++turn) {
      ours_ns.push_back(time_ns(work));
      ratios.push_back(ours_ns.back() / time_ns([&] { use_malloc(sizes); }));
    }
    state.SetIterationTime(median(ours_ns) * 1e-9);
  }
  state.counters["of_malloc"] = median(ratios);
}

/// Device memory, carved anew for every pass.
void arena(benchmark::State& state) {
  std::unique_ptr<Device> device = open_device();
  std::vector<ByteCount> sizes = piece_sizes();
  ByteCount bytes = 0;
  for (ByteCount size : sizes) bytes += Arena::padded(size);
  Result<Arena> memory = Arena::create_on_device(*device, bytes, "bench");
  STAGECOACH_CHECK(memory.is_ok());
  compare(state, sizes, [&] {
    memory->reset();
    for (ByteCount size : sizes) benchmark::DoNotOptimize(memory->take(size));
  });
}

/// The device's own allocations and frees: what the arena saves in every pass.
void device_allocations(benchmark::State& state) {
  std::unique_ptr<Device> device = open_device();
  std::vector<ByteCount> sizes = piece_sizes();
  std::vector<BufferHandle> pieces(kPieces);
  compare(state, sizes, [&] {
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      pieces[piece] = device->allocate(sizes[piece], "bench").buffer;
    }
    for (BufferHandle& piece : pieces) piece.reset();
  });
}

/// Places of pinned memory for copies that a checkpoint is written from, `held` of them taken.
void range_pool(benchmark::State& state) {
  std::vector<ByteCount> sizes = piece_sizes();
  auto held = static_cast<size_t>(state.range(0));
  RangePool pool(static_cast<ByteCount>(held + 1) * 2 * kLargest);
  std::vector<ByteCount> places;
  for (size_t piece = 0; piece < held; ++piece) places.push_back(*pool.reserve(sizes[piece]));
  size_t oldest = 0;
  compare(state, sizes, [&] {
    // The oldest goes and another comes, as blocks are written.
    for (size_t piece = 0; piece < sizes.size(); ++piece) {
      pool.release(places[oldest]);
      places[oldest] = *pool.reserve(sizes[piece]);
      oldest = (oldest + 1) % held;
    }
  });
}

/// The next place of pinned memory that pageable state travels through.
void staging_ring(benchmark::State& state) {
  std::unique_ptr<Device> device = open_device();
  std::vector<ByteCount> sizes = piece_sizes();
  auto ring = StagingRing::create(*device, 4, kLargest);
  STAGECOACH_CHECK(ring.is_ok());
  compare(state, sizes, [&] {
    for (ByteCount size : sizes) benchmark::DoNotOptimize((*ring)->next(size));
  });
}

BENCHMARK(arena)->UseManualTime()->Iterations(5);
BENCHMARK(device_allocations)->UseManualTime()->Iterations(1);
BENCHMARK(range_pool)->ArgName("held")->Arg(2)->Arg(16)->Arg(128)->UseManualTime()->Iterations(5);
BENCHMARK(staging_ring)->UseManualTime()->Iterations(5);

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
