#include <gtest/gtest.h>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

TEST(ScheduleOrder, OneFOneB) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("1f1b", parameters)),
            (std::vector<std::string>{"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
                                      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                                      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
                                      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}));
}

TEST(ScheduleOrder, OneFOneBFewerMicroBatchesThanStages) {
  ScheduleParameters parameters = pipeline(4, 2);
  EXPECT_EQ(lines(run_valid("1f1b", parameters)),
            (std::vector<std::string>{"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"}));
}

TEST(ScheduleOrder, Interleaved) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("interleaved", parameters)),
            (std::vector<std::string>{
                "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b "
                "B0a F7b B1a B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a",
                "F0a F1a F2a F3a F0b F1b F2b F3b F4a B0b F5a B1b F6a B2b F7a B3b F4b B0a F5b "
                "B1a F6b B2a F7b B3a B4b B5b B6b B7b B4a B5a B6a B7a",
                "F0a F1a F2a F3a F0b F1b F2b B0b F3b B1b F4a B2b F5a B3b F6a B0a F7a B1a F4b "
                "B2a F5b B3a F6b B4b F7b B5b B6b B7b B4a B5a B6a B7a",
                "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a "
                "B3a F4b B4b F5b B5b F6b B6b F7b B7b B4a B5a B6a B7a"}));
}

TEST(ScheduleOrder, ZbH1) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("zb-h1", parameters)),
            (std::vector<std::string>{
                "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
                "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
                "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
                "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"}));
}

TEST(ScheduleOrder, ZbH2) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("zb-h2", parameters)),
            (std::vector<std::string>{
                "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7",
                "F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7",
                "F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7",
                "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7"}));
}

TEST(ScheduleOrder, Zb1pEqualsZbH1) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("zb-1p", parameters)),
            (std::vector<std::string>{
                "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
                "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
                "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
                "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7"}));
}

TEST(ScheduleOrder, ZbV) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("zb-v", parameters)),
            (std::vector<std::string>{
                "F0a F1a F2a F3a F4a F5a F6a F0b I0b W0b F1b I1b W1b F2b I2b W2b F3b I3b W3b "
                "F7a I0a W0a F4b I4b W4b I1a W1a F5b I5b W5b I2a W2a F6b I6b W6b I3a W3a F7b "
                "I7b W7b I4a W4a I5a W5a I6a W6a I7a W7a",
                "F0a F1a F2a F3a F4a F0b F5a F1b I0b W0b F2b I1b W1b F3b I2b W2b F6a I0a W0a "
                "F4b I3b W3b F7a I1a W1a F5b I4b W4b I2a W2a F6b I5b W5b I3a W3a F7b I6b W6b "
                "I4a I7b I5a W4a I6a W5a I7a W6a W7b W7a",
                "F0a F1a F2a F0b F3a F1b F4a F2b I0b W0b F3b I1b W1b F5a I0a W0a F4b I2b W2b "
                "F6a I1a W1a F5b I3b W3b F7a I2a W2a F6b I4b W4b I3a W3a F7b I5b W5b I4a I6b "
                "I5a I7b I6a W4a I7a W5a W6b W7b W6a W7a",
                "F0a F0b F1a F1b F2a F2b F3a F3b I0b W0b F4a I0a W0a F4b I1b W1b F5a I1a W1a "
                "F5b I2b W2b F6a I2a W2a F6b I3b W3b F7a I3a W3a F7b I4b W4b I4a I5b I5a I6b "
                "I6a I7b I7a W4a W5b W6b W7b W5a W6a W7a"}));
}

TEST(ScheduleOrder, DualPipe) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("dualpipe", parameters)),
            (std::vector<std::string>{
                "F0 F1 F2 F0' I0' W0' F1' F3+B1' F2'+B0 B2' F3'+B1 B3' I2 W2 I3 W3",
                "F0 F0' F1 F1' F2 B0' F2'+B0 F3+B1' F3'+B1 B2' B2 I3' I3 W3' W3",
                "F0' F0 F1' F1 F2' B0 F2+B0' F3'+B1 F3+B1' B2 B2' I3 I3' W3 W3'",
                "F0' F1' F2' F0 I0 W0 F1 F3'+B1 F2+B0' B2 F3+B1' B3 I2' W2' I3' W3'"}));
}

