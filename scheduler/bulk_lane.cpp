#include "scheduler/bulk_lane.h"

#include <chrono>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <utility>

#include "core/check.h"

namespace stagecoach {

namespace {

/// How often the thread looks whether chunks have ended: with one or two under way the link waits
/// for it, and blocking waits lose a fifth of a fast link; with many there is plenty of time.
constexpr int64_t kLookIntervalNs = 20'000;
constexpr int64_t kRareLookIntervalNs = 100'000;
constexpr int kManyChunks = 4;

int most_issued(const BulkOptions& options) {
  if (options.ring_chunks > 0 && options.method == BulkMethod::kAlternating) {
    bool is_limited = options.ahead > 0 && options.ahead < options.ring_chunks;
    return is_limited ? options.ahead : options.ring_chunks;
  }
  switch (options.method) {
    case BulkMethod::kAlternating:
      return options.ahead;
    case BulkMethod::kSharedStream:
      return 2;
    case BulkMethod::kOneInFlight:
      return 1;
    case BulkMethod::kWhole:
      return 0;
  }
  return 0;
}

}  // namespace

const char* bulk_method_name(BulkMethod method) {
  switch (method) {
    case BulkMethod::kAlternating:
      return "alternating";
    case BulkMethod::kSharedStream:
      return "shared stream";
    case BulkMethod::kOneInFlight:
      return "one in flight";
    case BulkMethod::kWhole:
      return "whole";
  }
  return "?";
}

Result<BulkMethod> parse_bulk_method(std::string_view name) {
  std::string known;
  for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kSharedStream,
                            BulkMethod::kOneInFlight, BulkMethod::kWhole}) {
    if (name == bulk_method_name(method)) return method;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", bulk_method_name(method));
  }
  return invalid_argument(fmt::format("method is '{}'; it must be one of {}", name, known));
}

BulkLane::BulkLane(Device& device, const std::string& name, const BulkOptions& options)
    : Timeline(name), device_(device), options_(options), most_issued_(most_issued(options)) {
  STAGECOACH_CHECK(options.chunk_bytes > 0 && options.ahead >= 0);
  // Every chunk under way has a place of its own in the ring.
  STAGECOACH_CHECK(options.ring_chunks == 0 ||
                   (options.method != BulkMethod::kWhole && most_issued_ <= options.ring_chunks));
  STAGECOACH_CHECK((options.urgent != nullptr) == (options.method == BulkMethod::kSharedStream));
}

BulkLane::~BulkLane() {
  {
    Lock lock(mutex_);
    is_stopping_ = true;
    fail(cancelled("the lane has ended"));
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  leave_directory();
}

Result<std::unique_ptr<BulkLane>> BulkLane::create(Device& device, const std::string& name,
                                                   const BulkOptions& options) {
  std::unique_ptr<BulkLane> lane(new BulkLane(device, name, options));
  STAGECOACH_RETURN_IF_ERROR(lane->open());
  return lane;
}

Status BulkLane::open() {
  bool alternates = options_.method == BulkMethod::kAlternating;
  int count = alternates ? 2 : (options_.urgent == nullptr ? 1 : 0);
  for (int index = 0; index < count; ++index) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                                device_.create_stream({index == 0 ? name() : name() + "_2"}));
    streams_.push_back(std::move(stream));
  }
  if (most_issued_ == 0) return Status::ok();
  if (device_.virtual_time() != nullptr) {
    return unimplemented(
        fmt::format("lane '{}' of {} issues chunks as others end ({}); simulated "
                    "devices have alternating chunks only",
                    name(), device_.id(), bulk_method_name(options_.method)));
  }
  if (options_.ring_chunks > 0) {
    STAGECOACH_ASSIGN_OR_RETURN(
        ring_, StagingRing::create(device_, options_.ring_chunks, options_.chunk_bytes));
  }
  thread_ = std::thread([this] { work(); });
  return Status::ok();
}

Stream& BulkLane::stream() const {
  return options_.urgent != nullptr ? *options_.urgent : *streams_[current_];
}

std::vector<Stream*> BulkLane::streams() const {
  std::vector<Stream*> own;
  for (const auto& stream : streams_) own.push_back(stream.get());
  return own;
}

Status BulkLane::wait(Timepoint timepoint) {
  Order order;
  order.kind = Order::Kind::kWait;
  order.awaited = timepoint;
  return submit(order);
}

Status BulkLane::copy(const CopyRequest& request) {
  Order order;
  order.kind = Order::Kind::kCopy;
  order.copy = request;
  return submit(order);
}

