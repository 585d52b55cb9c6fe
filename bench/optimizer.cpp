// How near is the update to what host memory gives? README.md says how to read the rows.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "core/clock.h"
#include "core/flush_denormals.h"
#include "core/settings.h"
#include "train/update_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stagecoach {
namespace {

/// Far more than any cache holds: 14 bytes of state and gradients an element.
constexpr int64_t kElements = 48 << 20;
constexpr int64_t kTaskElements = 64 * 1024;

/// Memory of huge pages, zeroed by the threads that work on it later.
template <typename T>
class HostArray {
 public:
  HostArray(int64_t count, TaskPool& pool) : bytes_(static_cast<size_t>(count) * sizeof(T)) {
    constexpr size_t kHugePage = 2 << 20;
    bytes_ = (bytes_ + kHugePage - 1) / kHugePage * kHugePage;
    data_ = static_cast<T*>(std::aligned_alloc(kHugePage, bytes_));
    if (data_ == nullptr) std::abort();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    int64_t tasks = (count + kTaskElements - 1) / kTaskElements;
    pool.parallel_for(tasks, [&](int64_t task) {
      int64_t end = std::min(count, (task + 1) * kTaskElements);
      std::fill(data_ + task * kTaskElements, data_ + end, T{});
    });
  }
  ~HostArray() { std::free(data_); }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;
  T* get() const { return data_; }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

/// Nodes of memory of this machine; their bandwidths add up where threads and arrays are spread.
int numa_node_count() {
  int count = 0;
  std::error_code ignored;
  while (std::filesystem::exists("/sys/devices/system/node/node" + std::to_string(count), ignored))
    ++count;
  return std::max(count, 1);
}

/// STAGECOACH_THREADS, or as many as affinity and quota allow.
int all_threads() {
  int chosen = read_settings().value().threads;
  return chosen > 0 ? chosen : usable_thread_count();
}

/// One thread, or all there are.
TaskPool& pool_of(int threads) {
  static std::unique_ptr<TaskPool> one = TaskPool::create(1);
  static std::unique_ptr<TaskPool> all = TaskPool::create(all_threads());
  return threads == 1 ? *one : *all;
}

void for_tasks(TaskPool& pool, const std::function<void(int64_t, int64_t)>& body) {
  pool.parallel_for(kElements / kTaskElements,
                    [&](int64_t task) { body(task * kTaskElements, (task + 1) * kTaskElements); });
}

/// STREAM's triad past the caches: 24 bytes an element.
void triad(double* target, const double* a, const double* b, TaskPool& pool) {
  pool.parallel_for(kElements / 2 / kTaskElements, [&](int64_t task) {
    int64_t begin = task * kTaskElements, end = begin + kTaskElements;
#if defined(__x86_64__)
    __m128d factor = _mm_set1_pd(3.0);
    for (int64_t i = begin; i < end; i += 2) {
      __m128d product = _mm_mul_pd(factor, _mm_load_pd(b + i));
      _mm_stream_pd(target + i, _mm_add_pd(_mm_load_pd(a + i), product));
    }
    _mm_sfence();
#else
    for (int64_t i = begin; i < end; ++i) target[i] = a[i] + 3.0 * b[i];
#endif
  });
}

/// What every row works on.
struct Memory {
  TaskPool& pool = pool_of(0);
  HostArray<double> target{kElements / 2, pool}, a{kElements / 2, pool}, b{kElements / 2, pool};
  HostArray<float> parameters{kElements, pool}, first{kElements, pool}, second{kElements, pool};
  HostArray<uint16_t> high{kElements, pool};
  HostArray<int16_t> remainder{kElements, pool};
  HostArray<float> wide_gradient{kElements, pool};
  HostArray<uint16_t> gradients[2] = {{kElements, pool}, {kElements, pool}};
  HostArray<float> scales[2] = {{kElements / kMomentScaleElements, pool},
                                {kElements / kMomentScaleElements, pool}};

  Memory() {
    for_tasks(pool, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float value = 1e-3f * static_cast<float>(i % 1000 + 1);
        parameters.get()[i] = wide_gradient.get()[i] = value;
        gradients[0].get()[i] = gradients[1].get()[i] = to_bfloat16(value).bits;
        high.get()[i] = to_bfloat16(value).bits;
      }
    });
  }
  void clear_moments() {
    for_tasks(pool, [this](int64_t begin, int64_t end) {
      std::fill(first.get() + begin, first.get() + end, 0.0f);
      std::fill(second.get() + begin, second.get() + end, 0.0f);
    });
  }
};

Memory& memory() {
  static Memory made;
  return made;
}

