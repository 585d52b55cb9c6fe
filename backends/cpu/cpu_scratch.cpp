#include "backends/cpu/cpu_scratch.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

namespace stagecoach {

namespace {

constexpr ByteCount kAlignment = 64;
constexpr ByteCount kFirstChunk = 1 * kMiB;

struct AlignedDelete {
  void operator()(std::byte* data) const {
    ::operator delete (data, std::align_val_t{static_cast<size_t>(kAlignment)});
  }
};

struct Chunk {
  std::unique_ptr<std::byte, AlignedDelete> data;
  ByteCount size = 0;
  ByteCount used = 0;
};

Chunk make_chunk(ByteCount size) {
  void* data =
      ::operator new (static_cast<size_t>(size), std::align_val_t{static_cast<size_t>(kAlignment)});
  return Chunk{std::unique_ptr<std::byte, AlignedDelete>(static_cast<std::byte*>(data)), size, 0};
}

/// Chunks of one thread; those after `current` are empty.
struct Stack {
  std::vector<Chunk> chunks;
  size_t current = 0;
};

Stack& thread_stack() {
  static thread_local Stack stack;
  return stack;
}

}  // namespace

ScratchFrame::ScratchFrame() : chunk_(thread_stack().current), used_(0) {
  Stack& stack = thread_stack();
  if (!stack.chunks.empty()) used_ = stack.chunks[chunk_].used;
}

ScratchFrame::~ScratchFrame() {
  Stack& stack = thread_stack();
  if (stack.chunks.empty()) return;
  for (size_t i = chunk_ + 1; i < stack.chunks.size(); ++i) stack.chunks[i].used = 0;
  stack.current = chunk_;
  stack.chunks[chunk_].used = used_;
  bool outermost = chunk_ == 0 && used_ == 0;
  if (!outermost || stack.chunks.size() == 1) return;
  // One chunk as large as all of them serves the same calls next time without searching.
  ByteCount total = 0;
  for (const Chunk& chunk : stack.chunks) total += chunk.size;
  stack.chunks.clear();
  stack.chunks.push_back(make_chunk(total));
}

void* ScratchFrame::bytes(ByteCount size) {
  Stack& stack = thread_stack();
  ByteCount needed = align_up(std::max<ByteCount>(size, 1), kAlignment);
  if (stack.chunks.empty()) stack.chunks.push_back(make_chunk(std::max(needed, kFirstChunk)));
  while (stack.chunks[stack.current].size - stack.chunks[stack.current].used < needed) {
    if (stack.current + 1 == stack.chunks.size()) {
      ByteCount doubled = 2 * stack.chunks.back().size;
      stack.chunks.push_back(make_chunk(std::max(needed, doubled)));
    }
    ++stack.current;
  }
  Chunk& chunk = stack.chunks[stack.current];
  void* data = chunk.data.get() + chunk.used;
  chunk.used += needed;
  return data;
}

}  // namespace stagecoach
