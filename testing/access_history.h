#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/label.h"

namespace stagecoach {

/// How far each subject (the host, every stream) is known to have come; subjects not listed: 0.
class VectorClock {
 public:
  uint64_t operator[](size_t subject) const {
    return subject < times_.size() ? times_[subject] : 0;
  }
  void set(size_t subject, uint64_t time);
  /// Knows what either knew.
  void join(const VectorClock& other);

 private:
  std::vector<uint64_t> times_;
};

/// One access to a range of memory. Plain data.
struct MemoryAccess {
  size_t subject = 0;
  uint64_t time = 0;  ///< of its subject, from 1
  std::string place;  ///< "cpu:1/compute", "host"
  std::string verb;   ///< "copy", "matmul", "host work"
  Label label;
  bool writes = false;
  uintptr_t begin = 0, end = 0;
};

/// For every byte of one address space the last write and the reads since. Thread rule: one thread
/// at a time.
class AccessHistory {
 public:
  using Access = std::shared_ptr<const MemoryAccess>;

  /// Takes `access` in, which knows what `known` says. Returns an earlier access to one of its
  /// bytes that it does not know of although one of both writes; null: there is none.
  Access add(const Access& access, const VectorClock& known);
  /// The memory is new: whatever happened at these addresses happened to other memory.
  void forget(uintptr_t begin, uintptr_t end);

 private:
  struct Range {
    uintptr_t end = 0;
    Access write;
    std::vector<Access> reads;  ///< one a subject
  };
  using Ranges = std::map<uintptr_t, Range>;

  /// Makes a range begin at `at` where one goes across it.
  void split(uintptr_t at);
  static Access find_conflict(const Range& range, const MemoryAccess& access,
                              const VectorClock& known);
  void add_read(const Access& access);

  Ranges ranges_;  ///< by first address
};

}  // namespace stagecoach
