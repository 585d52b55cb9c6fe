#include "testing/access_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stagecoach {

void VectorClock::set(size_t subject, uint64_t time) {
  if (subject >= times_.size()) times_.resize(subject + 1);
  times_[subject] = time;
}

void VectorClock::join(const VectorClock& other) {
  if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

void AccessHistory::split(uintptr_t at) {
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return;
  auto found = std::prev(next);
  if (found->first == at || found->second.end <= at) return;
  Range tail = found->second;
  found->second.end = at;
  ranges_.emplace_hint(next, at, std::move(tail));
}

AccessHistory::Access AccessHistory::find_conflict(const Range& range, const MemoryAccess& access,
                                                   const VectorClock& known) {
  auto is_unknown = [&](const Access& earlier) {
    return earlier != nullptr && known[earlier->subject] < earlier->time;
  };
  if (is_unknown(range.write)) return range.write;
  if (!access.writes) return nullptr;
  auto found = std::find_if(range.reads.begin(), range.reads.end(), is_unknown);
  return found == range.reads.end() ? nullptr : *found;
}

void AccessHistory::add_read(const Access& access) {
  uintptr_t at = access->begin;
  while (at < access->end) {
    auto found = ranges_.lower_bound(at);
    if (found == ranges_.end() || found->first > at) {
      uintptr_t end = found == ranges_.end() ? access->end : std::min(access->end, found->first);
      found = ranges_.emplace_hint(found, at, Range{end, nullptr, {}});
    }
    std::vector<Access>& reads = found->second.reads;
    auto same = [&](const Access& read) { return read->subject == access->subject; };
    auto older = std::find_if(reads.begin(), reads.end(), same);
    if (older == reads.end()) {
      reads.push_back(access);
    } else {
      *older = access;
    }
    at = found->second.end;
  }
}

AccessHistory::Access AccessHistory::add(const Access& access, const VectorClock& known) {
  if (access->begin >= access->end) return nullptr;
  split(access->begin);
  split(access->end);
  Access conflict;
  auto first = ranges_.lower_bound(access->begin), last = ranges_.lower_bound(access->end);
  for (auto range = first; range != last && conflict == nullptr; ++range) {
    conflict = find_conflict(range->second, *access, known);
  }
  if (access->writes) {
    ranges_.erase(first, last);
    ranges_.emplace(access->begin, Range{access->end, access, {}});
  } else {
    add_read(access);
  }
  return conflict;
}

void AccessHistory::forget(uintptr_t begin, uintptr_t end) {
  split(begin);
  split(end);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
}

}  // namespace stagecoach
