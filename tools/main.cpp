#include "backends/register_backends.h"
#include "tools/command.h"

int main(int argument_count, char** arguments) {
  using namespace stagecoach;
  std::vector<Command> commands;
  commands.push_back(make_devices_command());
  commands.push_back(make_train_command());
  commands.push_back(make_eval_command());
  commands.push_back(make_generate_command());
  commands.push_back(make_report_command());
  const std::vector<MissingCommand> missing = {
      {"topology", "the tree and matrix of links"},
      {"bench", "measurements of bandwidth"},
      {"inspect", "sizes of models from their headers"},
      {"plan", "partitions and predicted step times"},
      {"simulate", "schedules on virtual time"},
      {"export",
       "Hugging Face folders from checkpoints; eval and generate read checkpoints as they "
       "are"}};
  BackendRegistry backends = built_in_backends();
  return run_command_line(commands, missing, backends, argument_count, arguments);
}
