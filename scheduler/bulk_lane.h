#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"
#include "hal/host_worker.h"
#include "scheduler/bulk_chunk.h"

namespace stagecoach {

/// How bulk copies leave room for urgent ones. A copy engine stays with a stream whose next copy is
/// ready, whatever its priority, so a chunk's successor must not be ready when the chunk ends.
enum class BulkMethod : uint8_t {
  kAlternating,   ///< chunks take turns on two streams, each waiting for the one before it
  kSharedStream,  ///< two chunks at a time are issued, on the stream of the urgent copies
  kOneInFlight,   ///< one chunk at a time is issued
  kWhole          ///< whole copies, one behind the other: leaves no room; to compare with
};

/// "alternating", "shared stream", "one in flight", "whole".
const char* bulk_method_name(BulkMethod method);

/// What a lane does with its copies.
struct BulkOptions {
  BulkMethod method = BulkMethod::kAlternating;
  ByteCount chunk_bytes = bulk_chunk_bytes(0);  ///< above 0; kWhole has none
  int ahead = 0;  ///< kAlternating: chunks issued before they run, at most; 0: any number
  Stream* urgent = nullptr;  ///< kSharedStream: the stream of the urgent copies
  /// Chunks of pinned memory through which copies from and to pageable memory go, so that these run
  /// beside others too, which a driver does not let them. 0: they go as they are. Not for kWhole.
  int ring_chunks = 0;
};

/// Bulk copies of one direction of a device (parameters up, gradients down), so that an urgent copy
/// on another stream waits for one or two chunks. Everything runs in the order of submission, as on
/// one stream. Alternating chunks are all issued at once, with a pooled event each, unless `ahead`
/// limits them; an H200 then lets one urgent copy in twenty wait for all of them, and needs a limit
/// of 16 (docs/performance.md, Urgent copies under bulk). Where only so many may be issued, a
/// thread of the lane issues them, and the lane's timepoints are of that thread. Thread rule: one
/// thread at a time; `abandon` and the streams any thread.
class BulkLane {
 public:
  /// `name` is that of the lane; streams are called after it. Errors: the device's; unimplemented
  /// for what needs a thread on simulated devices.
  static Result<std::unique_ptr<BulkLane>> create(Device& device, const std::string& name,
                                                  const BulkOptions& options);
  ~BulkLane();

  /// What is submitted from here on waits until `timepoint`, of the same backend, is reached.
  Status wait(Timepoint timepoint);
  /// Copies in chunks; whatever its size, it begins one.
  Status copy(const CopyRequest& request);
  /// `event`, of this device, is passed when everything submitted so far is done.
  Status record(Event& event);
  /// Reached when everything submitted so far is done.
  Result<Timepoint> mark();
  /// Later work of `consumer` waits for a mark of this lane. Where a thread issues chunks this
  /// blocks until the mark is reached.
  Status hold(Stream& consumer, Timepoint mark);

  /// The lane's own streams.
  std::vector<Stream*> streams() const;
  void abandon(const Status& status);

 private:
  BulkLane(Device& device, const BulkOptions& options);
  Status open(const std::string& name);
  Stream& stream() const;
  Status switch_streams();
  Status copy_chunks(const CopyRequest& request);
  Status finish_all_but(size_t count);
  void stage(CopyRequest& chunk, BufferView& lands_at);
  void copy_on_host(const BufferView& target, const BufferView& source);
  Result<Timepoint> submit(HostWorker::Job job, Timepoint after = {});

  Device& device_;
  const BulkOptions options_;
  const int most_issued_;  ///< chunks; 0: any number
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t current_ = 0;
  bool is_taken_ = false;  ///< the current stream has had its chunk
  /// A chunk under way; where their number is limited.
  struct Issued {
    Timepoint end;
    BufferView place, target;  ///< of a download by way of the ring: where it goes on to
  };
  std::deque<Issued> issued_;
  BufferHandle ring_;
  int64_t staged_ = 0;  ///< chunks so far
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<HostWorker> worker_;  // last: ends before what it uses
};

}  // namespace stagecoach
