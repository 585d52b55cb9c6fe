#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <type_traits>

#include "core/json.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/settings.h"
#include "core/suggest.h"
#include "stagecoach_version.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "train/interrupt.h"

namespace stagecoach {

namespace {

constexpr const char* kSummary =
    "trains neural networks larger than GPU memory on a few consumer GPUs";

bool is_flag(const CommandOption& option) {
  return std::holds_alternative<bool*>(option.target);
}

bool is_positional(const CommandOption& option) {
  return !option.name.starts_with('-');
}

void print_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// ---- help and version ------------------------------------------------------------------------

std::string usage_line(const Command& command) {
  std::string line = "stagecoach " + command.name;
  for (const CommandOption& option : command.options) {
    if (is_positional(option)) line += " " + option.name;
  }
  return line + " [options]";
}

std::string option_help(const std::string& name, const std::string& text) {
  constexpr size_t kColumn = 26;
  if (name.size() + 4 > kColumn) return fmt::format("  {}\n{:{}}{}\n", name, "", kColumn, text);
  return fmt::format("  {:<{}}{}\n", name, kColumn - 2, text);
}

std::string command_help(const Command& command) {
  std::string text = fmt::format("stagecoach {}: {}\n\nusage: {}\n\noptions:\n", command.name,
                                 command.summary, usage_line(command));
  for (const CommandOption& option : command.options) {
    std::string name = option.name;
    if (!option.value_name.empty() && !is_positional(option)) name += " " + option.value_name;
    text += option_help(name, option.help + (option.required ? " (needed)" : ""));
  }
  text += option_help("--json", "print JSON on stdout; progress and log go to stderr");
  text += option_help("-h, --help", "this text");
  if (!command.notes.empty()) text += "\n" + command.notes + "\n";
  text += "\nexamples:\n";
  for (const std::string& example : command.examples) text += "  " + example + "\n";
  return text;
}

std::string general_help(const std::vector<Command>& commands) {
  std::string text =
      fmt::format("stagecoach: {}\n\nusage: stagecoach COMMAND [options]\n\ncommands:\n", kSummary);
  for (const Command& command : commands) text += option_help(command.name, command.summary);
  text += "\noptions:\n";
  text += option_help("--help-environment", "environment variables that are read");
  text += option_help("--version", "version, commit, backends and targets built in");
  text += option_help("-h, --help", "this text; after a command, its options and examples");
  text += "\nexamples:\n";
  for (const Command& command : commands) text += "  " + command.examples.front() + "\n";
  return text;
}

std::string environment_help() {
  std::string text = "environment variables that stagecoach reads:\n";
  for (const SettingInfo& setting : all_settings()) {
    text += option_help(setting.name, fmt::format("{}; {} (default: {})", setting.meaning,
                                                  setting.values, setting.default_value));
  }
  return text;
}

std::string version_text(const BackendRegistry& backends, bool json) {
  Json names = Json::array();
  std::string list;
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    names.push_back(backend->name());
    list += (list.empty() ? "" : ", ") + std::string(backend->name());
  }
#ifdef __x86_64__
  const std::vector<std::string> targets = {"x86-64", "x86-64-v3", "x86-64-v4"};
#else
  const std::vector<std::string> targets = {"generic"};
#endif
  if (json) {
    Json object = Json::object();
    object["version"] = STAGECOACH_VERSION;
    object["commit"] = STAGECOACH_COMMIT;
    object["backends"] = std::move(names);
    for (const std::string& target : targets) object["targets"]["cpu"].push_back(target);
    for (const std::unique_ptr<Backend>& backend : backends.backends()) {
      for (const std::string& target : backend->code_targets()) {
        object["targets"][std::string(backend->name())].push_back(target);
      }
    }
    return object.dump() + "\n";
  }
  std::string target_lists = fmt::format("cpu: {}", fmt::join(targets, " "));
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    const std::vector<std::string> code = backend->code_targets();
    if (code.empty()) continue;
    target_lists += fmt::format("; {}: {}", backend->name(), fmt::join(code, ", "));
  }
  return fmt::format("stagecoach {} (commit {})\nbackends: {}\ntargets: {}\n", STAGECOACH_VERSION,
                     STAGECOACH_COMMIT, list, target_lists);
}

// ---- parsing ---------------------------------------------------------------------------------

/// Stores the text of an option; the message says what it must be.
struct StoreText {
  const std::string& text;

