#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// A program that answers lines with lines: its stdin and stdout are one socket, its stderr is
/// ours. It ends when this does: its input is closed and it is waited for. Thread rule: one thread.
class LineProcess {
 public:
  /// Errors: not found when `program`, a path, cannot be started.
  static Result<LineProcess> start(const std::string& program,
                                   const std::vector<std::string>& arguments);
  LineProcess(LineProcess&& other) noexcept;
  LineProcess& operator=(LineProcess&&) = delete;
  ~LineProcess();

  /// Sends `line` and returns the next one. Errors: cancelled when an interrupt arrives (see
  /// InterruptGuard); data loss, with the exit code, when it ends first or answers with more than
  /// kMostBytes.
  Result<std::string> ask(const std::string& line);

  static constexpr size_t kMostBytes = size_t{64} << 20;

 private:
  LineProcess(std::string program, int socket, int id)
      : program_(std::move(program)), socket_(socket), id_(id) {}
  Status ended();
  int wait();

  std::string program_;
  int socket_ = -1;
  int id_ = -1;  ///< -1: it has been waited for
  std::string received_;
};

}  // namespace stagecoach
