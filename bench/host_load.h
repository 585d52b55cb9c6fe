#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "core/task_pool.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// What keeps the host's threads busy.
enum class LoadKind : uint8_t {
  kNone,
  kArithmetic,  ///< cores and nothing else
  kUpdates      ///< AdamW on a split master with bf16 gradients, more than caches hold
};

/// How readily its threads give their cores to others.
enum class Courtesy : uint8_t {
  kNone,
  kNice,  ///< a tenth of the weight of others
  kIdle   ///< SCHED_IDLE: whoever else wants a core has it at once
};

/// Threads that are busy for as long as this object lives.
class HostLoad {
 public:
  HostLoad(LoadKind kind, int threads, Courtesy courtesy) {
    if (kind == LoadKind::kNone) threads = 0;
    for (int index = 0; index < threads; ++index) {
      threads_.emplace_back([this, kind, courtesy] {
        be_courteous(courtesy);
        kind == LoadKind::kUpdates ? update() : compute();
      });
    }
  }
  ~HostLoad() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  /// Bytes of host memory touched so far.
  int64_t bytes() const { return passes_ * kElements * kBytesAnElement; }
  /// Whether all threads have their memory and work.
  bool is_at_work() const { return started_ == static_cast<int>(threads_.size()); }

 private:
  static constexpr int64_t kElements = 1 << 20;  ///< a thread
  static constexpr int64_t kBytesAnElement = 26;

  /// Of the calling thread. Giving way needs no privilege, so neither call fails.
  static void be_courteous(Courtesy courtesy) {
    constexpr int kNiceness = 10;
    sched_param none{};
    if (courtesy == Courtesy::kNice) setpriority(PRIO_PROCESS, 0, kNiceness);
    if (courtesy == Courtesy::kIdle) sched_setscheduler(0, SCHED_IDLE, &none);
  }

  void compute() {
    ++started_;
    volatile double sum = 1;
    while (!stopping_) {
      for (int i = 0; i < 1000; ++i) sum = sum * 1.0000001 + 1e-9;
    }
  }

  void update() {
    std::unique_ptr<TaskPool> pool = TaskPool::create(1);
    std::vector<BFloat16> gradients(kElements, to_bfloat16(1e-3f)), high(kElements);
    std::vector<int16_t> remainder(kElements, 0);
    std::vector<float> first(kElements, 0), second(kElements, 0);
    const void* source = gradients.data();
    UpdatePiece piece;
    piece.element_count = kElements;
    piece.gradients = {DType::kBF16, {&source, 1}};
    piece.high = piece.new_high = high.data();
    piece.remainder = remainder.data();
    piece.first_moment = {first.data(), nullptr};
    piece.second_moment = {second.data(), nullptr};
    UpdateNumbers numbers;
    numbers.learning_rate = 1e-6f;
    ++started_;
    while (!stopping_) {
      update_piece(piece, numbers, *pool);
      ++passes_;
    }
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> passes_ = 0;
  std::atomic<int> started_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace stagecoach
