#include "tools/bandwidth/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"

namespace stagecoach {

namespace {

constexpr int kPollMs = 20;
constexpr int64_t kGraceNs = 5'000'000'000;  ///< for an interrupted child to print what it has

/// A child and the pipe that its output comes from.
class Child {
 public:
  ~Child() {
    if (pipe_ >= 0) ::close(pipe_);
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    reap();
  }

  Status start(const std::string& program, const std::vector<std::string>& arguments) {
    std::vector<char*> texts;
    texts.push_back(const_cast<char*>(program.c_str()));
    for (const std::string& one : arguments) texts.push_back(const_cast<char*>(one.c_str()));
    texts.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failure("a pipe");
    pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      // Other threads may hold any lock: only calls that are safe here.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // A terminal interrupts all of a group: the child is told by its parent alone, and once,
      // since a second signal would end it before it has printed what it has.
      ::setpgid(0, 0);
      if (::getppid() != parent) ::_exit(127);
      ::dup2(ends[1], STDOUT_FILENO);
      ::execv(program.c_str(), texts.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
    return process_ > 0 ? Status::ok() : failure("a process");
  }

  void send(int signal) const { ::kill(process_, signal); }

  /// Waits a little for output; false once there will be no more.
  bool read_some(std::string& output) const {
    pollfd waiting{pipe_, POLLIN, 0};
    int ready = ::poll(&waiting, 1, kPollMs);
    if (ready <= 0) return true;
    std::array<char, 65536> piece{};
    ssize_t count = ::read(pipe_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) return true;
    if (count > 0) output.append(piece.data(), static_cast<size_t>(count));
    return count > 0;
  }

  /// Waits for its end; the status of waitpid.
  int reap() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

 private:
  static Status failure(const char* what) {
    return io_error(
        fmt::format("cannot make {} for a measurement of its own: {}", what, std::strerror(errno)));
  }

  pid_t process_ = -1;
  int pipe_ = -1;
};

}  // namespace

Result<ChildOutcome> run_child(const std::string& program,
                               const std::vector<std::string>& arguments, int64_t timeout_ns,
                               const std::function<bool()>& is_cancelled) {
  Child child;
  STAGECOACH_RETURN_IF_ERROR(child.start(program, arguments));
  ChildOutcome outcome;
  int64_t deadline_ns = RealClock::instance().now_ns() + timeout_ns;
  bool is_interrupted = false, is_killed = false;
  while (child.read_some(outcome.output)) {
    int64_t now_ns = RealClock::instance().now_ns();
    if (!is_interrupted && is_cancelled && is_cancelled()) {
      is_interrupted = true;
      child.send(SIGINT);
      deadline_ns = std::min(deadline_ns, now_ns + kGraceNs);
    }
    if (is_killed || now_ns < deadline_ns) continue;
    is_killed = true;
    outcome.has_timed_out = !is_interrupted;
    child.send(SIGKILL);
  }
  int status = child.reap();
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

Result<std::string> own_program() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return io_error("cannot tell the path of this program: is /proc mounted?");
  return path.string();
}

}  // namespace stagecoach
