#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/bytes.h"
#include "core/label.h"
#include "hal/memory_kind.h"
#include "hal/timepoint.h"

namespace stagecoach {

class Buffer;
class Device;

/// Part of a buffer. Does not own; valid as long as the buffer.
struct BufferView {
  Buffer* buffer = nullptr;
  ByteCount offset = 0;
  ByteCount size = 0;

  bool is_none() const { return buffer == nullptr; }
  /// `size` bytes at `offset` inside this view; must lie inside it.
  BufferView slice(ByteCount slice_offset, ByteCount slice_size) const;
  /// Address of the first byte for the host; null when the memory is a device's.
  std::byte* host_data() const;
};

/// Memory with one owner. Remembers the last use by each timeline; destruction is deferred by the
/// device until all of those have passed (hal_contract.md, L2).
/// Thread rule: `note_use` and `uses_reached` from any thread; the bytes follow the ordering
/// clauses.
class Buffer {
 public:
  /// `address` is the backend's own pointer or handle for the first byte.
  Buffer(Device& device, MemoryKind kind, uintptr_t address, ByteCount size, Label label);
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device& device() const { return device_; }
  MemoryKind kind() const { return kind_; }
  ByteCount size() const { return size_; }
  Label label() const { return label_; }
  /// For backends: the address kernels and copy engines use.
  uintptr_t device_address() const { return address_; }
  /// Address for the host; null for device memory.
  std::byte* host_data() const {
    return is_host(kind_) ? reinterpret_cast<std::byte*>(address_) : nullptr;
  }

  BufferView view() { return BufferView{this, 0, size_}; }
  BufferView slice(ByteCount offset, ByteCount size) { return view().slice(offset, size); }

  /// Notes that the work named by `timepoint` touches this buffer. Streams call it at submit.
  void note_use(Timepoint timepoint);
  /// Whether all noted uses have been reached or will never run because their stream failed (and
  /// then also that the operation it failed in has let go of this memory).
  bool uses_reached();
  /// Blocks until `uses_reached`.
  void wait_for_uses();

  /// Of registered memory: `owner` keeps it until the device has unregistered it, which may be
  /// after the buffer has gone, where a failed stream has not ended what it was doing.
  void keep(std::shared_ptr<void> owner) { owner_ = std::move(owner); }

 protected:
  std::shared_ptr<void> take_owner() { return std::move(owner_); }

 private:
  Device& device_;
  MemoryKind kind_;
  uintptr_t address_;
  ByteCount size_;
  Label label_;
  /// A use not yet settled, or none; drops those that are. Asks outside the lock.
  Timepoint first_open_use();

  std::shared_ptr<void> owner_;
  std::mutex mutex_;
  std::vector<Timepoint> last_uses_;  // one entry a timeline; bounded by the streams that exist
};

/// Returns a buffer to its device, which frees it once its uses have been reached.
struct BufferRetirer {
  void operator()(Buffer* buffer) const;
};

/// Owner of a buffer.
using BufferHandle = std::unique_ptr<Buffer, BufferRetirer>;

/// How an allocation ended. Exhaustion is ordinary (evict and retry), so it is not an error.
enum class AllocationOutcome : uint8_t {
  kOk,
  kExhausted,  ///< the device or host has no such piece free
  kFailed,     ///< something is broken; see status
};

/// Result of asking for memory. `buffer` is set exactly when the outcome is kOk.
struct Allocation {
  AllocationOutcome outcome = AllocationOutcome::kFailed;
  BufferHandle buffer;
  Status status;  ///< set exactly when the outcome is kFailed
};

/// Turns an allocation into a Result for callers that cannot go on without it; exhaustion becomes
/// "resource exhausted", naming device, label, bytes asked and bytes free.
Result<BufferHandle> require_buffer(Allocation allocation, const Device& device, ByteCount size,
                                    Label label);

}  // namespace stagecoach