Status BulkLane::record(Event& event) {
  Order order;
  order.kind = Order::Kind::kRecord;
  order.event = &event;
  return submit(order);
}

Result<Timepoint> BulkLane::mark() {
  if (most_issued_ == 0) return stream().mark();
  Order order;
  order.kind = Order::Kind::kMark;
  order.mark = last_mark_ + 1;
  STAGECOACH_RETURN_IF_ERROR(submit(order));
  return Timepoint{id(), ++last_mark_};
}

Status BulkLane::submit(const Order& order) {
  Lock lock(mutex_);
  if (most_issued_ == 0) {
    Order at_once = order;
    return issue(at_once, lock).status();
  }
  if (!failure_.is_ok()) return failure_;
  bool thread_sleeps = !has_work();
  orders_.push_back(order);
  // Copies by way of a ring take the time of a host copy, which is the thread's.
  if (!ring_) issue_orders(lock);
  if (thread_sleeps && has_work()) wake_.notify_one();
  return failure_;
}

void BulkLane::issue_orders(Lock& lock) {
  while (failure_.is_ok() && !orders_.empty()) {
    // A copy: while the lock is let go of, orders are added, and the queue may move.
    Order order = orders_.front();
    Result<bool> is_done = issue(order, lock);
    if (!is_done.is_ok()) return fail(is_done.status());
    if (!*is_done) {
      orders_.front().next_piece = order.next_piece;
      return;
    }
    orders_.pop_front();
  }
}

Result<bool> BulkLane::issue(Order& order, Lock& lock) {
  switch (order.kind) {
    case Order::Kind::kWait:
      return issue_wait(order.awaited);
    case Order::Kind::kCopy:
      return issue_copy(order, lock);
    case Order::Kind::kRecord:
      STAGECOACH_RETURN_IF_FAILED(stream().record(*order.event));
      return true;
    case Order::Kind::kMark: {
      // Behind the last chunk there may be events.
      STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream().mark());
      marks_.push_back({end, ended_ + static_cast<int64_t>(issued_.size())});
      progress_.notify_all();
      return true;
    }
  }
  return true;
}

Result<bool> BulkLane::issue_wait(Timepoint timepoint) {
  if (most_issued_ > 0) {
    // A stream cannot wait for what no stream does, so the lane does.
    internal::TimelineLease lease(timepoint.timeline);
    bool is_of_stream = lease.get() == nullptr || dynamic_cast<Stream*>(lease.get()) != nullptr;
    if (!is_of_stream) return lease.get()->reached(timepoint.sequence);
  }
  STAGECOACH_RETURN_IF_FAILED(stream().wait(timepoint));
  return true;
}

Result<bool> BulkLane::issue_copy(Order& order, Lock& lock) {
  ByteCount size = order.copy.target.size;
  bool is_whole = options_.method == BulkMethod::kWhole;
  BulkPieces pieces(size, is_whole ? std::max<ByteCount>(1, size) : options_.chunk_bytes);
  for (; order.next_piece < pieces.count(); ++order.next_piece) {
    if (is_full()) STAGECOACH_RETURN_IF_ERROR(note_ends(lock));
    if (is_full()) return false;
    ByteCount offset = pieces.offset(order.next_piece), bytes = pieces.size(order.next_piece);
    STAGECOACH_RETURN_IF_ERROR(
        issue_chunk({order.copy.target.slice(offset, bytes), order.copy.source.slice(offset, bytes),
                     order.copy.label},
                    lock));
  }
  return true;
}

Status BulkLane::issue_chunk(CopyRequest chunk, Lock& lock) {
  // A chunk whose host side is pageable goes by way of the ring, whose next place is free: no more
  // chunks are under way than there are places. A download goes on later.
  Issued issued;
  if (ring_ && chunk.source.buffer->kind() == MemoryKind::kHostPageable) {
    BufferView place = ring_->next(chunk.source.size);
    lock.unlock();
    ring_->copy(place, chunk.source);
    lock.lock();
    STAGECOACH_RETURN_IF_ERROR(failure_);
    chunk.source = place;
  } else if (ring_ && chunk.target.buffer->kind() == MemoryKind::kHostPageable) {
    issued.place = ring_->next(chunk.target.size);
    issued.target = std::exchange(chunk.target, issued.place);
  }
  bool switches = std::exchange(is_taken_, true) && options_.method == BulkMethod::kAlternating;
  if (switches) STAGECOACH_RETURN_IF_ERROR(switch_streams());
  STAGECOACH_RETURN_IF_FAILED(stream().copy(chunk));
  if (most_issued_ == 0) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(issued.end, stream().mark());
  issued_.push_back(issued);
  return Status::ok();
}

