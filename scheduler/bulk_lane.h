#pragma once

#include <array>
#include <memory>
#include <string>

#include "core/status.h"
#include "hal/device.h"
#include "scheduler/bulk_chunk.h"

namespace stagecoach {

/// Bulk copies of one direction of a device (parameters up, gradients down), cut into chunks so
/// that an urgent copy on another stream waits for one or two chunks at most. A copy engine stays
/// with a stream that has a ready copy, whatever its priority; so chunks alternate between two
/// streams, each waiting for the one before it, and when a chunk ends the engine finds the urgent
/// copy ready and the next chunk not yet. Everything runs in the order of submission, as on one
/// stream; nothing is allocated after warm-up.
/// Thread rule: one thread at a time; abandoning and watching the streams any thread.
class BulkLane {
 public:
  /// `name` is that of the lane; streams are called after it. `chunk_bytes` > 0. Errors: the
  /// device's.
  static Result<std::unique_ptr<BulkLane>> create(Device& device, const std::string& name,
                                                  ByteCount chunk_bytes);

  /// What is submitted from here on waits until `timepoint`, of the same backend, is reached.
  Status wait(Timepoint timepoint);
  /// Copies in chunks; whatever its size, it begins one.
  Status copy(const CopyRequest& request);
  /// `event`, of this device, is passed when everything submitted so far is done.
  Status record(Event& event);
  /// Reached when everything submitted so far is done; cheap to ask about and to wait for.
  Result<Timepoint> mark() { return stream().mark(); }

  std::array<Stream*, 2> streams() const { return {streams_[0].get(), streams_[1].get()}; }
  ByteCount chunk_bytes() const { return chunk_bytes_; }

 private:
  explicit BulkLane(ByteCount chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  Stream& stream() { return *streams_[current_]; }
  Status switch_streams();

  const ByteCount chunk_bytes_;
  std::array<std::unique_ptr<Stream>, 2> streams_;
  /// Where each stream last handed over. One event a stream is enough: a wait keeps the place that
  /// was marked when it was submitted.
  std::array<std::unique_ptr<Event>, 2> handed_over_;
  int current_ = 0;
  bool is_taken_ = false;  ///< the current stream has had its chunk
};

}  // namespace stagecoach
