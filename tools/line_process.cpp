#include "tools/line_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "train/interrupt.h"

namespace stagecoach {

namespace {

/// How often a wait looks for an interrupt.
constexpr int kInterruptCheckMs = 200;

/// Starts `program` with `socket` as its stdin and stdout; the id of the process, or -1 with errno.
int spawn(const std::string& program, const std::vector<std::string>& arguments, int socket) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  pid_t id = -1;
  int error = posix_spawn(&id, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  errno = error;
  return error == 0 ? id : -1;
}

}  // namespace

Result<LineProcess> LineProcess::start(const std::string& program,
                                       const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  // Both are closed in the program, but for the copies that it gets.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return io_error(fmt::format("no socket for '{}': {}", program, std::strerror(errno)));
  }
  int id = spawn(program, arguments, ends[1]);
  int error = errno;
  ::close(ends[1]);
  if (id >= 0) return LineProcess(program, ends[0], id);
  ::close(ends[0]);
  return not_found(fmt::format("'{}' cannot be started: {}", program, std::strerror(error)));
}

LineProcess::LineProcess(LineProcess&& other) noexcept
    : program_(std::move(other.program_)),
      socket_(std::exchange(other.socket_, -1)),
      id_(std::exchange(other.id_, -1)),
      received_(std::move(other.received_)) {}

LineProcess::~LineProcess() {
  if (socket_ >= 0) ::close(socket_);
  // What it is at, such as an installation, may take long.
  if (id_ >= 0 && InterruptGuard::is_interrupted()) ::kill(id_, SIGTERM);
  wait();
}

/// The exit code; -1 for one that a signal ended.
int LineProcess::wait() {
  if (id_ < 0) return -1;
  int status = 0;
  pid_t id = std::exchange(id_, -1);
  while (::waitpid(id, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Status LineProcess::ended() {
  if (InterruptGuard::is_interrupted()) return cancelled(program_ + " was interrupted");
  int code = wait();
  return data_loss(fmt::format("'{}' ended with exit code {} before it answered", program_, code));
}

Result<std::string> LineProcess::ask(const std::string& line) {
  std::string message = line + "\n";
  for (size_t sent = 0; sent < message.size();) {
    ssize_t now = ::send(socket_, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    // What it said before it ended may be there to be read.
    if (now <= 0) break;
    sent += static_cast<size_t>(now);
  }
  std::array<char, 4096> piece{};
  size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    if (InterruptGuard::is_interrupted()) return ended();
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, kInterruptCheckMs) <= 0) continue;
    ssize_t now = ::recv(socket_, piece.data(), piece.size(), 0);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return ended();
    received_.append(piece.data(), static_cast<size_t>(now));
    if (received_.size() > kMostBytes) {
      return data_loss(fmt::format("'{}' answers with more than {} bytes", program_, kMostBytes));
    }
  }
  std::string answer = received_.substr(0, end);
  received_.erase(0, end + 1);
  return answer;
}

}  // namespace stagecoach
