#include "backends/gpu/gpu_stream_cell.h"

#include <algorithm>
#include <chrono>

namespace stagecoach {

GpuStreamTotals& GpuStreamTotals::operator+=(const GpuStreamTotals& other) {
  kernels += other.kernels;
  copies += other.copies;
  bytes_up += other.bytes_up;
  bytes_down += other.bytes_down;
  return *this;
}

Result<bool> GpuMark::has_passed() {
  if (passed_.load(std::memory_order_acquire)) return true;
  // A failed stream's later marks do not count, even when the card gets that far.
  if (cell_->has_failed()) return cell_->failure();
  STAGECOACH_ASSIGN_OR_RETURN(bool passed, ask_driver());
  if (!passed) return false;
  STAGECOACH_RETURN_IF_ERROR(cell_->check_error_words(sequence_));
  passed_.store(true, std::memory_order_release);
  cell_->note_finished(sequence_, totals_);
  return true;
}

GpuMarkRef::GpuMarkRef(GpuMark& mark, std::shared_ptr<GpuStreamCell> cell, uint64_t sequence,
                       const GpuStreamTotals& totals)
    : mark_(&mark) {
  mark.cell_ = std::move(cell);
  mark.sequence_ = sequence;
  mark.totals_ = totals;
  mark.passed_.store(false, std::memory_order_relaxed);
  mark.references_.store(1, std::memory_order_release);
}

GpuMarkRef::GpuMarkRef(const GpuMarkRef& other) : mark_(other.mark_) {
  if (mark_ != nullptr) mark_->references_.fetch_add(1, std::memory_order_relaxed);
}

GpuMarkRef::GpuMarkRef(GpuMarkRef&& other) noexcept : mark_(std::exchange(other.mark_, nullptr)) {}

GpuMarkRef& GpuMarkRef::operator=(GpuMarkRef other) noexcept {
  std::swap(mark_, other.mark_);
  return *this;
}

GpuMarkRef::~GpuMarkRef() {
  if (mark_ == nullptr) return;
  if (mark_->references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  mark_->cell_.reset();
  mark_->recycle();
}

Status GpuStreamCell::failure() const {
  if (!has_failed()) return Status::ok();
  std::lock_guard lock(mutex_);
  return failure_;
}

Status GpuStreamCell::check_error_words(uint64_t sequence) {
  Status reported = error_words_.check(sequence, site_);
  if (!reported.is_ok()) fail(reported);
  return reported;
}

void GpuStreamCell::fail(const Status& status) {
  RingQueue<Waiter> waiters;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.is_ok()) return;
    failure_ = status;
    std::swap(waiters, waiters_);
  }
  // Marks passed by now are settled first, so that they stay passed. Nothing here holds the lock:
  // two streams may wait for each other's past.
  for (size_t i = 0; i < waiters.size(); ++i) {
    Result<bool> passed = waiters[i].mark->has_passed();
    if (passed.is_ok() && passed.value()) waiters[i].cell.reset();
  }
  failed_.store(true, std::memory_order_release);
  failure_noticed_.notify_all();
  while (!waiters.empty()) {
    Waiter waiter = waiters.pop_front();
    if (waiter.cell != nullptr) waiter.cell->fail(status);
  }
}

GpuMarkRef GpuStreamCell::oldest_awaited() {
  std::lock_guard lock(mutex_);
  return waiters_.empty() ? GpuMarkRef() : waiters_.front().mark;
}

void GpuStreamCell::add_waiter(GpuMarkRef mark, std::shared_ptr<GpuStreamCell> waiter) {
  // Waits that are over are let go here, so that the list stays as long as the queue is.
  for (;;) {
    GpuMarkRef oldest = oldest_awaited();
    if (oldest.get() == nullptr) break;
    Result<bool> passed = oldest->has_passed();
    if (!passed.is_ok() || !passed.value()) break;
    std::lock_guard lock(mutex_);
    if (!waiters_.empty() && waiters_.front().mark.get() == oldest.get()) waiters_.pop_front();
  }
  Status already;
  {
    std::lock_guard lock(mutex_);
    already = failure_;
    if (already.is_ok() && !closed_) waiters_.push_back({std::move(mark), waiter});
  }
  if (!already.is_ok()) waiter->fail(already);
}

void GpuStreamCell::close() {
  RingQueue<Waiter> waiters;
  error_words_.detach();
  std::lock_guard lock(mutex_);
  closed_ = true;
  std::swap(waiters, waiters_);
}

void GpuStreamCell::sleep_unless_failed(int64_t duration_ns) const {
  std::unique_lock lock(mutex_);
  failure_noticed_.wait_for(lock, std::chrono::nanoseconds(duration_ns),
                            [this] { return !failure_.is_ok(); });
}

void GpuStreamCell::note_finished(uint64_t sequence, const GpuStreamTotals& totals) {
  std::lock_guard lock(progress_mutex_);
  if (sequence < finished_sequence_) return;
  finished_sequence_ = sequence;
  finished_ = totals;
}

GpuStreamTotals GpuStreamCell::finished() const {
  std::lock_guard lock(progress_mutex_);
  return finished_;
}

uint64_t GpuStreamCell::finished_sequence() const {
  std::lock_guard lock(progress_mutex_);
  return finished_sequence_;
}

int64_t GpuStreamCell::monotonic(uint64_t sequence, int64_t time_ns) {
  std::lock_guard lock(progress_mutex_);
  if (sequence < latest_sequence_) return std::min(time_ns, latest_ns_);
  latest_sequence_ = sequence;
  latest_ns_ = std::max(latest_ns_, time_ns);
  return latest_ns_;
}

}  // namespace stagecoach
