#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/bytes.h"
#include "core/file.h"
#include "tests/core/json_schema.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kMock = "cpu:1[memory=16M,h2d=64M,d2h=64M]";

/// Runs `before` and then the command with `arguments` in a shell without cards.
CommandResult run_in_shell(const std::string& before, const std::string& arguments) {
  TemporaryFolder folder;
  std::string script = fmt::format(
      "export STAGECOACH_CUDA_LIBRARY=libstagecoach_absent.so "
      "STAGECOACH_HIP_LIBRARY=libstagecoach_absent.so; {} '{}' bench bandwidth {} >'{}' 2>'{}'",
      before, STAGECOACH_COMMAND, arguments, folder.file("out"), folder.file("err"));
  int status = std::system(script.c_str());
  CommandResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.output = read_file(folder.file("out")).value();
  result.errors = read_file(folder.file("err")).value();
  return result;
}

/// The one object of the output, valid by the schema, with at least one result that went well.
Json measured_json(const CommandResult& result) {
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output << result.errors;
  if (!json.is_ok()) return Json::object();
  EXPECT_EQ(JsonSchema::read("bandwidth.schema.json").violation(*json), "");
  int measured = 0;
  for (const Json& one : json->find("results")->items()) {
    measured += one.find("status")->as_string() == "ok" ? 1 : 0;
  }
  EXPECT_GE(measured, 1) << result.output << result.errors;
  return *json;
}

std::vector<std::string> notes_of(const Json& json) {
  std::vector<std::string> notes;
  for (const Json& note : json.find("notes")->items()) notes.push_back(note.as_string());
  return notes;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers take more address space than any limit of use here leaves.
TEST(BenchLimits, TwoGibibytesOfMemoryAreEnough) {
  CommandResult copies = run_in_shell(
      "ulimit -v 2097152;",
      fmt::format(
          "quick --filter '^(copy|duplex|host/read/threads1$)' --max-mem 64M --devices '{}' "
          "--min-time 0s --reps 3 --json",
          kMock));
  EXPECT_EQ(copies.exit_code, 0) << copies.errors;
  Json json = measured_json(copies);
  EXPECT_EQ(json.find("context")->find("memory")->find("limited_by")->as_string(), "ulimit -v");
}

// More is asked for than there is: it is measured with what can be touched.
TEST(BenchLimits, WhatTheLimitLeavesIsFoundByTouchingIt) {
  CommandResult result = run_in_shell("ulimit -v 700000;", "memory_steps --max-mem 4G");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("touched 4194304 bytes in "));
  EXPECT_THAT(result.output, HasSubstr("stopped: "));
  EXPECT_THAT(result.output, testing::Not(HasSubstr("touched 4294967296 ")));
}
#endif

