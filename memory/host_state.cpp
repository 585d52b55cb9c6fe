#include "memory/host_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "hal/host_access.h"
#include "memory/gradient_sum.h"
#include "memory/split_master.h"

namespace stagecoach {

namespace {

/// What is kept of a block, in bytes.
struct BlockPieces {
  ByteCount copy = 0;  ///< what devices read, each of `copies`
  int copies = 1;
  ByteCount master = 0;     ///< fp32, where devices do not read that
  ByteCount remainder = 0;  ///< of a split master
  ByteCount moment = 0;     ///< each
  ByteCount scales = 0;     ///< of each moment
  int moments = 0;
  ByteCount sum = 0;      ///< of several rounds
  ByteCount slot = 0;     ///< where a gradient lands
  int state_slots = 0;    ///< beside the others
  int landing_slots = 0;  ///< apart

  /// All but what lands apart, in the order in which they lie.
  std::vector<ByteCount> arrays() const {
    std::vector<ByteCount> all(static_cast<size_t>(copies), copy);
    all.insert(all.end(), {master, remainder});
    for (int of = 0; of < moments; ++of) all.insert(all.end(), {moment, scales});
    all.push_back(sum);
    all.insert(all.end(), static_cast<size_t>(state_slots), slot);
    std::erase(all, 0);
    return all;
  }
  ByteCount state() const {
    ByteCount total = 0;
    for (ByteCount array : arrays()) total += Arena::padded(array);
    return total;
  }
};

BlockPieces pieces_of(const BlockLayout& layout, const HostStateOptions& options) {
  constexpr ByteCount kFloat = sizeof(float);
  int64_t count = layout.element_count;
  BlockPieces pieces;
  if (layout.is_mapped) return pieces;
  pieces.copy = count * dtype_size_bytes(options.compute_dtype);
  if (layout.is_frozen) return pieces;
  pieces.copies = options.versions;
  if (options.compute_dtype == DType::kF16) pieces.master = count * kFloat;
  if (options.compute_dtype == DType::kBF16) pieces.remainder = count * ByteCount{sizeof(int16_t)};
  STAGECOACH_CHECK(layout.site_count >= 1);
  pieces.moment = count * moment_value_bytes(options.moments.format);
  if (options.moments.format == MomentFormat::kBlockwise8) {
    pieces.scales = moment_scale_count(layout.parts, count) * kFloat;
  }
  pieces.moments = options.moments.count;
  pieces.slot = pieces.copy;
  if (options.rounds > 1) pieces.sum = count * kFloat;
  pieces.state_slots = options.rounds > 1 ? 0 : 1;
  pieces.landing_slots = layout.site_count * options.slots_per_site - pieces.state_slots;
  return pieces;
}

template <typename T>
T* data_at(const BufferView& view, int64_t offset = 0) {
  return view.is_none() ? nullptr : reinterpret_cast<T*>(view.host_data()) + offset;
}

/// The part of `view` that holds `count` elements of `T` from `offset` on is about to be read.
template <typename T>
const T* reading(const BufferView& view, int64_t offset, size_t count, const Label& label) {
  const T* data = data_at<const T>(view, offset);
  note_host_read(data, static_cast<ByteCount>(count * sizeof(T)), label);
  return data;
}

template <typename T>
T* writing(const BufferView& view, int64_t offset, size_t count, const Label& label) {
  T* data = data_at<T>(view, offset);
  note_host_write(data, static_cast<ByteCount>(count * sizeof(T)), label);
  return data;
}

}  // namespace

HostStateBytes host_state_bytes(std::span<const BlockLayout> blocks,
                                const HostStateOptions& options) {
  HostStateBytes bytes;
  for (const BlockLayout& layout : blocks) {
    BlockPieces pieces = pieces_of(layout, options);
    (layout.is_frozen ? bytes.frozen : bytes.trained) += pieces.state();
    bytes.landing += pieces.landing_slots * Arena::padded(pieces.slot);
    if (!layout.is_mapped) continue;
    bytes.mapped += layout.element_count * dtype_size_bytes(options.compute_dtype);
  }
  return bytes;
}

Result<std::unique_ptr<HostState>> HostState::create(Device& pinning_device,
                                                     std::vector<BlockLayout> layouts,
                                                     const HostStateOptions& options,
                                                     const PinSetup& pinning) {
  STAGECOACH_CHECK(options.rounds > 1 || options.slots_per_site == 1);
  STAGECOACH_CHECK(options.versions == 1 || options.versions == 2);
  std::unique_ptr<HostState> state(new HostState);
  state->pinning_device_ = &pinning_device;
  state->options_ = options;
  state->accumulates_ = options.rounds > 1;
  state->bytes_ = host_state_bytes(layouts, options);
  std::vector<ByteCount> arrays, slots;
  for (const BlockLayout& layout : layouts) {
    BlockPieces pieces = pieces_of(layout, options);
    for (ByteCount array : pieces.arrays()) arrays.push_back(array);
    slots.insert(slots.end(), static_cast<size_t>(pieces.landing_slots), pieces.slot);
  }
  STAGECOACH_ASSIGN_OR_RETURN(
      state->state_, Arena::create_registered(pinning_device, arrays, "training state", pinning));
  if (state->bytes_.landing > 0) {
    STAGECOACH_ASSIGN_OR_RETURN(
        state->landing_,
        Arena::create_registered(pinning_device, slots, "gradient slots", pinning));
  }
  for (BlockLayout& layout : layouts) state->carve(std::move(layout));
  return state;
}

void HostState::carve(BlockLayout layout) {
  BlockPieces pieces = pieces_of(layout, options_);
  auto take = [&](ByteCount size, PieceUse use) {
    return size == 0 ? BufferView{} : state_->take(size, use);
  };
  Block block;
  for (int copy = 0; copy < pieces.copies; ++copy) {
    block.copies[static_cast<size_t>(copy)] = take(pieces.copy, PieceUse::kTravels);
  }
  block.master = take(pieces.master, PieceUse::kStays);
  block.remainder = take(pieces.remainder, PieceUse::kStays);
  if (pieces.moments > 0) {
    block.first_moment = take(pieces.moment, PieceUse::kStays);
    block.first_scales = take(pieces.scales, PieceUse::kStays);
  }
  if (pieces.moments > 1) {
    block.second_moment = take(pieces.moment, PieceUse::kStays);
    block.second_scales = take(pieces.scales, PieceUse::kStays);
  }
  block.sum = take(pieces.sum, PieceUse::kStays);
  for (int slot = 0; slot < pieces.state_slots; ++slot) {
    block.slots.push_back(take(pieces.slot, PieceUse::kTravels));
  }
  for (int slot = 0; slot < pieces.landing_slots; ++slot) {
    block.slots.push_back(landing_->take(pieces.slot));
  }
  block.layout = std::move(layout);
  blocks_.push_back(std::move(block));
}

Status HostState::map(int index, ByteCount offset, std::span<const std::byte> memory) {
  Block& block = blocks_[index];
  auto size = static_cast<ByteCount>(memory.size());
  STAGECOACH_CHECK(block.layout.is_mapped && offset >= 0 &&
                   offset + size <=
                       block.layout.element_count * dtype_size_bytes(options_.compute_dtype));
  // Nothing writes through it: buffers know of no memory that is only read.
  auto* data = const_cast<std::byte*>(memory.data());
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle buffer,
                              pinning_device_->wrap_pageable(data, size, Label(block.layout.name)));
  block.mapped.push_back({offset, buffer->view()});
  mapped_.push_back(std::move(buffer));
  return Status::ok();
}

