#include "testing/interceptor.h"

#include "core/clock.h"

namespace stagecoach {

Action begin_call(Interceptor& interceptor, const Call& call) {
  Action action = interceptor.before(call);
  if (action.delay_ns > 0) sleep_until_ns(RealClock::instance().now_ns() + action.delay_ns);
  return action;
}

}  // namespace stagecoach
