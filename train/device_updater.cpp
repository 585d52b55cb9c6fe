#include "train/device_updater.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <string_view>

#include "core/check.h"
#include "hal/host_access.h"
#include "hal/ops.h"

namespace stagecoach {

namespace {

constexpr const char* kLabel = "device update";
/// Most bytes of an element of each array of a slot: master, high, remainder, moments, gradient,
/// rounded copy.
constexpr ByteCount kElementBytes[] = {4, 2, 2, 4, 4, 4, 2};

/// Of counting what is not finite, which GPU backends do in parts of so many elements.
ByteCount scratch_bytes(int64_t piece_elements) {
  constexpr int64_t kCountedElements = 16 * 1024;
  int64_t parts = (piece_elements + kCountedElements - 1) / kCountedElements;
  return Arena::padded(parts * ByteCount{sizeof(uint32_t)});
}

ByteCount slot_bytes(int64_t piece_elements, int counts) {
  ByteCount bytes = Arena::padded(counts * ByteCount{sizeof(uint64_t)});
  for (ByteCount element : kElementBytes) bytes += Arena::padded(piece_elements * element);
  return bytes;
}

/// Of a block's array what belongs to the piece that `tensor` holds.
BufferView part_of(const BufferView& array, int64_t offset, const TensorView& tensor) {
  return array.slice(offset * dtype_size_bytes(tensor.dtype), tensor.size_bytes());
}

/// Why a device cannot update what has this memory; empty: it can.
std::string_view obstacle(const BlockMemory& memory, UpdateRule rule) {
  if (rule != UpdateRule::kAdamW) return "an optimizer other than AdamW";
  if (memory.moment_format != MomentFormat::kFloat32) return "moments that are not fp32";
  if (memory.gradients.size() != 1) return "gradients of several places";
  return {};
}

Status check_update(const HostState& state, int block, const BlockMemory& memory,
                    const UpdateNumbers& numbers) {
  std::string_view missing = obstacle(memory, numbers.rule);
  if (missing.empty()) return Status::ok();
  return unimplemented(fmt::format("block {} of {} elements has {}: its update is the host's",
                                   block, state.element_count(block), missing));
}

}  // namespace

ByteCount DeviceUpdater::bytes(int64_t piece_elements) {
  return kSlots * slot_bytes(piece_elements, kCounts) + scratch_bytes(piece_elements);
}

ByteCount DeviceUpdater::host_bytes() {
  return kSlots * Arena::padded(kCounts * ByteCount{sizeof(uint64_t)});
}

bool DeviceUpdater::takes(const BlockMemory& memory, UpdateRule rule) {
  return obstacle(memory, rule).empty();
}

Result<std::unique_ptr<DeviceUpdater>> DeviceUpdater::create(Device& device,
                                                             int64_t piece_elements) {
  STAGECOACH_CHECK(piece_elements > 0);
  std::unique_ptr<DeviceUpdater> updater(new DeviceUpdater(device, piece_elements));
  STAGECOACH_RETURN_IF_ERROR(updater->build());
  return updater;
}

Status DeviceUpdater::build() {
  STAGECOACH_ASSIGN_OR_RETURN(up_, device_.create_stream({"update_up"}));
  STAGECOACH_ASSIGN_OR_RETURN(compute_, device_.create_stream({"update_compute"}));
  STAGECOACH_ASSIGN_OR_RETURN(down_, device_.create_stream({"update_down"}));
  for (Slot& slot : slots_) {
    STAGECOACH_ASSIGN_OR_RETURN(
        slot.memory,
        Arena::create_on_device(device_, slot_bytes(piece_elements_, kCounts), kLabel));
    ByteCount counts = kCounts * ByteCount{sizeof(uint64_t)};
    STAGECOACH_ASSIGN_OR_RETURN(slot.host,
                                Arena::create_pinned(device_, Arena::padded(counts), kLabel));
    slot.counts = slot.host->take(counts);
  }
  return Status::ok();
}

/// Lays a piece of `count` elements out in the slot's memory; what the block lacks is none.
void DeviceUpdater::place(Slot& slot, const BlockBuffers& block, DType gradient, int64_t count) {
  slot.memory->reset();
  auto take = [&](bool is_there, DType dtype, int64_t elements) {
    TensorView tensor;
    if (!is_there) return tensor;
    tensor.dtype = dtype;
    tensor.shape = {elements};
    tensor.memory = slot.memory->take(tensor.size_bytes());
    return tensor;
  };
  bool is_split = !block.remainder.is_none();
  bool is_rounded = !is_split && block.compute_copy.size != block.master.size;
  slot.master = take(true, DType::kF32, count);
  slot.high = take(is_split, DType::kBF16, count);
  slot.remainder = take(is_split, DType::kI16, count);
  slot.first = take(true, DType::kF32, count);
  slot.second = take(true, DType::kF32, count);
  slot.gradient = take(true, gradient, count);
  slot.rounded = take(is_rounded, DType::kF16, count);
  slot.not_finite = take(true, DType::kU64, kCounts);
}

/// Uploads a piece and computes it; its counts will be on the host at slot.judged.
Status DeviceUpdater::send(Slot& slot, const BlockBuffers& block, int64_t offset,
                           const UpdateNumbers& numbers) {
  // The slot's memory is free once the piece before has been read out of it.
  STAGECOACH_RETURN_IF_FAILED(up_->wait(slot.written));
  Timepoint last;
  auto upload = [&](const BufferView& array, const TensorView& tensor) -> Status {
    CopyRequest request{tensor.memory, part_of(array, offset, tensor), kLabel};
    STAGECOACH_ASSIGN_OR_RETURN(last, up_->copy(request));
    return Status::ok();
  };
  if (slot.high.is_none()) {
    STAGECOACH_RETURN_IF_ERROR(upload(block.master, slot.master));
  } else {
    STAGECOACH_RETURN_IF_ERROR(upload(block.compute_copy, slot.high));
    STAGECOACH_RETURN_IF_ERROR(upload(block.remainder, slot.remainder));
  }
  STAGECOACH_RETURN_IF_ERROR(upload(block.first_moment, slot.first));
  STAGECOACH_RETURN_IF_ERROR(upload(block.second_moment, slot.second));
  STAGECOACH_RETURN_IF_ERROR(upload(block.gradients[0], slot.gradient));
  STAGECOACH_RETURN_IF_FAILED(compute_->wait(last));
  return compute(slot, numbers);
}

Status DeviceUpdater::compute(Slot& slot, const UpdateNumbers& numbers) {
  Ops& ops = device_.ops();
  if (!slot.high.is_none()) {
    STAGECOACH_RETURN_IF_FAILED(
        ops.join_master(*compute_, {slot.master, slot.high, slot.remainder, kLabel}));
  }
  Ops::AdamW update{slot.master, slot.first, slot.second, slot.gradient};
  update.numbers = {numbers.learning_rate, numbers.beta1, numbers.beta2, numbers.weight_decay,
                    numbers.step};
  update.epsilon = numbers.epsilon;
  update.gradient_scale = numbers.gradient_scale;
  update.label = kLabel;
  STAGECOACH_RETURN_IF_FAILED(ops.adamw(*compute_, update));
  int index = 0;
  for (const TensorView& result : {slot.master, slot.first, slot.second}) {
    TensorView count = slot.not_finite;
    count.shape = {1};
    count.memory = count.memory.slice(index++ * count.size_bytes(), count.size_bytes());
    STAGECOACH_RETURN_IF_FAILED(ops.finite_check(*compute_, {count, result, kLabel}));
  }
  if (!slot.high.is_none()) {
    STAGECOACH_RETURN_IF_FAILED(
        ops.split_master(*compute_, {slot.high, slot.remainder, slot.master, kLabel}));
  }
  if (!slot.rounded.is_none()) {
    STAGECOACH_RETURN_IF_FAILED(ops.convert(*compute_, {slot.rounded, slot.master, kLabel}));
  }
  CopyRequest counts{slot.counts, slot.not_finite.memory, kLabel};
  STAGECOACH_ASSIGN_OR_RETURN(slot.judged, compute_->copy(counts));
  return Status::ok();
}

/// Downloads a piece unless something in it is not finite; returns how much is not.
Result<int64_t> DeviceUpdater::bring_back(Slot& slot, const BlockBuffers& block, int64_t offset) {
  STAGECOACH_RETURN_IF_ERROR(wait_until_reached(slot.judged));
  const auto* counts = reinterpret_cast<const uint64_t*>(slot.counts.host_data());
  note_host_read(counts, kCounts * ByteCount{sizeof(uint64_t)}, kLabel);
  uint64_t refused = std::accumulate(counts, counts + kCounts, uint64_t{0});
  if (refused > 0) return static_cast<int64_t>(refused);
  STAGECOACH_RETURN_IF_FAILED(down_->wait(slot.judged));
  auto download = [&](const BufferView& array, const TensorView& tensor) -> Status {
    if (tensor.is_none()) return Status::ok();
    CopyRequest request{part_of(array, offset, tensor), tensor.memory, kLabel};
    STAGECOACH_ASSIGN_OR_RETURN(slot.written, down_->copy(request));
    return Status::ok();
  };
  if (slot.high.is_none()) {
    STAGECOACH_RETURN_IF_ERROR(download(block.new_master, slot.master));
  } else {
    STAGECOACH_RETURN_IF_ERROR(download(block.new_copy, slot.high));
    STAGECOACH_RETURN_IF_ERROR(download(block.remainder, slot.remainder));
  }
  STAGECOACH_RETURN_IF_ERROR(download(block.new_copy, slot.rounded));
  STAGECOACH_RETURN_IF_ERROR(download(block.first_moment, slot.first));
  STAGECOACH_RETURN_IF_ERROR(download(block.second_moment, slot.second));
  return 0;
}

Result<int64_t> DeviceUpdater::run(const BlockBuffers& block, DType gradient, int64_t offset,
                                   int64_t count, const UpdateNumbers& numbers) {
  int64_t pieces = (count + piece_elements_ - 1) / piece_elements_;
  auto begin_of = [&](int64_t piece) { return offset + piece * piece_elements_; };
  // One piece is on its way or computed while the one before comes back.
  for (int64_t piece = 0; piece <= pieces; ++piece) {
    if (piece < pieces) {
      Slot& slot = slots_[static_cast<size_t>(piece % kSlots)];
      place(slot, block, gradient, std::min(piece_elements_, offset + count - begin_of(piece)));
      STAGECOACH_RETURN_IF_ERROR(send(slot, block, begin_of(piece), numbers));
    }
    if (piece == 0) continue;
    Slot& before = slots_[static_cast<size_t>((piece - 1) % kSlots)];
    STAGECOACH_ASSIGN_OR_RETURN(int64_t refused, bring_back(before, block, begin_of(piece - 1)));
    if (refused > 0) return refused;
  }
  return 0;
}

Result<int64_t> DeviceUpdater::update(HostState& state, int block, int64_t offset, int64_t count,
                                      const UpdateNumbers& numbers) {
  STAGECOACH_CHECK(offset >= 0 && count >= 0 && offset + count <= state.element_count(block));
  BlockMemory memory = state.memory(block);
  STAGECOACH_RETURN_IF_ERROR(check_update(state, block, memory, numbers));
  Result<int64_t> refused =
      run(state.buffers(block), memory.gradient_dtype, offset, count, numbers);
  // Copies name the state's memory: none may be under way when this returns, whatever it returns.
  for (Stream* stream : streams()) {
    Status status = stream->synchronize();
    if (refused.is_ok() && !status.is_ok()) return status;
  }
  return refused;
}

}  // namespace stagecoach
