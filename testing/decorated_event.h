#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "hal/event.h"
#include "testing/decorated_device.h"
#include "testing/interceptor.h"
#include "testing/stream_stop.h"

namespace stagecoach {

/// What a decorated event marks.
struct EventMark {
  std::string stream;                ///< where it was recorded
  Label label;                       ///< of the work before the mark
  std::shared_ptr<StreamStop> stop;  ///< set when the stream forwards nothing any more
};

/// An event around another one.
/// Thread rule: as Event.
class DecoratedEvent final : public Event {
 public:
  DecoratedEvent(DecoratedDevice& device, std::unique_ptr<Event> inner);

  Event& inner() const { return *inner_; }
  /// For DecoratedStream: the event was recorded, on the inner stream too unless it is stopped.
  void set_mark(EventMark mark);
  /// Where it was last recorded; empty before.
  EventMark mark() const;

 private:
  Result<bool> do_query() const override;
  Status do_synchronize() const override;
  Result<int64_t> do_timestamp_ns() const override;
  VerbCall make_call(std::string_view verb, const EventMark& mark) const;

  DecoratedDevice& device_;
  std::unique_ptr<Event> inner_;
  mutable std::mutex mutex_;  // `query` may run beside a record
  EventMark mark_;
};

}  // namespace stagecoach
