#include "scheduler/shared_rate.h"

#include <algorithm>
#include <limits>

namespace stagecoach {

double end_of_transfer_ns(const std::vector<SharedRate*>& limits, double start_ns, double length_ns,
                          double bytes) {
  if (limits.empty() || bytes <= 0) return start_ns + length_ns;
  double rate = length_ns > 0 ? bytes / length_ns : std::numeric_limits<double>::infinity();
  double span_ns = limits.front()->span_ns();
  double now = start_ns;
  for (auto span = static_cast<int64_t>(start_ns / span_ns);; ++span) {
    double end = std::max(now, static_cast<double>(span + 1) * span_ns);
    double rest = end - now;
    double left = std::numeric_limits<double>::infinity();
    for (const SharedRate* limit : limits) left = std::min(left, limit->left(span));
    double most = rest > 0 ? std::min(rate * rest, left) : 0;
    if (most <= 0) {
      now = end;
      continue;
    }
    double sent = std::min(most, bytes);
    for (SharedRate* limit : limits) limit->take(span, sent);
    bytes -= sent;
    // The last span gives at most what is left of it, evenly.
    if (bytes <= 0) return now + rest * sent / most;
    now = end;
  }
}

}  // namespace stagecoach