  std::string operator()(bool* target) const {
    *target = true;
    return "";
  }
  std::string operator()(std::string* target) const {
    // What is empty by accident, as an unset variable of a script, must not count as left out.
    if (text.empty()) return "not empty; leave the option out or give a value";
    *target = text;
    return "";
  }
  std::string operator()(std::vector<std::string>* target) const {
    if (text.empty()) return "not empty; leave the option out or give a value";
    target->push_back(text);
    return "";
  }
  std::string operator()(int64_t* target) const { return parse(target, "a whole number"); }
  std::string operator()(double* target) const { return parse(target, "a number"); }

 private:
  template <typename T>
  std::string parse(T* target, const char* expected) const {
    const char* end = text.data() + text.size();
    auto [next, error] = std::from_chars(text.data(), end, *target);
    bool is_number = error == std::errc() && next == end;
    if constexpr (std::is_floating_point_v<T>) is_number = is_number && std::isfinite(*target);
    return is_number ? "" : expected;
  }
};

void add_option(CLI::App& app, const CommandOption& option) {
  if (is_flag(option)) {
    bool* target = std::get<bool*>(option.target);
    app.add_flag_function(option.name, [target](int64_t) { *target = true; });
    return;
  }
  CLI::callback_t store = [&option](const CLI::results_t& results) {
    for (const std::string& text : results) {
      std::string expected = std::visit(StoreText{text}, option.target);
      if (!expected.empty()) {
        throw CLI::ValidationError(
            fmt::format("{} is '{}'; it must be {}", option.name, text, expected));
      }
    }
    return true;
  };
  CLI::Option* added = app.add_option(option.name, store);
  bool many = std::holds_alternative<std::vector<std::string>*>(option.target);
  if (many) added->expected(CLI::detail::expected_max_vector_size);
  if (option.required) added->required();
}

/// The refusal for the first flag that the command does not know, or that has one value and is
/// given once more; empty when there is none.
std::string bad_flag(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> known = {"--json", "--help"};
  std::set<std::string> single, given;
  for (const CommandOption& option : command.options) {
    known.push_back(option.name);
    bool many = std::holds_alternative<std::vector<std::string>*>(option.target);
    if (!many && !is_flag(option)) single.insert(option.name);
  }
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    bool is_long = argument.starts_with("--");
    bool is_short = argument.size() > 1 && argument[0] == '-' && std::isalpha(argument[1]) != 0;
    if (!is_long && !is_short) continue;
    std::string name = argument.substr(0, argument.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      if (given.insert(name).second || !single.contains(name)) continue;
      return fmt::format("{} is given twice; give it once", name);
    }
    std::string nearest = nearest_name(name, known);
    return fmt::format("unknown option '{}'{}", name,
                       nearest.empty() ? fmt::format("; see stagecoach {} --help", command.name)
                                       : fmt::format("; did you mean '{}'?", nearest));
  }
  return "";
}

