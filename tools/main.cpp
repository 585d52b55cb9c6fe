#include <csignal>
#include <fcntl.h>
#include <malloc.h>
#include <string_view>
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

/// Whether the one JSON object is still owed; training owes lines.
volatile std::sig_atomic_t owes_object = 0;

bool owes_json_object(int argument_count, char** arguments) {
  bool asked = false;
  for (int i = 1; i < argument_count; ++i) {
    std::string_view argument = arguments[i];
    if (argument == "train") return false;
    asked = asked || argument == "--json";
  }
  return asked;
}

/// Commands that hold something to put in order first, as training does, take over these signals.
extern "C" void end_interrupted(int) {
  constexpr char kObject[] = "{\"error\":\"interrupted\",\"exit_code\":130}\n";
  // Nobody is left to tell when that cannot be written.
  if (owes_object != 0) static_cast<void>(::write(STDOUT_FILENO, kObject, sizeof(kObject) - 1) > 0);
  ::_exit(stagecoach::kExitInterrupted);
}

}  // namespace

int main(int argument_count, char** arguments) {
  using namespace stagecoach;
  // Whoever measures wants to read it; training's results are files.
  bool has_stdout = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  open_standard_streams();
  if (!has_stdout && argument_count > 1 && std::string_view(arguments[1]) == "bench") {
    constexpr std::string_view kClosed = "stagecoach bench: stdout is closed; send it to a file\n";
    static_cast<void>(::write(STDERR_FILENO, kClosed.data(), kClosed.size()) > 0);
    return kExitUsage;
  }
  save_address_space();
  // A file size limit is an error of the write that meets it, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  owes_object = owes_json_object(argument_count, arguments) ? 1 : 0;
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
  commands.push_back(make_topology_command());
  commands.push_back(make_bench_command());
  BackendRegistry backends = built_in_backends();
  return run_command_line(commands, backends, argument_count, arguments);
}
