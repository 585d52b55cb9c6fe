#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/label.h"
#include "core/status.h"
#include "hal/copy.h"
#include "hal/event.h"
#include "hal/executable.h"
#include "hal/ring_queue.h"
#include "hal/timeline.h"

namespace stagecoach {

class Device;
class Ops;
struct OpCall;

/// An in-order queue of copies, fills, launches, math, event records and waits on one device.
/// Every submit returns the timepoint at which it will be done. The public front validates, counts
/// and keeps the sticky failure; backends implement the private part.
/// Thread rule: any thread; submits from several threads are serialised by the stream.
class Stream : public Timeline {
 public:
  ~Stream() override;

  Device& device() const { return device_; }

  Result<Timepoint> copy(const CopyRequest& request);
  Result<Timepoint> fill(const FillRequest& request);
  Result<Timepoint> launch(const LaunchRequest& request);
  /// Marks this place in the stream. The event must be of this stream's device.
  Result<Timepoint> record(Event& event);
  /// Later work waits until `event`, of any device of the same backend, is passed. An event never
  /// recorded is a failed precondition.
  Result<Timepoint> wait(const Event& event);
  /// Later work waits for a timepoint of a stream of the same backend. Reached timepoints and those
  /// of this stream cost nothing. Another backend's or a host worker's is a failed precondition:
  /// wait for those on the host.
  Result<Timepoint> wait(Timepoint timepoint);
  /// Records an event of the stream's own pool, which makes all work so far cheap to ask about and
  /// to wait for. Call it after work whose result leaves this lane.
  Result<Timepoint> mark();

  /// The last submitted operation.
  Timepoint last_submitted() const;
  Result<bool> reached(uint64_t sequence) override;
  Status wait_until_reached(uint64_t sequence) override;
  bool settled(uint64_t sequence) override;
  Status status() const override;
  /// Blocks until everything submitted is done; the stream's failure if it has one.
  Status synchronize();
  /// Makes `status` the stream's failure unless it has one: queued work is dropped, waiters wake.
  void abandon(const Status& status);
  /// The last operation known to be done, after looking once. Never blocks.
  uint64_t completed_sequence();
  /// What the stream is at, for messages about a hang.
  struct Pending {
    uint64_t sequence = 0;  ///< 0: nothing is pending
    std::string_view verb;
    Label label;
    Timepoint awaited;  ///< of a wait: what for
  };
  /// The oldest operation not known to be done, passing over waits that are over. A "wait" as the
  /// answer means that this stream is held up by another.
  Pending oldest_pending();

 protected:
  Stream(Device& device, std::string name);
  /// For derived destructors, once the work is done or dropped: waits for those who are asking
  /// about this stream and releases pooled events while the backend's part still exists.
  void release_events();
  /// For `do_…`: the number of the operation being submitted.
  uint64_t submitting_sequence() const { return submitted_; }

 private:
  friend class Ops;

  virtual Status do_copy(const CopyRequest& request) = 0;
  virtual Status do_fill(const FillRequest& request) = 0;
  virtual Status do_launch(const LaunchRequest& request) = 0;
  virtual Status do_record(Event& event) = 0;
  virtual Status do_wait(const Event& event) = 0;
  virtual Status do_synchronize() = 0;
  /// Drops queued work and completes its events with `status`.
  virtual void do_abandon(const Status& status) = 0;
  /// A failure of earlier work that the backend has noticed by itself, or ok. Cheap.
  virtual Status do_failure() const { return Status::ok(); }
  /// After a failure: whether the operation that was running has let go of its memory.
  virtual bool do_is_idle() { return true; }

  /// An event of the stream's own pool. `waiters` block on it outside the lock, so it is recycled
  /// only when they have left.
  struct PooledEvent {
    std::unique_ptr<Event> event;
    int waiters = 0;
    bool is_done = false;
  };
  struct Mark {
    uint64_t sequence = 0;
    PooledEvent* pooled = nullptr;
  };

  /// Runs one backend submit under the lock: refuses when failed, numbers it, remembers a failure.
  /// `verb` is static text. `function` returns Status; it is not stored. Callers note the use of
  /// buffers afterwards, outside the lock.
  template <typename Function>
  Result<Timepoint> submit(std::string_view verb, const Label& label, Function&& function,
                           Timepoint awaited = {}) {
    using Plain = std::remove_reference_t<Function>;
    auto call = [](void* context) -> Status { return (*static_cast<Plain*>(context))(); };
    return submit_erased(Pending{0, verb, label, awaited}, call,
                         const_cast<void*>(static_cast<const void*>(&function)));
  }
  Result<Timepoint> submit_erased(Pending operation, Status (*function)(void*), void* context);
  /// Keeps `status` as the failure unless there is one; returns the stream's failure.
  Status fail_locked(const Status& status, std::string_view verb, const Label& label,
                     uint64_t sequence);
  /// The same where the failing operation is not known exactly: the oldest not known to be done.
  void fail_at_oldest_locked(const Status& status);
  /// Takes over a failure that the backend has noticed by itself.
  void notice_failure_locked();
  /// The site of a refused request: no sequence, since none was given.
  Status refuse(const Status& status, std::string_view verb, const Label& label) const;
  Status mark_locked();
  /// The event of the first mark at or after `sequence`, held for the caller, who passes it to
  /// `release_waiter`; made at the tail when there is none.
  Result<PooledEvent*> hold_event_reaching(uint64_t sequence);
  void release_waiter(PooledEvent* pooled);
  Result<bool> reached_locked(uint64_t sequence);
  Result<Timepoint> wait_for_stream(Stream& source, Timepoint timepoint);
  Status check_sequence(uint64_t sequence) const;
  void poll_locked();
  void complete_locked(uint64_t sequence);

  Device& device_;
  mutable std::recursive_mutex mutex_;
  Status failure_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  uint64_t marked_ = 0;
  RingQueue<Mark> marks_;
  std::vector<std::unique_ptr<PooledEvent>> all_events_;
  std::vector<PooledEvent*> free_events_;
  RingQueue<Pending> pending_;
};

/// How to create a stream.
struct StreamOptions {
  std::string name;  ///< "compute", "parameter_up": appears in messages and traces
};

}  // namespace stagecoach
