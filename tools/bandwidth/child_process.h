#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// How a child process ended.
struct ChildOutcome {
  bool has_timed_out = false;  ///< killed for that
  int exit_code = -1;          ///< -1 where a signal ended it
  int signal = 0;
  std::string output;  ///< what it wrote to stdout; stderr is the parent's
};

/// Runs `program` with `arguments` in a process of its own and gathers its stdout. It is killed
/// when it takes longer than `timeout_ns` or when this process dies. Once `is_cancelled` (may be
/// empty) says so it is interrupted once, and killed a while later. Errors: io where no process can
/// be had.
Result<ChildOutcome> run_child(const std::string& program,
                               const std::vector<std::string>& arguments, int64_t timeout_ns,
                               const std::function<bool()>& is_cancelled);

/// The path of the running program.
Result<std::string> own_program();

}  // namespace stagecoach