/// The five arrays of an update with a split master, read and written, and nothing else: 26 bytes.
void touch(Memory& m, TaskPool& pool) {
  for_tasks(pool, [&m](int64_t begin, int64_t end) {
    const uint16_t* __restrict gradient = m.gradients[0].get();
    uint16_t* __restrict high = m.high.get();
    int16_t* __restrict remainder = m.remainder.get();
    auto* __restrict first = reinterpret_cast<uint32_t*>(m.first.get());
    auto* __restrict second = reinterpret_cast<uint32_t*>(m.second.get());
    for (int64_t block = begin; block < end; block += 16) {
      // As far ahead as the update does.
      __builtin_prefetch(gradient + block + 512);
      __builtin_prefetch(high + block + 512);
      __builtin_prefetch(remainder + block + 512);
      __builtin_prefetch(first + block + 512);
      __builtin_prefetch(second + block + 512);
      for (int64_t i = block; i < block + 16; ++i) {
        uint16_t sign = gradient[i] & 0x8000u;  // all are positive: nothing changes
        high[i] ^= sign;
        remainder[i] = static_cast<int16_t>(remainder[i] ^ sign);
        first[i] ^= sign;
        second[i] ^= sign;
      }
    }
  });
}

/// Reads 4 bytes an element and nothing else: what a sum can reach.
void read_only(const Memory& m, TaskPool& pool) {
  for_tasks(pool, [&m](int64_t begin, int64_t end) {
    using Words = uint32_t __attribute__((vector_size(16)));
    constexpr int64_t kLine = 64 / sizeof(Words), kAhead = 2048 / sizeof(Words);
    const auto* words = reinterpret_cast<const Words*>(m.wide_gradient.get() + begin);
    const auto* last = reinterpret_cast<const Words*>(m.wide_gradient.get() + end);
    Words first = {}, second = {};
    for (; words != last; words += kLine) {
      __builtin_prefetch(words + kAhead);
      first |= words[0] | words[1];
      second |= words[2] | words[3];
    }
    first |= second;
    benchmark::DoNotOptimize(first);
  });
}

/// AdamW on fp32 parameters and gradients as a plain loop: 28 bytes.
void plain_update(Memory& m, TaskPool& pool) {
  for_tasks(pool, [&m](int64_t begin, int64_t end) {
    FlushDenormals flush;
    float* __restrict parameters = m.parameters.get();
    float* __restrict first = m.first.get();
    float* __restrict second = m.second.get();
    const float* __restrict gradient = m.wide_gradient.get();
    for (int64_t i = begin; i < end; ++i) {
      first[i] = 0.9f * first[i] + 0.1f * gradient[i];
      second[i] = 0.95f * second[i] + 0.05f * gradient[i] * gradient[i];
      parameters[i] =
          parameters[i] * 0.999f - 1e-6f * first[i] / (std::sqrt(second[i]) * 1.1f + 1e-8f);
    }
  });
}

enum class MasterKind { kSplit, kFloat };

struct Row {
  UpdateRule rule = UpdateRule::kAdamW;
  MasterKind master = MasterKind::kSplit;
  MomentFormat moments = MomentFormat::kFloat32;
  int sources = 1;
  bool wide_gradient = false;
};

/// What bounds a pass: reading and writing in place, or reading alone.
enum class Roof { kTouch, kRead };

/// Runs the triad, `touch`, `read_only` and `pass` by turns. Rates are of the
/// median turn; a ratio is the median of the turns' ratios, since a shared machine is not equally
/// fast all the time. The roofline is what the pass would make at the rate of its roof.
void measure(benchmark::State& state, double bytes, Roof roof,
             const std::function<void(TaskPool&)>& pass) {
  Memory& m = memory();
  TaskPool& pool = pool_of(static_cast<int>(state.range(0)));
  std::vector<double> rates, triad_rates, triad_ratios, touch_rates, touch_ratios, read_rates,
      read_ratios;
  auto rate_of = [](double moved, const auto& function) {
    int64_t start_ns = RealClock::instance().now_ns();
    function();
    return moved / static_cast<double>(RealClock::instance().now_ns() - start_ns);
  };
  pass(pool);
  for (auto turn : state) {
    (void)turn;
    triad_rates.push_back(rate_of(24.0 * (kElements / 2),
                                  [&] { triad(m.target.get(), m.a.get(), m.b.get(), pool); }));
    touch_rates.push_back(rate_of(26.0 * kElements, [&] { touch(m, pool); }));
    read_rates.push_back(rate_of(4.0 * kElements, [&] { read_only(m, pool); }));
    rates.push_back(rate_of(bytes * kElements, [&] { pass(pool); }));
    state.SetIterationTime(bytes * kElements / rates.back() * 1e-9);
    triad_ratios.push_back(rates.back() / triad_rates.back());
    touch_ratios.push_back(rates.back() / touch_rates.back());
    read_ratios.push_back(rates.back() / read_rates.back());
  }
  auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  state.counters["GB/s"] = median(rates);
  state.counters["Gparameter/s"] = median(rates) / bytes;
  state.counters["of_triad"] = median(triad_ratios);
  state.counters["of_touch"] = median(touch_ratios);
  state.counters["of_read"] = median(read_ratios);
  state.counters["triad_GB/s"] = median(triad_rates);
  state.counters["touch_GB/s"] = median(touch_rates);
  state.counters["read_GB/s"] = median(read_rates);
  state.counters["roofline_Gparameter/s"] =
      median(roof == Roof::kRead ? read_rates : touch_rates) / bytes;
}

