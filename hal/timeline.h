#pragma once

#include <string>

#include "core/status.h"
#include "hal/timepoint.h"

namespace stagecoach {

/// An ordered queue of work whose progress can be asked: a stream of a device or a host worker.
/// The first failure is kept for good, and every timepoint not reached before it returns it, so
/// that nobody waits for ever (hal_contract.md, E2).
/// Thread rule: all members from any thread.
class Timeline {
 public:
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  TimelineId id() const { return id_; }
  const std::string& name() const { return name_; }

  /// True when operation `sequence` and all before it have finished, false while they have not;
  /// the timeline's failure when they never will. Never blocks.
  virtual Result<bool> reached(uint64_t sequence) = 0;

  /// Blocks until `sequence` is reached; the timeline's failure when it never will.
  virtual Status wait_until_reached(uint64_t sequence) = 0;

  /// Whether operation `sequence` touches memory no more: it has finished, or it was dropped after
  /// a failure. Decides when memory may be freed. Never blocks.
  virtual bool settled(uint64_t sequence);

  /// First failure, or ok.
  virtual Status status() const = 0;

 protected:
  explicit Timeline(std::string name);
  virtual ~Timeline();
  /// For derived destructors, after work is finished or dropped and while all members still exist:
  /// waits until nobody asks about this timeline any more; afterwards all its timepoints count as
  /// reached. May be called twice.
  void leave_directory();

 private:
  TimelineId id_;
  std::string name_;
};

/// The same questions for a timepoint of any timeline. A timepoint of a destroyed timeline or of
/// none counts as reached.
Result<bool> reached(Timepoint timepoint);
Status wait_until_reached(Timepoint timepoint);
bool settled(Timepoint timepoint);
/// Name of the timeline for messages; "none" when it is gone.
std::string timeline_name(TimelineId id);

namespace internal {

/// Keeps a timeline alive in its derived destructor's first step (`leave_directory`) for as long as
/// this object lives. No lock is held meanwhile.
class TimelineLease {
 public:
  explicit TimelineLease(TimelineId id);
  ~TimelineLease();
  TimelineLease(const TimelineLease&) = delete;
  TimelineLease& operator=(const TimelineLease&) = delete;

  /// Null when the timeline is gone.
  Timeline* get() const { return timeline_; }

 private:
  TimelineId id_;
  Timeline* timeline_ = nullptr;
};

/// Whether the timeline exists. Takes no lock but the directory's own.
bool timeline_is_live(TimelineId id);

}  // namespace internal

}  // namespace stagecoach
