#include "testing/decorated_device.h"

#include <algorithm>
#include <utility>

#include "testing/decorated_event.h"
#include "testing/decorated_ops.h"
#include "testing/decorated_stream.h"

namespace stagecoach {

namespace {

/// An allocation verb: as `intercept`, for an answer that is not a Result.
template <typename Forward>
Allocation intercept_allocation(Interceptor& interceptor, VerbCall& call, Forward&& forward) {
  Verdict verdict = begin_call(interceptor, call);
  Allocation answer;
  if (verdict.kind == Verdict::Kind::kExhaust) {
    answer.outcome = AllocationOutcome::kExhausted;
  } else if (verdict.kind == Verdict::Kind::kRefuse) {
    answer.status = verdict.status;
  } else {
    STAGECOACH_CHECK(verdict.kind == Verdict::Kind::kForward);
    answer = forward();
    call.created = answer.buffer.get();
  }
  bool exhausted = answer.outcome == AllocationOutcome::kExhausted;
  interceptor.after(call, exhausted ? resource_exhausted("exhausted") : answer.status);
  return answer;
}

}  // namespace

DecoratedDevice::DecoratedDevice(std::unique_ptr<Device> inner,
                                 std::shared_ptr<Interceptor> interceptor)
    : Device(inner->info()),
      inner_(std::move(inner)),
      interceptor_(std::move(interceptor)),
      ops_(std::make_unique<DecoratedOps>(inner_->ops())) {}

DecoratedDevice::~DecoratedDevice() {
  drain_retired();
}

VerbCall DecoratedDevice::make_call(std::string_view verb, const Label& label) const {
  VerbCall call;
  call.verb = verb;
  call.device_index = info().index;
  call.device = id();
  call.label = label;
  return call;
}

void DecoratedDevice::add_stop(std::shared_ptr<StreamStop> stop) {
  std::lock_guard lock(mutex_);
  stops_.push_back(std::move(stop));
}

void DecoratedDevice::remove_stop(const std::shared_ptr<StreamStop>& stop) {
  std::lock_guard lock(mutex_);
  std::erase(stops_, stop);
}

std::string DecoratedDevice::unique_stream_name(const std::string& name) {
  std::lock_guard lock(mutex_);
  int number = ++stream_names_[name];
  return number == 1 ? name : name + "#" + std::to_string(number);
}

Result<std::unique_ptr<Stream>> DecoratedDevice::do_create_stream(const StreamOptions& options) {
  using Answer = Result<std::unique_ptr<Stream>>;
  VerbCall call = make_call(verbs::kCreateStream, Label(options.name));
  return intercept<Answer>(*interceptor_, call, [&]() -> Answer {
    std::unique_ptr<Stream> inner;
    STAGECOACH_ASSIGN_OR_RETURN(inner, inner_->create_stream(options));
    return Answer(std::make_unique<DecoratedStream>(*this, std::move(inner),
                                                    unique_stream_name(options.name)));
  });
}

Result<std::unique_ptr<Event>> DecoratedDevice::do_create_event(const EventOptions& options) {
  using Answer = Result<std::unique_ptr<Event>>;
  VerbCall call = make_call(verbs::kCreateEvent, options.timing ? "timing event" : "event");
  return intercept<Answer>(*interceptor_, call, [&]() -> Answer {
    std::unique_ptr<Event> inner;
    STAGECOACH_ASSIGN_OR_RETURN(inner, inner_->create_event(options));
    return Answer(std::make_unique<DecoratedEvent>(*this, std::move(inner)));
  });
}

Allocation DecoratedDevice::do_allocate(ByteCount size, Label label) {
  VerbCall call = make_call(verbs::kAllocate, label);
  call.size_bytes = size;
  return intercept_allocation(*interceptor_, call, [&] { return inner_->allocate(size, label); });
}

Allocation DecoratedDevice::do_allocate_pinned(ByteCount size, Label label) {
  VerbCall call = make_call(verbs::kAllocatePinned, label);
  call.size_bytes = size;
  return intercept_allocation(*interceptor_, call,
                              [&] { return inner_->allocate_pinned(size, label); });
}

Result<BufferHandle> DecoratedDevice::do_register_host(void* data, ByteCount size, Label label) {
  VerbCall call = make_call(verbs::kRegisterHost, label);
  call.size_bytes = size;
  return intercept<Result<BufferHandle>>(*interceptor_, call, [&] {
    Result<BufferHandle> registered = inner_->register_host(data, size, label);
    if (registered.is_ok()) call.created = registered->get();
    return registered;
  });
}

Result<std::unique_ptr<Executable>> DecoratedDevice::do_load_executable(
    const ExecutableImage& image) {
  VerbCall call = make_call(verbs::kLoadExecutable, Label(image.name));
  call.size_bytes = static_cast<ByteCount>(image.bytes.size());
  return intercept<Result<std::unique_ptr<Executable>>>(
      *interceptor_, call, [&] { return inner_->load_executable(image); });
}

Status DecoratedDevice::do_enable_peer(Device& peer) {
  auto* decorated = dynamic_cast<DecoratedDevice*>(&peer);
  Device& inner_peer = decorated ? decorated->inner() : peer;
  return intercept<Status>(*interceptor_, make_call(verbs::kEnablePeer, Label(peer.id())),
                           [&] { return inner_->enable_peer(inner_peer); });
}

Result<MemoryUsage> DecoratedDevice::do_memory_usage() {
  return intercept<Result<MemoryUsage>>(*interceptor_,
                                        make_call(verbs::kMemoryUsage, "memory usage"),
                                        [&] { return inner_->memory_usage(); });
}

Status DecoratedDevice::do_synchronize() {
  return intercept<Status>(*interceptor_, make_call(verbs::kSynchronize, "all streams"), [&] {
    Status first = inner_->synchronize();
    std::vector<std::shared_ptr<StreamStop>> stops;
    {
      std::lock_guard lock(mutex_);
      stops = stops_;
    }
    for (const std::shared_ptr<StreamStop>& stop : stops) {
      Status ended = stop->wait();
      if (first.is_ok()) first = ended;
    }
    return first;
  });
}

}  // namespace stagecoach
