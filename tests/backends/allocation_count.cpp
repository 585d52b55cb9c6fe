#include "tests/backends/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

}  // namespace

// Replaces the global functions in this test program; the array forms call these. The form that
// does not throw is replaced too: a sanitizer's own would allocate what std::free cannot release.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}

void* operator new(std::size_t size) {
  void* data = operator new(size, std::nothrow);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void operator delete(void* data, const std::nothrow_t&) noexcept {
  std::free(data);
}

void operator delete(void* data) noexcept {
  std::free(data);
}

void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace stagecoach {

int64_t allocation_count() {
  return count.load(std::memory_order_relaxed);
}

bool settles_without_allocating(const std::function<void()>& round) {
  constexpr int kMostRounds = 640;
  for (int rounds = 40; rounds <= kMostRounds; rounds *= 2) {
    int64_t before = 0;
    for (int i = 0; i < rounds; ++i) {
      if (i == rounds / 4) before = allocation_count();
      round();
    }
    if (allocation_count() == before) return true;
  }
  return false;
}

}  // namespace stagecoach
