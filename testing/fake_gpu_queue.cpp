// The driver's streams: queues, the threads that serve them, copy engines.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/clock.h"
#include "testing/fake_gpu_driver.h"

namespace stagecoach {

using namespace fake_gpu;

namespace {

constexpr auto kBrokenEventDelay = std::chrono::milliseconds(300);

std::byte* host_pointer(GpuAddress address) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}

bool reads_device(CopyDirection direction) {
  return direction == CopyDirection::kDeviceToHost || direction == CopyDirection::kDeviceToDevice;
}
bool writes_device(CopyDirection direction) {
  return direction == CopyDirection::kHostToDevice || direction == CopyDirection::kDeviceToDevice;
}

}  // namespace

int FakeGpuDriver::create_stream(GpuStreamHandle* handle) {
  Card* card = current_card();
  if (int error = enter_on(FakeGpuFunction::create_stream, card); error != 0) return error;
  reap_streams();
  auto stream = std::make_shared<Stream>();
  stream->card = card;
  stream->thread = std::thread([this, stream] { serve(stream); });
  *handle = streams_.add(std::move(stream));
  return 0;
}

int FakeGpuDriver::destroy_stream(GpuStreamHandle handle) {
  std::shared_ptr<Stream> stream = streams_.remove(handle);
  int error = enter_on(FakeGpuFunction::destroy_stream, stream == nullptr ? nullptr : stream->card);
  if (stream == nullptr) return error;
  // As with real drivers the call returns at once, and what is queued still runs.
  stream->closing = true;
  closing_.push_back(std::move(stream));
  changed_.notify_all();
  return error;
}

void FakeGpuDriver::reap_streams() {
  std::erase_if(closing_, [](const std::shared_ptr<Stream>& stream) {
    if (!stream->ended) return false;
    stream->thread.join();
    return true;
  });
}

int FakeGpuDriver::push(FakeGpuFunction function, GpuStreamHandle handle, Entry entry) {
  std::shared_ptr<Stream> stream = streams_.find(handle);
  Card* card = stream == nullptr ? nullptr : stream->card;
  if (int error = enter_on(function, card); error != 0) return error;
  entry.ticket = ++next_ticket_;
  if (entry.kind == Entry::Kind::kCopy) count_copy(*card, entry);
  stream->queue.push_back(std::move(entry));
  changed_.notify_all();
  return 0;
}

int FakeGpuDriver::record(GpuEventHandle event_handle, GpuStreamHandle handle) {
  std::shared_ptr<Event> event = events_.find(event_handle);
  std::shared_ptr<Stream> stream = streams_.find(handle);
  if (event == nullptr || stream == nullptr || event->card != stream->card) {
    static_cast<void>(enter(FakeGpuFunction::record_event));
    return FakeGpuError::kInvalidHandle;
  }
  Entry entry;
  entry.kind = Entry::Kind::kRecord;
  entry.record = new_record();
  if (int error = push(FakeGpuFunction::record_event, handle, entry); error != 0) {
    drop_record(entry.record);
    return error;
  }
  ++entry.record->references;  // the queue's and the event's
  if (event->latest != nullptr) drop_record(event->latest);
  event->latest = entry.record;
  return 0;
}

int FakeGpuDriver::wait(GpuStreamHandle handle, GpuEventHandle event_handle) {
  std::shared_ptr<Event> event = events_.find(event_handle);
  Entry entry;
  entry.kind = Entry::Kind::kWait;
  // An event never recorded counts as passed, as drivers have it.
  entry.record = event == nullptr ? nullptr : event->latest;
  if (int error = push(FakeGpuFunction::stream_wait_event, handle, entry); error != 0) return error;
  if (entry.record != nullptr) ++entry.record->references;
  return event == nullptr ? FakeGpuError::kInvalidHandle : 0;
}

int FakeGpuDriver::query_stream(GpuStreamHandle handle) {
  std::shared_ptr<Stream> stream = streams_.find(handle);
  Card* card = stream == nullptr ? nullptr : stream->card;
  if (int error = enter_on(FakeGpuFunction::query_stream, card); error != 0) return error;
  return stream->queue.empty() && !stream->running ? 0 : FakeGpuError::kNotReady;
}

int FakeGpuDriver::query_event(GpuEventHandle handle) {
  std::shared_ptr<Event> event = events_.find(handle);
  Card* card = event == nullptr ? nullptr : event->card;
  if (int error = enter_on(FakeGpuFunction::query_event, card); error != 0) return error;
  return event->latest == nullptr || event->latest->done ? 0 : FakeGpuError::kNotReady;
}

int FakeGpuDriver::synchronize_event(Lock& lock, GpuEventHandle handle) {
  std::shared_ptr<Event> event = events_.find(handle);
  Card* card = event == nullptr ? nullptr : event->card;
  if (int error = enter_on(FakeGpuFunction::synchronize_event, card); error != 0) return error;
  changed_.wait(lock, [&] {
    bool is_broken = card->sticky_error != 0 && card->touching == 0;
    return is_broken || event->latest == nullptr || event->latest->done;
  });
  return card->sticky_error;
}

void FakeGpuDriver::break_card(Card& card, int error) {
  if (card.sticky_error == 0) card.sticky_error = error;
  changed_.notify_all();
  wait_until_still(card);
}

