#include "scheduler/schedules/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view name, const ScheduleParameters& parameters) {
  Result<ScheduleRun> run = run_schedule(name, parameters, 0);
  EXPECT_FALSE(run.is_ok()) << name;
  return run.status().message();
}

TEST(Schedule, NamesAndWhatTrainsAreTheContracts) {
  std::vector<std::string_view> trains, simulated;
  for (const Schedule& schedule : all_schedules()) {
    (schedule.trains ? trains : simulated).push_back(schedule.name);
    EXPECT_FALSE(schedule.summary.empty());
  }
  EXPECT_THAT(trains, testing::UnorderedElementsAre(
                          "single", "roundpipe", "gpipe", "1f1b", "interleaved", "looped-bfs",
                          "zb-h1", "zb-v", "paci", "pipedream", "pipedream-2bw", "slidedp"));
  EXPECT_THAT(simulated, testing::UnorderedElementsAre("mobius", "zb-h2", "zb-1p", "zb-2p",
                                                       "v-half", "v-min", "dualpipe", "dualpipev"));
}

TEST(Schedule, UnknownNameIsRefusedWithTheNearest) {
  Status status = find_schedule("dualpip").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("did you mean 'dualpipe'?"));
  EXPECT_THAT(status.message(), HasSubstr("pipedream-2bw"));
}

TEST(Schedule, ParametersOfOthersAreRefused) {
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.chunks = 2;
  EXPECT_EQ(refusal("gpipe", parameters),
            "schedule gpipe has no parameter chunks; it has stages, microbatches, iterations, "
            "reverse-backward");
  parameters = pipeline(4, 8);
  parameters.iterations = 3;
  EXPECT_THAT(refusal("paci", parameters), HasSubstr("has no parameter iterations"));
}

TEST(Schedule, SizesOutsideAreRefusedByNameWithWhatIsAllowed) {
  EXPECT_EQ(refusal("interleaved", pipeline(4, 3)),
            "schedule interleaved: microbatches is 3; it must be at least 4");
  EXPECT_THAT(refusal("interleaved", pipeline(4, 10)), HasSubstr("its last group has 2"));
  EXPECT_EQ(refusal("dualpipe", pipeline(3, 8)), "schedule dualpipe: stages is 3; it must be even");
  EXPECT_EQ(refusal("dualpipe", pipeline(4, 9)),
            "schedule dualpipe: microbatches is 9; it must be even");
  EXPECT_EQ(refusal("dualpipe", pipeline(4, 6)),
            "schedule dualpipe: microbatches is 6; it must be at least 8");
  EXPECT_THAT(refusal("dualpipev", pipeline(4, 7)), HasSubstr("must be at least 8"));
  EXPECT_EQ(refusal("single", pipeline(2, 4)),
            "schedule single: stages is 2; it must be from 1 to 1");
  EXPECT_THAT(refusal("gpipe", pipeline(0, 4)),
              HasSubstr("stages is 0; it must be from 1 to 4096"));
  EXPECT_THAT(refusal("gpipe", pipeline(4, 0)),
              HasSubstr("microbatches is 0; it must be at least 1"));
  EXPECT_THAT(refusal("gpipe", pipeline(4, -3)), HasSubstr("microbatches is -3"));
  EXPECT_THAT(refusal("gpipe", pipeline(4096, 1'000'000)), HasSubstr("use fewer"));
}

TEST(Schedule, ParameterRangesAreRefusedByName) {
  auto with = [](std::optional<int> ScheduleParameters::*member, int value) {
    ScheduleParameters parameters = pipeline(4, 8);
    parameters.*member = value;
    return parameters;
  };
  using P = ScheduleParameters;
  EXPECT_THAT(refusal("interleaved", with(&P::chunks, 0)), HasSubstr("chunks is 0"));
  EXPECT_THAT(refusal("interleaved", with(&P::group, 3)),
              HasSubstr("group is 3; it must be from 4 to 8"));
  EXPECT_THAT(refusal("interleaved", with(&P::group, 9)), HasSubstr("group is 9"));
  EXPECT_THAT(refusal("paci", with(&P::accumulation, 0)),
              HasSubstr("accumulation is 0; it must be at least 1"));
  EXPECT_THAT(refusal("paci", with(&P::gate, 2)), HasSubstr("gate is 2; it must be from 0 to 1"));
  EXPECT_THAT(refusal("paci", with(&P::slack, -1)), HasSubstr("gate-slack is -1"));
  EXPECT_THAT(refusal("pipedream-2bw", with(&P::accumulation, 3)),
              HasSubstr("accumulation is 3; it must be at least 4"));
  EXPECT_THAT(refusal("zb-2p", with(&P::memory_limit, 0)), HasSubstr("memory-limit is 0"));
  EXPECT_THAT(refusal("roundpipe", with(&P::round, 3)),
              HasSubstr("round is 3; it must be a divisor of microbatches"));
  EXPECT_THAT(refusal("roundpipe", with(&P::round, 9)),
              HasSubstr("round is 9; it must be from 1 to 8"));
  EXPECT_THAT(refusal("roundpipe", with(&P::backward_stages, 1)),
              HasSubstr("backward-stages is 1; it must be from 2"));
  EXPECT_THAT(refusal("gpipe", with(&P::barrier, 2)), HasSubstr("barrier is 2"));
  EXPECT_THAT(refusal("paci", with(&P::barrier, 1)), HasSubstr("has no parameter barrier"));
  EXPECT_THAT(refusal("gpipe", with(&P::iterations, 0)), HasSubstr("iterations is 0"));
}

TEST(Schedule, LayersForAnotherNumberOfStagesAreRefused) {
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.layers = {{0, 1}, {2, 3}};
  EXPECT_EQ(refusal("1f1b", parameters),
            "schedule 1f1b has 4 model stages; layers were given for 2");
}

TEST(Schedule, TimesThatAreNotPositiveAreRefused) {
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.times.forward_ns = 0;
  EXPECT_EQ(refusal("1f1b", parameters), "forward time is 0 ns; it must be at least 1 ns");
  parameters = pipeline(4, 8);
  parameters.times.weight_ns = -5;
  EXPECT_THAT(refusal("1f1b", parameters), HasSubstr("weight-gradient time is -5 ns"));
  parameters = pipeline(4, 8);
  parameters.times.hop_ns = -1;
  EXPECT_THAT(refusal("1f1b", parameters), HasSubstr("hop time is negative"));
  Result<ScheduleRun> run =
      run_schedule("1f1b", pipeline(4, 8), std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(run.status().message(), HasSubstr("must be from 0 to 1"));
}

TEST(Schedule, LayersOfStagesMayDiffer) {
  ScheduleParameters parameters = pipeline(2, 4);
  parameters.layers = {{0, 4}, {5, 6}};
  ScheduleRun run = run_valid("1f1b", parameters);
  EXPECT_EQ(run.plan.stages.front(), (Stage{ActionKind::kForward, 0, 4}));
  // Stage units follow the layers: 5 of 7 layers are 10 / 7 of half the model.
  EXPECT_NEAR(run.peak_activations[0], 2 * 10.0 / 7, 1e-9);
}

TEST(Schedule, TenThousandMicroBatchesAreSimulatedQuickly) {
  ScheduleRun run = run_valid("paci", pipeline(8, 10'000));
  EXPECT_DOUBLE_EQ(makespan(run), 3.0 * 10'007);
}

}  // namespace
}  // namespace stagecoach
