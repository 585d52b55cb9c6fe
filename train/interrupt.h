#pragma once

namespace stagecoach {

/// While one exists, the first SIGINT or SIGTERM is remembered instead of ending the process; the
/// second ends it at once with exit code 130. At most one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Whether a signal has come. Thread rule: any thread.
  static bool is_interrupted();
};

}  // namespace stagecoach
