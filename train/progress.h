#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "memory/registered_memory.h"

namespace stagecoach {

/// Tells a person what a long run is doing, on stderr. On a terminal one line is redrawn in place;
/// elsewhere whole lines appear, one every `kLineIntervalNs` at most and, while a phase takes long,
/// one every `kSilenceNs` at least. No carriage returns and no colours when stderr is not a
/// terminal or NO_COLOR is set.
/// Thread rule: any thread.
class Progress {
 public:
  static constexpr int64_t kLineIntervalNs = 10'000'000'000;
  static constexpr int64_t kSilenceNs = 20'000'000'000;

  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts a phase: "reading data". Shown at once on a terminal, elsewhere when it takes long.
  void phase(std::string text);
  /// Replaces what the current phase says.
  void update(std::string text);
  /// Prints a whole line that stays.
  void line(const std::string& text);

 private:
  void watch(std::stop_token stop);
  void redraw();
  void print_line(const std::string& text);

  bool in_place_ = false;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string text_;
  int64_t phase_start_ns_ = 0;
  int64_t last_print_ns_ = 0;
  bool drawn_ = false;  ///< a line is on the terminal that the next one must erase
  bool is_updated_ = false;
  std::jthread thread_;  // last: joined before the rest is destroyed
};

/// "pinning host memory: 12.00 GiB of 100.00 GiB, 4.1 GiB/s, 21 s left".
std::string describe_pin_progress(const PinProgress& pinned);

/// "1 h 02 min", "3 min 20 s", "4 s".
std::string format_time_left(double seconds);

}  // namespace stagecoach
