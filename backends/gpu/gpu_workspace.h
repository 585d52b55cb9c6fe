#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "backends/gpu/gpu_device_core.h"

namespace stagecoach {

/// Scratch memory of one stream, shared by the ops that run on it one after another. The first
/// need takes all that the device sets aside for scratch and no other stream has taken: what a
/// plan left room for. It grows only beyond that, and never after warm-up.
/// Thread rule: one thread at a time (under the stream's lock).
template <typename Api>
class GpuWorkspace {
 public:
  explicit GpuWorkspace(GpuDeviceCore<Api>& core) : core_(core) {}
  /// The stream's work is done.
  ~GpuWorkspace() {
    for (Outgrown& old : outgrown_) give_back(old.address, old.size);
    if (size_ > 0) give_back(address_, size_);
  }
  GpuWorkspace(const GpuWorkspace&) = delete;
  GpuWorkspace& operator=(const GpuWorkspace&) = delete;

  GpuAddress address() const { return address_; }

  /// Makes it hold `size` bytes. `mark_tail` marks the end of the stream: until that is passed, a
  /// piece that was outgrown may be in use.
  template <typename MarkTail>
  Status reserve(ByteCount size, MarkTail&& mark_tail) {
    if (size <= size_) return Status::ok();
    release_unused();
    GpuAddress larger = 0;
    ByteCount needed = size;
    size = std::max(needed, core_.account.unused_scratch_bytes());
    int error = core_.allocate(larger, size, GpuDeviceCore<Api>::Release::kScratch);
    // Other programs may have taken what was free when the device was opened.
    if (error == Api::kOutOfMemory && size > needed) {
      size = needed;
      error = core_.allocate(larger, size, GpuDeviceCore<Api>::Release::kScratch);
    }
    if (error != Api::kSuccess) {
      Status status = gpu_status(core_.api(), error, "allocate workspace");
      return status.with_context(fmt::format(
          "{} bytes of scratch memory for this operation, where {} are set aside; use smaller "
          "micro-batches, or end what else uses the card",
          needed, core_.account.set_aside_bytes()));
    }
    if (size_ > 0) {
      Result<GpuMarkRef> tail = mark_tail();
      if (!tail.is_ok()) {
        give_back(larger, size);
        return tail.status();
      }
      outgrown_.push_back({address_, size_, std::move(tail).value()});
    }
    address_ = larger;
    size_ = size;
    return Status::ok();
  }

 private:
  struct Outgrown {
    GpuAddress address;
    ByteCount size;
    GpuMarkRef last_use;
  };

  void give_back(GpuAddress address, ByteCount size) {
    core_.release(GpuDeviceCore<Api>::Release::kScratch, address, size);
  }
  void release_unused() {
    std::erase_if(outgrown_, [this](Outgrown& old) {
      Result<bool> passed = old.last_use->has_passed();
      if (!passed.is_ok() || !passed.value()) return false;
      give_back(old.address, old.size);
      return true;
    });
  }

  GpuDeviceCore<Api>& core_;
  GpuAddress address_ = 0;
  ByteCount size_ = 0;
  std::vector<Outgrown> outgrown_;
};

}  // namespace stagecoach
