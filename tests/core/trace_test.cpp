#include "core/trace.h"

#include <gtest/gtest.h>
#include <thread>

#include "core/file.h"
#include "temporary_folder.h"

namespace stagecoach {
namespace {

TraceSlice slice(int64_t start_ns, int64_t end_ns, int track = 0, int process = 0) {
  TraceSlice made = {};
  made.name = "F";
  made.category = "compute";
  made.process = process;
  made.track = track;
  made.start_ns = start_ns;
  made.end_ns = end_ns;
  return made;
}

struct Span {
  int64_t start_ns;
  int64_t end_ns;
  bool operator==(const Span&) const = default;
};

/// As Perfetto reads it: microseconds times 1000, truncated.
int64_t viewer_ns(const Json& microseconds) {
  return static_cast<int64_t>(microseconds.as_number() * 1000.0);
}

std::vector<Span> written_spans(const Trace& trace) {
  Result<Json> json = trace.to_perfetto();
  EXPECT_TRUE(json.is_ok()) << json.status().to_string();
  std::vector<Span> spans;
  if (!json.is_ok()) return spans;
  for (const Json& event : json->find("traceEvents")->items()) {
    if (event.find("ph")->as_string() != "X") continue;
    int64_t start = viewer_ns(*event.find("ts"));
    spans.push_back({start, start + viewer_ns(*event.find("dur"))});
  }
  return spans;
}

TEST(Trace, WritesMetadataAndArguments) {
  Trace trace(4);
  trace.name_process(1, "cpu:1");
  trace.name_track(1, 2, "upload");
  TraceSlice made = slice(5'000, 7'500, 2, 1);
  made.micro_batch = 3;
  made.bytes = 64;
  trace.add(made);
  Result<Json> json = trace.to_perfetto();
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(json->find("displayTimeUnit")->as_string(), "ns");
  const Json::Array& events = json->find("traceEvents")->items();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].find("name")->as_string(), "process_name");
  EXPECT_EQ(events[0].find("args")->find("name")->as_string(), "cpu:1");
  EXPECT_EQ(events[2].find("name")->as_string(), "thread_name");
  EXPECT_EQ(events[2].find("args")->find("name")->as_string(), "upload");
  EXPECT_EQ(events[4].find("pid")->as_integer(), events[2].find("pid")->as_integer());
  EXPECT_EQ(events[4].find("tid")->as_integer(), events[2].find("tid")->as_integer());
  EXPECT_EQ(events[4].find("ts")->as_number(), 0.0);
  EXPECT_EQ(events[4].find("dur")->as_number(), 2.5);
  EXPECT_EQ(events[4].find("args")->dump(), R"({"micro_batch":3,"bytes":64})");
}

TEST(Trace, TheFileIsTheValue) {
  TemporaryFolder folder;
  Trace trace(2);
  trace.name_process(0, "cpu:0");
  for (int i = 0; i < 3; ++i) trace.add(slice(i * 10, i * 10 + 5));
  EXPECT_EQ(trace.dropped(), 1);
  ASSERT_TRUE(trace.write_perfetto(folder.file("trace.json")).is_ok());
  Result<Json> parsed = Json::parse(*read_file(folder.file("trace.json")));
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->dump(), trace.to_perfetto()->dump());
  EXPECT_EQ(parsed->find("otherData")->find("dropped_slices")->as_integer(), 1);
}

TEST(Trace, EmptyTracesAreValid) {
  TemporaryFolder folder;
  ASSERT_TRUE(Trace(1).write_perfetto(folder.file("trace.json")).is_ok());
  EXPECT_TRUE(Json::parse(*read_file(folder.file("trace.json"))).is_ok());
}

