#include "scheduler/bulk_lane.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "hal/host_access.h"

namespace stagecoach {

namespace {

/// How often a thread looks whether a chunk has ended. Blocking waits lose a fifth of a fast link.
constexpr int64_t kLookIntervalNs = 20'000;

/// Host copies are spread over a few threads: one does not keep up with a fast link.
constexpr int kHostCopyThreads = 4;
constexpr ByteCount kHostCopyPart = 512 * kKiB;

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

BulkLane::BulkLane(Device& device, const BulkOptions& options)
    : device_(device), options_(options), most_issued_(most_issued(options)) {
  STAGECOACH_CHECK(options.chunk_bytes > 0 && options.ahead >= 0);
  // Every chunk under way has a place of its own in the ring.
  STAGECOACH_CHECK(options.ring_chunks == 0 ||
                   (options.method != BulkMethod::kWhole && most_issued_ <= options.ring_chunks));
  STAGECOACH_CHECK((options.urgent != nullptr) == (options.method == BulkMethod::kSharedStream));
}

BulkLane::~BulkLane() = default;

Result<std::unique_ptr<BulkLane>> BulkLane::create(Device& device, const std::string& name,
                                                   const BulkOptions& options) {
  std::unique_ptr<BulkLane> lane(new BulkLane(device, options));
  STAGECOACH_RETURN_IF_ERROR(lane->open(name));
  return lane;
}

Status BulkLane::open(const std::string& name) {
  bool alternates = options_.method == BulkMethod::kAlternating;
  int count = alternates ? 2 : (options_.urgent == nullptr ? 1 : 0);
  for (int index = 0; index < count; ++index) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                                device_.create_stream({index == 0 ? name : name + "_2"}));
    streams_.push_back(std::move(stream));
  }
  if (most_issued_ == 0) return Status::ok();
  if (device_.virtual_time() != nullptr) {
    return unimplemented(
        fmt::format("lane '{}' of {} issues chunks as others end ({}); simulated "
                    "devices have alternating chunks only",
                    name, device_.id(), bulk_method_name(options_.method)));
  }
  if (options_.ring_chunks > 0) {
    ByteCount bytes = options_.ring_chunks * options_.chunk_bytes;
    STAGECOACH_ASSIGN_OR_RETURN(
        ring_, require_buffer(device_.allocate_pinned(bytes, "staging ring"), device_, bytes,
                              "staging ring"));
  }
  pool_ = TaskPool::create(ring_ ? std::min(kHostCopyThreads, usable_thread_count()) : 1);
  worker_ = std::make_unique<HostWorker>(name, *pool_);
  // Linux rounds sleeps up by 50 us unless asked for less.
  constexpr unsigned long kTimerSlackNs = 1000;
  return submit([](TaskPool&) {
           prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
           return Status::ok();
         })
      .status();
}

Stream& BulkLane::stream() const {
  return options_.urgent != nullptr ? *options_.urgent : *streams_[current_];
}

std::vector<Stream*> BulkLane::streams() const {
  std::vector<Stream*> own;
  for (const auto& stream : streams_) own.push_back(stream.get());
  return own;
}

Result<Timepoint> BulkLane::submit(HostWorker::Job job, Timepoint after) {
  return worker_->submit_after(after, "bulk", {}, std::move(job));
}

Status BulkLane::wait(Timepoint timepoint) {
  if (worker_) return submit([](TaskPool&) { return Status::ok(); }, timepoint).status();
  return stream().wait(timepoint).status();
}

Status BulkLane::record(Event& event) {
  if (!worker_) return stream().record(event).status();
  return submit([this, &event](TaskPool&) { return stream().record(event).status(); }).status();
}

Result<Timepoint> BulkLane::mark() {
  if (!worker_) return stream().mark();
  return submit([this](TaskPool&) -> Status {
    // Behind the last chunk there may be events.
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream().mark());
    issued_.push_back({end, {}, {}});
    return finish_all_but(0);
  });
}

