#include "hal/timeline.h"

#include <condition_variable>
#include <mutex>
#include <unordered_map>

namespace stagecoach {

namespace {

/// All live timelines. The lock is held for look-ups only, never while a timeline is asked: a
/// lease keeps it alive meanwhile, so no lock order arises from here.
struct Directory {
  struct Entry {
    Timeline* timeline = nullptr;
    int leases = 0;
    bool leaving = false;
  };
  std::mutex mutex;
  std::condition_variable lease_ended;
  std::unordered_map<TimelineId, Entry> live;
  TimelineId last_id = 0;
};

Directory& directory() {
  static Directory* instance = new Directory;  // outlives every static timeline
  return *instance;
}

}  // namespace

Timeline::Timeline(std::string name) : name_(std::move(name)) {
  Directory& all = directory();
  std::lock_guard lock(all.mutex);
  id_ = ++all.last_id;
  all.live.emplace(id_, Directory::Entry{this});
}

Timeline::~Timeline() {
  leave_directory();
}

void Timeline::leave_directory() {
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  auto found = all.live.find(id_);
  if (found == all.live.end()) return;
  // References into an unordered_map survive insertions by others while this thread waits.
  Directory::Entry& entry = found->second;
  entry.leaving = true;
  all.lease_ended.wait(lock, [&entry] { return entry.leases == 0; });
  all.live.erase(id_);
}

bool Timeline::settled(uint64_t sequence) {
  Result<bool> result = reached(sequence);
  return !result.is_ok() || result.value();
}

namespace internal {

TimelineLease::TimelineLease(TimelineId id) : id_(id) {
  if (id == 0) return;
  Directory& all = directory();
  std::lock_guard lock(all.mutex);
  auto found = all.live.find(id);
  if (found == all.live.end() || found->second.leaving) return;
  ++found->second.leases;
  timeline_ = found->second.timeline;
}

TimelineLease::~TimelineLease() {
  if (timeline_ == nullptr) return;
  Directory& all = directory();
  std::lock_guard lock(all.mutex);
  Directory::Entry& entry = all.live.find(id_)->second;
  if (--entry.leases == 0 && entry.leaving) all.lease_ended.notify_all();
}

bool timeline_is_live(TimelineId id) {
  Directory& all = directory();
  std::lock_guard lock(all.mutex);
  auto found = all.live.find(id);
  return found != all.live.end() && !found->second.leaving;
}

}  // namespace internal

Result<bool> reached(Timepoint timepoint) {
  internal::TimelineLease lease(timepoint.timeline);
  if (lease.get() == nullptr) return true;
  return lease.get()->reached(timepoint.sequence);
}

Status wait_until_reached(Timepoint timepoint) {
  internal::TimelineLease lease(timepoint.timeline);
  if (lease.get() == nullptr) return Status::ok();
  return lease.get()->wait_until_reached(timepoint.sequence);
}

bool settled(Timepoint timepoint) {
  internal::TimelineLease lease(timepoint.timeline);
  return lease.get() == nullptr || lease.get()->settled(timepoint.sequence);
}

std::string timeline_name(TimelineId id) {
  internal::TimelineLease lease(id);
  return lease.get() == nullptr ? "none" : lease.get()->name();
}

}  // namespace stagecoach