/// Fills the command's options; the refusal when that fails.
std::string parse_options(const Command& command, std::vector<std::string> arguments, bool* json) {
  if (std::string problem = bad_flag(command, arguments); !problem.empty()) return problem;
  CLI::App app(command.summary, command.name);
  app.set_help_flag();
  app.add_flag("--json", *json);
  for (const CommandOption& option : command.options) add_option(app, option);
  std::reverse(arguments.begin(), arguments.end());  // as the library wants them
  try {
    app.parse(arguments);
  } catch (const CLI::RequiredError& error) {
    return fmt::format("{}; for example: {}", error.what(), command.examples.front());
  } catch (const CLI::ExtrasError&) {
    return fmt::format("'{}' is one argument too many; see stagecoach {} --help",
                       arguments.empty() ? "" : app.remaining().front(), command.name);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

// ---- running ---------------------------------------------------------------------------------

int refuse(const std::string& who, const std::string& message, int code) {
  print_error(fmt::format("{}: {}\n", who, printable(message)));
  return code;
}

int refuse_command(const std::string& name, const std::vector<Command>& commands) {
  std::vector<std::string> known;
  for (const Command& command : commands) known.push_back(command.name);
  std::string nearest = nearest_name(name, known);
  return refuse("stagecoach",
                fmt::format("unknown {} '{}'{}", name.starts_with('-') ? "option" : "command", name,
                            nearest.empty() ? "; see stagecoach --help"
                                            : fmt::format("; did you mean '{}'?", nearest)),
                kExitUsage);
}

/// Refuses on stdout where JSON is asked for: the one object, of train the last line.
void refuse_as_json(bool json, const std::string& message, int code) {
  if (!json) return;
  Json object = Json::object();
  object["error"] = message;
  object["exit_code"] = code;
  print_out(object.dump() + "\n");
}

/// For people too.
int refuse_also_as_json(bool json, const std::string& who, const std::string& message, int code) {
  refuse_as_json(json, message, code);
  return refuse(who, message, code);
}

bool asks_for_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

int run_command(const Command& command, const std::vector<std::string>& arguments,
                CommandContext context) {
  std::string who = "stagecoach " + command.name;
  bool asked = context.json || asks_for_json(arguments);
  std::string problem = parse_options(command, arguments, &context.json);
  if (!problem.empty()) {
    return refuse_also_as_json(asked, who, problem, kExitUsage);
  }
  Result<int> outcome = command.run(context);
  Status status = outcome.status();
  bool was_stopped = status.code() == StatusCode::kCancelled && InterruptGuard::is_interrupted();
  if (was_stopped || (outcome.is_ok() && *outcome == kExitInterrupted)) {
    if (outcome.is_ok() && command.answers_interrupted) return kExitInterrupted;
    constexpr const char* kMessage = "interrupted before it was done; run it again";
    refuse_as_json(context.json, kMessage, kExitInterrupted);
    // What training did about it, it has said.
    return command.name == "train" ? kExitInterrupted : refuse(who, kMessage, kExitInterrupted);
  }
  if (outcome.is_ok()) return outcome.value();
  int code = exit_code_of(status.code());
  // Where a device failed is worth a line of its own form; a refusal says everything itself.
  bool has_site = !status.site().device.empty() || !status.site().verb.empty();
  std::string message = has_site ? status.to_string() : status.message();
  return refuse_also_as_json(context.json, who, message, code);
}

std::optional<int> answer_general_option(const std::vector<std::string>& arguments,
                                         const std::vector<Command>& commands,
                                         const BackendRegistry& backends) {
  if (arguments.empty()) {
    print_error(general_help(commands));
    return kExitUsage;
  }
  const std::string& first = arguments.front();
  bool json = asks_for_json(arguments);
  std::string text;
  if (first == "--help" || first == "-h") text = general_help(commands);
  if (first == "--help-environment") text = environment_help();
  if (first == "--version") text = version_text(backends, json);
  if (text.empty()) return std::nullopt;
  print_out(text);
  return kExitOk;
}

int dispatch(const std::vector<Command>& commands, const BackendRegistry& backends,
             std::vector<std::string> arguments) {
  if (std::optional<int> code = answer_general_option(arguments, commands, backends)) {
    return *code;
  }
  Result<Settings> settings = read_settings();
  if (!settings.is_ok()) {
    return refuse_also_as_json(asks_for_json(arguments), "stagecoach", settings.status().message(),
                               kExitUsage);
  }
  set_log_level(settings->log_level);
  CommandContext context{backends};
  if (arguments.front() == "--json") {
    context.json = true;
    arguments.erase(arguments.begin());
    if (arguments.empty()) return refuse("stagecoach", "name a command", kExitUsage);
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  for (const Command& command : commands) {
    if (command.name != name) continue;
    for (const std::string& argument : arguments) {
      if (argument != "--help" && argument != "-h") continue;
      print_out(command_help(command));
      return kExitOk;
    }
    return run_command(command, arguments, context);
  }
  return refuse_command(name, commands);
}

}  // namespace

int run_command_line(const std::vector<Command>& commands, const BackendRegistry& backends,
                     int argument_count, char** arguments) {
  // A reader that goes away is no reason to die of a signal in the middle of a run.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    std::vector<std::string> texts(arguments + std::min(argument_count, 1),
                                   arguments + argument_count);
    int code = dispatch(commands, backends, std::move(texts));
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return code != kExitOk
               ? code
               : refuse("stagecoach", "cannot write to stdout; was it closed or full?", kExitUsage);
  } catch (const std::bad_alloc&) {
    return refuse("stagecoach", "out of host memory; use a smaller model or batch",
                  kExitDoesNotFit);
  } catch (const std::exception& error) {
    return refuse("stagecoach", fmt::format("internal error: {}", error.what()), kExitUsage);
  }
}

}  // namespace stagecoach