TEST(ScheduleOrder, DualPipeV) {
  ScheduleParameters parameters = pipeline(4, 8);
  EXPECT_EQ(lines(run_valid("dualpipev", parameters)),
            (std::vector<std::string>{
                "F0a F1a F2a F3a F4a F5a F6a F0b I0b W0b F1b I1b W1b F2b I2b W2b F3b F7a+B3b "
                "F4b+B0a B4b F5b+B1a B5b F6b+B2a B6b F7b+B3a B7b I4a W4a I5a W5a I6a W6a I7a "
                "W7a",
                "F0a F1a F2a F3a F4a F0b F5a F1b I0b W0b F2b I1b W1b F3b F6a+B2b F4b+B0a "
                "F7a+B3b F5b+B1a B4b F6b+B2a B5b F7b+B3a B6b B4a I7b I5a W7b I6a W5a I7a W6a "
                "W7a",
                "F0a F1a F2a F0b F3a F1b F4a F2b I0b W0b F3b F5a+B1b F4b+B0a F6a+B2b F5b+B1a "
                "F7a+B3b F6b+B2a B4b F7b+B3a B5b B4a B6b I5a I7b I6a W5a I7a W7b W6a W7a",
                "F0a F0b F1a F1b F2a F2b F3a F3b F4a B0b F4b+B0a F5a+B1b F5b+B1a F6a+B2b "
                "F6b+B2a F7a+B3b F7b+B3a B4b B4a B5b B5a I6b I6a I7b I7a W6b W6a W7b W7a"}));
}

TEST(ScheduleOrder, PaciAccumulationFour) {
  ScheduleParameters parameters = pipeline(4, 12);
  parameters.accumulation = 4;
  EXPECT_EQ(lines(run_valid("paci", parameters)),
            (std::vector<std::string>{
                "F0@0 F1@0 F2@0 F3@0 B0@0 F4@0 B1@0 F5@0 B2@0 F6@0 B3@0 F7@1 B4@1 F8@1 B5@1 "
                "F9@1 B6@1 F10@1 B7@1 F11@2 B8@2 B9@2 B10@2 B11@2",
                "F0@0 F1@0 F2@0 B0@0 F3@0 B1@0 F4@0 B2@0 F5@0 B3@0 F6@1 B4@1 F7@1 B5@1 F8@1 "
                "B6@1 F9@1 B7@1 F10@2 B8@2 F11@2 B9@2 B10@2 B11@2",
                "F0@0 F1@0 B0@0 F2@0 B1@0 F3@0 B2@0 F4@0 B3@0 F5@1 B4@1 F6@1 B5@1 F7@1 B6@1 "
                "F8@1 B7@1 F9@2 B8@2 F10@2 B9@2 F11@2 B10@2 B11@2",
                "F0@0 B0@0 F1@0 B1@0 F2@0 B2@0 F3@0 B3@0 F4@1 B4@1 F5@1 B5@1 F6@1 B6@1 F7@1 "
                "B7@1 F8@2 B8@2 F9@2 B9@2 F10@2 B10@2 F11@2 B11@2"}));
}

TEST(ScheduleOrder, PaciAccumulationTwo) {
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.accumulation = 2;
  EXPECT_EQ(lines(run_valid("paci", parameters)),
            (std::vector<std::string>{
                "F0@0 F1@0 F2@0 F3@0 B0@0 F4@0 B1@0 F5@1 B2@1 F6@1 B3@1 F7@2 B4@2 B5@2 B6@3 "
                "B7@3",
                "F0@0 F1@0 F2@0 B0@0 F3@0 B1@0 F4@1 B2@1 F5@1 B3@1 F6@2 B4@2 F7@2 B5@2 B6@3 "
                "B7@3",
                "F0@0 F1@0 B0@0 F2@0 B1@0 F3@1 B2@1 F4@1 B3@1 F5@2 B4@2 F6@2 B5@2 F7@3 B6@3 "
                "B7@3",
                "F0@0 B0@0 F1@0 B1@0 F2@1 B2@1 F3@1 B3@1 F4@2 B4@2 F5@2 B5@2 F6@3 B6@3 F7@3 "
                "B7@3"}));
}

