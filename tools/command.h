#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/status.h"
#include "hal/backend_registry.h"

namespace stagecoach {

/// One option of a subcommand, bound to the variable that receives it.
struct CommandOption {
  using Target = std::variant<bool*, std::string*, std::vector<std::string>*, int64_t*, double*>;

  std::string name;        ///< "--config", or without dashes for a positional argument: "DIR"
  std::string value_name;  ///< "FILE"; empty for flags
  std::string help;        ///< one line
  Target target;
  bool required = false;
};

/// What a subcommand may use of the program it runs in.
struct CommandContext {
  const BackendRegistry& backends;
  bool json = false;  ///< --json: one object (train: lines) on stdout
};

/// A subcommand. Subcommand files make one; command_line.cpp is the only file that knows the
/// library that parses. `run` returns an exit code of the contract, or the failure that decides it.
struct Command {
  std::string name;
  std::string summary;                ///< one line
  std::vector<std::string> examples;  ///< whole command lines
  std::string notes;                  ///< further text of --help; may be empty
  std::vector<CommandOption> options;
  std::function<Result<int>(const CommandContext&)> run;
  /// When interrupted it has printed what it had by then: nothing more is said.
  bool answers_interrupted = false;
};

/// Parses the command line, runs the subcommand it names and returns the exit code. Help and
/// version go to stdout; refusals, one line each, to stderr. Exceptions do not escape.
int run_command_line(const std::vector<Command>& commands, const BackendRegistry& backends,
                     int argument_count, char** arguments);

/// The subcommands, one file each.
Command make_devices_command();
Command make_train_command();
Command make_eval_command();
Command make_generate_command();
Command make_report_command();
Command make_simulate_command();
Command make_plan_command();
Command make_inspect_command();
Command make_export_command();
Command make_bench_command();
Command make_topology_command();

}  // namespace stagecoach
