#include "tools/bandwidth/results.h"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tests/core/json_schema.h"
#include "tools/bandwidth/bandwidth_context.h"
#include "tools/bandwidth/findings.h"
#include "tools/bandwidth/gates.h"
#include "tools/bandwidth/results_reader.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MeasurementRecord record_of(const std::string& id, const std::string& group, double median) {
  MeasurementRecord record;
  record.info.id = id;
  record.info.group = group;
  record.info.quantities = {{"rate", "GB/s"}};
  record.status = MeasurementStatus::kOk;
  record.samples = {{median, median, median}};
  record.statistics = {summarize(record.samples[0])};
  return record;
}

MeasurementRecord copy_of(const std::string& device, const std::string& dir,
                          const std::string& kind, ByteCount size, double median) {
  MeasurementRecord record = record_of(
      fmt::format("copy/{}/{}/{}/{}", device, dir, kind, short_size(size)), "copy", median);
  record.info.params["device"] = device;
  record.info.params["dir"] = dir;
  record.info.params["kind"] = kind;
  record.info.params["size"] = size;
  return record;
}

std::string texts_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.remedy.empty()) << finding.text;
    text += std::string(severity_name(finding.severity)) + ": " + finding.text + "\n";
  }
  return text;
}

/// A report that has something of everything.
BandwidthReport rich_report() {
  BandwidthReport report;
  auto devices = open_devices("cpu:2");
  std::vector<Device*> pointers = {devices[0].get(), devices[1].get()};
  report.context = measurement_context(pointers, {});
  report.context["suite"] = "quick";
  report.records = {copy_of("cuda:0", "up", "pinned", 64 * kMiB, 55),
                    copy_of("cuda:0", "down", "pinned", 64 * kMiB, 53)};
  report.records[0].info.limit = 63;
  report.records[0].flags = {SampleFlag::kNoisy, SampleFlag::kDrift};
  MeasurementRecord wrong = copy_of("cuda:1", "up", "pinned", 64 * kMiB, 54);
  wrong.status = MeasurementStatus::kMismatch;
  wrong.reason = "3 of 100 bytes, \"quoted\"";
  wrong.check = {100, 3, 17, 0x40};
  MeasurementRecord skipped = copy_of("cuda:1", "down", "pinned", kGiB, 0);
  skipped.status = MeasurementStatus::kSkipped;
  skipped.samples = {{}};
  skipped.statistics = {summarize({})};
  report.records.push_back(wrong);
  report.records.push_back(skipped);
  ContentionFit fit;
  fit.direction = "up";
  fit.devices = {"cuda:0", "cuda:1"};
  fit.model.links = {55, 54};
  fit.model.pools = {{0b11, 80}};
  fit.sets_measured = 3;
  fit.packed = {{0b01, 55}, {0b11, 80}};
  fit.spread = {{0b10, 54}, {0b11, 80}};
  report.fits = {fit};
  report.findings = find_problems(report);
  report.notes = {"a note"};
  return report;
}

TEST(BandwidthJson, IsAsItsSchemaSays) {
  BandwidthReport report = rich_report();
  JsonSchema schema = JsonSchema::read("bandwidth.schema.json");
  for (bool has_samples : {false, true}) {
    // What is printed and read again, as a script does.
    Result<Json> json = Json::parse(bandwidth_json(report, has_samples).dump());
    ASSERT_TRUE(json.is_ok());
    EXPECT_EQ(schema.violation(*json), "");
  }
  Json json = bandwidth_json(report, false);
  EXPECT_EQ(json.find("results")->items()[3].find("stats")->find("n")->as_integer(), 0);
  EXPECT_TRUE(json.find("results")->items()[3].find("limit")->is_null());
  EXPECT_EQ(json.find("fits")->items()[0].find("packed")->items()[1].find("total")->as_number(),
            80);
}

