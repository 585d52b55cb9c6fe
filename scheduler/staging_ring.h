#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"

namespace stagecoach {

/// Places of pinned memory, used in turn, through which chunks from and to pageable memory travel:
/// a driver does not let copies of pageable memory run beside others.
/// Thread rule: one thread at a time.
class StagingRing {
 public:
  /// `places` of `place_bytes` each. Errors: the device's; resource exhausted where so little
  /// cannot be pinned.
  static Result<std::unique_ptr<StagingRing>> create(Device& device, int places,
                                                     ByteCount place_bytes);

  ByteCount bytes() const { return place_count_ * place_bytes_; }
  /// The next place, for a chunk of `size` bytes: free when fewer chunks are under way
  /// than there are places.
  BufferView next(ByteCount size);
  /// Copies between a place and pageable memory, on a few threads.
  void copy(const BufferView& target, const BufferView& source);

 private:
  StagingRing(int places, ByteCount place_bytes);

  const int place_count_;
  const ByteCount place_bytes_;
  int64_t chunks_ = 0;
  BufferHandle memory_;
  std::unique_ptr<TaskPool> pool_;
};

}  // namespace stagecoach
