#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

/// Calls `check(N, M)` for N = 2…8, M = 1…4N + 1.
template <typename Check>
void for_all_sizes(Check check) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 4 * stages + 1; ++micro_batches) {
      SCOPED_TRACE("N=" + std::to_string(stages) + " M=" + std::to_string(micro_batches));
      check(stages, micro_batches);
    }
  }
}

/// Forward 1, I and W as given.
ScheduleParameters with_halves(int stages, int micro_batches, double input, double weight) {
  ScheduleParameters parameters = pipeline(stages, micro_batches);
  parameters.times.input_ns = static_cast<int64_t>(input * kUnitNs);
  parameters.times.weight_ns = static_cast<int64_t>(weight * kUnitNs);
  parameters.times.backward_ns = parameters.times.input_ns + parameters.times.weight_ns;
  return parameters;
}

double idle_by_span(const ScheduleRun& run, const ScheduleParameters& parameters) {
  double work = units(parameters.times.forward_ns + parameters.times.backward_ns);
  return span(run) - work * parameters.micro_batches;
}

TEST(ScheduleProperty, ClosedFormsEqualSimulationWhereverTheyHold) {
  int checked = 0;
  for_all_sizes([&](int stages, int micro_batches) {
    for (const Schedule& schedule : all_schedules()) {
      SCOPED_TRACE(schedule.name);
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      if (schedule.name == "roundpipe") parameters.times.backward_ns = kUnitNs;
      Result<ScheduleRun> run = run_schedule(schedule.name, parameters, 0);
      if (!run.is_ok() || !run->closed_form) continue;
      bool by_span = run->closed_form->definition == BubbleDefinition::kSpan;
      double bubble = by_span ? run->measures.bubble_span : run->measures.bubble_makespan;
      EXPECT_NEAR(bubble, run->closed_form->bubble, 1e-9);
      ++checked;
    }
  });
  EXPECT_GT(checked, 1000);
}

TEST(ScheduleProperty, OnlySizesOutsideAScheduleAreRefused) {
  for_all_sizes([](int stages, int micro_batches) {
    int rest = micro_batches % stages;
    for (const Schedule& schedule : all_schedules()) {
      SCOPED_TRACE(schedule.name);
      bool allowed = true;
      if (schedule.name == "single") allowed = false;
      if (schedule.name == "interleaved") allowed = micro_batches >= stages && rest == 0;
      if (schedule.name == "dualpipe") {
        allowed = stages % 2 == 0 && micro_batches % 2 == 0 && micro_batches >= 2 * stages;
      }
      if (schedule.name == "dualpipev") allowed = micro_batches >= 2 * stages;
      Result<Plan> plan = make_plan(schedule, pipeline(stages, micro_batches));
      EXPECT_EQ(plan.is_ok(), allowed) << plan.status().to_string();
    }
  });
}

TEST(ScheduleProperty, IdleTimeAddsUp) {
  for_all_sizes([](int stages, int micro_batches) {
    for (const Schedule& schedule : all_schedules()) {
      Result<ScheduleRun> run = run_schedule(schedule.name, pipeline(stages, micro_batches), 0);
      if (!run.is_ok()) continue;
      const TimelineMeasures& measures = run->measures;
      EXPECT_EQ(measures.work_ns + measures.idle.fill_ns + measures.idle.steady_ns +
                    measures.idle.drain_ns,
                stages * measures.makespan_ns)
          << schedule.name;
      EXPECT_LE(measures.span_ns, measures.makespan_ns) << schedule.name;
      EXPECT_LE(measures.bubble_span, measures.bubble_makespan + 1e-12) << schedule.name;
    }
  });
}

