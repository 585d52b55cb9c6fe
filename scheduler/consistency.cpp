#include "scheduler/consistency.h"

#include <algorithm>

#include "core/check.h"
#include "core/clock.h"

namespace stagecoach {

Consistency::Consistency(Executor& executor, const std::vector<bool>& is_frozen, UpdateMode update,
                         int64_t version)
    : update_(update) {
  blocks_.reserve(is_frozen.size());
  for (bool frozen : is_frozen) {
    blocks_.emplace_back(executor);
    blocks_.back().is_frozen = frozen;
    blocks_.back().version = version;
  }
}

int64_t Consistency::version_read_by(int64_t step) const {
  return update_ == UpdateMode::kAsync ? std::max<int64_t>(0, step - 1) : step;
}

Task<Status> Consistency::reached(int block, int64_t version) {
  while (!has_reached(block, version)) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await blocks_[block].changed.wait());
  }
  co_return Status::ok();
}

void Consistency::lease(int block, int64_t version) {
  ++blocks_[block].leases[static_cast<size_t>(version % kLeasedVersions)];
}

void Consistency::release(int block, int64_t version) {
  int& leases = blocks_[block].leases[static_cast<size_t>(version % kLeasedVersions)];
  STAGECOACH_CHECK(leases > 0);
  if (--leases == 0) blocks_[block].changed.notify();
}

Task<Status> Consistency::overwritable(int block, int64_t version) {
  // Versions older than what it overwrites have been read by steps whose updates came before.
  int64_t overwritten = overwritten_by(version);
  if (overwritten < 0) co_return Status::ok();
  Block& held = blocks_[block];
  const int& leases = held.leases[static_cast<size_t>(overwritten % kLeasedVersions)];
  bool waits_for_reader = held.readers > 0 && leases > 0;
  Status status;
  if (waits_for_reader) {
    count_reading_wait(1);
    if (copier_) status = co_await copier_(block, version);
  }
  while (status.is_ok() && leases > 0) status = co_await held.changed.wait();
  if (waits_for_reader) count_reading_wait(-1);
  co_return status;
}

void Consistency::count_reading_wait(int change) {
  if (waiting_for_readers_ == 0) reading_wait_began_ns_ = RealClock::instance().now_ns();
  waiting_for_readers_ += change;
  if (waiting_for_readers_ > 0) return;
  reading_wait_ns_ += RealClock::instance().now_ns() - reading_wait_began_ns_;
}

void Consistency::begin_reading(int block, int64_t version) {
  // Remainders and moments lie in one place whatever the versions, so that the next update is what
  // must wait.
  lease(block, overwritten_by(version + 1));
  ++blocks_[block].readers;
}

void Consistency::end_reading(int block, int64_t version) {
  --blocks_[block].readers;
  release(block, overwritten_by(version + 1));
}

void Consistency::publish(int block) {
  ++blocks_[block].version;
  blocks_[block].changed.notify();
}

void Consistency::fail(const Status& status) {
  for (Block& block : blocks_) block.changed.fail(status);
}

}  // namespace stagecoach
