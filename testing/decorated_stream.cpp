#include "testing/decorated_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "testing/decorated_event.h"

namespace stagecoach {

namespace {

constexpr ByteCount kCorruptedBytes = 64;

/// The middle of a view: padding at its ends is what nobody reads.
BufferView middle_piece(BufferView target) {
  ByteCount size = std::min(target.size, kCorruptedBytes);
  return target.slice((target.size - size) / 2, size);
}

ByteCount operand_bytes(const OpCall& call) {
  ByteCount total = 0;
  for (const TensorView& tensor : call.outputs) {
    if (!tensor.is_none()) total += tensor.size_bytes();
  }
  for (const TensorView& tensor : call.inputs) {
    if (!tensor.is_none()) total += tensor.size_bytes();
  }
  return total;
}

/// The first output; operations whose first output is optional have another one then.
BufferView first_output(const OpCall& call) {
  for (const TensorView& tensor : call.outputs) {
    if (!tensor.is_none()) return tensor.memory;
  }
  return {};
}

std::vector<MemoryUse> operand_uses(const OpCall& call) {
  std::vector<MemoryUse> uses;
  for (const TensorView& tensor : call.outputs) {
    if (!tensor.is_none()) uses.push_back({tensor.memory, true});
  }
  for (const TensorView& tensor : call.inputs) {
    if (!tensor.is_none()) uses.push_back({tensor.memory, false});
  }
  return uses;
}

/// Which argument a kernel writes is not known; by convention it is the first pointer.
std::vector<MemoryUse> pointer_uses(const LaunchRequest& request) {
  std::vector<MemoryUse> uses;
  for (int i = 0; i < request.argument_count; ++i) {
    const KernelArgument& argument = request.arguments[static_cast<size_t>(i)];
    if (argument.kind != KernelArgument::Kind::kPointer) continue;
    uses.push_back({argument.pointer, uses.empty()});
  }
  return uses;
}

}  // namespace

DecoratedStream::DecoratedStream(DecoratedDevice& device, std::unique_ptr<Stream> inner,
                                 std::string call_name)
    : Stream(device, inner->name()),
      device_(device),
      inner_(std::move(inner)),
      call_name_(std::move(call_name)),
      last_label_(inner_->name()) {}

DecoratedStream::~DecoratedStream() {
  if (std::shared_ptr<StreamStop> stopped = current_stop()) {
    stopped->abandon(cancelled("stream " + call_name_ + " was destroyed with unfinished work"));
    device_.remove_stop(stopped);
  }
  release_events();
}

std::shared_ptr<StreamStop> DecoratedStream::current_stop() const {
  std::lock_guard lock(mutex_);
  return stop_;
}

Label DecoratedStream::last_label() const {
  std::lock_guard lock(mutex_);
  return last_label_;
}

void DecoratedStream::stop(std::shared_ptr<StreamStop> stop) {
  device_.add_stop(stop);
  std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
}

Status DecoratedStream::submit_work(const Work& work, const std::function<Status()>& forward) {
  {
    std::lock_guard lock(mutex_);
    last_label_ = work.label;
  }
  VerbCall call = device_.make_call(work.verb, work.label);
  call.stream = call_name_;
  call.size_bytes = work.size;
  call.uses = work.uses;
  call.event = work.event;
  Verdict verdict = begin_call(device_.interceptor(), call);
  Status outcome = carry_out(verdict, work.label, work.target, forward);
  device_.interceptor().after(call, outcome);
  return outcome;
}

Status DecoratedStream::carry_out(const Verdict& verdict, const Label& label, BufferView target,
                                  const std::function<Status()>& forward) {
  if (verdict.kind == Verdict::Kind::kRefuse) return verdict.status;
  if (current_stop() || verdict.kind == Verdict::Kind::kSkip) return Status::ok();
  switch (verdict.kind) {
    case Verdict::Kind::kFailLater:
      stop(StreamStop::failing(*inner_, verdict.status));
      return Status::ok();
    case Verdict::Kind::kNeverCompletes:
      stop(StreamStop::hanging(*inner_));
      return Status::ok();
    case Verdict::Kind::kCorrupt:
      STAGECOACH_RETURN_IF_ERROR(forward());
      return corrupt(target, label);
    default:
      STAGECOACH_CHECK(verdict.kind == Verdict::Kind::kForward);
      return forward();
  }
}

Status DecoratedStream::corrupt(BufferView target, const Label& label) {
  if (target.is_none()) return Status::ok();
  BufferView piece = middle_piece(target);
  FillRequest ones{piece, 0xffu, 1, label};
  if (is_host(piece.buffer->kind())) {
    // Fills cannot reach host memory, and a copy would need device memory that may be all taken.
    STAGECOACH_RETURN_IF_ERROR(inner_->synchronize());
    std::memset(piece.host_data(), 0xff, static_cast<size_t>(piece.size));
    return Status::ok();
  }
  Device& owner = piece.buffer->device();
  if (&owner == &device_.root()) return inner_->fill(ones).status();
  STAGECOACH_RETURN_IF_ERROR(inner_->synchronize());
  std::unique_ptr<Stream> stream;
  STAGECOACH_ASSIGN_OR_RETURN(stream, owner.create_stream({"corruption"}));
  STAGECOACH_RETURN_IF_FAILED(stream->fill(ones));
  return stream->synchronize();
}

Status DecoratedStream::run_op(Ops& inner_ops, const OpCall& call) {
  std::vector<MemoryUse> uses = operand_uses(call);
  return submit_work(
      {op_kind_name(call.kind), call.label, operand_bytes(call), first_output(call), uses},
      [&] { return inner_ops.run(*inner_, call).status(); });
}

Status DecoratedStream::do_copy(const CopyRequest& request) {
  MemoryUse uses[] = {{request.target, true}, {request.source, false}};
  return submit_work({verbs::kCopy, request.label, request.target.size, request.target, uses},
                     [&] { return inner_->copy(request).status(); });
}

Status DecoratedStream::do_fill(const FillRequest& request) {
  MemoryUse uses[] = {{request.target, true}};
  return submit_work({verbs::kFill, request.label, request.target.size, request.target, uses},
                     [&] { return inner_->fill(request).status(); });
}

Status DecoratedStream::do_launch(const LaunchRequest& request) {
  std::vector<MemoryUse> uses = pointer_uses(request);
  BufferView target = uses.empty() ? BufferView() : uses[0].view;
  return submit_work({verbs::kLaunch, request.label, target.size, target, uses},
                     [&] { return inner_->launch(request).status(); });
}

Status DecoratedStream::do_record(Event& event) {
  auto* decorated = dynamic_cast<DecoratedEvent*>(&event);
  if (decorated == nullptr) return invalid_argument("the event was not made by this device");
  Label label = last_label();
  STAGECOACH_RETURN_IF_ERROR(
      submit_work({.verb = verbs::kRecord, .label = label, .event = &event},
                  [&] { return inner_->record(decorated->inner()).status(); }));
  decorated->set_mark({call_name_, label, current_stop()});
  return Status::ok();
}

Status DecoratedStream::do_wait(const Event& event) {
  const auto* decorated = dynamic_cast<const DecoratedEvent*>(&event);
  if (decorated == nullptr) return invalid_argument("the event was not made by a decorated device");
  EventMark mark = decorated->mark();
  return submit_work({.verb = verbs::kWait, .label = mark.label, .event = &event}, [&] {
    if (!mark.stop) return inner_->wait(decorated->inner()).status();
    stop(StreamStop::behind(*inner_, mark.stop));
    return Status::ok();
  });
}

Status DecoratedStream::do_synchronize() {
  VerbCall call = device_.make_call(verbs::kSynchronize, last_label());
  call.stream = call_name_;
  return intercept<Status>(device_.interceptor(), call, [&] {
    std::shared_ptr<StreamStop> stopped = current_stop();
    return stopped ? stopped->wait() : inner_->synchronize();
  });
}

void DecoratedStream::do_abandon(const Status& status) {
  if (std::shared_ptr<StreamStop> stopped = current_stop()) stopped->abandon(status);
  inner_->abandon(status);
}

Status DecoratedStream::do_failure() const {
  std::shared_ptr<StreamStop> stopped = current_stop();
  return stopped ? stopped->outcome().value_or(Status::ok()) : inner_->status();
}

bool DecoratedStream::do_is_idle() {
  return inner_->settled(inner_->last_submitted().sequence);
}

}  // namespace stagecoach
