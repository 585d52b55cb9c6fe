#include "backends/sim/sim_stream.h"

#include <utility>

#include "backends/sim/sim_device.h"
#include "backends/sim/sim_event.h"
#include "backends/sim/sim_executable.h"

namespace stagecoach {

SimStream::SimStream(SimDevice& owner, const StreamOptions& options)
    : Stream(owner, options.name), sim_device_(owner), machine_(owner.machine()) {}

SimStream::~SimStream() {
  *is_alive_ = false;
  release_events();
}

EventOrder SimStream::order(EventOrder::Kind kind, uint64_t sequence) const {
  return EventOrder{kind, sim_device_.info().index, id(), sequence};
}

std::function<void()> SimStream::guarded(std::function<void()> action) {
  return [alive = is_alive_, this, action = std::move(action)] {
    if (*alive && failure_.is_ok()) action();
  };
}

void SimStream::push(Entry entry) {
  entry.issued_ns = machine_.time().charge_issue();
  entry.sequence = submitting_sequence();
  queue_.push_back(std::move(entry));
  if (queue_.size() == 1) serve_at(queue_.front().issued_ns);
}

void SimStream::serve_at(int64_t time_ns) {
  machine_.time().at(time_ns, order(EventOrder::Kind::kStream, queue_.front().sequence),
                     guarded([this] { serve(); }));
}

void SimStream::serve() {
  if (is_serving_) return;  // a record told someone who came back here
  is_serving_ = true;
  while (!is_running_ && !queue_.empty()) {
    Entry& head = queue_.front();
    if (head.issued_ns > machine_.time().now_ns()) {
      serve_at(head.issued_ns);
      break;
    }
    if (!begin(head)) break;
  }
  is_serving_ = false;
}

bool SimStream::begin(Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::kRecord: {
      std::shared_ptr<SimRecord> record = std::move(entry.record);
      queue_.pop_front();
      record->settle(Status::ok(), machine_.time().now_ns());
      if (record->is_asked_about) machine_.time().note_completion();
      return true;
    }
    case Entry::Kind::kWait: {
      SimRecord& record = *entry.record;
      if (record.is_settled) {
        if (!record.failure.is_ok()) {
          fail(record.failure);
          return false;
        }
        queue_.pop_front();
        return true;
      }
      is_running_ = true;
      record.waiters.push_back(guarded([this] {
        is_running_ = false;
        serve();
      }));
      return false;
    }
    case Entry::Kind::kKernel:
      is_running_ = true;
      begin_kernel(entry);
      return false;
    case Entry::Kind::kCopy:
      is_running_ = true;
      begin_copy(entry);
      return false;
  }
  return false;
}

void SimStream::begin_kernel(const Entry& entry) {
  int64_t duration_ns = machine_.profile().kernel_latency_ns + entry.duration_ns;
  EventOrder end_order = order(EventOrder::Kind::kKernel, entry.sequence);
  SimDevice* device = &sim_device_;
  // The engine is given back even when the stream has failed or gone meanwhile.
  auto end = [device, stream = id(), finish = guarded([this] { finish_head(); })] {
    finish();
    device->compute().release(stream);
  };
  device->compute().request(id(), [device, duration_ns, end_order, end] {
    device->count_kernel(duration_ns);
    VirtualTime& time = device->machine().time();
    time.at(time.now_ns() + duration_ns, end_order, end);
  });
}

void SimStream::begin_copy(const Entry& entry) {
  SimEngine& engine = entry.is_up ? sim_device_.copies_up() : sim_device_.copies_down();
  EventOrder flow_order = order(EventOrder::Kind::kFlow, entry.sequence);
  auto end = [&engine, stream = id(), finish = guarded([this] { finish_head(); })] {
    finish();
    engine.release(stream);
  };
  auto start = [machine = &machine_, bytes = entry.bytes, path = entry.path, flow_order, end] {
    machine->network().start(bytes, path, flow_order, end);
  };
  engine.request(id(), [machine = &machine_, flow_order, start] {
    VirtualTime& time = machine->time();
    time.at(time.now_ns() + machine->profile().copy_latency_ns, flow_order, start);
  });
}

void SimStream::finish_head() {
  queue_.pop_front();
  is_running_ = false;
  serve();
}

Status SimStream::enqueue_kernel(int64_t duration_ns) {
  Entry entry;
  entry.kind = Entry::Kind::kKernel;
  entry.duration_ns = duration_ns;
  push(std::move(entry));
  return Status::ok();
}

Status SimStream::do_copy(const CopyRequest& request) {
  Entry entry;
  entry.kind = Entry::Kind::kCopy;
  entry.bytes = static_cast<double>(request.target.size);
  int card = sim_device_.card();
  auto card_of = [](const BufferView& view) {
    return static_cast<SimDevice&>(view.buffer->device().root()).card();
  };
  switch (copy_direction(request)) {
    case CopyDirection::kHostToDevice:
      entry.path = machine_.path(card, SimMachine::Direction::kUp);
      entry.is_up = true;
      break;
    case CopyDirection::kDeviceToHost:
      entry.path = machine_.path(card, SimMachine::Direction::kDown);
      break;
    case CopyDirection::kDeviceToDevice: {
      int source = card_of(request.source), target = card_of(request.target);
      if (source == target) {
        // Read and written once each.
        return enqueue_kernel(sim_device_.memory_time_ns(2.0 * entry.bytes));
      }
      entry.path = machine_.path_between(source, target);
      entry.is_up = target == card;
      break;
    }
    case CopyDirection::kHostToHost:
      entry.path = machine_.host_path();
      break;
  }
  sim_device_.count_copy(request.target.size, entry.is_up);
  push(std::move(entry));
  return Status::ok();
}

Status SimStream::do_fill(const FillRequest& request) {
  return enqueue_kernel(sim_device_.memory_time_ns(static_cast<double>(request.target.size)));
}

Status SimStream::do_launch(const LaunchRequest& request) {
  return enqueue_kernel(sim_kernel_time_ns(request, sim_device_));
}

Status SimStream::do_record(Event& event) {
  auto record = std::make_shared<SimRecord>();
  static_cast<SimEvent&>(event).set_record(record);
  Entry entry;
  entry.kind = Entry::Kind::kRecord;
  entry.record = std::move(record);
  push(std::move(entry));
  return Status::ok();
}

Status SimStream::do_wait(const Event& event) {
  Entry entry;
  entry.kind = Entry::Kind::kWait;
  entry.record = static_cast<const SimEvent&>(event).record();
  push(std::move(entry));
  return Status::ok();
}

Status SimStream::do_synchronize() {
  while (failure_.is_ok() && !queue_.empty()) {
    if (!machine_.time().advance()) {
      return internal_error("nothing is left to happen, and the stream is not done: a deadlock");
    }
  }
  return failure_;
}

void SimStream::do_abandon(const Status& status) {
  fail(status);
}

void SimStream::fail(const Status& status) {
  if (!failure_.is_ok()) return;
  failure_ = status;
  machine_.time().note_completion();
  std::deque<Entry> dropped;
  dropped.swap(queue_);
  for (Entry& entry : dropped) {
    if (entry.kind == Entry::Kind::kRecord && entry.record != nullptr) {
      entry.record->settle(status, machine_.time().now_ns());
    }
  }
}

}  // namespace stagecoach
