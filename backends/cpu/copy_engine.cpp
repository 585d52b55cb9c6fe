#include "backends/cpu/copy_engine.h"

#include <algorithm>

#include "core/check.h"

namespace stagecoach {

uint64_t next_issue_ticket() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void IssueOrderEngine::announce(Turn& turn) {
  std::lock_guard lock(mutex_);
  ready_.push_back(&turn);
  grant_locked();
}

void IssueOrderEngine::withdraw(Turn& turn) {
  std::lock_guard lock(mutex_);
  if (owner_ == &turn) {
    owner_ = nullptr;
    turn.granted.store(false, std::memory_order_release);
    grant_locked();
    return;
  }
  std::erase(ready_, &turn);
}

void IssueOrderEngine::release(Turn& holder, Turn* next, uint64_t next_ticket) {
  std::lock_guard lock(mutex_);
  STAGECOACH_CHECK(owner_ == &holder);
  owner_ = nullptr;
  holder.granted.store(false, std::memory_order_release);
  if (next == nullptr) {
    grant_locked();
    return;
  }
  next->ticket = next_ticket;
  give_locked(*next);
}

void IssueOrderEngine::grant_locked() {
  if (owner_ != nullptr || ready_.empty()) return;
  auto first = std::min_element(ready_.begin(), ready_.end(),
                                [](const Turn* a, const Turn* b) { return a->ticket < b->ticket; });
  Turn& turn = **first;
  ready_.erase(first);
  give_locked(turn);
}

void IssueOrderEngine::give_locked(Turn& turn) {
  owner_ = &turn;
  turn.granted.store(true, std::memory_order_release);
  turn.signal->notify();
}

}  // namespace stagecoach