/// A control group of its own that a process of the test may enter; empty where that is forbidden.
class MemoryGroup {
 public:
  explicit MemoryGroup(int64_t limit_bytes) {
    namespace fs = std::filesystem;
    const std::pair<const char*, const char*> places[] = {
        {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}};
    for (const auto& [parent, limit] : places) {
      std::error_code error;
      folder_ = fmt::format("{}/stagecoach_test_{}", parent, ::getpid());
      if (fs::create_directory(folder_, error) && fs::exists(folder_ + "/" + limit, error)) {
        std::ofstream file(folder_ + "/" + limit);
        file << limit_bytes << std::flush;
        if (file.good()) return;
      }
      fs::remove(folder_, error);
      folder_.clear();
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove(folder_, error);
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// Touching more than the group has would end the process.
TEST(BenchLimits, AControlGroupOfTwoGibibytesIsKept) {
  MemoryGroup group(2 * kGiB);
  if (group.folder().empty()) GTEST_SKIP() << "control groups cannot be made here";
  CommandResult result = run_in_shell(
      fmt::format("echo $$ >'{}/cgroup.procs' || exit 99;", group.folder()),
      fmt::format("copy --mem pageable --sizes 1M --working-set 16M --devices '{}' --json "
                  "--min-time 0s --reps 3",
                  kMock));
  if (result.exit_code == 99) GTEST_SKIP() << "control groups cannot be entered here";
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json json = measured_json(result);
  const Json& memory = *json.find("context")->find("memory");
  EXPECT_THAT(memory.find("limited_by")->as_string(), HasSubstr("control group"));
  EXPECT_LE(memory.find("free_bytes")->as_integer(), 2 * kGiB);
}

TEST(BenchLimits, StepsStayWithinTheirControlGroup) {
  MemoryGroup group(512 * kMiB);
  if (group.folder().empty()) GTEST_SKIP() << "control groups cannot be made here";
  CommandResult steps =
      run_in_shell(fmt::format("echo $$ >'{}/cgroup.procs' || exit 99;", group.folder()),
                   "memory_steps --max-mem 8G");
  if (steps.exit_code == 99) GTEST_SKIP() << "control groups cannot be entered here";
  EXPECT_EQ(steps.exit_code, 0) << steps.errors;
  EXPECT_THAT(steps.output, HasSubstr("stopped: "));
}

TEST(BenchLimits, NoHomeAndNothingToWriteToAreNoObstacle) {
  std::string arguments = fmt::format("duplex --devices '{}' --min-time 0s --reps 3 --json", kMock);
  for (const char* before :
       {"export HOME=/proc XDG_STATE_HOME=/proc XDG_CACHE_HOME=/proc XDG_CONFIG_HOME=/proc; cd "
        "/proc;",
        "unset HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR;"}) {
    CommandResult result = run_in_shell(before, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    measured_json(result);
  }
}

TEST(BenchLimits, OneProcessorIsEnough) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CommandResult result = run_in_shell(
      fmt::format("taskset -c {}", first),
      fmt::format("quick --filter '^(copy|optim|host/read)' --max-mem 32M --numa local "
                  "--devices '{}' --min-time 0s --reps 3 --json",
                  kMock));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(measured_json(result).find("context")->find("threads")->as_integer(), 1);
}

// No folder of nodes in sysfs: hwloc is kept from looking at the system.
TEST(BenchLimits, WithoutNodesOneStandsIn) {
  CommandResult result = run_in_shell(
      "HWLOC_COMPONENTS=-linux,-linuxio",
      fmt::format("quick --numa all --filter '^(copy|host/read/threads1/)' --max-mem 32M "
                  "--devices '{}' --min-time 0s --reps 3 --json",
                  kMock));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = measured_json(result);
  for (const Json& one : json.find("results")->items()) {
    EXPECT_EQ(one.find("params")->find("node")->as_integer(), 0) << one.dump();
    EXPECT_EQ(one.find("flags")->dump().find("unverified"), std::string::npos);
  }
  EXPECT_THAT(notes_of(json), Contains(testing::AnyOf(HasSubstr("one NUMA node"),
                                                      HasSubstr("tells nothing of NUMA"))));
}

constexpr const char* kTwoNodes = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3"
    nodeset="0x9" complete_nodeset="0x9" allowed_nodeset="0x9" gp_index="1">
    <object type="Group" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"
      gp_index="4" kind="1001" subkind="0">
      <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
        complete_nodeset="0x1" gp_index="3" local_memory="1000000000"/>
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
        complete_nodeset="0x1" gp_index="2"/>
    </object>
    <object type="Group" cpuset="0x2" complete_cpuset="0x2" nodeset="0x8" complete_nodeset="0x8"
      gp_index="7" kind="1001" subkind="0">
      <object type="NUMANode" os_index="3" cpuset="0x2" complete_cpuset="0x2" nodeset="0x8"
        complete_nodeset="0x8" gp_index="6" local_memory="1000000000"/>
      <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x8"
        complete_nodeset="0x8" gp_index="5"/>
    </object>
  </object>
</topology>
)";

// A machine is said to have a node that it does not have: binding fails, the result says so.
TEST(BenchLimits, NodesThatAreNotThereAreNoticed) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomically(folder.file("two.xml"), kTwoNodes).is_ok());
  std::string before = fmt::format("HWLOC_XMLFILE='{}'", folder.file("two.xml"));
  std::string arguments = fmt::format(
      "copy --mem pageable --sizes 64K --devices '{}' --min-time 0s --reps 3 --json --numa ",
      kMock);
  CommandResult all = run_in_shell(before, arguments + "all");
  EXPECT_EQ(all.exit_code, 0) << all.errors;
  Json json = measured_json(all);
  int unverified = 0;
  for (const Json& one : json.find("results")->items()) {
    bool is_flagged = one.find("flags")->dump().find("unverified") != std::string::npos;
    if (one.find("params")->find("node")->as_integer() == 3) unverified += is_flagged ? 1 : 0;
  }
  // A machine that has a node 3 of its own may verify it.
  bool has_node_3 = read_file("/sys/devices/system/node/node3/meminfo").is_ok();
  if (!has_node_3) {
    EXPECT_EQ(unverified, 2) << all.output;
    EXPECT_THAT(json.find("findings")->dump(), HasSubstr("may not have been on"));
  }
  CommandResult wrong = run_in_shell(before, arguments + "1");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.errors, HasSubstr("--numa is '1'"));
  EXPECT_THAT(wrong.errors, HasSubstr("of 0, 3"));
}

