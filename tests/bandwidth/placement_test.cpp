#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/memory/fake_node_binder.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/numa_choice.h"
#include "tools/bandwidth/placement_findings.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Two sockets with a gap in their numbers, and a card's memory.
HostNodes grace_like() {
  HostNodes nodes;
  nodes.nodes = {{0, {0}, kGiB}, {2, {1}, kGiB}, {8, {}, kGiB}};
  return nodes;
}

NumaChoice chosen(const std::string& text, NodeBinder& binder) {
  Result<NumaChoice> choice = choose_numa(text, grace_like(), binder);
  EXPECT_TRUE(choice.is_ok()) << choice.status().to_string();
  return *choice;
}

TEST(NumaChoices, SayWhereCopiesAndThreadsAreMeasured) {
  FakeNodeBinder binder;
  EXPECT_THAT(chosen("local", binder).copy_nodes(2), ElementsAre(2));
  EXPECT_THAT(chosen("remote", binder).copy_nodes(2), ElementsAre(0, 8));
  EXPECT_THAT(chosen("all", binder).copy_nodes(2), ElementsAre(2, 0, 8));
  EXPECT_THAT(chosen("8", binder).copy_nodes(2), ElementsAre(8));
  EXPECT_THAT(chosen("local", binder).copy_nodes(-1), ElementsAre(0)) << "not known: the first";
  EXPECT_THAT(chosen("local", binder).note_about("cuda:0", -1), HasSubstr("cuda:0 is attached to"));
  // Never threads on memory alone.
  auto places = [&](const char* text) {
    std::vector<std::string> all;
    for (const HostPlace& one : chosen(text, binder).host_places()) {
      all.push_back(fmt::format("{}:{}", one.thread_node, one.memory_node));
    }
    return all;
  };
  EXPECT_THAT(places("local"), ElementsAre("0:0", "2:2"));
  EXPECT_THAT(places("remote"), ElementsAre("0:2", "0:8", "2:0", "2:8"));
  EXPECT_EQ(places("all").size(), 6u);
  EXPECT_THAT(places("8"), ElementsAre("0:8"));
}

TEST(NumaChoices, RefuseNodesThatAreNotThere) {
  FakeNodeBinder binder;
  for (const char* text : {"1", "-1", "9", "near", "", "0x"}) {
    Status status = choose_numa(text, grace_like(), binder).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("of 0, 2, 8"));
  }
  HostNodes one;
  one.nodes = {{0, {0}, kGiB}};
  Status remote = choose_numa("remote", one, binder).status();
  EXPECT_THAT(remote.message(), HasSubstr("one NUMA node"));
}

BandwidthReport run_numa(const std::string& suite, const std::string& text, NodeBinder& binder) {
  BandwidthOptions options = short_options(suite);
  options.sizes = {64 * kKiB};
  options.max_host = 4 * kMiB;
  options.filter = suite == "host" ? "read/threads1/" : "";
  options.numa = std::make_shared<const NumaChoice>(chosen(text, binder));
  return run_suite(open_devices("cpu:1[memory=16M]"), options);
}

TEST(NumaBandwidth, ResultsNameTheirNode) {
  FakeNodeBinder binder;
  BandwidthReport copies = run_numa("copy", "all", binder);
  EXPECT_EQ(copies.records.size(), 18u);  // 3 kinds, 3 nodes, 2 directions
  for (int node : {0, 2, 8}) {
    for (const char* kind : {"pinned", "registered", "pageable"}) {
      const MeasurementRecord* record =
          copies.find(fmt::format("copy/cpu:0/up/{}/64K/node{}", kind, node));
      ASSERT_NE(record, nullptr) << kind << node;
      ASSERT_TRUE(record->is_ok()) << record->reason;
      EXPECT_EQ(record->info.params.find("node")->as_integer(), node);
      EXPECT_EQ(record->info.params.find("is_local")->as_bool(), node == 0);
      EXPECT_FALSE(record->has_flag(SampleFlag::kUnverified));
    }
  }
  EXPECT_THAT(copies.notes, testing::Contains(HasSubstr("is taken for its own")));
  BandwidthReport host = run_numa("host", "all", binder);
  EXPECT_EQ(host.records.size(), 6u);
  const MeasurementRecord* far = host.find("host/read/threads1/node2/memory8");
  ASSERT_NE(far, nullptr);
  EXPECT_TRUE(far->is_ok()) << far->reason;
  EXPECT_EQ(far->info.params.find("thread_node")->as_integer(), 2);
  EXPECT_THAT(binder.threads(), testing::Contains(ElementsAre(1)));
  BandwidthReport duplex = run_numa("duplex", "2", binder);
  EXPECT_EQ(duplex.records.front().info.params.find("node")->as_integer(), 2);
}