TEST(BandwidthJson, IsReadAsItWasWritten) {
  Json json = bandwidth_json(rich_report(), true);
  Result<BandwidthReport> read = read_bandwidth_json(json, "file.json");
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  read->findings = find_problems(*read);
  EXPECT_EQ(bandwidth_json(*read, true).dump(), json.dump());
  json["schema_version"] = 2;
  EXPECT_THAT(read_bandwidth_json(json, "file.json").status().message(),
              HasSubstr("file.json: schema_version is 2; it must be 1"));
  EXPECT_THAT(read_bandwidth_json(Json::object(), "x").status().message(),
              HasSubstr("x: 'schema_version'"));
  json["schema_version"] = 1;
  json["results"].push_back(Json::object());
  EXPECT_FALSE(read_bandwidth_json(json, "x").is_ok());
}

TEST(BandwidthJson, TheSchemaRefusesWhatIsWrong) {
  JsonSchema schema = JsonSchema::read("bandwidth.schema.json");
  Json json = bandwidth_json(rich_report(), false);
  json["schema_version"] = 2;
  EXPECT_THAT(schema.violation(json), HasSubstr("$.schema_version is 2"));
  json["schema_version"] = 1;
  json["results"] = Json::array();
  json["more"] = 1;
  EXPECT_THAT(schema.violation(json), HasSubstr("has 'more'"));
  EXPECT_THAT(schema.violation(Json::object()), HasSubstr("has no 'schema_version'"));
}

TEST(BandwidthCsv, HasTheColumnsOfItsVersion) {
  std::string csv = bandwidth_csv(rich_report());
  EXPECT_THAT(csv,
              testing::StartsWith("id,group,status,quantity,unit,n,median,p5,p95,min,max,sigma,cv,"
                                  "payload_bytes,directions,flags\n"));
  EXPECT_THAT(csv, HasSubstr("\ncopy/cuda:0/up/pinned/64M,copy,ok,rate,GB/s,3,55,55,55,55,55,0,0,"
                             "0,1,noisy drift\n"));
  EXPECT_THAT(csv, HasSubstr("copy/cuda:1/down/pinned/1G,copy,skipped,rate,GB/s,0,,,,,,,,0,1,\n"));
  size_t begin = 0;
  while (begin < csv.size()) {
    size_t end = csv.find('\n', begin);
    EXPECT_EQ(std::count(csv.begin() + static_cast<ptrdiff_t>(begin),
                         csv.begin() + static_cast<ptrdiff_t>(end), ','),
              15);
    begin = end + 1;
  }
}

TEST(BandwidthTable, SaysUnitExpectationReasonAndRemedy) {
  std::string table = bandwidth_table(rich_report());
  EXPECT_THAT(table, HasSubstr("87 % of 63.0"));
  EXPECT_THAT(table, HasSubstr("GB/s"));
  EXPECT_THAT(table, HasSubstr("noisy drift"));
  EXPECT_THAT(table, HasSubstr("mismatch: 3 of 100 bytes"));
  EXPECT_THAT(table, HasSubstr("cuda:0 + cuda:1"));
  EXPECT_THAT(table, HasSubstr("plan them as one pool"));
}

TEST(BandwidthExitCode, FollowsTheContract) {
  BandwidthReport report;
  report.records = {record_of("a", "copy", 1)};
  EXPECT_EQ(bandwidth_exit_code(report, true), 0);
  report.records.push_back(record_of("b", "copy", 1));
  report.records[1].status = MeasurementStatus::kSkipped;
  EXPECT_EQ(bandwidth_exit_code(report, false), 0);
  EXPECT_EQ(bandwidth_exit_code(report, true), 5);
  report.records[1].status = MeasurementStatus::kTimeout;
  EXPECT_EQ(bandwidth_exit_code(report, false), 5);
  report.records.push_back(record_of("c", "copy", 1));
  report.records[2].status = MeasurementStatus::kMismatch;
  EXPECT_EQ(bandwidth_exit_code(report, false), 3);
  report.is_interrupted = true;
  EXPECT_EQ(bandwidth_exit_code(report, false), 130);
}

