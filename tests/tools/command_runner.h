#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

/// How a command ended and what it printed.
struct CommandResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string output;  ///< stdout
  std::string errors;  ///< stderr
  double seconds = 0;
  int64_t peak_bytes = 0;  ///< most memory it held at once
};

/// The stagecoach command as a user runs it: a process of its own.
class RunningCommand {
 public:
  using Environment = std::map<std::string, std::string>;

  /// Starts it with `arguments`, in `folder`, with `environment` added to this process's.
  RunningCommand(const std::vector<std::string>& arguments, const std::string& folder,
                 const Environment& environment = {});
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  /// Kills what still runs.
  ~RunningCommand();

  void send(int signal) const;
  /// From now on it may take `more` bytes of address space beyond what it has.
  void limit_address_space(int64_t more) const;
  /// What it has printed on stdout so far.
  std::string output_so_far() const;
  /// Polls until stdout holds `text`; false when the command ended or `limit` passed before.
  bool wait_for_output(const std::string& text,
                       std::chrono::seconds limit = std::chrono::seconds(60));
  /// Waits for its end. After `limit` it is killed and the test fails.
  CommandResult wait(std::chrono::seconds limit = std::chrono::seconds(120));

 private:
  bool poll_end();

  TemporaryFolder capture_;
  std::chrono::steady_clock::time_point start_;
  int process_ = -1;
  std::optional<int> wait_status_;
  int64_t peak_bytes_ = 0;
};

/// Runs the command to its end.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::string& folder = ".",
                          const RunningCommand::Environment& environment = {});

/// An environment in which the program finds no GPU driver, on any machine and in any build.
RunningCommand::Environment no_cards();

/// A folder with a tiny model ("model.json"), text ("train.txt", "validation.txt") and a
/// configuration ("run.toml": 20 iterations on cpu:2, output in "out").
class RunFolder {
 public:
  RunFolder();
  const std::string& path() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;
  bool exists(const std::string& name) const;
  /// Names in a folder below, sorted; empty when there is none.
  std::vector<std::string> list(const std::string& name) const;

  /// `train --config run.toml --set settings…`, with `flags` behind.
  CommandResult train(const std::vector<std::string>& settings = {},
                      const std::vector<std::string>& flags = {}) const;
  std::vector<std::string> train_arguments(const std::vector<std::string>& settings,
                                           const std::vector<std::string>& flags = {}) const;
  /// A JSON file of the run; fails the test when it is not JSON.
  Json json(const std::string& name) const;
  /// The objects of a text of JSON lines; fails the test for a line that is not one.
  static std::vector<Json> json_lines(const std::string& text);

 private:
  TemporaryFolder folder_;
};

/// The number under `key` of an object; fails the test when there is none.
double number(const Json& object, std::string_view key);

/// A file system in memory, mounted for the life of the object.
class MountedFolder {
 public:
  /// `size` in bytes. `reason_to_skip` is set when mounting is not permitted here.
  MountedFolder(const std::string& path, long size);
  ~MountedFolder();
  MountedFolder(const MountedFolder&) = delete;
  MountedFolder& operator=(const MountedFolder&) = delete;
  const std::string& reason_to_skip() const { return reason_to_skip_; }
  void make_read_only() const;

 private:
  std::string path_;
  std::string reason_to_skip_;
};

}  // namespace stagecoach
