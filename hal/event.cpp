#include "hal/event.h"

#include "hal/device.h"

namespace stagecoach {

namespace {

Status never_recorded(const Device& device, const char* verb) {
  FailureSite site;
  site.device = device.id();
  site.verb = verb;
  return failed_precondition("the event was never recorded; record it on a stream first")
      .with_site(site);
}

}  // namespace

Result<bool> Event::query() const {
  if (!is_recorded()) return never_recorded(device_, "event query");
  return do_query();
}

Status Event::synchronize() const {
  if (!is_recorded()) return never_recorded(device_, "event synchronize");
  return do_synchronize();
}

Result<int64_t> Event::timestamp_ns() const {
  if (!is_recorded()) return never_recorded(device_, "event timestamp");
  return do_timestamp_ns();
}

}  // namespace stagecoach
