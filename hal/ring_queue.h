#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/check.h"

namespace stagecoach {

/// A first-in, first-out queue that grows to its high-water mark and never allocates again.
/// Elements stay constructed in their slots; what an element owns is released when `pop_front`
/// resets its slot. Thread rule: one thread at a time.
template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  T& front() {
    STAGECOACH_CHECK(size_ > 0);
    return slots_[head_];
  }
  /// Element `index` places behind the front.
  T& operator[](size_t index) {
    STAGECOACH_CHECK(index < size_);
    return slots_[(head_ + index) & (slots_.size() - 1)];
  }

  void push_back(T value) {
    if (size_ == slots_.size()) grow();
    slots_[(head_ + size_) & (slots_.size() - 1)] = std::move(value);
    ++size_;
  }
  /// Takes the front element out.
  T pop_front() {
    T value = std::exchange(front(), T());
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  static constexpr size_t kFirstCapacity = 16;  // a power of two, as every later capacity

  void grow() {
    std::vector<T> larger(slots_.empty() ? kFirstCapacity : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_.swap(larger);
    head_ = 0;
  }

  std::vector<T> slots_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace stagecoach