TEST(BandwidthFindings, OfAHealthyMachineAreNone) {
  BandwidthReport report;
  for (const char* device : {"cuda:0", "cuda:1", "cuda:2"}) {
    report.records.push_back(copy_of(device, "up", "pinned", kMiB, 55));
    report.records.push_back(copy_of(device, "down", "pinned", kMiB, 53));
    report.records.back().info.limit = 63;
  }
  EXPECT_EQ(texts_of(find_problems(report)), "");
}

// One card of several at a fraction of the others, and one at a quarter of its link.
TEST(BandwidthFindings, NameTheDeviceThatIsBehind) {
  BandwidthReport report;
  for (const char* device : {"cuda:0", "cuda:1", "cuda:2", "cuda:3"}) {
    bool is_slow = std::string(device) == "cuda:3";
    report.records.push_back(copy_of(device, "up", "pinned", kMiB, is_slow ? 14 : 57));
    report.records.back().info.limit = 63;
  }
  std::vector<Finding> findings = find_problems(report);
  std::string text = texts_of(findings);
  EXPECT_THAT(text, HasSubstr("cuda:3 up reaches 14 GB/s, the median of all is 57"));
  EXPECT_THAT(text, HasSubstr("cuda:3 up reaches 14 of 63 GB/s that its link carries"));
  EXPECT_THAT(text, testing::Not(HasSubstr("cuda:1")));
  EXPECT_THAT(findings[0].results, ElementsAre("copy/cuda:3/up/pinned/1M"));
}

TEST(BandwidthFindings, CoverDuplexKindsChunksUrgencyAndTurns) {
  BandwidthReport report;
  double rate = 20;
  for (ByteCount size : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}) {
    rate = std::min(rate + 10, 50.0);
    report.records.push_back(copy_of("cuda:0", "up", "pinned", size, rate));
  }
  report.records.push_back(copy_of("cuda:0", "down", "pinned", kMiB, 30));
  report.records.push_back(copy_of("cuda:0", "up", "pageable", kMiB, 10));
  MeasurementRecord duplex = record_of("duplex/cuda:0/pinned/1M", "duplex", 48);
  duplex.info.params["device"] = "cuda:0";
  report.records.push_back(duplex);
  MeasurementRecord together = record_of("together/up/pinned/1M", "together", 25);
  together.info.params["dir"] = "up";
  report.records.push_back(together);
  for (double latency : {0.3, 3.0}) {
    MeasurementRecord urgent =
        record_of(fmt::format("urgent/cuda:0/up/{}", latency), "urgent", latency);
    urgent.info.params["device"] = "cuda:0";
    urgent.info.params["dir"] = "up";
    urgent.info.params["method"] = latency < 1 ? "alternating" : "whole";
    report.records.push_back(urgent);
  }
  MeasurementRecord odd = copy_of("cuda:9", "up", "pinned", kMiB, 70);
  odd.info.limit = 63;
  odd.flags = {SampleFlag::kImplausible};
  report.records.push_back(odd);
  std::string text = texts_of(find_problems(report));
  EXPECT_THAT(text, HasSubstr("cuda:0 carries 50 GB/s up and 30 down"));
  EXPECT_THAT(text, HasSubstr("carries 48 GB/s both ways at once, 80 one after the other"));
  EXPECT_THAT(text, HasSubstr("pageable memory is 5.0 times slower than pinned"));
  EXPECT_THAT(text, HasSubstr("cuda:0 up reaches 95 % of 50 GB/s with chunks of 1M"));
  EXPECT_THAT(text, HasSubstr("urgent copies cuda:0 up take 0.3 ms (p99) behind bulk"));
  EXPECT_THAT(text,
              HasSubstr("all devices together carry 25 GB/s up, the sum of each alone is 120"));
  EXPECT_THAT(text, HasSubstr("copy/cuda:9/up/pinned/1M is faster than its link can be"));
  EXPECT_THAT(text, testing::StartsWith("warning: "));
}

