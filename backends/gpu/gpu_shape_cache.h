#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace stagecoach {

/// Values by shape, at most `capacity`: beyond it, the one used longest ago goes. Finding allocates
/// nothing. Thread rule: one thread at a time.
template <typename Shape, typename Value>
class GpuShapeCache {
 public:
  explicit GpuShapeCache(size_t capacity) : capacity_(capacity) {}

  /// The value of `shape`, or null.
  Value* find(const Shape& shape) {
    auto found = entries_.find(shape);
    if (found == entries_.end()) return nullptr;
    found->second.last_use = ++uses_;
    return &found->second.value;
  }
  /// Keeps `value`; what it displaces is destroyed.
  Value* insert(const Shape& shape, Value value) {
    if (entries_.size() >= capacity_) entries_.erase(oldest());
    auto [entry, inserted] = entries_.insert_or_assign(shape, Entry{std::move(value), ++uses_});
    return &entry->second.value;
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value;
    uint64_t last_use;
  };
  auto oldest() {
    auto oldest = entries_.begin();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.last_use < oldest->second.last_use) oldest = entry;
    }
    return oldest;
  }

  const size_t capacity_;
  std::map<Shape, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace stagecoach
