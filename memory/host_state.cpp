#include "memory/host_state.h"

#include <algorithm>
#include <cstring>

#include "hal/host_access.h"

namespace stagecoach {

namespace {

/// Fixed tiles, so that the work is cut the same way for any number of threads.
constexpr int64_t kTileElements = 64 * 1024;

template <typename Function>
void for_each_tile(int64_t count, TaskPool& pool, Function function) {
  int64_t tiles = (count + kTileElements - 1) / kTileElements;
  pool.parallel_for(tiles, [&](int64_t tile) {
    int64_t begin = tile * kTileElements;
    function(begin, std::min(count, begin + kTileElements));
  });
}

template <typename Storage>
void round_into(const float* source, Storage* target, int64_t count, TaskPool& pool) {
  for_each_tile(count, pool, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] = from_float<Storage>(source[i]);
  });
}

template <typename Storage>
void add_into(const Storage* source, float* sum, int64_t count, bool overwrite, TaskPool& pool) {
  for_each_tile(count, pool, [=](int64_t begin, int64_t end) {
    if (overwrite) {
      for (int64_t i = begin; i < end; ++i) sum[i] = to_float(source[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) sum[i] += to_float(source[i]);
    }
  });
}

void add_slot(const BufferView& slot, DType dtype, float* sum, int64_t count, bool overwrite,
              TaskPool& pool) {
  const std::byte* data = slot.host_data();
  switch (dtype) {
    case DType::kBF16:
      return add_into(reinterpret_cast<const BFloat16*>(data), sum, count, overwrite, pool);
    case DType::kF16:
      return add_into(reinterpret_cast<const Float16*>(data), sum, count, overwrite, pool);
    default:
      return add_into(reinterpret_cast<const float*>(data), sum, count, overwrite, pool);
  }
}

}  // namespace

Result<std::unique_ptr<HostState>> HostState::create(Device& pinning_device,
                                                     std::vector<BlockLayout> layouts,
                                                     DType compute_dtype, int slots_per_site) {
  std::unique_ptr<HostState> state(new HostState);
  state->pinning_device_ = &pinning_device;
  state->compute_dtype_ = compute_dtype;
  state->slots_per_site_ = slots_per_site;
  bool separate_copy = compute_dtype != DType::kF32;
  ByteCount state_bytes = 0, slot_bytes = 0;
  for (const BlockLayout& layout : layouts) {
    ByteCount master = Arena::padded(layout.element_count * 4);
    ByteCount copy = Arena::padded(layout.element_count * dtype_size_bytes(compute_dtype));
    state_bytes += 3 * master + (separate_copy ? copy : 0);
    slot_bytes += copy * layout.site_count * state->slots_per_site_;
  }
  STAGECOACH_ASSIGN_OR_RETURN(state->state_,
                              Arena::create_pinned(pinning_device, state_bytes, "training state"));
  STAGECOACH_ASSIGN_OR_RETURN(state->slots_,
                              Arena::create_pinned(pinning_device, slot_bytes, "gradient slots"));
  state->total_bytes_ = state_bytes + slot_bytes;
  for (BlockLayout& layout : layouts) {
    Block block;
    ByteCount master = layout.element_count * 4;
    ByteCount copy = layout.element_count * dtype_size_bytes(compute_dtype);
    block.parameters = state->state_->take(master);
    block.first_moment = state->state_->take(master);
    block.second_moment = state->state_->take(master);
    block.compute_copy = separate_copy ? state->state_->take(copy) : block.parameters;
    for (int slot = 0; slot < layout.site_count * state->slots_per_site_; ++slot) {
      block.slots.push_back(state->slots_->take(copy));
    }
    // Simulated devices pin address space alone.
    bool is_memory = pinning_device.virtual_time() == nullptr;
    for (BufferView* zeroed : {&block.parameters, &block.first_moment, &block.second_moment}) {
      if (is_memory) std::memset(zeroed->host_data(), 0, static_cast<size_t>(master));
    }
    block.gradients = block.slots[0];
    block.slot_is_sum = !separate_copy && block.slots.size() == 1;
    block.layout = std::move(layout);
    state->blocks_.push_back(std::move(block));
  }
  STAGECOACH_RETURN_IF_ERROR(
      state->allocate_sums([](const Block& block) { return !block.slot_is_sum; }, state->sums_));
  return state;
}

Status HostState::allocate_sums(bool (*wanted)(const Block&), std::optional<Arena>& arena) {
  ByteCount bytes = 0;
  for (const Block& block : blocks_) {
    if (wanted(block)) bytes += Arena::padded(block.layout.element_count * 4);
  }
  if (bytes == 0) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(arena,
                              Arena::create_pinned(*pinning_device_, bytes, "gradient sums"));
  total_bytes_ += bytes;
  for (Block& block : blocks_) {
    if (!wanted(block)) continue;
    BufferView sum = arena->take(block.layout.element_count * 4);
    if (block.sum_started) {
      std::memcpy(sum.host_data(), block.gradients.host_data(), static_cast<size_t>(sum.size));
    }
    block.gradients = sum;
    block.slot_is_sum = false;
  }
  return Status::ok();
}

Status HostState::keep_gradients() {
  return allocate_sums([](const Block& block) { return block.slot_is_sum; }, kept_sums_);
}

void HostState::publish(int index, TaskPool& pool) {
  Block& block = blocks_[index];
  if (compute_dtype_ == DType::kF32) return;  // they are the same memory
  std::byte* target = block.compute_copy.host_data();
  int64_t count = block.layout.element_count;
  note_host_read(parameters(index), block.parameters.size, block.layout.name);
  note_host_write(target, block.compute_copy.size, block.layout.name);
  if (compute_dtype_ == DType::kBF16) {
    round_into(parameters(index), reinterpret_cast<BFloat16*>(target), count, pool);
  } else if (compute_dtype_ == DType::kF16) {
    round_into(parameters(index), reinterpret_cast<Float16*>(target), count, pool);
  }
}

BufferView HostState::gradient_slot(int block, int site, int round) const {
  return blocks_[block].slots[site * slots_per_site_ + round % slots_per_site_];
}

void HostState::accumulate_round(int index, int round, TaskPool& pool) {
  Block& block = blocks_[index];
  for (int site = 0; site < block.layout.site_count; ++site) {
    bool overwrite = !block.sum_started;
    block.sum_started = true;
    if (block.slot_is_sum) continue;
    BufferView slot = gradient_slot(index, site, round);
    note_host_read(slot.host_data(), slot.size, block.layout.name);
    note_host_write(gradients(index), block.gradients.size, block.layout.name);
    add_slot(slot, compute_dtype_, gradients(index), block.layout.element_count, overwrite, pool);
  }
}

void HostState::clear_gradients() {
  for (Block& block : blocks_) block.sum_started = false;
}

}  // namespace stagecoach
