#include "testing/interceptor.h"

#include "core/clock.h"

namespace stagecoach {

Verdict begin_call(Interceptor& interceptor, const VerbCall& call) {
  Verdict verdict = interceptor.before(call);
  if (verdict.delay_ns > 0) sleep_until_ns(RealClock::instance().now_ns() + verdict.delay_ns);
  return verdict;
}

}  // namespace stagecoach
