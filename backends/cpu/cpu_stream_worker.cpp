// The worker's half of CpuStream: taking operations in order, turns on engines, nominal time.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_executable.h"
#include "backends/cpu/cpu_ops.h"
#include "backends/cpu/cpu_stream.h"
#include "core/clock.h"

namespace stagecoach {

namespace {

std::byte* address_of(const BufferView& view) {
  return reinterpret_cast<std::byte*>(view.buffer->device_address()) + view.offset;
}

template <typename T>
void fill_pattern(const FillRequest& request) {
  std::fill_n(reinterpret_cast<T*>(address_of(request.target)),
              request.target.size / static_cast<ByteCount>(sizeof(T)),
              static_cast<T>(request.pattern));
}

Status run_fill(const FillRequest& request) {
  if (request.pattern_size == 1) {
    fill_pattern<uint8_t>(request);
  } else if (request.pattern_size == 2) {
    fill_pattern<uint16_t>(request);
  } else {
    fill_pattern<uint32_t>(request);
  }
  return Status::ok();
}

Status run_copy(const CopyRequest& request) {
  std::memcpy(address_of(request.target), address_of(request.source),
              static_cast<size_t>(request.target.size));
  return Status::ok();
}

}  // namespace

void CpuStream::work() {
  while (take_next()) finish_current(execute());
}

bool CpuStream::take_next() {
  std::unique_lock lock(signal_.mutex);
  for (;;) {
    signal_.changed.wait(lock, [this] {
      return !queue_.empty() || stopping_ || (announced_ != nullptr && !broken_.is_ok());
    });
    if (announced_ != nullptr && !broken_.is_ok()) {
      // The operation that was announced has been dropped; others wait behind it.
      lock.unlock();
      std::exchange(announced_, nullptr)->withdraw(turn_);
      lock.lock();
      continue;
    }
    if (queue_.empty()) return false;
    current_ = queue_.pop_front();
    running_ = true;
    return true;
  }
}

Status CpuStream::execute() {
  if (auto* wait = std::get_if<CpuWaitWork>(&current_.work))
    return wait_for_record(*wait->record.get());
  if (auto* record = std::get_if<CpuRecordWork>(&current_.work)) {
    complete_record(*record->record.get());
    return Status::ok();
  }
  return occupy_and_run();
}

void CpuStream::finish_current(const Status& status) {
  if (!status.is_ok()) {
    // What a waited-for stream failed with names its own site.
    bool flowed_in = !status.site().device.empty();
    fail(flowed_in ? status
                   : status.with_site(
                         FailureSite{cpu_device_.id(), name(), std::string(current_.verb),
                                     std::string(current_.label.view()), current_.sequence}));
  }
  current_.work = std::monostate();
  {
    std::lock_guard lock(signal_.mutex);
    running_ = false;
    ++finished_count_;
  }
  signal_.changed.notify_all();
  state_.in_flight.finish(1);
}

Status CpuStream::wait_for_record(EventRecord& record) {
  if (record.add_waiter(signal_)) {
    {
      std::unique_lock lock(signal_.mutex);
      signal_.changed.wait(lock, [&] { return record.is_done() || is_broken(); });
    }
    record.remove_waiter(signal_);
  }
  if (!record.is_done()) return worker_failure();
  nominal_end_ns_ = std::max(nominal_end_ns_, record.passed_ns());
  return record.status();
}

void CpuStream::complete_record(EventRecord& record) {
  int64_t passed_ns = state_.pacing.is_paced() ? std::max(nominal_end_ns_, current_.submitted_ns)
                                               : RealClock::instance().now_ns();
  record.complete(Status::ok(), passed_ns);
}

Status CpuStream::occupy_and_run() {
  if (!take_turns()) return worker_failure();
  int64_t began_ns = RealClock::instance().now_ns();
  Status status = run_work();
  Span span = place_on_timeline(began_ns, RealClock::instance().now_ns());
  nominal_end_ns_ = span.end_ns;
  count(span);
  if (status.is_ok()) sleep_until_nominal(span.end_ns);
  end_turns();
  return status;
}

bool CpuStream::wait_for_turn(IssueOrderEngine& engine, IssueOrderEngine::Turn& turn) {
  {
    std::unique_lock lock(signal_.mutex);
    signal_.changed.wait(
        lock, [&] { return turn.granted.load(std::memory_order_acquire) || is_broken(); });
  }
  if (!is_broken()) return true;
  engine.withdraw(turn);
  return false;
}

bool CpuStream::take_turns() {
  if (current_.engine == nullptr) return true;
  if (std::exchange(announced_, nullptr) == nullptr) {
    turn_.ticket = current_.ticket;
    current_.engine->announce(turn_);
  }
  if (!wait_for_turn(*current_.engine, turn_)) return false;
  if (current_.second_engine == nullptr) return true;
  second_turn_.ticket = current_.ticket;
  current_.second_engine->announce(second_turn_);
  if (wait_for_turn(*current_.second_engine, second_turn_)) return true;
  current_.engine->withdraw(turn_);
  return false;
}

CpuStream::NextTurn CpuStream::peek_next() {
  std::lock_guard lock(signal_.mutex);
  for (size_t i = 0; i < queue_.size(); ++i) {
    const CpuEntry& entry = queue_[i];
    if (std::holds_alternative<CpuRecordWork>(entry.work)) continue;
    if (auto* wait = std::get_if<CpuWaitWork>(&entry.work)) {
      if (wait->record->is_done()) continue;
      return {};
    }
    return NextTurn{entry.engine, entry.ticket};
  }
  return {};
}

void CpuStream::end_turns() {
  if (current_.engine == nullptr) return;
  // Handed over before the events behind this operation complete: a copy that waits for one of
  // them is not ready yet, so an urgent copy that is ready goes first.
  NextTurn next = peek_next();
  auto end_turn = [&](IssueOrderEngine& engine, IssueOrderEngine::Turn& turn) {
    engine.free_at_ns = nominal_end_ns_;
    bool continues = next.engine == &engine;
    engine.release(turn, continues ? &turn_ : nullptr, next.ticket);
    if (continues) announced_ = &engine;
  };
  end_turn(*current_.engine, turn_);
  if (current_.second_engine != nullptr) end_turn(*current_.second_engine, second_turn_);
}

Status CpuStream::run_work() {
  if (auto* copy = std::get_if<CopyRequest>(&current_.work)) return run_copy(*copy);
  if (auto* fill = std::get_if<FillRequest>(&current_.work)) return run_fill(*fill);
  if (auto* launch = std::get_if<LaunchRequest>(&current_.work)) {
    return static_cast<CpuKernel*>(launch->kernel)->run(*launch);
  }
  return run_cpu_op(std::get<OpCall>(current_.work), *state_.pool);
}

CpuStream::Span CpuStream::place_on_timeline(int64_t began_ns, int64_t ended_ns) const {
  int64_t work_ns = ended_ns - began_ns;
  int64_t duration_ns = current_.cost.duration_ns(work_ns);
  if (!state_.pacing.is_paced() && duration_ns == work_ns) return Span{began_ns, ended_ns, 0};
  int64_t start_ns = std::max(nominal_end_ns_, current_.submitted_ns);
  for (const IssueOrderEngine* engine : {current_.engine, current_.second_engine}) {
    if (engine != nullptr) start_ns = std::max(start_ns, engine->free_at_ns);
  }
  int64_t overrun_ns = std::max<int64_t>(0, work_ns - duration_ns);
  return Span{start_ns, start_ns + duration_ns + overrun_ns, overrun_ns};
}

void CpuStream::count(const Span& span) {
  CpuCounters& counters = state_.counters;
  auto add = [](std::atomic<int64_t>& counter, int64_t amount) {
    counter.fetch_add(amount, std::memory_order_relaxed);
  };
  if (current_.is_kernel()) {
    add(counters.kernels, 1);
    add(counters.compute_busy_ns, span.end_ns - span.start_ns);
    add(counters.overrun_ns, span.overrun_ns);
    return;
  }
  auto* copy = std::get_if<CopyRequest>(&current_.work);
  if (copy == nullptr) return;
  add(counters.copies, 1);
  add(counters.copy_overrun_ns, span.overrun_ns);
  ByteCount size = copy->target.size;
  CopyDirection direction = copy_direction(*copy);
  if (direction == CopyDirection::kHostToDevice) add(counters.bytes_up, size);
  if (direction == CopyDirection::kDeviceToHost) add(counters.bytes_down, size);
  if (direction != CopyDirection::kDeviceToDevice || current_.engine == nullptr) return;
  // Between two devices the bytes leave one and enter the other.
  add(static_cast<CpuDevice&>(copy->source.buffer->device()).state().counters.bytes_down, size);
  add(static_cast<CpuDevice&>(copy->target.buffer->device()).state().counters.bytes_up, size);
}

void CpuStream::sleep_until_nominal(int64_t end_ns) {
  if (end_ns - RealClock::instance().now_ns() < kShortestSleepNs) return;
  std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(end_ns)};
  std::unique_lock lock(signal_.mutex);
  signal_.changed.wait_until(lock, end, [this] { return is_broken(); });
}

}  // namespace stagecoach