TEST(ScheduleProperty, GPipeAndOneFOneB) {
  for_all_sizes([](int stages, int micro_batches) {
    ScheduleParameters parameters = pipeline(stages, micro_batches);
    double expected = 3.0 * (micro_batches + stages - 1);
    ScheduleRun gpipe = run_valid("gpipe", parameters);
    ScheduleRun pairs = run_valid("1f1b", parameters);
    EXPECT_DOUBLE_EQ(makespan(gpipe), expected);
    EXPECT_DOUBLE_EQ(makespan(pairs), expected);
    for (int rank = 0; rank < stages; ++rank) {
      EXPECT_EQ(gpipe.peak_activations[rank], micro_batches);
      EXPECT_EQ(pairs.peak_activations[rank], std::min(stages - rank, micro_batches));
    }
    EXPECT_EQ(pairs.versions.kept, std::vector<int>(stages, 1));
    ScheduleParameters reverse = parameters;
    reverse.reverse_backward = 1;
    EXPECT_DOUBLE_EQ(makespan(run_valid("gpipe", reverse)), expected);
    ScheduleParameters eager = parameters;
    eager.slack = stages - 1;
    ScheduleRun slack = run_valid("1f1b", eager);
    EXPECT_DOUBLE_EQ(makespan(slack), expected);
    for (int rank = 0; rank < stages; ++rank) {
      EXPECT_EQ(slack.peak_activations[rank], std::min(2 * (stages - 1 - rank) + 1, micro_batches));
    }
  });
}

TEST(ScheduleProperty, Interleaved) {
  for_all_sizes([](int stages, int micro_batches) {
    for (int chunks : {1, 2, 3, 4}) {
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      parameters.chunks = chunks;
      if (chunks > 1 && micro_batches % stages != 0) continue;
      ScheduleRun run = run_valid("interleaved", parameters);
      EXPECT_DOUBLE_EQ(makespan(run), 3.0 * (micro_batches * chunks + stages - 1) / chunks);
      for (int rank = 0; rank < stages; ++rank) {
        double peak_chunks =
            std::min(micro_batches * chunks, (chunks - 1) * stages + 2 * (stages - 1 - rank) + 1);
        EXPECT_NEAR(run.peak_activations[rank], peak_chunks / chunks, 1e-9);
      }
    }
  });
}

TEST(ScheduleProperty, InterleavedPeakHoldsForEveryGroup) {
  for_all_sizes([](int stages, int micro_batches) {
    for (int group = stages; group <= micro_batches; ++group) {
      int rest = micro_batches % group;
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      parameters.group = group;
      if (rest != 0 && rest < stages) {
        EXPECT_FALSE(run_schedule("interleaved", parameters, 0).is_ok());
        continue;
      }
      ScheduleRun run = run_valid("interleaved", parameters);
      for (int rank = 0; rank < stages; ++rank) {
        double peak = std::min(2 * micro_batches, group + 2 * (stages - 1 - rank) + 1) / 2.0;
        EXPECT_EQ(run.peak_activations[rank], peak) << "G=" << group;
      }
    }
  });
}

TEST(ScheduleProperty, BreadthFirst) {
  for_all_sizes([](int stages, int micro_batches) {
    for (int chunks : {1, 2, 3, 4}) {
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      parameters.chunks = chunks;
      ScheduleRun run = run_valid("looped-bfs", parameters);
      ScheduleRun streamed = run_valid("mobius", parameters);
      EXPECT_EQ(run.order, streamed.order);
      EXPECT_EQ(run.measures.makespan_ns, streamed.measures.makespan_ns);
      EXPECT_EQ(run.peak_activations, std::vector<double>(stages, micro_batches));
      double expected = 3.0 * (micro_batches * chunks + stages - 1) / chunks;
      EXPECT_GE(makespan(run), expected - 1e-9);
      if (micro_batches >= stages) {
        EXPECT_DOUBLE_EQ(makespan(run), expected);
      }
      parameters.reverse_backward = 1;
      EXPECT_EQ(run_valid("looped-bfs", parameters).measures.makespan_ns, run.measures.makespan_ns);
    }
  });
}