Status BulkLane::hold(Stream& consumer, Timepoint mark) {
  return worker_ ? wait_until_reached(mark) : consumer.wait(mark).status();
}

Status BulkLane::copy(const CopyRequest& request) {
  if (!worker_) return copy_chunks(request);
  return submit([this, request](TaskPool&) { return copy_chunks(request); }).status();
}

Status BulkLane::switch_streams() {
  // A mark, unlike an event of the lane's own, also tells the watchdog how far the stream has come.
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream().mark());
  current_ = 1 - current_;
  return stream().wait(end).status();
}

Status BulkLane::copy_chunks(const CopyRequest& request) {
  ByteCount size = request.target.size;
  bool is_whole = options_.method == BulkMethod::kWhole;
  BulkPieces pieces(size, is_whole ? std::max<ByteCount>(1, size) : options_.chunk_bytes);
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    bool switches = std::exchange(is_taken_, true) && options_.method == BulkMethod::kAlternating;
    if (switches) STAGECOACH_RETURN_IF_ERROR(switch_streams());
    if (most_issued_ > 0) {
      STAGECOACH_RETURN_IF_ERROR(finish_all_but(static_cast<size_t>(most_issued_ - 1)));
    }
    CopyRequest chunk{request.target.slice(pieces.offset(piece), pieces.size(piece)),
                      request.source.slice(pieces.offset(piece), pieces.size(piece)),
                      request.label};
    BufferView lands_at;
    if (ring_) stage(chunk, lands_at);
    STAGECOACH_RETURN_IF_FAILED(stream().copy(chunk));
    if (most_issued_ == 0) continue;
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream().mark());
    issued_.push_back({end, chunk.target, lands_at});
  }
  return Status::ok();
}

/// Until at most `count` of the issued chunks are under way.
Status BulkLane::finish_all_but(size_t count) {
  while (issued_.size() > count) {
    const Issued& first = issued_.front();
    STAGECOACH_ASSIGN_OR_RETURN(bool is_over, reached(first.end));
    if (!is_over) {
      sleep_until_ns(RealClock::instance().now_ns() + kLookIntervalNs);
      continue;
    }
    if (!first.target.is_none()) copy_on_host(first.target, first.place);
    issued_.pop_front();
  }
  return Status::ok();
}

/// Leads a chunk whose host side is pageable through the next place of the ring, which is free: no
/// more chunks are under way than there are places. A download goes on to `lands_at` later.
void BulkLane::stage(CopyRequest& chunk, BufferView& lands_at) {
  bool comes_from = chunk.source.buffer->kind() == MemoryKind::kHostPageable;
  bool goes_to = chunk.target.buffer->kind() == MemoryKind::kHostPageable;
  if (!comes_from && !goes_to) return;
  ByteCount offset = staged_++ % options_.ring_chunks * options_.chunk_bytes;
  BufferView place = ring_->slice(offset, chunk.target.size);
  if (comes_from) {
    copy_on_host(place, chunk.source);
    chunk.source = place;
  } else {
    lands_at = std::exchange(chunk.target, place);
  }
}

void BulkLane::copy_on_host(const BufferView& target, const BufferView& source) {
  note_host_read(source.host_data(), source.size, "staging");
  note_host_write(target.host_data(), target.size, "staging");
  std::byte* to = target.host_data();
  const std::byte* from = source.host_data();
  pool_->parallel_for((target.size + kHostCopyPart - 1) / kHostCopyPart, [&](int64_t part) {
    ByteCount begin = part * kHostCopyPart;
    std::memcpy(to + begin, from + begin,
                static_cast<size_t>(std::min(kHostCopyPart, target.size - begin)));
  });
}

void BulkLane::abandon(const Status& status) {
  if (worker_) worker_->abandon(status);
}

}  // namespace stagecoach
