#include "train/optimizer.h"

#include <numeric>
#include <vector>

#include "core/check.h"
#include "train/gradient_sources.h"

namespace stagecoach {

namespace {

/// The gradients of a block from element `offset` on.
std::vector<const void*> sources_from(const BlockMemory& memory, int64_t offset) {
  std::vector<const void*> sources;
  for (const void* source : memory.gradients) {
    const auto* bytes = static_cast<const std::byte*>(source);
    sources.push_back(bytes + offset * dtype_size_bytes(memory.gradient_dtype));
  }
  return sources;
}

/// A moment from element `offset` on; none where it is not kept.
MomentStore moment_at(const BlockMemory& memory, void* values, float* scales, int64_t offset) {
  if (values == nullptr) return {};
  MomentStore store;
  store.values =
      static_cast<std::byte*>(values) + offset * moment_value_bytes(memory.moment_format);
  if (scales != nullptr) store.scales = scales + moment_scale_index(memory.parts, offset);
  return store;
}

/// `count` elements of a block from `offset` on; `sources` must outlive it.
UpdatePiece piece_of(const BlockMemory& memory, std::span<const void* const> sources,
                     int64_t offset, int64_t count) {
  UpdatePiece piece;
  piece.element_count = count;
  piece.gradients = {memory.gradient_dtype, sources};
  if (memory.high != nullptr) {
    piece.high = memory.high + offset;
    piece.new_high = memory.new_high + offset;
    piece.remainder = memory.remainder + offset;
  } else {
    piece.parameters = memory.parameters + offset;
    piece.new_parameters = memory.new_parameters + offset;
  }
  if (memory.new_rounded != nullptr) {
    piece.published = memory.new_rounded + offset;
    piece.published_dtype = DType::kF16;
  }
  piece.moment_format = memory.moment_format;
  piece.first_moment = moment_at(memory, memory.first_moment, memory.first_scales, offset);
  piece.second_moment = moment_at(memory, memory.second_moment, memory.second_scales, offset);
  return piece;
}

}  // namespace

double gradient_sum_of_squares(HostState& state, int block, TaskPool& pool) {
  if (state.is_frozen(block)) return 0;
  BlockMemory memory = state.memory(block);
  return sum_of_squares({memory.gradient_dtype, memory.gradients}, state.element_count(block),
                        pool);
}

double gradient_sum_of_squares(HostState& state, TaskPool& pool) {
  // Few blocks have work for all threads, since a piece is added up by one.
  std::vector<double> sums(static_cast<size_t>(state.block_count()));
  pool.parallel_for(state.block_count(), [&](int64_t block) {
    sums[static_cast<size_t>(block)] =
        gradient_sum_of_squares(state, static_cast<int>(block), pool);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

int64_t update_parameters(HostState& state, int block, int64_t offset, int64_t count,
                          const UpdateNumbers& numbers, TaskPool& pool) {
  STAGECOACH_CHECK(offset >= 0 && count >= 0 && offset + count <= state.element_count(block));
  BlockMemory memory = state.memory(block);
  std::vector<const void*> sources = sources_from(memory, offset);
  return update_piece(piece_of(memory, sources, offset, count), numbers, pool);
}

ByteCount gradient_bytes(HostState& state, int block) {
  if (state.is_frozen(block)) return 0;
  BlockMemory memory = state.memory(block);
  return state.element_count(block) * static_cast<ByteCount>(memory.gradients.size()) *
         dtype_size_bytes(memory.gradient_dtype);
}

ByteCount update_bytes(HostState& state, int block, UpdateRule rule) {
  if (state.is_frozen(block)) return 0;
  BlockMemory memory = state.memory(block);
  int64_t count = state.element_count(block);
  double bytes = update_bytes_per_element(piece_of(memory, memory.gradients, 0, count), rule);
  return static_cast<ByteCount>(bytes * static_cast<double>(count));
}

}  // namespace stagecoach