Pinning HostState::pinning() const {
  Pinning pinning;
  for (const std::optional<Arena>* arena : {&state_, &landing_, &kept_sums_}) {
    if (arena->has_value()) pinning += (*arena)->pinning();
  }
  return pinning;
}

void HostState::read_parameters(int index, int64_t offset, std::span<float> out) const {
  const Block& block = blocks_[index];
  const Label label(block.layout.name);
  STAGECOACH_CHECK(!block.layout.is_mapped);
  auto count = static_cast<int64_t>(out.size());
  STAGECOACH_CHECK(offset >= 0 && offset + count <= block.layout.element_count);
  const BufferView& copy_view = block.newest_copy();
  const BufferView& master = options_.compute_dtype == DType::kF32 ? copy_view : block.master;
  if (!master.is_none()) {
    std::memcpy(out.data(), reading<float>(master, offset, out.size(), label), out.size_bytes());
  } else if (!block.remainder.is_none()) {
    const BFloat16* high = reading<BFloat16>(copy_view, offset, out.size(), label);
    join_floats(high, data_at<int16_t>(block.remainder, offset), out.data(), count);
  } else if (options_.compute_dtype == DType::kBF16) {
    const BFloat16* copy = reading<BFloat16>(copy_view, offset, out.size(), label);
    std::transform(copy, copy + count, out.data(), [](BFloat16 value) { return to_float(value); });
  } else {
    const Float16* copy = reading<Float16>(copy_view, offset, out.size(), label);
    std::transform(copy, copy + count, out.data(), [](Float16 value) { return to_float(value); });
  }
}

