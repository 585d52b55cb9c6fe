#include "train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/printable.h"
#include "core/settings.h"

namespace stagecoach {

namespace {

constexpr std::chrono::milliseconds kWatchInterval{500};
constexpr int64_t kRedrawNs = 100'000'000;

int64_t now_ns() {
  return RealClock::instance().now_ns();
}

bool is_terminal() {
  Result<Settings> settings = read_settings();
  bool plain = !settings.is_ok() || settings->no_color;
  return !plain && ::isatty(STDERR_FILENO) == 1;
}

}  // namespace

Progress::Progress()
    : in_place_(is_terminal()), phase_start_ns_(now_ns()), last_print_ns_(phase_start_ns_) {
  thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Progress::~Progress() {
  thread_.request_stop();
  thread_.join();
  if (in_place_ && drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::phase(std::string text) {
  std::lock_guard lock(mutex_);
  text_ = std::move(text);
  phase_start_ns_ = now_ns();
  is_updated_ = false;
  if (in_place_) redraw();
}

void Progress::update(std::string text) {
  std::lock_guard lock(mutex_);
  bool is_first = !is_updated_;
  text_ = std::move(text);
  is_updated_ = true;
  int64_t silent_ns = now_ns() - last_print_ns_;
  if (in_place_) {
    if (silent_ns >= kRedrawNs || is_first) redraw();
  } else if (silent_ns >= kLineIntervalNs || is_first) {
    print_line(text_);
  }
}

void Progress::line(const std::string& text) {
  std::lock_guard lock(mutex_);
  print_line(text);
  if (in_place_ && !text_.empty()) redraw();
}

void Progress::watch(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, kWatchInterval, [] { return false; });
    int64_t now = now_ns();
    if (stop.stop_requested() || text_.empty() || now - last_print_ns_ < kSilenceNs) continue;
    double phase_s = static_cast<double>(now - phase_start_ns_) * 1e-9;
    std::string text = fmt::format("{} ({:.0f} s so far)", text_, phase_s);
    if (in_place_) {
      redraw();
    } else {
      print_line(text);
    }
  }
}

void Progress::redraw() {
  // Carriage return, text, erase to the end of the line.
  std::fputs(("\r" + printable(text_) + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
  last_print_ns_ = now_ns();
}

void Progress::print_line(const std::string& text) {
  if (in_place_ && drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
  std::fputs((printable(text) + "\n").c_str(), stderr);
  std::fflush(stderr);
  last_print_ns_ = now_ns();
}

std::string describe_pin_progress(const PinProgress& pinned) {
  double seconds = static_cast<double>(std::max<int64_t>(pinned.elapsed_ns, 1)) * 1e-9;
  double bytes_per_s = static_cast<double>(pinned.done) / seconds;
  double left_s = static_cast<double>(pinned.total - pinned.done) / std::max(bytes_per_s, 1.0);
  return fmt::format("pinning host memory: {} of {}, {:.1f} GiB/s, {} left",
                     format_bytes(pinned.done), format_bytes(pinned.total),
                     bytes_per_s / static_cast<double>(kGiB), format_time_left(left_s));
}

std::string format_time_left(double seconds) {
  int64_t whole = std::llround(std::max(seconds, 0.0));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace stagecoach