TEST(ScheduleProperty, ZeroBubbleHandmade) {
  const std::pair<double, double> halves[] = {{1, 1}, {1.25, 0.75}, {1.5, 0.5}, {1, 0.5}};
  for_all_sizes([&](int stages, int micro_batches) {
    for (const auto& [input, weight] : halves) {
      ScheduleParameters parameters = with_halves(stages, micro_batches, input, weight);
      ScheduleRun h1 = run_valid("zb-h1", parameters);
      if (micro_batches >= stages) {
        EXPECT_NEAR(idle_by_span(h1, parameters), (stages - 1) * (1 + input - weight), 1e-9);
        EXPECT_EQ(h1.peak_activations, std::vector<double>(stages, stages));
      }
      ScheduleRun h2 = run_valid("zb-h2", parameters);
      if (micro_batches >= 2 * stages - 1) {
        EXPECT_NEAR(idle_by_span(h2, parameters), (stages - 1) * (1 + input - 2 * weight), 1e-9);
        EXPECT_EQ(h2.peak_activations, std::vector<double>(stages, 2 * stages - 1));
      }
    }
  });
}

TEST(ScheduleProperty, ZeroBubbleSearch) {
  for_all_sizes([](int stages, int micro_batches) {
    ScheduleParameters parameters = pipeline(stages, micro_batches);
    ScheduleRun one = run_valid("zb-1p", parameters, 0.5);
    ScheduleRun two = run_valid("zb-2p", parameters, 0.5);
    ScheduleRun h1 = run_valid("zb-h1", parameters);
    EXPECT_LE(span(one), span(h1));
    EXPECT_LE(span(two), span(one));
    if (micro_batches >= 2 * stages) {
      EXPECT_DOUBLE_EQ(idle_by_span(two, parameters), 0);
    }
    EXPECT_LE(*std::max_element(one.peak_activations.begin(), one.peak_activations.end()), stages);
    EXPECT_LE(*std::max_element(two.peak_activations.begin(), two.peak_activations.end()),
              2 * stages);
  });
}

TEST(ScheduleProperty, ZeroBubbleSearchKeepsAnyMemoryLimit) {
  for (int stages : {2, 4, 7}) {
    for (double freed : {0.0, 0.5, 1.0}) {
      double shortest = std::numeric_limits<double>::infinity();
      for (int limit = 1; limit <= 2 * stages; ++limit) {
        ScheduleParameters parameters = with_halves(stages, 2 * stages, 0.8, 1.2);
        parameters.times.hop_ns = kUnitNs / 10;
        parameters.memory_limit = limit;
        parameters.freed_at_input = freed;
        ScheduleRun run = run_valid("zb-2p", parameters, freed);
        for (double peak : run.peak_activations) EXPECT_LE(peak, limit);
        // More memory helps, though a greedy search may lose a little on the way.
        EXPECT_LE(span(run), shortest + 2);
        shortest = std::min(shortest, span(run));
      }
    }
  }
}

TEST(ScheduleProperty, ZbV) {
  for_all_sizes([](int stages, int micro_batches) {
    for (const auto& [input, weight] : {std::pair{1.0, 1.0}, {1.25, 0.75}, {1.5, 0.5}}) {
      ScheduleParameters parameters = with_halves(stages, micro_batches, input, weight);
      ScheduleRun run = run_valid("zb-v", parameters);
      for (double peak : run.peak_activations) EXPECT_LE(peak, stages);
      if (micro_batches < 2 * stages - 1) continue;
      EXPECT_NEAR(idle_by_span(run, parameters), (stages - 1) * (input - weight), 1e-9)
          << input << " " << weight;
      EXPECT_EQ(run.peak_activations, std::vector<double>(stages, stages));
    }
  });
}

TEST(ScheduleProperty, FoldedSchedulesKeepTheirMemory) {
  for_all_sizes([](int stages, int micro_batches) {
    ScheduleParameters parameters = pipeline(stages, micro_batches);
    ScheduleRun half = run_valid("v-half", parameters);
    ScheduleRun least = run_valid("v-min", parameters);
    for (double peak : half.peak_activations) EXPECT_LE(peak, (stages + 2) / 2);
    for (double peak : least.peak_activations) EXPECT_LE(peak, (stages + 4) / 3);
    if (micro_batches < 2 * stages) return;
    // About half and two thirds of what 1F1B idles.
    double pairs = 3.0 * (stages - 1);
    EXPECT_LE(idle_by_span(half, parameters), 0.55 * pairs);
    EXPECT_LE(idle_by_span(least, parameters), 0.8 * pairs);
  });
}

