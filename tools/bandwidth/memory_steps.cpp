#include "tools/bandwidth/memory_steps.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/clock.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/pinned_memory.h"

namespace stagecoach {

namespace {

constexpr ByteCount kTouchedEvery = 4 * kKiB;  ///< the smallest page of any system
constexpr const char* kStopped = "stopped: ";
constexpr const char* kPoisoned = "pinning again: refused";

ByteCount whole_steps(ByteCount size) {
  return size / MemorySteps::kLeast * MemorySteps::kLeast;
}

/// Raising it needs no right.
void be_ended_first() {
  std::ofstream("/proc/self/oom_score_adj") << 1000;
}

void print_step(const char* what, ByteCount bytes, int64_t time_ns) {
  fmt::print("{} {} bytes in {} ns\n", what, bytes, time_ns);
  std::fflush(stdout);
}

void print_stop(const Status& status) {
  if (!status.is_ok()) fmt::print("{}{}\n", kStopped, status.message());
  std::fflush(stdout);
}

/// One piece of page-locked memory.
struct PinnedPiece {
  PageableMemory pages;  ///< behind registered memory
  BufferHandle buffer;
};

Result<PinnedPiece> pin_piece(Device& device, MemoryKind kind, ByteCount size) {
  PinnedPiece piece;
  if (kind == MemoryKind::kHostPinned) {
    STAGECOACH_ASSIGN_OR_RETURN(
        piece.buffer, require_pinned(device.allocate_pinned(size, "steps"), device, size));
    return piece;
  }
  STAGECOACH_ASSIGN_OR_RETURN(piece.pages, PageableMemory::create(size));
  std::memset(piece.pages.data(), 1, static_cast<size_t>(size));
  STAGECOACH_ASSIGN_OR_RETURN(piece.buffer,
                              device.register_host(piece.pages.data(), size, "steps"));
  return piece;
}

}  // namespace

Status take_memory_steps(const MemorySteps& steps) {
  ByteCount taken = 0, step = MemorySteps::kFirst;
  int64_t time_ns = 0;
  bool was_refused = false;
  while (taken < steps.most) {
    ByteCount size = std::min(step, steps.most - taken);
    Status status;
    if (steps.left && steps.left() < size) {
      status =
          resource_exhausted(fmt::format("{} bytes more would leave less than a tenth free", size));
    } else {
      int64_t start_ns = RealClock::instance().now_ns();
      status = steps.take(size);
      if (status.is_ok()) time_ns += RealClock::instance().now_ns() - start_ns;
    }
    if (!status.is_ok()) {
      was_refused = true;
      step = whole_steps(size / 2);
      if (step == 0) return status;
      continue;
    }
    taken += size;
    steps.say(taken, time_ns);
    if (!was_refused) step = std::clamp(whole_steps(taken / 4), step, MemorySteps::kLargest);
  }
  return Status::ok();
}

ByteCount allowed_bytes(const HostLimits& limits, bool is_pinned) {
  // Without a limit the kernel decides, and ends a process that goes too far.
  ByteCount most = limits.limited_bytes.value_or(ByteCount{1} << 60);
  if (is_pinned) most = std::min(most, limits.free_bytes);
  return most / 10 * 9;
}

Status print_touched_steps(ByteCount most) {
  be_ended_first();
  std::vector<PageableMemory> pieces;
  STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
  ByteCount left = allowed_bytes(limits, false);
  MemorySteps steps;
  steps.most = most;
  steps.left = [&left] { return left; };
  steps.take = [&](ByteCount size) {
    STAGECOACH_ASSIGN_OR_RETURN(PageableMemory piece, PageableMemory::create(size));
    // A byte a page is enough: the system zeroes all of it.
    for (ByteCount at = 0; at < size; at += kTouchedEvery) piece.data()[at] = std::byte{1};
    pieces.push_back(std::move(piece));
    left -= size;
    return Status::ok();
  };
  steps.say = [](ByteCount bytes, int64_t time_ns) { print_step("touched", bytes, time_ns); };
  print_stop(take_memory_steps(steps));
  return Status::ok();
}

Status print_pinned_steps(Device& device, MemoryKind kind, ByteCount most) {
  be_ended_first();
  std::vector<PinnedPiece> pieces;
  STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
  ByteCount left = allowed_bytes(limits, true);
  MemorySteps steps;
  steps.most = most;
  steps.left = [&left] { return left; };
  steps.take = [&](ByteCount size) {
    STAGECOACH_ASSIGN_OR_RETURN(PinnedPiece piece, pin_piece(device, kind, size));
    pieces.push_back(std::move(piece));
    left -= size;
    return Status::ok();
  };
  steps.say = [](ByteCount bytes, int64_t time_ns) { print_step("pinned", bytes, time_ns); };
  Status ended = take_memory_steps(steps);
  print_stop(ended);
  if (ended.is_ok() || pieces.empty()) return Status::ok();
  pieces.clear();
  Result<PinnedPiece> again = pin_piece(device, kind, MemorySteps::kLeast);
  if (!again.is_ok()) fmt::print("{}: {}\n", kPoisoned, again.status().message());
  return Status::ok();
}

StepsOutcome read_steps(const ChildOutcome& outcome) {
  StepsOutcome steps;
  std::string whole = outcome.output.substr(0, outcome.output.rfind('\n') + 1);
  std::istringstream lines(whole);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string verb, unit, in;
    ByteCount bytes = 0;
    int64_t time_ns = 0;
    if (line.starts_with(kStopped)) {
      steps.stopped = line.substr(std::strlen(kStopped));
    } else if (line.starts_with(kPoisoned)) {
      steps.is_poisoned = true;
    } else if (words >> verb >> bytes >> unit >> in >> time_ns) {
      steps.bytes = bytes;
      steps.time_ns = time_ns;
    }
  }
  if (outcome.has_timed_out) {
    steps.stopped = "it did not end in time";
  } else if (outcome.signal != 0) {
    steps.stopped = fmt::format("the process that took it was ended by signal {}", outcome.signal);
  } else if (outcome.exit_code != 0 && steps.stopped.empty()) {
    steps.stopped =
        fmt::format("the process that took it ended with exit code {}", outcome.exit_code);
  }
  return steps;
}

}  // namespace stagecoach
