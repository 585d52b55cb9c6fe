#include "tests/tools/command_runner.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/file.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{2};

constexpr const char* kModel = R"({
  "model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 16, "n_layer": 2,
  "n_head": 2, "n_inner": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
  "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "initializer_range": 0.02
})";

constexpr const char* kConfig = R"(
[model]
path = "model.json"
init = "random"
[data]
train = ["train.txt"]
validation = ["validation.txt"]
sequence = 16
[train]
iterations = 20
batch = 4
microbatches = 2
[optimizer]
lr = 1e-2
warmup = 2
[devices]
use = "cpu:2"
[output]
dir = "out"
save_every = 10
)";

std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += fmt::format("line {} says that {} times {} makes {}\n", i, i, i + 1, i * (i + 1));
  }
  return text;
}

}  // namespace

RunningCommand::RunningCommand(const std::vector<std::string>& arguments, const std::string& folder,
                               const Environment& environment)
    : start_(steady_clock::now()) {
  std::vector<std::string> texts = {STAGECOACH_COMMAND};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  std::string output = capture_.file("stdout"), errors = capture_.file("stderr");
  process_ = ::fork();
  if (process_ != 0) return;
  // The child: only calls that are safe after a fork of a process that may have threads.
  bool ready = ::chdir(folder.c_str()) == 0;
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  if (ready) ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

RunningCommand::~RunningCommand() {
  if (poll_end()) return;
  ::kill(process_, SIGKILL);
  int status = 0;
  ::waitpid(process_, &status, 0);
}

void RunningCommand::send(int signal) const {
  ::kill(process_, signal);
}

void RunningCommand::limit_address_space(int64_t more) const {
  Result<std::string> status = read_file(fmt::format("/proc/{}/status", process_));
  ASSERT_TRUE(status.is_ok());
  size_t at = status->find("VmSize:");
  ASSERT_NE(at, std::string::npos);
  auto taken = static_cast<rlim_t>(std::stoll(status->substr(at + 7))) * 1024;
  rlimit limit{taken + static_cast<rlim_t>(more), RLIM_INFINITY};
  ASSERT_EQ(::prlimit(process_, RLIMIT_AS, &limit, nullptr), 0) << std::strerror(errno);
}

bool RunningCommand::poll_end() {
  if (wait_status_.has_value()) return true;
  int status = 0;
  rusage usage{};
  if (::wait4(process_, &status, WNOHANG, &usage) != process_) return false;
  wait_status_ = status;
  peak_bytes_ = int64_t{usage.ru_maxrss} * 1024;
  return true;
}

std::string RunningCommand::output_so_far() const {
  Result<std::string> text = read_file(capture_.file("stdout"));
  return text.is_ok() ? *text : std::string();
}

bool RunningCommand::wait_for_output(const std::string& text, std::chrono::seconds limit) {
  steady_clock::time_point deadline = steady_clock::now() + limit;
  while (steady_clock::now() < deadline) {
    bool ended = poll_end();
    if (output_so_far().find(text) != std::string::npos) return true;
    if (ended) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return false;
}

CommandResult RunningCommand::wait(std::chrono::seconds limit) {
  steady_clock::time_point deadline = steady_clock::now() + limit;
  while (!poll_end()) {
    if (steady_clock::now() >= deadline) {
      ADD_FAILURE() << "the command still runs after " << limit.count() << " s; killed";
      ::kill(process_, SIGKILL);
      deadline += limit;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  CommandResult result;
  result.seconds = std::chrono::duration<double>(steady_clock::now() - start_).count();
  if (WIFEXITED(*wait_status_)) result.exit_code = WEXITSTATUS(*wait_status_);
  if (WIFSIGNALED(*wait_status_)) result.signal = WTERMSIG(*wait_status_);
  result.peak_bytes = peak_bytes_;
  result.output = output_so_far();
  Result<std::string> errors = read_file(capture_.file("stderr"));
  if (errors.is_ok()) result.errors = *errors;
  return result;
}

CommandResult run_command(const std::vector<std::string>& arguments, const std::string& folder,
                          const RunningCommand::Environment& environment) {
  RunningCommand command(arguments, folder, environment);
  return command.wait();
}

RunningCommand::Environment no_cards() {
  return {{"STAGECOACH_CUDA_LIBRARY", "libstagecoach_absent.so"},
          {"STAGECOACH_HIP_LIBRARY", "libstagecoach_absent.so"}};
}

RunFolder::RunFolder() {
  write("model.json", kModel);
  write("train.txt", some_text(200));
  write("validation.txt", some_text(10));
  write("run.toml", kConfig);
}

void RunFolder::write(const std::string& name, const std::string& content) const {
  fs::create_directories(fs::path(file(name)).parent_path());
  Status status = write_file_atomically(file(name), content);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
}

std::string RunFolder::read(const std::string& name) const {
  Result<std::string> text = read_file(file(name));
  EXPECT_TRUE(text.is_ok()) << text.status().to_string();
  return text.is_ok() ? *text : std::string();
}

bool RunFolder::exists(const std::string& name) const {
  std::error_code ignored;
  return fs::exists(file(name), ignored);
}

std::vector<std::string> RunFolder::list(const std::string& name) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(file(name), error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> RunFolder::train_arguments(const std::vector<std::string>& settings,
                                                    const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments = {"train", "--config", "run.toml"};
  if (!settings.empty()) arguments.push_back("--set");
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

CommandResult RunFolder::train(const std::vector<std::string>& settings,
                               const std::vector<std::string>& flags) const {
  return run_command(train_arguments(settings, flags), path());
}

Json RunFolder::json(const std::string& name) const {
  Result<Json> json = Json::parse(read(name));
  EXPECT_TRUE(json.is_ok()) << name << ": " << json.status().to_string();
  return json.is_ok() ? *json : Json();
}

std::vector<Json> RunFolder::json_lines(const std::string& text) {
  std::vector<Json> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    EXPECT_NE(end, std::string::npos) << "the last line is cut off";
    if (end == std::string::npos) break;
    Result<Json> json = Json::parse(text.substr(begin, end - begin));
    EXPECT_TRUE(json.is_ok()) << text.substr(begin, end - begin);
    if (json.is_ok()) lines.push_back(*json);
    begin = end + 1;
  }
  return lines;
}

double number(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  EXPECT_TRUE(value != nullptr && value->is_number()) << key;
  return value != nullptr && value->is_number() ? value->as_number() : 0;
}

MountedFolder::MountedFolder(const std::string& path, long size) : path_(path) {
  fs::create_directories(path);
  std::string options = fmt::format("size={}", size);
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) != 0) {
    reason_to_skip_ =
        fmt::format("mounting a file system is not permitted here ({})", std::strerror(errno));
  }
}

MountedFolder::~MountedFolder() {
  if (reason_to_skip_.empty()) ::umount2(path_.c_str(), MNT_DETACH);
}

void MountedFolder::make_read_only() const {
  ASSERT_EQ(::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0)
      << std::strerror(errno);
}

}  // namespace stagecoach
