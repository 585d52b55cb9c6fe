#include "train/interrupt.h"

#include <atomic>
#include <csignal>
#include <unistd.h>

namespace stagecoach {

namespace {

constexpr int kInterruptedExitCode = 130;

// Lock-free, so that the handler may touch it.
std::atomic<int> signals_seen{0};
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction previous_interrupt;
struct sigaction previous_terminate;

extern "C" void remember_signal(int) {
  if (signals_seen.fetch_add(1) > 0) ::_exit(kInterruptedExitCode);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signals_seen = 0;
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &previous_interrupt);
  ::sigaction(SIGTERM, &action, &previous_terminate);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &previous_interrupt, nullptr);
  ::sigaction(SIGTERM, &previous_terminate, nullptr);
}

bool InterruptGuard::is_interrupted() {
  return signals_seen.load() > 0;
}

}  // namespace stagecoach
