#include "backends/cpu/cpu_stream.h"

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_event.h"
#include "backends/cpu/cpu_executable.h"
#include "core/clock.h"

namespace stagecoach {

CpuStream::CpuStream(CpuDevice& owner, const StreamOptions& options)
    : Stream(owner, options.name), cpu_device_(owner), state_(owner.state()) {
  turn_.signal = &signal_;
  second_turn_.signal = &signal_;
  {
    std::lock_guard lock(state_.streams_mutex);
    state_.streams.push_back(this);
  }
  worker_ = std::thread([this] { work(); });
}

CpuStream::~CpuStream() {
  {
    std::lock_guard lock(signal_.mutex);
    stopping_ = true;
  }
  signal_.notify();
  worker_.join();
  {
    std::lock_guard lock(state_.streams_mutex);
    std::erase(state_.streams, this);
  }
  release_events();
}

CpuEntry CpuStream::new_entry(std::string_view verb, const Label& label) const {
  CpuEntry entry;
  entry.sequence = submitting_sequence();
  entry.verb = verb;
  entry.label = label;
  entry.submitted_ns = RealClock::instance().now_ns();
  entry.ticket = next_issue_ticket();
  return entry;
}

Status CpuStream::push(CpuEntry entry) {
  {
    std::lock_guard lock(signal_.mutex);
    if (!broken_.is_ok()) return broken_;
    queue_.push_back(std::move(entry));
    ++queued_count_;
    state_.in_flight.add();
  }
  signal_.changed.notify_all();
  return Status::ok();
}

Status CpuStream::do_copy(const CopyRequest& request) {
  CpuEntry entry = new_entry("copy", request.label);
  entry.work = request;
  const Buffer& source = *request.source.buffer;
  const Buffer& target = *request.target.buffer;
  // Inside one memory no link is crossed.
  bool crosses = is_host(source.kind()) != is_host(target.kind()) ||
                 (!is_host(source.kind()) && &source.device() != &target.device());
  if (crosses) {
    auto state_of = [](const Buffer& buffer) -> CpuDeviceState* {
      if (is_host(buffer.kind())) return nullptr;
      return &static_cast<CpuDevice&>(buffer.device()).state();
    };
    CpuDeviceState* from = state_of(source);
    CpuDeviceState* to = state_of(target);
    entry.cost = copy_cost(from == nullptr ? nullptr : &from->pacing,
                           to == nullptr ? nullptr : &to->pacing, request.target.size);
    // Everyone takes "down" before "up", so two copies never hold what the other needs.
    entry.engine = from != nullptr ? &from->down : &to->up;
    entry.second_engine = from != nullptr && to != nullptr ? &to->up : nullptr;
  }
  return push(std::move(entry));
}

Status CpuStream::do_fill(const FillRequest& request) {
  CpuEntry entry = new_entry("fill", request.label);
  entry.work = request;
  return push(std::move(entry));
}

Status CpuStream::do_launch(const LaunchRequest& request) {
  auto* kernel = dynamic_cast<CpuKernel*>(request.kernel);
  if (kernel == nullptr) {
    return invalid_argument("the kernel is of another backend; load the executable on this device");
  }
  STAGECOACH_RETURN_IF_ERROR(kernel->check(request));
  CpuEntry entry = new_entry("launch", request.label);
  entry.work = request;
  entry.cost = kernel_cost(state_.pacing, request.flop);
  if (state_.pacing.flop_per_s > 0) entry.engine = &state_.compute;
  return push(std::move(entry));
}

Status CpuStream::enqueue_op(const OpCall& call) {
  CpuEntry entry = new_entry(op_kind_name(call.kind), call.label);
  entry.work = call;
  entry.cost = kernel_cost(state_.pacing, op_flop(call));
  if (state_.pacing.flop_per_s > 0) entry.engine = &state_.compute;
  return push(std::move(entry));
}

Status CpuStream::do_record(Event& event) {
  CpuEntry entry = new_entry("record", {});
  EventRecordRef record = EventRecordRef::acquire();
  entry.work = CpuRecordWork{record};
  STAGECOACH_RETURN_IF_ERROR(push(std::move(entry)));
  static_cast<CpuEvent&>(event).set_record(std::move(record));
  return Status::ok();
}

Status CpuStream::do_wait(const Event& event) {
  CpuEntry entry = new_entry("wait", {});
  entry.work = CpuWaitWork{static_cast<const CpuEvent&>(event).record()};
  return push(std::move(entry));
}

Status CpuStream::do_synchronize() {
  std::unique_lock lock(signal_.mutex);
  uint64_t target = queued_count_;
  signal_.changed.wait(lock, [&] { return finished_count_ >= target || !broken_.is_ok(); });
  return broken_;
}

void CpuStream::do_abandon(const Status& status) {
  fail(status);
}

Status CpuStream::worker_failure() const {
  if (!is_broken()) return Status::ok();
  std::lock_guard lock(signal_.mutex);
  return broken_;
}

bool CpuStream::do_is_idle() {
  std::lock_guard lock(signal_.mutex);
  return queue_.empty() && !running_;
}

void CpuStream::fail(const Status& status) {
  RingQueue<CpuEntry> dropped;
  {
    std::lock_guard lock(signal_.mutex);
    if (!broken_.is_ok()) return;
    broken_ = status;
    is_broken_.store(true, std::memory_order_release);
    std::swap(dropped, queue_);
  }
  signal_.changed.notify_all();
  // Outside the lock: completing a record takes the locks of those who wait for it.
  int64_t now_ns = RealClock::instance().now_ns();
  int64_t count = static_cast<int64_t>(dropped.size());
  while (!dropped.empty()) {
    CpuEntry entry = dropped.pop_front();
    if (auto* record = std::get_if<CpuRecordWork>(&entry.work)) {
      record->record->complete(status, now_ns);
    }
  }
  if (count > 0) state_.in_flight.finish(count);
}

}  // namespace stagecoach
