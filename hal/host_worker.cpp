#include "hal/host_worker.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "core/clock.h"

namespace stagecoach {

namespace {

constexpr const char* kVerb = "host work";

FailureSite site_of(const std::string& worker, const Label& label, uint64_t sequence) {
  return FailureSite{"host", worker, kVerb, std::string(label.view()), sequence};
}

}  // namespace

HostWorker::HostWorker(std::string worker_name, TaskPool& pool)
    : HostQueue(std::move(worker_name)), pool_(pool), thread_([this] { work(); }) {}

HostWorker::~HostWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  leave_directory();
}

Result<Timepoint> HostWorker::submit_after(Timepoint after, Label label, HostWorkCost cost,
                                           Job job) {
  if (!job) {
    return invalid_argument("the job is empty; pass a function")
        .with_site(site_of(name(), label, 0));
  }
  std::unique_lock lock(mutex_);
  if (!failure_.is_ok()) return failure_;
  // Sequences of this worker are numbered here, so a later one can only be a mistake.
  if (after.timeline == id() && after.sequence > submitted_) {
    return invalid_argument(fmt::format("the job waits for sequence {} of its own worker, which "
                                        "was never submitted",
                                        after.sequence))
        .with_site(site_of(name(), label, 0));
  }
  queue_.push_back(Entry{++submitted_, after, label, cost, std::move(job)});
  Timepoint timepoint{id(), submitted_};
  lock.unlock();
  wake_.notify_one();
  return timepoint;
}

void HostWorker::set_trace(Trace* trace, int process, int track) {
  std::lock_guard lock(mutex_);
  trace_ = trace;
  trace_process_ = process;
  trace_track_ = track;
}

void HostWorker::set_pace(double bytes_per_ns) {
  std::lock_guard lock(mutex_);
  pace_bytes_per_ns_ = bytes_per_ns;
}

void HostWorker::wait_for_pace(const Entry& entry, int64_t start_ns) {
  double pace = 0;
  {
    std::lock_guard lock(mutex_);
    pace = pace_bytes_per_ns_;
  }
  if (pace <= 0) return;
  auto length_ns = static_cast<int64_t>(static_cast<double>(entry.cost.bytes_touched) / pace);
  int64_t left_ns = start_ns + length_ns - RealClock::instance().now_ns();
  if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
}

void HostWorker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;  // queued jobs are finished even when stopping
    Entry entry = queue_.pop_front();
    running_ = entry.sequence;
    lock.unlock();
    run_entry(entry);
    entry = Entry();  // what the job owns is let go before its timepoint counts as reached
    lock.lock();
    if (failure_.is_ok()) completed_ = running_;
    running_ = 0;
    done_.notify_all();
  }
}

void HostWorker::run_entry(Entry& entry) {
  FailureSite site = site_of(name(), entry.label, entry.sequence);
  bool waits = !entry.after.is_none() && entry.after.timeline != id();
  if (Status status = waits ? stagecoach::wait_until_reached(entry.after) : Status::ok();
      !status.is_ok()) {
    fail(status.site().device.empty() ? status.with_site(site) : status);
    return;
  }
  if (!this->status().is_ok()) return;  // abandoned meanwhile
  int64_t start_ns = RealClock::instance().now_ns();
  Status status = entry.job(pool_);
  wait_for_pace(entry, start_ns);
  trace_entry(entry, start_ns);
  if (!status.is_ok()) fail(status.with_site(site));
}

void HostWorker::trace_entry(const Entry& entry, int64_t start_ns) {
  TraceSlice slice;
  Trace* trace = nullptr;
  {
    std::lock_guard lock(mutex_);
    trace = trace_;
    slice.process = trace_process_;
    slice.track = trace_track_;
  }
  if (trace == nullptr) return;
  slice.name = entry.label;
  slice.category = kVerb;
  slice.start_ns = start_ns;
  slice.end_ns = RealClock::instance().now_ns();
  slice.bytes = entry.cost.bytes_touched;
  trace->add(slice);
}

void HostWorker::fail(const Status& status) {
  RingQueue<Entry> dropped;
  {
    std::lock_guard lock(mutex_);
    if (failure_.is_ok()) failure_ = status;
    // Dropped outside the lock: what a job owns may ask about this worker when destroyed.
    std::swap(dropped, queue_);
  }
  done_.notify_all();
}

Result<bool> HostWorker::reached(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  if (sequence <= completed_) return true;
  if (!failure_.is_ok()) return failure_;
  if (sequence > submitted_) {
    return invalid_argument(fmt::format("sequence {} of '{}' was never submitted; the last is {}",
                                        sequence, name(), submitted_))
        .with_site(site_of(name(), "reached", 0));
  }
  return false;
}

Status HostWorker::wait_until_reached(uint64_t sequence) {
  STAGECOACH_ASSIGN_OR_RETURN(bool done, reached(sequence));
  if (done) return Status::ok();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return completed_ >= sequence || !failure_.is_ok(); });
  return completed_ >= sequence ? Status::ok() : failure_;
}

bool HostWorker::settled(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  if (sequence <= completed_) return true;
  return !failure_.is_ok() && running_ == 0;
}

Status HostWorker::status() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Timepoint HostWorker::last_submitted() const {
  std::lock_guard lock(mutex_);
  return Timepoint{id(), submitted_};
}

void HostWorker::abandon(const Status& status) {
  STAGECOACH_CHECK(!status.is_ok());
  FailureSite site{"host", name(), kVerb, "", 0};
  {
    std::lock_guard lock(mutex_);
    site.sequence = running_;
  }
  fail(status.with_site(site));
}

}  // namespace stagecoach