Status BulkLane::switch_streams() {
  // A mark, unlike an event of the lane's own, also tells the watchdog how far the stream has come.
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream().mark());
  current_ = 1 - current_;
  return stream().wait(end).status();
}

/// Lets go of the chunks that have ended, and of the marks behind them.
Status BulkLane::note_ends(Lock& lock) {
  while (!issued_.empty()) {
    Issued first = issued_.front();
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, stagecoach::reached(first.end));
    if (!is_over) break;
    if (!first.target.is_none()) {
      lock.unlock();
      ring_->copy(first.target, first.place);
      lock.lock();
      STAGECOACH_RETURN_IF_ERROR(failure_);
    }
    issued_.pop_front();
    ++ended_;
  }
  while (!marks_.empty() && marks_.front().chunks <= ended_) {
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, stagecoach::reached(marks_.front().end));
    if (!is_over) break;
    marks_.pop_front();
    ++reached_mark_;
    progress_.notify_all();
  }
  return Status::ok();
}

bool BulkLane::is_full() const {
  return most_issued_ > 0 && static_cast<int>(issued_.size()) >= most_issued_;
}

bool BulkLane::has_work() const {
  bool awaits_host_copies = ring_ && (!issued_.empty() || !marks_.empty());
  return failure_.is_ok() && (!orders_.empty() || awaits_host_copies);
}

void BulkLane::work() {
  // Linux shows at most 15 characters of a thread's name, and rounds sleeps up by 50 us unless
  // asked for less.
  pthread_setname_np(pthread_self(), name().substr(0, 15).c_str());
  constexpr unsigned long kTimerSlackNs = 1000;
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  std::chrono::nanoseconds interval(most_issued_ < kManyChunks ? kLookIntervalNs
                                                               : kRareLookIntervalNs);
  Lock lock(mutex_);
  while (!is_stopping_) {
    if (!has_work()) {
      wake_.wait(lock, [this] { return is_stopping_ || has_work(); });
      continue;
    }
    Status noted = note_ends(lock);
    if (noted.is_ok()) {
      issue_orders(lock);
    } else {
      fail(noted);
    }
    if (has_work() && !is_stopping_) wake_.wait_for(lock, interval);
  }
}

/// The issued part of a mark: none where it has been reached.
Result<Timepoint> BulkLane::wait_until_issued(uint64_t sequence) {
  Lock lock(mutex_);
  auto is_issued = [&] { return sequence <= reached_mark_ + marks_.size(); };
  progress_.wait(lock, [&] { return is_issued() || !failure_.is_ok(); });
  if (!is_issued()) return failure_;
  if (sequence <= reached_mark_) return Timepoint{};
  return marks_[sequence - reached_mark_ - 1].end;
}

Status BulkLane::hold(Stream& consumer, Timepoint mark) {
  internal::TimelineLease lease(mark.timeline);
  auto* lane = dynamic_cast<BulkLane*>(lease.get());
  if (lane == nullptr) return consumer.wait(mark).status();
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, lane->wait_until_issued(mark.sequence));
  return consumer.wait(end).status();
}

Result<bool> BulkLane::reached(uint64_t sequence) {
  Lock lock(mutex_);
  // What a ring holds is not there yet, and taking it out is the thread's.
  if (sequence > reached_mark_ && failure_.is_ok() && !ring_) {
    Status noted = note_ends(lock);
    if (!noted.is_ok()) fail(noted);
  }
  if (sequence <= reached_mark_) return true;
  if (!failure_.is_ok()) return failure_;
  return false;
}

Status BulkLane::wait_until_reached(uint64_t sequence) {
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, wait_until_issued(sequence));
  if (!ring_) return stagecoach::wait_until_reached(end);
  Lock lock(mutex_);
  progress_.wait(lock, [&] { return sequence <= reached_mark_ || !failure_.is_ok(); });
  return sequence <= reached_mark_ ? Status::ok() : failure_;
}

Status BulkLane::status() const {
  Lock lock(mutex_);
  return failure_;
}

void BulkLane::fail(const Status& status) {
  if (failure_.is_ok()) failure_ = status;
  progress_.notify_all();
}

void BulkLane::abandon(const Status& status) {
  STAGECOACH_CHECK(!status.is_ok());
  Lock lock(mutex_);
  fail(status);
}

}  // namespace stagecoach
