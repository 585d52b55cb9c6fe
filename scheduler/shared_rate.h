#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach {

/// What passes through a limit that several links share, as bytes in short spans of time. Transfers
/// may be entered in any order: who comes first is served first, later ones take what is left at
/// any time, so the limit holds at all times. Not thread-safe.
class SharedRate {
 public:
  /// Bytes per ns, and the length of a span; both positive.
  SharedRate(double bytes_per_ns, double span_ns)
      : span_bytes_(bytes_per_ns * span_ns), span_ns_(span_ns) {}

  double span_ns() const { return span_ns_; }
  double span_bytes() const { return span_bytes_; }
  /// Bytes that a span has left.
  double left(int64_t span) const {
    return span < std::ssize(used_) ? span_bytes_ - used_[span] : span_bytes_;
  }
  void take(int64_t span, double bytes) {
    if (span >= std::ssize(used_)) used_.resize(span + 1, 0);
    used_[span] += bytes;
  }

 private:
  double span_bytes_ = 0, span_ns_ = 0;
  std::vector<double> used_;  ///< per span from time 0 on
};

/// End of a transfer that would take `length_ns` alone and passes through `limits`, whose spans are
/// equally long, and enters it there.
double end_of_transfer_ns(const std::vector<SharedRate*>& limits, double start_ns, double length_ns,
                          double bytes);

}  // namespace stagecoach
