#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/label.h"
#include "core/status.h"
#include "hal/copy.h"
#include "hal/event.h"
#include "hal/executable.h"
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
  Status status() const override;
  /// Blocks until everything submitted is done; the stream's failure if it has one.
  Status synchronize();
  /// Makes `status` the stream's failure unless it has one: queued work is dropped, waiters wake.
  void abandon(const Status& status);
  /// The oldest submission not known to be done, for "what is it stuck on" messages.
  std::string describe_oldest_pending();

 protected:
  Stream(Device& device, std::string name);
  ~Stream() override;
  /// For derived destructors: releases pooled events while the backend's part still exists.
  void release_events();

 private:
  friend class Ops;
  using Submit = std::function<Status()>;

  virtual Status do_copy(const CopyRequest& request) = 0;
  virtual Status do_fill(const FillRequest& request) = 0;
  virtual Status do_launch(const LaunchRequest& request) = 0;
  virtual Status do_record(Event& event) = 0;
  virtual Status do_wait(const Event& event) = 0;
  virtual Status do_synchronize() = 0;
  /// Drops queued work and completes its events with `status`.
  virtual void do_abandon(const Status& status) = 0;

  struct Mark {
    uint64_t sequence;
    std::unique_ptr<Event> event;
  };
  struct Pending {
    uint64_t sequence;
    const char* verb;
    Label label;
  };

  /// Runs one backend submit under the lock: refuses when failed, numbers it, remembers a failure.
  template <typename Function>
  Result<Timepoint> submit(const char* verb, const Label& label, Function&& function);
  Status fail_locked(const Status& status, const char* verb, const Label& label);
  Status mark_locked();
  /// The event of the first mark at or after `sequence`; made at the tail when there is none.
  Result<Event*> event_reaching_locked(uint64_t sequence);
  Result<bool> reached_locked(uint64_t sequence);
  void poll_locked();

  Device& device_;
  mutable std::recursive_mutex mutex_;
  Status failure_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  std::deque<Mark> marks_;
  std::vector<std::unique_ptr<Event>> free_events_;
  std::deque<Pending> pending_;
};

/// How to create a stream.
struct StreamOptions {
  std::string name;  ///< "compute", "parameter_up": appears in messages and traces
};

}  // namespace stagecoach
