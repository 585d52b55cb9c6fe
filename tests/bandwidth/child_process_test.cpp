#include "tools/bandwidth/child_process.h"

#include <chrono>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace stagecoach {
namespace {

constexpr int64_t kLongNs = 60'000'000'000;

Result<ChildOutcome> shell(const std::string& script, int64_t timeout_ns = kLongNs,
                           const std::function<bool()>& is_cancelled = nullptr) {
  return run_child("/bin/sh", {"-c", script}, timeout_ns, is_cancelled);
}

TEST(ChildProcess, TellsOutputAndExitCode) {
  auto outcome = shell("echo one; echo two >&2; echo three; exit 5");
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->exit_code, 5);
  EXPECT_EQ(outcome->signal, 0);
  EXPECT_FALSE(outcome->has_timed_out);
  EXPECT_EQ(outcome->output, "one\nthree\n");
}

TEST(ChildProcess, TakesMoreOutputThanAPipeHolds) {
  auto outcome = shell("head -c 1000000 /dev/zero");
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->output.size(), 1000000u);
}

TEST(ChildProcess, TellsTheSignalThatEndedIt) {
  auto outcome = shell("echo part; kill -9 $$");
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->signal, SIGKILL);
  EXPECT_EQ(outcome->exit_code, -1);
  EXPECT_EQ(outcome->output, "part\n");
}

TEST(ChildProcess, IsKilledWhenItsTimeIsOver) {
  auto outcome = shell("exec sleep 100", 200'000'000);
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_TRUE(outcome->has_timed_out);
  EXPECT_EQ(outcome->signal, SIGKILL);
}

TEST(ChildProcess, IsInterruptedFirst) {
  auto outcome =
      shell("trap 'echo caught; exit 130' INT; echo ready; while :; do sleep 0.05; done", kLongNs,
            [start = std::chrono::steady_clock::now()] {
              return std::chrono::steady_clock::now() - start > std::chrono::milliseconds(500);
            });
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->exit_code, 130);
  EXPECT_EQ(outcome->output, "ready\ncaught\n");
  EXPECT_FALSE(outcome->has_timed_out);
}

// Else a terminal's interrupt and its parent's would come to two, and the second ends it.
TEST(ChildProcess, HasAProcessGroupOfItsOwn) {
  auto outcome = shell("cut -d' ' -f5 /proc/self/stat");
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_NE(std::stol(outcome->output), static_cast<long>(::getpgrp()));
}

TEST(ChildProcess, OneThatCannotBeStartedExits) {
  auto outcome = run_child("/nowhere/program", {}, kLongNs, nullptr);
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->exit_code, 127);
}

}  // namespace
}  // namespace stagecoach