TEST(NumaBandwidth, WithoutTheRightToBindItRunsAndSaysSo) {
  FakeNodeBinder binder;
  binder.forbids_pages = binder.forbids_threads = binder.forbids_looking = true;
  for (const char* suite : {"copy", "host", "optim"}) {
    BandwidthReport report = run_numa(suite, "2", binder);
    ASSERT_FALSE(report.records.empty());
    for (const MeasurementRecord& record : report.records) {
      EXPECT_TRUE(record.is_ok()) << record.info.id << record.reason;
      EXPECT_TRUE(record.has_flag(SampleFlag::kUnverified)) << record.info.id;
      EXPECT_THAT(record.info.params.find("placement")->as_string(),
                  HasSubstr("Operation not permitted"));
    }
    EXPECT_EQ(bandwidth_exit_code(report, false), 0);
    bool is_said = false;
    for (const Finding& one : find_problems(report)) {
      is_said = is_said || one.text.find("may not have been on") != std::string::npos;
    }
    EXPECT_TRUE(is_said);
    EXPECT_THAT(bandwidth_table(report), HasSubstr("unverified"));
  }
}

MeasurementRecord record_on(int node, bool is_local, double rate) {
  MeasurementRecord record;
  record.info.id = fmt::format("copy/cuda:0/up/pinned/64M/node{}", node);
  record.info.group = "copy";
  record.info.params["device"] = "cuda:0";
  record.info.params["dir"] = "up";
  record.info.params["kind"] = "pinned";
  record.info.params["node"] = node;
  record.info.params["is_local"] = is_local;
  record.info.quantities = {{"rate", "GB/s"}};
  record.samples = {{rate}};
  record.statistics = {summarize(record.samples[0])};
  record.status = MeasurementStatus::kOk;
  return record;
}

std::string texts(const BandwidthReport& report) {
  std::string all;
  for (const Finding& one : find_placement_problems(report))
    all += one.text + "; " + one.remedy + "\n";
  return all;
}

TEST(PlacementFindings, TellFarMemoryFromNear) {
  BandwidthReport report;
  report.records = {record_on(1, true, 55), record_on(0, false, 44)};
  EXPECT_THAT(texts(report),
              HasSubstr("44 GB/s with memory on node 0, 55 on its own node 1 (-20 %)"));
  EXPECT_THAT(texts(report), HasSubstr("memory of node 1"));
  report.records[1] = record_on(0, false, 54.9);
  EXPECT_THAT(texts(report), IsEmpty()) << "two verified nodes may be alike";
}

// What looks like two equal nodes is one, measured twice.
TEST(PlacementFindings, DoubtNodesThatAreAlikeWithoutProof) {
  BandwidthReport report;
  report.records = {record_on(1, true, 55), record_on(0, false, 54.9)};
  report.records[1].add_flag(SampleFlag::kUnverified);
  report.records[1].info.params["placement"] = "mbind: Operation not permitted";
  EXPECT_THAT(texts(report), HasSubstr("binding may not have worked"));
  report.records[1] = record_on(0, false, 54);
  report.records[1].add_flag(SampleFlag::kUnverified);
  EXPECT_THAT(texts(report), Not(HasSubstr("binding may not have worked")));
}

}  // namespace
}  // namespace stagecoach