void FakeGpuDriver::wait_until_still(Card& card) {
  Lock lock(mutex_, std::adopt_lock);
  changed_.wait(lock, [&card] { return card.touching == 0; });
  lock.release();
}

void FakeGpuDriver::serve(const std::shared_ptr<Stream>& stream) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    Entry entry = stream->queue.pop_front();
    stream->running = true;
    Card& card = *stream->card;
    // A broken context runs nothing more. What waits for its events is let go late: whoever relies
    // on that is slow, and no thread of the fake is stuck for ever.
    bool runs = card.sticky_error == 0 && !ending_;
    int error = runs ? run(lock, *stream, entry) : 0;
    if (card.sticky_error != 0 && entry.kind == Entry::Kind::kRecord) {
      changed_.wait_for(lock, kBrokenEventDelay, [this] { return ending_; });
    }
    if (error != 0) break_card(card, error);
    if (entry.kind == Entry::Kind::kRecord) {
      entry.record->done = true;
      entry.record->time_ns = RealClock::instance().now_ns();
    }
    if (entry.record != nullptr) drop_record(entry.record);
    if (entry.kind == Entry::Kind::kCopy) --engine_of(card, entry).queued;
    stream->running = false;
    changed_.notify_all();
  }
  stream->ended = true;
}

int FakeGpuDriver::run(Lock& lock, Stream& stream, Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::kCopy:
      return run_copy(lock, *stream.card, entry);
    case Entry::Kind::kFill:
      return fill(entry);
    case Entry::Kind::kLaunch:
      return run_kernel(lock, *stream.card, entry);
    case Entry::Kind::kRecord:
      return 0;
    case Entry::Kind::kWait:
      if (entry.record == nullptr) return 0;
      changed_.wait(
          lock, [&] { return entry.record->done || ending_ || stream.card->sticky_error != 0; });
      return 0;
  }
  return FakeGpuError::kInvalidValue;
}

int FakeGpuDriver::run_kernel(Lock& lock, Card& card, const Entry& entry) {
  if (int error = kernel_error_.exchange(0); error != 0) return error;
  ++card.touching;
  lock.unlock();
  int error = entry.kernel->function(entry.kernel->user, entry.arguments.data());
  lock.lock();
  --card.touching;
  changed_.notify_all();
  return error;
}

int FakeGpuDriver::fill(const Entry& entry) {
  if (!is_allocated_locked(entry.target, entry.size)) return FakeGpuError::kIllegalAddress;
  std::byte* target = host_pointer(entry.target);
  auto step = static_cast<size_t>(entry.pattern_size);
  for (size_t i = 0; i < entry.size; i += step) std::memcpy(target + i, &entry.pattern, step);
  return 0;
}

Card::Engine& FakeGpuDriver::engine_of(Card& card, const Entry& entry) {
  return reads_device(entry.direction) ? card.down : card.up;
}

void FakeGpuDriver::count_copy(Card& card, const Entry& entry) {
  Card::Engine& engine = engine_of(card, entry);
  engine.most_queued = std::max(engine.most_queued, ++engine.queued);
  bool goes_up = entry.direction == CopyDirection::kHostToDevice;
  bool goes_down = entry.direction == CopyDirection::kDeviceToHost;
  if (!goes_up && !goes_down) return;
  if (!is_pinned(goes_up ? entry.source : entry.target, entry.size)) ++pageable_copies_;
}

int FakeGpuDriver::run_copy(Lock& lock, Card& card, const Entry& entry) {
  if (reads_device(entry.direction) && !is_allocated_locked(entry.source, entry.size)) {
    return FakeGpuError::kIllegalAddress;
  }
  if (writes_device(entry.direction) && !is_allocated_locked(entry.target, entry.size)) {
    return FakeGpuError::kIllegalAddress;
  }
  Card::Engine& engine = engine_of(card, entry);
  engine.ready.push_back(entry.ticket);
  changed_.wait(lock, [&] {
    return !engine.busy &&
           *std::min_element(engine.ready.begin(), engine.ready.end()) == entry.ticket;
  });
  std::erase(engine.ready, entry.ticket);
  engine.busy = true;
  if (entry.is_peer && options_.peer_copies == FakePeerCopies::kHang) {
    changed_.wait(lock, [&] { return hangs_released_; });
  }
  ++card.touching;
  lock.unlock();
  int64_t end_ns = RealClock::instance().now_ns() + options_.latency_ns;
  if (options_.copy_bytes_per_s > 0) {
    end_ns +=
        static_cast<int64_t>(static_cast<double>(entry.size) * 1e9 / options_.copy_bytes_per_s);
  }
  std::memcpy(host_pointer(entry.target), host_pointer(entry.source), entry.size);
  bool is_spoilt = entry.is_peer && options_.peer_copies == FakePeerCopies::kCorrupt &&
                   ++peer_copies_ % options_.peer_corruption_interval == 0;
  if (is_spoilt) {
    host_pointer(entry.target)[entry.size / 2] ^= std::byte{1};
  }
  sleep_until_ns(end_ns);
  lock.lock();
  --card.touching;
  engine.busy = false;
  changed_.notify_all();
  return 0;
}

}  // namespace stagecoach