// What was not active together, or has nothing beside it, is no reason to plan otherwise.
TEST(BandwidthFindings, NeedEvidence) {
  BandwidthReport report;
  report.records = {copy_of("cuda:0", "up", "pinned", kMiB, 50),
                    copy_of("cuda:0", "down", "pinned", kMiB, 50),
                    record_of("duplex/cuda:0/pinned/1M", "duplex", 20),
                    record_of("urgent/cuda:0/up/whole", "urgent", 3)};
  report.records[2].info.params["device"] = "cuda:0";
  report.records[2].flags = {SampleFlag::kShortWindow};
  report.records[3].info.params["device"] = "cuda:0";
  report.records[3].info.params["dir"] = "up";
  report.records[3].info.params["method"] = "whole";
  std::string text = texts_of(find_problems(report));
  EXPECT_THAT(text, testing::Not(HasSubstr("both ways at once")));
  EXPECT_THAT(text, testing::Not(HasSubstr("urgent copies")));
  report.records[2].flags = {};
  EXPECT_THAT(texts_of(find_problems(report)), HasSubstr("both ways at once"));
}

TEST(BandwidthFindings, SayWhichWayBetweenDevicesIsFasterAndSafe) {
  BandwidthReport report;
  for (const char* route : {"direct", "staged"}) {
    for (const char* peer : {"cuda:1", "cuda:2"}) {
      bool is_slow = std::string(route) == "direct" && std::string(peer) == "cuda:1";
      MeasurementRecord record = record_of(fmt::format("p2p/cuda:0/{}/{}/64M", peer, route), "p2p",
                                           is_slow                          ? 5
                                           : std::string(route) == "direct" ? 26
                                                                            : 21);
      record.info.params["device"] = "cuda:0";
      record.info.params["peer"] = peer;
      record.info.params["route"] = route;
      report.records.push_back(record);
    }
  }
  MeasurementRecord wrong = report.records[0];
  wrong.info.id = "p2p/cuda:3/cuda:0/direct/64M";
  wrong.status = MeasurementStatus::kMismatch;
  report.records.push_back(wrong);
  std::vector<Finding> findings = find_problems(report);
  ASSERT_EQ(findings.size(), 2u) << texts_of(findings);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(findings[0].remedy, HasSubstr("STAGECOACH_PEER=off"));
  EXPECT_EQ(findings[1].text, "cuda:0 to cuda:1: 5 GB/s directly, 21 through the host");
}

TEST(BandwidthGates, CompareMediansAndRefuseWhatIsNotThere) {
  BandwidthReport report;
  report.records = {record_of("copy/cuda:0/up/pinned/64M", "copy", 55)};
  auto check = [&](const std::string& text) {
    return check_gates(parse_gates({text}).value(), report);
  };
  EXPECT_TRUE(check("copy/cuda:0/up/pinned/64M=55").value());
  EXPECT_TRUE(report.findings.empty());
  EXPECT_FALSE(check("copy/cuda:0/up/pinned/64M=55.5").value());
  EXPECT_THAT(report.findings.front().text, HasSubstr("is 55 GB/s, below the gate of 55.5"));
  EXPECT_THAT(check("copy/cuda:0/up/pinned/64K=5").status().message(),
              HasSubstr("did you mean 'copy/cuda:0/up/pinned/64M'?"));
  for (const char* bad : {"", "=5", "a=", "a=x", "a=-1", "a=0", "a"}) {
    EXPECT_THAT(parse_gates({bad}).status().message(), HasSubstr("ID=VALUE")) << bad;
  }
}

TEST(BandwidthTable, ControlCharactersOfFilesDoNotReachTheTerminal) {
  BandwidthReport report;
  MeasurementRecord record;
  record.info.id = "copy/\x1b[31m";
  record.info.group = "copy";
  record.info.quantities = {{"rate", "GB/s"}};
  record.status = MeasurementStatus::kFailed;
  report.records = {record};
  report.notes = {"a\x1b[2Jnote"};
  std::string table = bandwidth_table(report);
  EXPECT_EQ(table.find('\x1b'), std::string::npos) << table;
  EXPECT_NE(table.find("copy/\\x1b[31m"), std::string::npos) << table;
}

}  // namespace
}  // namespace stagecoach
