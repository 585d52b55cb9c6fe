#include "hal/buffer.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "hal/device.h"
#include "hal/timeline.h"

namespace stagecoach {

namespace {

/// How often a failed stream is asked whether its running operation has ended. Failures are rare,
/// and nothing waits for this but the freeing of memory.
constexpr std::chrono::microseconds kSettlePollInterval{100};

}  // namespace

BufferView BufferView::slice(ByteCount slice_offset, ByteCount slice_size) const {
  STAGECOACH_CHECK(slice_offset >= 0 && slice_size >= 0 && slice_size <= size - slice_offset);
  return BufferView{buffer, offset + slice_offset, slice_size};
}

std::byte* BufferView::host_data() const {
  std::byte* base = buffer == nullptr ? nullptr : buffer->host_data();
  return base == nullptr ? nullptr : base + offset;
}

Buffer::Buffer(Device& device, MemoryKind kind, uintptr_t address, ByteCount size, Label label)
    : device_(device), kind_(kind), address_(address), size_(size), label_(label) {}

Buffer::~Buffer() = default;

void Buffer::note_use(Timepoint timepoint) {
  if (timepoint.is_none()) return;
  std::lock_guard lock(mutex_);
  for (Timepoint& use : last_uses_) {
    if (use.timeline != timepoint.timeline) continue;
    // Two threads may note uses of one stream in either order.
    use.sequence = std::max(use.sequence, timepoint.sequence);
    return;
  }
  if (last_uses_.size() == last_uses_.capacity()) {
    // Streams come and go in long programs; forget the gone ones before growing.
    auto is_gone = [](const Timepoint& use) { return !internal::timeline_is_live(use.timeline); };
    std::erase_if(last_uses_, is_gone);
  }
  last_uses_.push_back(timepoint);
}

Timepoint Buffer::first_open_use() {
  size_t index = 0;
  for (;;) {
    Timepoint use;
    {
      std::lock_guard lock(mutex_);
      if (index >= last_uses_.size()) return Timepoint{};
      use = last_uses_[index];
    }
    // Streams are asked outside the lock: they may note uses while they hold their own.
    if (!settled(use)) return use;
    std::lock_guard lock(mutex_);
    auto found = std::find(last_uses_.begin(), last_uses_.end(), use);
    if (found != last_uses_.end()) {
      last_uses_.erase(found);
    }
    index = 0;
  }
}

bool Buffer::uses_reached() {
  return first_open_use().is_none();
}

void Buffer::wait_for_uses() {
  for (;;) {
    Timepoint use = first_open_use();
    if (use.is_none()) return;
    // A failure is no news here: the stream's owner gets it. Only the memory matters.
    Status ended = wait_until_reached(use);
    while (!ended.is_ok() && !settled(use)) std::this_thread::sleep_for(kSettlePollInterval);
  }
}

void BufferRetirer::operator()(Buffer* buffer) const {
  buffer->device().retire(buffer);
}

Result<BufferHandle> require_buffer(Allocation allocation, const Device& device, ByteCount size,
                                    Label label) {
  FailureSite site;
  site.device = device.id();
  site.verb = "allocate";
  site.label = std::string(label.view());
  switch (allocation.outcome) {
    case AllocationOutcome::kOk:
      return std::move(allocation.buffer);
    case AllocationOutcome::kFailed:
      return allocation.status.with_site(site);
    case AllocationOutcome::kExhausted:
      break;
  }
  // Asking for the usage changes nothing in the device, though the front is not const.
  Result<MemoryUsage> usage = const_cast<Device&>(device).memory_usage();
  std::string free_text = "an unknown number of";
  if (usage.is_ok()) {
    free_text = std::to_string(usage.value().total_bytes - usage.value().used_bytes);
  }
  return resource_exhausted(fmt::format("{} bytes asked for '{}', {} device bytes free", size,
                                        label.view(), free_text))
      .with_site(site);
}

}  // namespace stagecoach
