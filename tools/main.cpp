#include <csignal>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/register_backends.h"
#include "tools/command.h"
#include "tools/exit_code.h"

namespace {

/// Files opened later must not land on the numbers of closed standard streams, where the progress
/// of a run would be written into them.
void open_standard_streams() {
  int descriptor = 0;
  do {
    descriptor = ::open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

/// Where address space is limited it must not go to arenas of the allocator: glibc reserves 64 MiB
/// for each of many threads.
void save_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  static_cast<void>(::mallopt(M_ARENA_MAX, 1));
}

/// Commands that hold something to put in order first, as training does, take over these signals.
extern "C" void end_interrupted(int) {
  ::_exit(stagecoach::kExitInterrupted);
}

}  // namespace

int main(int argument_count, char** arguments) {
  using namespace stagecoach;
  open_standard_streams();
  save_address_space();
  // A file size limit is an error of the write that meets it, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGINT, end_interrupted);
  std::signal(SIGTERM, end_interrupted);
  std::vector<Command> commands;
  commands.push_back(make_devices_command());
  commands.push_back(make_train_command());
  commands.push_back(make_eval_command());
  commands.push_back(make_generate_command());
  commands.push_back(make_report_command());
  commands.push_back(make_simulate_command());
  commands.push_back(make_plan_command());
  commands.push_back(make_inspect_command());
  commands.push_back(make_export_command());
  const std::vector<MissingCommand> missing = {{"topology", "the tree and matrix of links"},
                                               {"bench", "measurements of bandwidth"}};
  BackendRegistry backends = built_in_backends();
  return run_command_line(commands, missing, backends, argument_count, arguments);
}