TEST(ScheduleProperty, DualPipes) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 2 * stages; micro_batches <= 4 * stages + 1; ++micro_batches) {
      ScheduleParameters parameters = pipeline(stages, micro_batches);
      ScheduleRun folded = run_valid("dualpipev", parameters);
      EXPECT_DOUBLE_EQ(idle_by_span(folded, parameters), stages - 1);
      EXPECT_EQ(folded.peak_activations, std::vector<double>(stages, stages + 0.5));
      if (stages % 2 != 0 || micro_batches % 2 != 0) continue;
      ScheduleRun two_way = run_valid("dualpipe", parameters);
      EXPECT_DOUBLE_EQ(idle_by_span(two_way, parameters), stages - 2);
      EXPECT_EQ(two_way.peak_activations, std::vector<double>(stages, stages + 1));
    }
  }
}

TEST(ScheduleProperty, OverlappedPairsMayBeFaster) {
  // A pair that takes 2.5 instead of 3 shortens the steady phase.
  ScheduleParameters parameters = pipeline(4, 16);
  double apart = makespan(run_valid("dualpipe", parameters));
  parameters.times.overlapped_ns = kUnitNs * 5 / 2;
  EXPECT_LT(makespan(run_valid("dualpipe", parameters)), apart);
}

TEST(ScheduleProperty, RoundPipeWholeRounds) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int rounds = 1; rounds <= 3; ++rounds) {
      for (int forward = 0; forward <= 9; ++forward) {
        int backward = forward == 0 ? 1 : forward + 2;
        if (forward + backward < stages) continue;
        ScheduleParameters parameters =
            slot_pipeline(stages, rounds * stages, forward, backward, stages);
        ScheduleRun run = run_valid("roundpipe", parameters);
        ASSERT_TRUE(run.closed_form.has_value());
        EXPECT_NEAR(run.measures.bubble_makespan, run.closed_form->bubble, 1e-9);
        double slots = forward + backward;
        EXPECT_NEAR(makespan(run), rounds * slots + stages - 1, 1e-9);
      }
    }
  }
}

TEST(ScheduleProperty, SlideDpIdlesByItsRemainder) {
  for_all_sizes([](int stages, int micro_batches) {
    ScheduleRun run = run_valid("slidedp", pipeline(stages, micro_batches));
    double share = (micro_batches + stages - 1) / stages;
    EXPECT_NEAR(run.measures.bubble_makespan, 1 - micro_batches / (stages * share), 1e-9);
  });
}

TEST(ScheduleProperty, FlushSchedulesRepeatTheirIteration) {
  // Updates need every gradient of the iteration before, so whole idle times repeat.
  for (const char* name : {"gpipe", "1f1b", "interleaved", "looped-bfs"}) {
    ScheduleParameters parameters = pipeline(4, 8);
    double once = makespan(run_valid(name, parameters));
    parameters.iterations = 3;
    ScheduleRun run = run_valid(name, parameters);
    EXPECT_DOUBLE_EQ(makespan(run), 3 * once) << name;
    EXPECT_EQ(*std::max_element(run.drift.max.begin(), run.drift.max.end()), 0) << name;
  }
  // Where ranks start and end staggered, only the stagger is paid once.
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.iterations = 5;
  EXPECT_DOUBLE_EQ(makespan(run_valid("zb-h2", parameters)), 5 * 24 + 3);
  // An update that synchronises all ranks takes the gain back.
  parameters.barrier = 1;
  EXPECT_DOUBLE_EQ(makespan(run_valid("zb-h2", parameters)), 5 * 27);
  EXPECT_DOUBLE_EQ(makespan(run_valid("zb-v", parameters)), 5 * 25.5);
}

}  // namespace
}  // namespace stagecoach
