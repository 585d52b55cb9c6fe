#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/task_pool.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// Host threads that update parameters for as long as this object lives: AdamW on a split master
/// with bf16 gradients, 26 bytes of host memory a parameter, more than caches hold.
class UpdateLoad {
 public:
  explicit UpdateLoad(int threads) : thread_([this, threads] { work(threads); }) {}
  ~UpdateLoad() {
    stopping_ = true;
    thread_.join();
  }

  /// Bytes touched so far.
  int64_t bytes() const { return passes_ * kElements * kBytesAnElement; }

 private:
  static constexpr int64_t kElements = 16 << 20;
  static constexpr int64_t kBytesAnElement = 26;

  void work(int threads) {
    std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
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
    while (!stopping_) {
      update_piece(piece, numbers, *pool);
      ++passes_;
    }
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> passes_ = 0;
  std::thread thread_;  // last: uses the rest
};

}  // namespace stagecoach