TEST(BenchLimits, NodesThatMakeNoSenseAreRefused) {
  CommandResult nowhere = run_command(
      {"bench", "bandwidth", "copy", "--devices", kMock, "--numa", "near"}, ".", no_cards());
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.errors, HasSubstr("--numa is 'near'; it must be local, remote, all or"));
  CommandResult profile = run_command({"bench", "bandwidth", "--devices", kMock, "--numa", "local",
                                       "--save-profile", "profile.json"},
                                      ".", no_cards());
  EXPECT_EQ(profile.exit_code, 1);
  EXPECT_THAT(profile.errors, HasSubstr("does not go with --numa"));
}

TEST(BenchLimits, InterruptedInTheMiddleItPrintsWhatWasMeasured) {
  TemporaryFolder folder;
  std::string out = folder.file("out.json");
  RunningCommand command({"bench", "bandwidth", "quick", "--filter", "up/pinned/16K|duplex",
                          "--devices", kMock, "--json", "--reps", "100", "--out", out},
                         ".", no_cards());
  // The first group ends after a while, the second one is interrupted.
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  auto has_copies = [&] {
    Result<std::string> text = read_file(out);
    return text.is_ok() && text->find("\"id\": \"copy/") != std::string::npos;
  };
  while (!has_copies() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  command.send(SIGINT);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 130) << result.errors;
  Json json = measured_json(result);
  EXPECT_TRUE(json.find("is_interrupted")->as_bool());
  Result<Json> file = Json::parse(read_file(out).value());
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ(JsonSchema::read("bandwidth.schema.json").violation(*file), "");
}

// The disk fills up while it measures: the files are lost, what was measured is not.
TEST(BenchLimits, AClosedStdoutIsRefused) {
  TemporaryFolder folder;
  std::string script = fmt::format("'{}' bench bandwidth host --list >&- 2>'{}'",
                                   STAGECOACH_COMMAND, folder.file("err"));
  int status = std::system(script.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(read_file(folder.file("err")).value(), HasSubstr("stdout is closed"));
}

TEST(BenchLimits, AFullDiskCostsTheFileAndNotTheFigures) {
  TemporaryFolder folder;
  MountedFolder disk(folder.file("disk"), 8192);
  if (!disk.reason_to_skip().empty()) GTEST_SKIP() << disk.reason_to_skip();
  CommandResult result = run_command(
      {"bench", "bandwidth", "copy", "--sizes", "4K:1M:x2", "--mem", "pageable", "--devices", kMock,
       "--min-time", "0s", "--reps", "1", "--raw", "--json", "--out", folder.file("disk/out.json")},
      ".", no_cards());
  EXPECT_EQ(result.exit_code, 5) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("out.json"));
  EXPECT_THAT(notes_of(measured_json(result)), Contains(HasSubstr("out.json")));
}

// How much can be pinned is found by the command itself, in a process of its own.
TEST(BenchLimits, PinFindsHowMuchCanBePinned) {
  CommandResult result =
      run_command({"bench", "bandwidth", "pin", "--devices", "cpu:1[memory=16M,pinned=6M]",
                   "--working-set", "1M", "--max-pinned", "16M", "--reps", "1", "--json"},
                  ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = measured_json(result);
  bool is_found = false;
  for (const Json& one : json.find("results")->items()) {
    if (one.find("id")->as_string() != "pin/limit/cpu:0/pinned") continue;
    is_found = true;
    EXPECT_DOUBLE_EQ(number(*one.find("stats"), "median"), 6.0 / 1024);
    EXPECT_FALSE(one.find("params")->find("is_poisoned")->as_bool());
  }
  EXPECT_TRUE(is_found);
  EXPECT_THAT(json.find("findings")->dump(), HasSubstr("raise ulimit -l"));
  CommandResult refused = run_command(
      {"bench", "bandwidth", "pin_steps", "--json", "--devices", "cpu:1"}, ".", no_cards());
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("prints lines"));
  EXPECT_EQ(run_command({"bench", "bandwidth", "memory_steps"}).exit_code, 1);
}

}  // namespace
}  // namespace stagecoach
