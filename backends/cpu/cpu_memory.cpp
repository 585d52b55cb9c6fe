#include "backends/cpu/cpu_memory.h"

#include <algorithm>
#include <cstring>

namespace stagecoach {

namespace {

constexpr size_t kAlignmentBytes = 64;  // a cache line, and the widest vector register
constexpr int kPoisonByte = 0xff;       // all ones: NaN as fp16, bf16, fp32 and fp64

}  // namespace

void poison_memory(void* data, ByteCount size) {
  std::memset(data, kPoisonByte, static_cast<size_t>(size));
  // The compiler would drop a store to memory that is freed next.
  asm volatile("" : : "r"(data) : "memory");
}

std::byte* allocate_aligned(ByteCount size) {
  void* data = nullptr;
  // Not aligned_alloc, which rounds sizes up: AddressSanitizer then sees an overrun by one byte.
  if (posix_memalign(&data, kAlignmentBytes, static_cast<size_t>(size)) != 0) return nullptr;
  poison_memory(data, size);
  return static_cast<std::byte*>(data);
}

bool CpuMemory::reserve(ByteCount size) {
  std::lock_guard lock(mutex_);
  if (size > limit_bytes_ - used_bytes_) return false;
  used_bytes_ += size;
  return true;
}

void CpuMemory::unreserve(ByteCount size) {
  std::lock_guard lock(mutex_);
  used_bytes_ -= size;
}

std::byte* CpuMemory::allocate(ByteCount size) {
  if (!reserve(size)) return nullptr;
  std::byte* data = allocate_host_(size);
  if (data == nullptr) {
    unreserve(size);
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return data;
}

void CpuMemory::release(std::byte* data, ByteCount size) {
  poison_memory(data, size);
  deallocate_(data);
  unreserve(size);
}

MemoryUsage CpuMemory::usage() const {
  std::lock_guard lock(mutex_);
  return MemoryUsage{limit_bytes_, used_bytes_, peak_bytes_};
}

}  // namespace stagecoach