TEST(ScheduleOrder, RoundPipe) {
  // The second round starts on device 5 mod 4 = 1.
  ScheduleParameters parameters = slot_pipeline(4, 8, 2, 3, 4);
  EXPECT_EQ(lines(run_valid("roundpipe", parameters)),
            (std::vector<std::string>{"F0:0 F0:1 F0:2 F0:3 B2:0 B2:1 B2:2 B2:3 B1:4 B1:5 B1:6 B1:7",
                                      "F1:0 F1:1 F1:2 F1:3 F0:4 F0:5 F0:6 F0:7 B2:4 B2:5 B2:6 B2:7",
                                      "B0:0 B0:1 B0:2 B0:3 F1:4 F1:5 F1:6 F1:7",
                                      "B1:0 B1:1 B1:2 B1:3 B0:4 B0:5 B0:6 B0:7"}));
}

/// "F0a F1a … B7b" over M micro-batches: one letter and chunk after the other.
std::string sweep(const std::vector<std::string>& passes, int micro_batches, bool reverse = false) {
  std::string text;
  for (const std::string& pass : passes) {
    for (int k = 0; k < micro_batches; ++k) {
      bool backwards = reverse && pass[0] == 'B';
      int m = backwards ? micro_batches - 1 - k : k;
      text +=
          (text.empty() ? "" : " ") + std::string(1, pass[0]) + std::to_string(m) + pass.substr(1);
    }
  }
  return text;
}

TEST(ScheduleOrder, GPipe) {
  std::vector<std::string> forwards_first(4, sweep({"F", "B"}, 8));
  EXPECT_EQ(lines(run_valid("gpipe", pipeline(4, 8))), forwards_first);
  ScheduleParameters reverse = pipeline(4, 8);
  reverse.reverse_backward = 1;
  EXPECT_EQ(lines(run_valid("gpipe", reverse)),
            std::vector<std::string>(4, sweep({"F", "B"}, 8, true)));
}

TEST(ScheduleOrder, LoopedBfsAndMobiusAreTheSameOnAllRanks) {
  std::vector<std::string> expected(4, sweep({"Fa", "Fb", "Bb", "Ba"}, 8));
  EXPECT_EQ(lines(run_valid("looped-bfs", pipeline(4, 8))), expected);
  EXPECT_EQ(lines(run_valid("mobius", pipeline(4, 8))), expected);
}

TEST(ScheduleOrder, AsynchronousFamilyRunsOneFOneBWithoutAFlush) {
  // Without the versions PipeDream, 2BW and PACI are 1F1B over the whole run.
  auto without_versions = [](const ScheduleRun& run) {
    std::vector<std::vector<std::string>> order = run.order;
    for (std::vector<std::string>& entries : order) {
      for (std::string& entry : entries) entry = entry.substr(0, entry.find('@'));
    }
    return order;
  };
  std::vector<std::vector<std::string>> expected = run_valid("1f1b", pipeline(4, 20)).order;
  for (const char* name : {"pipedream", "pipedream-2bw", "paci"}) {
    EXPECT_EQ(without_versions(run_valid(name, pipeline(4, 20))), expected) << name;
  }
}

TEST(ScheduleOrder, SearchFindsZbH1UnderItsMemory) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches : {2 * stages, 3 * stages}) {
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      EXPECT_EQ(run_valid("zb-1p", parameters).order, run_valid("zb-h1", parameters).order)
          << "N=" << stages << " M=" << micro_batches;
    }
  }
}

TEST(ScheduleOrder, SlideDpGivesEveryDeviceItsShare) {
  ScheduleParameters parameters = slot_pipeline(2, 5, 1, 2, 5);
  parameters.backward_stages.reset();
  parameters.round.reset();
  EXPECT_EQ(lines(run_valid("slidedp", parameters)),
            (std::vector<std::string>{"F0:0 F0:1 B0:0 B0:1 B1:0 B1:1",
                                      "F0:2 F0:3 F0:4 B0:2 B0:3 B0:4 B1:2 B1:3 B1:4"}));
}

TEST(ScheduleOrder, SingleStreamsItsStagesOnOneDevice) {
  EXPECT_EQ(lines(run_valid("single", slot_pipeline(1, 2, 2, 3, 1))),
            (std::vector<std::string>{"F0:0 F1:0 B0:0 B1:0 B2:0 F0:1 F1:1 B0:1 B1:1 B2:1"}));
}

}  // namespace
}  // namespace stagecoach
