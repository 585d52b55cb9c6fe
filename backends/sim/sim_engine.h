#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace stagecoach {

/// One of a card's engines (compute, or copies of one direction): serves one operation at a time,
/// of those that are ready the one that has been so longest, but a stream whose next operation is
/// ready keeps the engine. Thread rule: one thread.
class SimEngine {
 public:
  /// Runs `begin` when the engine is free and it is the turn of this operation of `stream`.
  void request(uint64_t stream, std::function<void()> begin) {
    ready_.push_back({stream, std::move(begin)});
    if (!is_busy_) serve(ready_.begin());
  }
  /// The operation served, of `stream`, is over, and what follows it there has been requested.
  void release(uint64_t stream) {
    is_busy_ = false;
    if (ready_.empty()) return;
    auto next = std::find_if(ready_.begin(), ready_.end(),
                             [stream](const Entry& entry) { return entry.stream == stream; });
    serve(next == ready_.end() ? ready_.begin() : next);
  }

 private:
  struct Entry {
    uint64_t stream;
    std::function<void()> begin;
  };
  void serve(std::vector<Entry>::iterator entry) {
    is_busy_ = true;
    std::function<void()> begin = std::move(entry->begin);
    ready_.erase(entry);
    begin();
  }

  bool is_busy_ = false;
  std::vector<Entry> ready_;  ///< in the order in which they became so; one a stream
};

}  // namespace stagecoach
