#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

namespace stagecoach {

/// One of a card's engines (compute, or copies of one direction): serves one operation at a time,
/// of those that are ready the one issued first. Thread rule: one thread.
class SimEngine {
 public:
  /// Runs `begin` when the engine is free and this operation's turn.
  void request(uint64_t ticket, std::function<void()> begin) {
    ready_.emplace(ticket, std::move(begin));
    serve();
  }
  /// The operation served is over.
  void release() {
    is_busy_ = false;
    serve();
  }

 private:
  struct ByTicket {
    using Entry = std::pair<uint64_t, std::function<void()>>;
    bool operator()(const Entry& a, const Entry& b) const { return a.first < b.first; }
  };
  void serve() {
    if (is_busy_ || ready_.empty()) return;
    is_busy_ = true;
    std::function<void()> begin = ready_.begin()->second;
    ready_.erase(ready_.begin());
    begin();
  }

  bool is_busy_ = false;
  std::set<ByTicket::Entry, ByTicket> ready_;
};

}  // namespace stagecoach
