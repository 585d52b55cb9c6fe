#include "testing/decorated_event.h"

#include <utility>

namespace stagecoach {

DecoratedEvent::DecoratedEvent(DecoratedDevice& device, std::unique_ptr<Event> inner)
    : Event(device), device_(device), inner_(std::move(inner)) {}

void DecoratedEvent::set_mark(EventMark mark) {
  std::lock_guard lock(mutex_);
  mark_ = std::move(mark);
}

EventMark DecoratedEvent::mark() const {
  std::lock_guard lock(mutex_);
  return mark_;
}

VerbCall DecoratedEvent::make_call(std::string_view verb, const EventMark& mark) const {
  VerbCall call = device_.make_call(verb, mark.label);
  call.stream = mark.stream;
  call.event = this;
  return call;
}

Result<bool> DecoratedEvent::do_query() const {
  EventMark mark = this->mark();
  VerbCall call = make_call(verbs::kQueryEvent, mark);
  return intercept<Result<bool>>(device_.interceptor(), call, [&]() -> Result<bool> {
    if (!mark.stop) {
      Result<bool> passed = inner_->query();
      call.passed = passed.is_ok() && *passed;
      return passed;
    }
    std::optional<Status> ended = mark.stop->outcome();
    if (!ended) return false;
    return *ended;
  });
}

Status DecoratedEvent::do_synchronize() const {
  EventMark mark = this->mark();
  VerbCall call = make_call(verbs::kSynchronize, mark);
  return intercept<Status>(device_.interceptor(), call,
                           [&] { return mark.stop ? mark.stop->wait() : inner_->synchronize(); });
}

Result<int64_t> DecoratedEvent::do_timestamp_ns() const {
  EventMark mark = this->mark();
  VerbCall call = make_call(verbs::kTimestampEvent, mark);
  return intercept<Result<int64_t>>(device_.interceptor(), call, [&]() -> Result<int64_t> {
    if (!mark.stop) return inner_->timestamp_ns();
    return mark.stop->outcome().value_or(failed_precondition("the event has not been passed"));
  });
}

}  // namespace stagecoach
