#include "hal/timeline.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace stagecoach {

namespace {

/// All live timelines. Lookups hold the lock while they ask, so a timeline cannot vanish meanwhile.
struct Directory {
  std::shared_mutex mutex;
  std::unordered_map<TimelineId, Timeline*> live;
  TimelineId last_id = 0;
};

Directory& directory() {
  static Directory* instance = new Directory;  // outlives every static timeline
  return *instance;
}

}  // namespace

Timeline::Timeline(std::string name) : name_(std::move(name)) {
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  id_ = ++all.last_id;
  all.live.emplace(id_, this);
}

Timeline::~Timeline() {
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  all.live.erase(id_);
}

Result<bool> reached(Timepoint timepoint) {
  if (timepoint.is_none()) return true;
  Directory& all = directory();
  std::shared_lock lock(all.mutex);
  auto found = all.live.find(timepoint.timeline);
  if (found == all.live.end()) return true;
  return found->second->reached(timepoint.sequence);
}

Status wait_until_reached(Timepoint timepoint) {
  if (timepoint.is_none()) return Status::ok();
  Timeline* timeline = nullptr;
  {
    Directory& all = directory();
    std::shared_lock lock(all.mutex);
    auto found = all.live.find(timepoint.timeline);
    if (found == all.live.end()) return Status::ok();
    timeline = found->second;
  }
  // Blocking under the directory's lock would stop others from making streams; destroying a
  // timeline while someone blocks on it is against the contract (L4).
  return timeline->wait_until_reached(timepoint.sequence);
}

std::string timeline_name(TimelineId id) {
  Directory& all = directory();
  std::shared_lock lock(all.mutex);
  auto found = all.live.find(id);
  return found == all.live.end() ? "none" : found->second->name();
}

}  // namespace stagecoach