void update_row(benchmark::State& state, const Row& row) {
  Memory& m = memory();
  m.clear_moments();
  const void* narrow[2] = {m.gradients[0].get(), m.gradients[1].get()};
  const void* wide[1] = {m.wide_gradient.get()};
  UpdatePiece piece;
  piece.element_count = kElements;
  if (row.wide_gradient) {
    piece.gradients = {DType::kF32, wide};
  } else {
    piece.gradients = {DType::kBF16, {narrow, static_cast<size_t>(row.sources)}};
  }
  if (row.master == MasterKind::kFloat) {
    piece.parameters = piece.new_parameters = m.parameters.get();
  } else {
    piece.high = piece.new_high = reinterpret_cast<BFloat16*>(m.high.get());
    piece.remainder = m.remainder.get();
  }
  piece.moment_format = row.moments;
  piece.first_moment = {m.first.get(), m.scales[0].get()};
  piece.second_moment = {m.second.get(), m.scales[1].get()};
  UpdateNumbers numbers;
  numbers.rule = row.rule;
  numbers.learning_rate = 1e-6f;
  measure(state, update_bytes_per_element(piece, row.rule), Roof::kTouch, [&](TaskPool& pool) {
    if (update_piece(piece, numbers, pool) != 0) std::abort();
  });
}

/// Field report 70: moments of 1e-40 against moments of 1e-10, in turns.
void subnormal_row(benchmark::State& state) {
  Memory& m = memory();
  TaskPool& pool = pool_of(static_cast<int>(state.range(0)));
  const void* source = m.gradients[0].get();
  UpdatePiece piece;
  piece.element_count = kElements;
  piece.gradients = {DType::kBF16, {&source, 1}};
  piece.high = piece.new_high = reinterpret_cast<BFloat16*>(m.high.get());
  piece.remainder = m.remainder.get();
  piece.first_moment = {m.first.get(), nullptr};
  piece.second_moment = {m.second.get(), nullptr};
  UpdateNumbers numbers;
  numbers.learning_rate = 1e-6f;
  numbers.gradient_scale = 1e-30f;  // its square is no number: moments stay as small as they are
  auto pass_ns = [&](float moment) {
    for_tasks(pool, [&](int64_t begin, int64_t end) {
      std::fill(m.first.get() + begin, m.first.get() + end, moment);
      std::fill(m.second.get() + begin, m.second.get() + end, moment);
    });
    int64_t start_ns = RealClock::instance().now_ns();
    if (update_piece(piece, numbers, pool) != 0) std::abort();
    return static_cast<double>(RealClock::instance().now_ns() - start_ns);
  };
  std::vector<double> ratios;
  for (auto turn : state) {
    (void)turn;
    double small_ns = pass_ns(1e-40f);
    ratios.push_back(small_ns / pass_ns(1e-10f));
    state.SetIterationTime(small_ns * 1e-9);
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["time_of_normal"] = ratios[ratios.size() / 2];
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->ArgName("all_threads")
      ->Arg(1)
      ->Arg(0)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void add_rows() {
  add("adamw/split", [](benchmark::State& state) { update_row(state, {}); });
  add("adamw/plain_loop_28_bytes", [](benchmark::State& state) {
    memory().clear_moments();
    measure(state, 28, Roof::kTouch, [](TaskPool& pool) { plain_update(memory(), pool); });
  });
  auto row = [](const std::string& name, const Row& what) {
    add(name, [what](benchmark::State& state) { update_row(state, what); });
  };
  constexpr UpdateRule kAdamW = UpdateRule::kAdamW;
  row("adamw/float/fp32_gradient", {kAdamW, MasterKind::kFloat, MomentFormat::kFloat32, 1, true});
  row("adamw/split/two_gradients", {kAdamW, MasterKind::kSplit, MomentFormat::kFloat32, 2});
  row("adamw/split/bf16_moments", {kAdamW, MasterKind::kSplit, MomentFormat::kBFloat16});
  row("adamw/split/8_bit_moments", {kAdamW, MasterKind::kSplit, MomentFormat::kBlockwise8});
  row("adam/split", {UpdateRule::kAdam});
  row("sgd/split", {UpdateRule::kSgd});
  row("lion/split", {UpdateRule::kLion});
  add("adamw/split/subnormal_moments", subnormal_row);
  add("norm/bf16", [](benchmark::State& state) {
    const void* source = memory().gradients[0].get();
    measure(state, 2, Roof::kRead, [source](TaskPool& pool) {
      benchmark::DoNotOptimize(sum_of_squares({DType::kBF16, {&source, 1}}, kElements, pool));
    });
  });
  add("norm/fp32", [](benchmark::State& state) {
    const void* source = memory().wide_gradient.get();
    measure(state, 4, Roof::kRead, [source](TaskPool& pool) {
      benchmark::DoNotOptimize(sum_of_squares({DType::kF32, {&source, 1}}, kElements, pool));
    });
  });
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  benchmark::AddCustomContext("simd", std::string(stagecoach::simd_target_name()));
  benchmark::AddCustomContext("threads", std::to_string(stagecoach::all_threads()));
  benchmark::AddCustomContext("numa_nodes", std::to_string(stagecoach::numa_node_count()));
  stagecoach::add_rows();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