Status HostState::write_parameters(int index, int64_t offset, std::span<const float> values) {
  const Block& block = blocks_[index];
  const Label label(block.layout.name);
  STAGECOACH_CHECK(!block.layout.is_mapped);
  auto count = static_cast<int64_t>(values.size());
  STAGECOACH_CHECK(offset >= 0 && offset + count <= block.layout.element_count);
  // Counted without a way out early, so that it becomes vector code.
  int64_t bad_count = 0;
  for (float value : values) bad_count += !(std::abs(value) <= std::numeric_limits<float>::max());
  if (bad_count > 0) {
    auto bad =
        std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    return invalid_argument(fmt::format("block '{}': parameter {} would be {}", block.layout.name,
                                        offset + (bad - values.begin()), *bad));
  }
  const BufferView& copy_view = block.newest_copy();
  const BufferView& master = options_.compute_dtype == DType::kF32 ? copy_view : block.master;
  if (!master.is_none()) {
    std::memcpy(writing<float>(master, offset, values.size(), label), values.data(),
                values.size_bytes());
  }
  if (!block.remainder.is_none()) {
    BFloat16* high = writing<BFloat16>(copy_view, offset, values.size(), label);
    split_floats(values.data(), high, data_at<int16_t>(block.remainder, offset), count);
  } else if (options_.compute_dtype == DType::kBF16) {
    std::transform(values.begin(), values.end(),
                   writing<BFloat16>(copy_view, offset, values.size(), label),
                   from_float<BFloat16>);
  } else if (options_.compute_dtype == DType::kF16) {
    std::transform(values.begin(), values.end(),
                   writing<Float16>(copy_view, offset, values.size(), label), from_float<Float16>);
  }
  return Status::ok();
}

MomentView HostState::moment(Moment moment, int index, int64_t offset, int64_t count) const {
  const Block& block = blocks_[index];
  bool is_first = moment == Moment::kFirst;
  const BufferView& kept = is_first ? block.first_moment : block.second_moment;
  STAGECOACH_CHECK(!kept.is_none() && offset >= 0 && offset + count <= block.layout.element_count);
  ByteCount size = moment_value_bytes(options_.moments.format);
  MomentView view;
  view.values = {data_at<std::byte>(kept, offset * size), static_cast<size_t>(count * size)};
  if (options_.moments.format != MomentFormat::kBlockwise8) return view;
  int64_t scale = moment_scale_index(block.layout.parts, offset);
  view.scales = {data_at<float>(is_first ? block.first_scales : block.second_scales, scale),
                 static_cast<size_t>(moment_scale_count({}, count))};
  return view;
}

void HostState::read_moment(Moment which, int block, int64_t offset, std::span<float> out) const {
  MomentView view = moment(which, block, offset, static_cast<int64_t>(out.size()));
  decode_moment(which, options_.moments.format, view, out);
}

BlockMemory HostState::memory(int index) {
  const Block& block = blocks_[index];
  STAGECOACH_CHECK(!block.layout.is_frozen);
  BlockMemory memory;
  const BufferView& newest = block.newest_copy();
  const BufferView& next = block.copies[static_cast<size_t>(copy_of_next(block))];
  switch (options_.compute_dtype) {
    case DType::kBF16:
      memory.high = data_at<const BFloat16>(newest);
      memory.new_high = data_at<BFloat16>(next);
      break;
    case DType::kF16:
      memory.parameters = memory.new_parameters = data_at<float>(block.master);
      memory.new_rounded = data_at<Float16>(next);
      break;
    default:
      memory.parameters = data_at<const float>(newest);
      memory.new_parameters = data_at<float>(next);
  }
  memory.remainder = data_at<int16_t>(block.remainder);
  memory.moment_format = options_.moments.format;
  memory.first_moment = data_at<std::byte>(block.first_moment);
  memory.second_moment = data_at<std::byte>(block.second_moment);
  memory.first_scales = data_at<float>(block.first_scales);
  memory.second_scales = data_at<float>(block.second_scales);
  memory.parts = block.layout.parts;
  if (accumulates_) {
    memory.gradients = {data_at<const float>(block.sum)};
    return memory;
  }
  memory.gradient_dtype = gradient_dtype();
  for (int site = 0; site < block.layout.site_count; ++site) {
    memory.gradients.push_back(gradient_slot(index, site, 0).host_data());
  }
  return memory;
}

