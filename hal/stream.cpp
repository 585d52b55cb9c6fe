#include "hal/stream.h"

#include <algorithm>
#include <fmt/format.h>

#include "hal/device.h"
#include "hal/validation.h"

namespace stagecoach {

namespace {

/// Unmarked submissions after which a stream marks itself, so that what it remembers of them stays
/// bounded however long nobody asks.
constexpr uint64_t kMarkInterval = 256;

}  // namespace

Stream::Stream(Device& device, std::string name) : Timeline(std::move(name)), device_(device) {}

Stream::~Stream() = default;

void Stream::release_events() {
  leave_directory();
  std::lock_guard lock(mutex_);
  marks_.clear();
  free_events_.clear();
  all_events_.clear();
}

Status Stream::refuse(const Status& status, std::string_view verb, const Label& label) const {
  return status.with_site(
      FailureSite{device_.id(), name(), std::string(verb), std::string(label.view()), 0});
}

Status Stream::fail_locked(const Status& status, std::string_view verb, const Label& label,
                           uint64_t sequence) {
  if (!failure_.is_ok()) return failure_;
  // A failure that flowed in from elsewhere keeps its site whole, whatever that left empty.
  failure_ = status;
  if (status.site().device.empty()) {
    failure_ = status.with_site(
        FailureSite{device_.id(), name(), std::string(verb), std::string(label.view()), sequence});
  }
  // What is queued will never count as reached, so it must not run either.
  do_abandon(failure_);
  return failure_;
}

void Stream::fail_at_oldest_locked(const Status& status) {
  Pending oldest = pending_.empty() ? Pending() : pending_.front();
  failure_ = fail_locked(status, oldest.verb, oldest.label, oldest.sequence);
}

void Stream::notice_failure_locked() {
  if (!failure_.is_ok()) return;
  Status noticed = do_failure();
  if (!noticed.is_ok()) fail_at_oldest_locked(noticed);
}

Result<Timepoint> Stream::submit_erased(Pending operation, Status (*function)(void*),
                                        void* context) {
  std::lock_guard lock(mutex_);
  notice_failure_locked();
  if (!failure_.is_ok()) return failure_;
  ++submitted_;
  Status status = function(context);
  if (!failure_.is_ok()) return failure_;
  if (!status.is_ok()) {
    bool refused = status.code() == StatusCode::kInvalidArgument ||
                   status.code() == StatusCode::kFailedPrecondition ||
                   status.code() == StatusCode::kUnimplemented;
    if (!refused) return fail_locked(status, operation.verb, operation.label, submitted_);
    --submitted_;  // nothing was queued: the stream is as it was
    return refuse(status, operation.verb, operation.label);
  }
  operation.sequence = submitted_;
  pending_.push_back(operation);
  if (submitted_ - std::max(marked_, completed_) >= kMarkInterval) {
    STAGECOACH_RETURN_IF_ERROR(mark_locked());
    poll_locked();
  }
  return Timepoint{id(), submitted_};
}

Result<Timepoint> Stream::copy(const CopyRequest& request) {
  Status valid = internal::validate_copy(request, device_);
  if (!valid.is_ok()) return refuse(valid, "copy", request.label);
  auto result = submit("copy", request.label, [&] { return do_copy(request); });
  if (result.is_ok()) {
    request.target.buffer->note_use(result.value());
    request.source.buffer->note_use(result.value());
  }
  return result;
}

Result<Timepoint> Stream::fill(const FillRequest& request) {
  Status valid = internal::validate_fill(request, device_);
  if (!valid.is_ok()) return refuse(valid, "fill", request.label);
  auto result = submit("fill", request.label, [&] { return do_fill(request); });
  if (result.is_ok()) request.target.buffer->note_use(result.value());
  return result;
}

Result<Timepoint> Stream::launch(const LaunchRequest& request) {
  Status valid = internal::validate_launch(request, device_);
  if (!valid.is_ok()) return refuse(valid, "launch", request.label);
  auto result = submit("launch", request.label, [&] { return do_launch(request); });
  for (int i = 0; result.is_ok() && i < request.argument_count; ++i) {
    const KernelArgument& argument = request.arguments[i];
    if (argument.kind == KernelArgument::Kind::kPointer) {
      argument.pointer.buffer->note_use(result.value());
    }
  }
  return result;
}

Result<Timepoint> Stream::record(Event& event) {
  if (&event.device() != &device_) {
    return refuse(invalid_argument(fmt::format("the event is of {}; record events of {}",
                                               event.device().id(), device_.id())),
                  "record", {});
  }
  return submit("record", Label(name()), [&] {
    Status status = do_record(event);
    if (status.is_ok()) event.set_recorded(Timepoint{id(), submitted_});
    return status;
  });
}

Result<Timepoint> Stream::wait(const Event& event) {
  if (!event.is_recorded()) {
    return refuse(failed_precondition("the event was never recorded; record it on a stream first"),
                  "wait", {});
  }
  if (!internal::share_events(device_, event.device())) {
    return refuse(failed_precondition(fmt::format(
                      "streams of {} cannot wait for events of {}; wait for its timepoint on the "
                      "host",
                      device_.id(), event.device().id())),
                  "wait", {});
  }
  return submit(
      "wait", {}, [&] { return do_wait(event); }, event.timepoint());
}

Result<Timepoint> Stream::wait(Timepoint timepoint) {
  internal::TimelineLease lease(timepoint.timeline);
  Timeline* timeline = lease.get();
  auto nothing = [] { return Status::ok(); };
  if (timeline == nullptr) return submit("wait", {}, nothing);
  if (timeline == this) {
    STAGECOACH_RETURN_IF_ERROR(check_sequence(timepoint.sequence));
    return submit("wait", Label(name()), nothing);
  }
  auto* source = dynamic_cast<Stream*>(timeline);
  if (source == nullptr || !internal::share_events(device_, source->device())) {
    std::string_view kind = source == nullptr ? "a host worker" : "a stream of another backend";
    return refuse(failed_precondition(fmt::format("'{}' is {}; wait for its timepoint on the host",
                                                  timeline->name(), kind)),
                  "wait", Label(timeline->name()));
  }
  return wait_for_stream(*source, timepoint);
}

Result<Timepoint> Stream::wait_for_stream(Stream& source, Timepoint timepoint) {
  Status valid = source.check_sequence(timepoint.sequence);
  if (!valid.is_ok()) return refuse(valid, "wait", Label(source.name()));
  // The two streams are locked one after the other: each may be waiting for the other's past.
  Result<PooledEvent*> held = source.hold_event_reaching(timepoint.sequence);
  auto result = submit(
      "wait", Label(source.name()),
      [&]() -> Status {
        // Fails at once, not only when the wait would run, and with the status of the first
        // failure.
        if (!held.is_ok()) {
          return fail_locked(held.status(), "wait", Label(source.name()), submitted_);
        }
        return held.value() == nullptr ? Status::ok() : do_wait(*held.value()->event);
      },
      timepoint);
  if (held.is_ok() && held.value() != nullptr) source.release_waiter(held.value());
  return result;
}

Result<Timepoint> Stream::mark() {
  std::lock_guard lock(mutex_);
  poll_locked();
  if (!failure_.is_ok()) return failure_;
  if (marked_ < submitted_ && completed_ < submitted_) STAGECOACH_RETURN_IF_ERROR(mark_locked());
  return Timepoint{id(), submitted_};
}

Status Stream::mark_locked() {
  if (free_events_.empty()) {
    Result<std::unique_ptr<Event>> event = device_.create_event();
    if (!event.is_ok()) return fail_locked(event.status(), "mark", {}, submitted_);
    all_events_.push_back(std::make_unique<PooledEvent>());
    all_events_.back()->event = std::move(event).value();
    free_events_.reserve(all_events_.size());
    free_events_.push_back(all_events_.back().get());
  }
  PooledEvent* pooled = free_events_.back();
  Status status = do_record(*pooled->event);
  if (!status.is_ok()) return fail_locked(status, "mark", {}, submitted_);
  free_events_.pop_back();
  pooled->is_done = false;
  marked_ = submitted_;
  marks_.push_back(Mark{submitted_, pooled});
  return Status::ok();
}

void Stream::complete_locked(uint64_t sequence) {
  completed_ = std::max(completed_, sequence);
  while (!pending_.empty() && pending_.front().sequence <= completed_) pending_.pop_front();
}

void Stream::poll_locked() {
  while (!marks_.empty()) {
    Mark mark = marks_.front();
    Result<bool> passed = mark.pooled->event->do_query();
    if (!passed.is_ok()) {
      fail_at_oldest_locked(passed.status());
      return;
    }
    if (!passed.value()) break;
    marks_.pop_front();
    complete_locked(mark.sequence);
    mark.pooled->is_done = true;
    if (mark.pooled->waiters == 0) free_events_.push_back(mark.pooled);
  }
  notice_failure_locked();
}

Status Stream::check_sequence(uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  if (sequence <= submitted_) return Status::ok();
  return refuse(invalid_argument(fmt::format("sequence {} was never submitted; the last is {}",
                                             sequence, submitted_)),
                "reached", {});
}

Result<bool> Stream::reached_locked(uint64_t sequence) {
  STAGECOACH_RETURN_IF_ERROR(check_sequence(sequence));
  if (sequence <= completed_) return true;
  poll_locked();
  if (sequence <= completed_) return true;
  if (!failure_.is_ok()) return failure_;
  // Without a mark behind it nobody would ever learn that `sequence` is done.
  if (marked_ < sequence) STAGECOACH_RETURN_IF_ERROR(mark_locked());
  return false;
}

Result<Stream::PooledEvent*> Stream::hold_event_reaching(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  STAGECOACH_ASSIGN_OR_RETURN(bool done, reached_locked(sequence));
  if (done) return static_cast<PooledEvent*>(nullptr);
  size_t low = 0, high = marks_.size() - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (marks_[middle].sequence < sequence) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  ++marks_[low].pooled->waiters;
  return marks_[low].pooled;
}

void Stream::release_waiter(PooledEvent* pooled) {
  std::lock_guard lock(mutex_);
  if (--pooled->waiters == 0 && pooled->is_done) free_events_.push_back(pooled);
}

Timepoint Stream::last_submitted() const {
  std::lock_guard lock(mutex_);
  return Timepoint{id(), submitted_};
}

Result<bool> Stream::reached(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  return reached_locked(sequence);
}

bool Stream::settled(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  Result<bool> result = reached_locked(sequence);
  if (result.is_ok()) return result.value();
  return do_is_idle();
}

Status Stream::wait_until_reached(uint64_t sequence) {
  STAGECOACH_ASSIGN_OR_RETURN(PooledEvent * held, hold_event_reaching(sequence));
  if (held == nullptr) return Status::ok();
  // Blocks outside the lock, so that others go on submitting and can abandon.
  Status status = held->event->do_synchronize();
  release_waiter(held);
  std::lock_guard lock(mutex_);
  poll_locked();
  if (sequence <= completed_) return Status::ok();
  if (!status.is_ok()) fail_at_oldest_locked(status);
  STAGECOACH_CHECK(!failure_.is_ok());
  return failure_;
}

Status Stream::status() const {
  std::lock_guard lock(mutex_);
  return failure_.is_ok() ? do_failure() : failure_;
}

Status Stream::synchronize() {
  uint64_t sequence = last_submitted().sequence;
  Status status = do_synchronize();
  std::lock_guard lock(mutex_);
  if (!status.is_ok()) {
    fail_at_oldest_locked(status);
    return failure_;
  }
  complete_locked(sequence);
  poll_locked();
  return failure_;
}

void Stream::abandon(const Status& status) {
  STAGECOACH_CHECK(!status.is_ok());
  std::lock_guard lock(mutex_);
  poll_locked();
  fail_at_oldest_locked(status);
}

uint64_t Stream::completed_sequence() {
  std::lock_guard lock(mutex_);
  poll_locked();
  return completed_;
}

Stream::Pending Stream::oldest_pending() {
  uint64_t after = completed_sequence();
  while (true) {
    Pending oldest;
    {
      std::lock_guard lock(mutex_);
      for (size_t index = 0; index < pending_.size(); ++index) {
        if (pending_[index].sequence <= after) continue;
        // A record takes no time of its own: what is stuck is something else, if there is more.
        if (pending_[index].verb == "record" && index + 1 < pending_.size()) continue;
        oldest = pending_[index];
        break;
      }
    }
    if (oldest.sequence == 0 || oldest.verb != "wait") return oldest;
    // Asked outside the lock: the awaited stream may be asking about this one.
    Result<bool> over = stagecoach::reached(oldest.awaited);
    if (over.is_ok() && !*over) return oldest;
    after = oldest.sequence;
  }
}

}  // namespace stagecoach
