#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "hal/ring_queue.h"
#include "hal/timeline.h"
#include "scheduler/bulk_chunk.h"
#include "scheduler/staging_ring.h"

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
/// The method called `name`; else an invalid argument that lists them.
Result<BulkMethod> parse_bulk_method(std::string_view name);

/// What a lane does with its copies.
struct BulkOptions {
  BulkMethod method = BulkMethod::kAlternating;
  ByteCount chunk_bytes = bulk_chunk_bytes(0);  ///< above 0; kWhole has none
  int ahead = 0;             ///< kAlternating: chunks under way at a time, at most; 0: any number
  Stream* urgent = nullptr;  ///< kSharedStream: the stream of the urgent copies
  /// Chunks of pinned memory through which copies from and to pageable memory go, so that these run
  /// beside others too, which a driver does not let them. 0: they go as they are. Not for kWhole.
  int ring_chunks = 0;
};

/// Bulk copies of one direction of a device (parameters up, gradients down), so that an urgent copy
/// on another stream waits for one or two chunks. Everything runs in the order of submission, as on
/// one stream. Where only so many chunks may be under way (`ahead`, methods, rings) the lane keeps
/// the rest and issues it as chunks end: nobody who submits waits for that. Such a lane's marks are
/// its own timepoints, since what they stand behind may not have been issued; without a limit they
/// are those of its streams.
/// Thread rule: one thread at a time; `abandon`, `hold`, the streams and the timeline any thread.
class BulkLane final : public Timeline {
 public:
  /// `name` is that of the lane; streams are called after it. Errors: the device's; unimplemented
  /// for what needs a thread on simulated devices.
  static Result<std::unique_ptr<BulkLane>> create(Device& device, const std::string& name,
                                                  const BulkOptions& options);
  ~BulkLane() override;

  /// What is submitted from here on waits until `timepoint` is reached: of a stream of the same
  /// backend, or of anything where a thread issues chunks.
  Status wait(Timepoint timepoint);
  /// Copies in chunks; whatever its size, it begins one.
  Status copy(const CopyRequest& request);
  /// `event`, of this device, is passed when everything submitted so far is done.
  Status record(Event& event);
  /// Reached when everything submitted so far is done.
  Result<Timepoint> mark();
  /// Later work of `consumer` waits until devices have done their part of what is behind `mark`, of
  /// a stream or a lane of the same backend. Blocks until the lane has issued that: shortly before
  /// it is done.
  static Status hold(Stream& consumer, Timepoint mark);

  Result<bool> reached(uint64_t sequence) override;
  Status wait_until_reached(uint64_t sequence) override;
  Status status() const override;

  /// Pinned memory of the lane's ring.
  ByteCount ring_bytes() const { return ring_ ? ring_->bytes() : 0; }
  /// The lane's own streams.
  std::vector<Stream*> streams() const;
  void abandon(const Status& status);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Order {
    enum class Kind : uint8_t { kWait, kCopy, kRecord, kMark } kind = Kind::kMark;
    Timepoint awaited;
    CopyRequest copy;
    int64_t next_piece = 0;
    Event* event = nullptr;
    uint64_t mark = 0;
  };
  /// A chunk under way.
  struct Issued {
    Timepoint end;
    BufferView place, target;  ///< of a download by way of the ring: where it goes on to
  };
  struct Mark {
    Timepoint end;       ///< of what devices do
    int64_t chunks = 0;  ///< issued before it
  };

  BulkLane(Device& device, const std::string& name, const BulkOptions& options);
  Status open();
  Stream& stream() const;
  Status switch_streams();
  /// Keeps an order and does what can be done at once.
  Status submit(const Order& order);
  // All of these with the lock held, which only host copies of a ring let go of meanwhile.
  void issue_orders(Lock& lock);
  /// Whether all of the order has been issued.
  Result<bool> issue(Order& order, Lock& lock);
  Result<bool> issue_wait(Timepoint timepoint);
  Result<bool> issue_copy(Order& order, Lock& lock);
  Status issue_chunk(CopyRequest chunk, Lock& lock);
  Status note_ends(Lock& lock);
  void fail(const Status& status);
  bool is_full() const;
  bool has_work() const;
  void work();
  Result<Timepoint> wait_until_issued(uint64_t sequence);

  Device& device_;
  const BulkOptions options_;
  const int most_issued_;  ///< chunks under way; 0: any number
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t current_ = 0;
  bool is_taken_ = false;  ///< the current stream has had its chunk

  mutable std::mutex mutex_;
  std::condition_variable wake_;      ///< of the thread
  std::condition_variable progress_;  ///< marks have been issued or reached, or all has failed
  Status failure_;
  RingQueue<Order> orders_;  ///< not issued, or the first in part
  RingQueue<Issued> issued_;
  int64_t ended_ = 0;      ///< chunks
  RingQueue<Mark> marks_;  ///< issued and not known to be reached: those after `reached_mark_`
  uint64_t last_mark_ = 0, reached_mark_ = 0;
  bool is_stopping_ = false;
  std::unique_ptr<StagingRing> ring_;
  std::thread thread_;  // where chunks are limited; last: ends before what it uses
};

}  // namespace stagecoach