BlockBuffers HostState::buffers(int index) const {
  const Block& block = blocks_[index];
  STAGECOACH_CHECK(!block.layout.is_frozen);
  BlockBuffers buffers;
  buffers.compute_copy = block.newest_copy();
  buffers.new_copy = block.copies[static_cast<size_t>(copy_of_next(block))];
  bool is_fp32 = options_.compute_dtype == DType::kF32;
  buffers.master = is_fp32 ? buffers.compute_copy : block.master;
  buffers.new_master = is_fp32 ? buffers.new_copy : block.master;
  buffers.remainder = block.remainder;
  buffers.first_moment = block.first_moment;
  buffers.second_moment = block.second_moment;
  if (accumulates_) {
    buffers.gradients = {block.sum};
    return buffers;
  }
  for (int site = 0; site < block.layout.site_count; ++site) {
    buffers.gradients.push_back(gradient_slot(index, site, 0));
  }
  return buffers;
}

BufferView HostState::gradient_slot(int block, int site, int round) const {
  return blocks_[block].slots[site * options_.slots_per_site + round % options_.slots_per_site];
}

void HostState::add_slots(Block& block, int round, TaskPool& pool) {
  auto index = static_cast<int>(&block - blocks_.data());
  for (int site = 0; site < block.layout.site_count; ++site) {
    BufferView slot = gradient_slot(index, site, round);
    const Label label(block.layout.name);
    note_host_read(slot.host_data(), slot.size, label);
    note_host_write(block.sum.host_data(), block.sum.size, label);
    add_gradients(slot.host_data(), gradient_dtype(), data_at<float>(block.sum),
                  block.layout.element_count, !block.sum_started, pool);
    block.sum_started = true;
  }
}

void HostState::accumulate_round(int block, int round, TaskPool& pool) {
  if (accumulates_) add_slots(blocks_[block], round, pool);
}

BufferView HostState::compute_copy(int index, int64_t version) const {
  const Block& block = blocks_[index];
  if (block.layout.is_frozen) return block.copies.front();
  return block.copies[static_cast<size_t>(block.copy_of[static_cast<size_t>(version % 2)])];
}

void HostState::write_previous_copy(int index, int64_t offset, std::span<const std::byte> values) {
  Block& block = blocks_[index];
  STAGECOACH_CHECK(options_.versions == 2 && block.version > 0);
  // A version that was skipped shares its copy with the one before it.
  int copy = 1 - block.newest();
  block.copy_of[static_cast<size_t>((block.version - 1) % 2)] = copy;
  const BufferView& view = block.copies[static_cast<size_t>(copy)];
  ByteCount begin = offset * dtype_size_bytes(options_.compute_dtype);
  auto size = static_cast<ByteCount>(values.size());
  STAGECOACH_CHECK(offset >= 0 && begin + size <= view.size);
  std::memcpy(writing<std::byte>(view, begin, values.size(), Label(block.layout.name)),
              values.data(), values.size());
}

void HostState::make_next(Block& block, int copy) {
  ++block.version;
  block.copy_of[static_cast<size_t>(block.version % 2)] = copy;
  block.sum_started = false;
}

void HostState::publish(int block) {
  make_next(blocks_[block], copy_of_next(blocks_[block]));
}

void HostState::skip(int block) {
  make_next(blocks_[block], blocks_[block].newest());
}

Status HostState::keep_gradients(TaskPool& pool) {
  if (accumulates_) return Status::ok();
  std::vector<ByteCount> arrays;
  ByteCount sums = 0, slots = 0;
  for (const Block& block : blocks_) {
    if (block.layout.is_frozen) continue;
    arrays.push_back(block.layout.element_count * ByteCount{sizeof(float)});
    sums += Arena::padded(arrays.back());
    slots += Arena::padded(block.slots.front().size);
  }
  STAGECOACH_ASSIGN_OR_RETURN(
      kept_sums_,
      Arena::create_registered(*pinning_device_, arrays, "gradient sums", {&pool, nullptr}));
  // The gradient of the state is the sum from now on.
  bytes_.trained += sums - slots;
  bytes_.landing += slots;
  accumulates_ = true;
  for (Block& block : blocks_) {
    if (block.layout.is_frozen) continue;
    block.sum = kept_sums_->take(block.layout.element_count * ByteCount{sizeof(float)});
    add_slots(block, 0, pool);
  }
  return Status::ok();
}

}  // namespace stagecoach