TEST(Trace, NestedAndDisjointStayAsTheyAre) {
  Trace trace(8);
  trace.add(slice(0, 100'000));
  trace.add(slice(10'000, 20'000));
  trace.add(slice(20'000, 90'000));
  trace.add(slice(100'000, 150'000));
  trace.add(slice(100'000, 100'000));
  EXPECT_EQ(written_spans(trace), (std::vector<Span>{{0, 100'000},
                                                     {10'000, 20'000},
                                                     {20'000, 90'000},
                                                     {100'000, 150'000},
                                                     {100'000, 100'000}}));
}

TEST(Trace, RoundingOverlapsAreTrimmed) {
  Trace trace(8);
  trace.add(slice(0, 10'400));
  trace.add(slice(10'000, 20'000));
  EXPECT_EQ(written_spans(trace), (std::vector<Span>{{0, 10'400}, {10'400, 20'000}}));
  Trace nested(8);
  nested.add(slice(0, 10'000));
  nested.add(slice(5'000, 10'300));
  EXPECT_EQ(written_spans(nested), (std::vector<Span>{{0, 10'000}, {5'000, 10'000}}));
}

TEST(Trace, RealOverlapsAreRefusedNamingBoth) {
  TemporaryFolder folder;
  Trace trace(8);
  trace.add(slice(0, 20'000));
  trace.add(slice(10'000, 40'000));
  Status status = trace.write_perfetto(folder.file("trace.json"));
  ASSERT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("overlap by 10000 ns"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.file("trace.json")));
  // The same times on other tracks or processes do not meet.
  Trace apart(8);
  apart.add(slice(0, 20'000, 0, 0));
  apart.add(slice(10'000, 40'000, 1, 0));
  apart.add(slice(10'000, 40'000, 0, 1));
  EXPECT_TRUE(apart.to_perfetto().is_ok());
}

TEST(Trace, EndsBeforeStartAreRefused) {
  Trace trace(1);
  trace.add(slice(10, 5));
  EXPECT_FALSE(trace.to_perfetto().is_ok());
}

TEST(Trace, NeighboursNeverOverlapAsAViewerReadsThem) {
  Trace trace(20000);
  uint64_t state = 1;
  int64_t time = 1'234'567'890'123;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t end = time + 1 + static_cast<int64_t>((state >> 33) % 5'000'001);
    trace.add(slice(time, end));
    time = end;
  }
  int64_t last_end = 0;
  for (const Span& span : written_spans(trace)) {
    ASSERT_EQ(span.start_ns, last_end);
    last_end = span.end_ns;
  }
}

TEST(Trace, TrimmingSurvivesChainsOfOverlaps) {
  // Many short slices that each overlap the last by less than rounding: any result must nest.
  Trace trace(300);
  for (int i = 0; i < 300; ++i) trace.add(slice(i * 300, i * 300 + 700));
  std::vector<Span> spans = written_spans(trace);
  ASSERT_EQ(spans.size(), 300u);
  for (size_t i = 0; i < spans.size(); ++i) {
    ASSERT_LE(spans[i].start_ns, spans[i].end_ns);
    for (size_t j = i + 1; j < spans.size(); ++j) {
      bool disjoint = spans[j].start_ns >= spans[i].end_ns;
      bool nested = spans[j].start_ns >= spans[i].start_ns && spans[j].end_ns <= spans[i].end_ns;
      ASSERT_TRUE(disjoint || nested) << i << ' ' << j;
    }
  }
}

TEST(Trace, AddsFromManyThreads) {
  Trace trace(1000);
  {
    std::vector<std::jthread> threads;
    for (int track = 0; track < 4; ++track) {
      threads.emplace_back([&trace, track] {
        for (int i = 0; i < 300; ++i) trace.add(slice(i * 10, i * 10 + 10, track));
      });
    }
  }
  EXPECT_EQ(trace.slices().size(), 1000u);
  EXPECT_EQ(trace.dropped(), 200);
  EXPECT_TRUE(trace.to_perfetto().is_ok());
}

}  // namespace
}  // namespace stagecoach
