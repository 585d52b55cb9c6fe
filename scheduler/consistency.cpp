#include "scheduler/consistency.h"

#include <algorithm>

#include "core/check.h"

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
  // With one copy the version before it lies there, with two the one before that. Older ones have
  // been read by steps whose updates came before.
  int64_t overwritten = version - (update_ == UpdateMode::kAsync ? 2 : 1);
  if (overwritten < 0) co_return Status::ok();
  const int& leases = blocks_[block].leases[static_cast<size_t>(overwritten % kLeasedVersions)];
  while (leases > 0) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await blocks_[block].changed.wait());
  }
  co_return Status::ok();
}

void Consistency::publish(int block) {
  ++blocks_[block].version;
  blocks_[block].changed.notify();
}

void Consistency::fail(const Status& status) {
  for (Block& block : blocks_) block.changed.fail(status);
}

}  // namespace stagecoach
