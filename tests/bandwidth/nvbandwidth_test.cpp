#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "tools/bandwidth/nvbandwidth_comparison.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As versions 0.5 to 0.8 write: numbers as text, cells that are "N/A", a test that failed listed
// twice, its error beside all tests, and a member "testcases" that is null outside.
const std::string kFile = R"json({
  "nvbandwidth": {
    "CUDA Runtime Version": 12040,
    "Driver Version": "550.54.15",
    "GPU Device list": ["0: NVIDIA H200 (00000000:3D:00): (host)",
                        "1: NVIDIA H200 (00000000:1B:00): (host)"],
    "error": "an error: of a test",
    "git_version": "v0.8",
    "version": "v0.8",
    "testcases": [
      {"bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["55.5", "27.75"]],
       "name": "host_to_device_memcpy_ce", "status": "Passed", "sum": 83.25},
      {"bandwidth_description": "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["48", "48"]],
       "name": "device_to_host_bidirectional_memcpy_ce", "status": "Passed", "sum": 96},
      {"bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["30", "31"]],
       "name": "host_to_all_memcpy_ce", "status": "Passed", "sum": 61},
      {"bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["N/A", "200"], ["201", "N/A"]],
       "name": "device_to_device_memcpy_write_ce", "status": "Passed", "sum": 401},
      {"bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
       "bandwidth_matrix": [["N/A", "210"], ["211", "N/A"]],
       "name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 421},
      {"bandwidth_description": "memcpy CE CPU(row) <-> GPU(column) Total bandwidth (GB/s)",
       "bandwidth_matrix": [["N/A", "1"], ["2", "N/A"], ["N/A", "3"], ["4", "N/A"],
                            ["N/A", "4"], ["6", "N/A"]],
       "name": "device_to_device_bidirectional_memcpy_read_ce", "status": "Passed", "sum": 10},
      {"name": "all_to_one_write_ce", "status": "Waived"},
      {"name": "host_to_device_memcpy_sm", "status": "Running"},
      {"name": "host_to_device_memcpy_sm", "status": "Error"},
      {"bandwidth_description": "memory latency SM CPU(row) <-> GPU(column) (ns)",
       "bandwidth_matrix": [["772.6", "1.2e+03"]],
       "name": "host_device_latency_sm", "status": "Passed", "sum": 1972.6},
      {"bandwidth_matrix": [["1"]], "name": "of_tomorrow", "status": "Passed"}
    ]
  },
  "testcases": null
})json";

Result<NvbandwidthFile> read(const std::string& text) {
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context("nvb.json");
  return read_nvbandwidth(*json, "nvb.json");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

MeasurementRecord record_of(const std::string& id, const std::string& group, Json params,
                            std::vector<std::pair<std::string, double>> values) {
  MeasurementRecord record;
  record.info.id = id;
  record.info.group = group;
  record.info.params = std::move(params);
  record.status = MeasurementStatus::kOk;
  for (const auto& [name, value] : values) {
    record.info.quantities.push_back({name, "GB/s"});
    record.samples.push_back({value});
    record.statistics.push_back(summarize(record.samples.back()));
  }
  return record;
}

Json params_of(const std::string& device, const char* direction, int64_t size) {
  Json params = Json::object();
  params["device"] = device;
  params["dir"] = direction;
  params["kind"] = "pinned";
  params["size"] = size;
  return params;
}

/// Ours of two cards, whose numbers are the other way round than nvbandwidth's.
BandwidthReport report_of_two() {
  BandwidthReport report;
  for (const auto& [id, address] :
       {std::pair{"cuda:0", "0000:1b:00.0"}, std::pair{"cuda:1", "0000:3d:00.0"}}) {
    Json device = Json::object();
    device["id"] = id;
    device["pci_address"] = address;
    report.context["devices"].push_back(device);
  }
  report.records.push_back(record_of("copy/cuda:1/up/pinned/4M", "copy",
                                     params_of("cuda:1", "up", 4 << 20), {{"rate", 70}}));
  report.records.push_back(record_of("copy/cuda:1/up/pinned/64M", "copy",
                                     params_of("cuda:1", "up", 64 << 20), {{"rate", 55}}));
  report.records.push_back(record_of("duplex/cuda:1/pinned/64M", "duplex",
                                     params_of("cuda:1", "both", 64 << 20),
                                     {{"total", 96}, {"cuda:1 up", 49}, {"cuda:1 down", 47}}));
  report.records.push_back(record_of("together/up/pinned/64M", "together",
                                     params_of("all", "up", 64 << 20),
                                     {{"total", 60}, {"cuda:0 up", 32}, {"cuda:1 up", 28}}));
  Json peers = Json::object();
  peers["size"] = 1 << 20;
  report.records.push_back(record_of("p2p/cuda:1/cuda:0/direct/1M", "p2p", peers, {{"rate", 190}}));
  return report;
}

const NvbandwidthPair* pair_of(const NvbandwidthComparison& comparison, const std::string& test,
                               const std::string& device) {
  for (const NvbandwidthPair& pair : comparison.pairs) {
    if (pair.test == test && pair.device == device) return &pair;
  }
  ADD_FAILURE() << test << " " << device;
  return nullptr;
}

TEST(Nvbandwidth, ItsFileIsReadAsItsVersionsWriteIt) {
  Result<NvbandwidthFile> file = read(kFile);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->version, "v0.8");
  EXPECT_EQ(file->driver, "550.54.15");
  EXPECT_EQ(file->devices.size(), 2u);
  EXPECT_THAT(file->notes, ElementsAre("nvbandwidth's error: an error: of a test"));
  ASSERT_EQ(file->tests.size(), 10u);
  EXPECT_EQ(file->tests[0].matrix[0][1], 27.75);
  EXPECT_FALSE(file->tests[3].matrix[0][0]);
  EXPECT_EQ(file->tests[5].matrix.size(), 6u);
  EXPECT_EQ(file->tests[7].status, "Error");
  EXPECT_EQ(file->tests[8].unit, "ns");
  // Others leave out the list of devices, or tell errors alone.
  EXPECT_TRUE(read(R"({"nvbandwidth": {"testcases": []}})").is_ok());
  EXPECT_TRUE(read(R"({"nvbandwidth": {"error": "no driver"}})").is_ok());
  EXPECT_EQ(nvbandwidth_pci_address("0: NVIDIA A (00000000:1B:00): (host)"), "0000:1b:00");
  EXPECT_EQ(nvbandwidth_pci_address("0: NVIDIA A (9:1:0): (host)"), "0009:01:00");
  EXPECT_EQ(nvbandwidth_pci_address("0: NVIDIA A: (host)"), "");
}

// Two tools side by side, each figure with how it was measured (scenario 25).
TEST(Nvbandwidth, FiguresOfTheSameCopiesStandSideBySide) {
  NvbandwidthComparison comparison = compare_with_nvbandwidth(*read(kFile), report_of_two());
  // Number 0 there is cuda:1 here, by its PCI address; of its chunks the largest counts.
  const NvbandwidthPair* up = pair_of(comparison, "host_to_device_memcpy_ce", "cuda:1");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->theirs, 55.5);
  EXPECT_EQ(up->ours, 55);
  EXPECT_EQ(up->our_id, "copy/cuda:1/up/pinned/64M");
  EXPECT_EQ(up->our_method, "median of 1, chunks of 64M");
  EXPECT_EQ(up->their_method, "one GPU at a time, pinned, copy engine");
  EXPECT_EQ(pair_of(comparison, "host_to_device_memcpy_ce", "cuda:0")->our_id, "");
  EXPECT_EQ(pair_of(comparison, "device_to_host_bidirectional_memcpy_ce", "cuda:1")->ours, 47);
  EXPECT_EQ(pair_of(comparison, "host_to_all_memcpy_ce", "cuda:0")->ours, 32);
  // A write goes from the row's GPU to the column's, a read the other way.
  const NvbandwidthPair* write = pair_of(comparison, "device_to_device_memcpy_write_ce", "cuda:1");
  ASSERT_NE(write, nullptr);
  EXPECT_EQ(write->peer, "cuda:0");
  EXPECT_EQ(write->theirs, 200);
  EXPECT_EQ(write->ours, 190);
  EXPECT_EQ(pair_of(comparison, "device_to_device_memcpy_read_ce", "cuda:1")->theirs, 211);
  std::string table = nvbandwidth_table(comparison);
  for (const char* part :
       {"nvbandwidth v0.8 with driver 550.54.15", "0.991", "medians of 3", "not among our results",
        "theirs: down alone, while twice as much goes up"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  Json json = nvbandwidth_json(comparison);
  EXPECT_NEAR(json.find("pairs")->items()[0].find("ratio")->as_number(), 55 / 55.5, 1e-12);
  EXPECT_TRUE(json.find("pairs")->items()[1].find("ours")->is_null());
}

TEST(Nvbandwidth, NoTestIsDropped) {
  NvbandwidthComparison comparison = compare_with_nvbandwidth(*read(kFile), report_of_two());
  std::vector<std::string> lines;
  for (const UnpairedTest& one : comparison.unpaired) {
    lines.push_back(fmt::format("{} {} {}", one.test, one.status, one.why));
  }
  EXPECT_THAT(
      lines,
      ElementsAre("device_to_device_bidirectional_memcpy_read_ce Passed both directions between "
                  "cards are not measured here",
                  "all_to_one_write_ce Waived nvbandwidth did not run it on this machine",
                  "host_to_device_memcpy_sm Error it did not pass, and the file does not say why",
                  "host_device_latency_sm Passed latency of single accesses is not measured here",
                  "of_tomorrow Passed a test that is not known here"));
  EXPECT_EQ(comparison.unpaired[3].most, 1200);
  // Without PCI addresses numbers are taken for ours, and that is said.
  BandwidthReport report = report_of_two();
  report.context = Json::object();
  report.context["devices"] = Json::array();
  comparison = compare_with_nvbandwidth(*read(kFile), report);
  EXPECT_THAT(comparison.notes, testing::Contains(HasSubstr("GPU number I is taken for cuda:I")));
  EXPECT_EQ(comparison.pairs[0].device, "cuda:0");
}

TEST(Nvbandwidth, FilesThatAreNoneAreRefusedByPlaceAndValue) {
  struct Case {
    std::string text;
    const char* message;
  };
  const Case cases[] = {
      {"{", "nvb.json"},
      {"[]", "nvb.json: 'nvbandwidth' is missing"},
      {R"({"nvbandwidth": 3})", "nvb.json: nvbandwidth is 3; it must be a table"},
      {R"({"nvbandwidth": {}})", "nvbandwidth: 'testcases' is missing"},
      {R"({"nvbandwidth": {"testcases": {}}})", "testcases is {}; it must be a list"},
      {replaced(kFile, "\"55.5\"", "\"fast\""),
       "testcases[0]: bandwidth_matrix: row 0: column 0 is \"fast\"; it must be a number"},
      {replaced(kFile, "\"55.5\"", "\"1e400\""), "is \"1e400\"; it must be a number from 0 to 1e9"},
      {replaced(kFile, "\"55.5\"", "\"2e9\""), "is \"2e9\""},
      {replaced(kFile, "\"55.5\"", "\"-1\""), "is \"-1\""},
      {replaced(kFile, "\"55.5\"", "\"nan\""), "is \"nan\""},
      {replaced(kFile, "\"55.5\"", "\"inf\""), "is \"inf\""},
      {replaced(kFile, "\"55.5\"", "\"55.5 \""), "is \"55.5 \""},
      {replaced(kFile, "\"55.5\"", "true"), "is true"},
      {replaced(kFile, "[[\"55.5\", \"27.75\"]]", "[[\"1\"], [\"1\", \"2\"]]"),
       "row 1 is [\"1\",\"2\"]; it must be as long as the first row"},
      {replaced(kFile, "[[\"55.5\", \"27.75\"]]", "7"), "bandwidth_matrix is 7"},
      {replaced(kFile, "\"host_to_device_memcpy_ce\"", "[]"), "testcases[0]: name is []"},
      {replaced(kFile, ", \"status\": \"Waived\"", ""), "testcases[6]: 'status' is missing"},
      {replaced(kFile, "\"550.54.15\"", "{}"), "Driver Version is {}"},
      {replaced(kFile, "\"0: NVIDIA H200 (00000000:3D:00): (host)\"", "0"),
       "GPU Device list is 0"}};
  for (const Case& one : cases) {
    Result<NvbandwidthFile> file = read(one.text);
    ASSERT_FALSE(file.is_ok()) << one.message;
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(file.status().message(), HasSubstr(one.message));
    EXPECT_LT(file.status().message().size(), 400u);
  }
}

// Cut anywhere, or with bytes that are others: a refusal with the file's name, or a file.
TEST(Nvbandwidth, DamagedFilesAreRefusedOrRead) {
  auto expect_answer = [](const std::string& text) {
    Result<NvbandwidthFile> file = read(text);
    if (file.is_ok()) {
      EXPECT_FALSE(nvbandwidth_table(compare_with_nvbandwidth(*file, report_of_two())).empty());
    } else {
      EXPECT_THAT(file.status().message(), HasSubstr("nvb.json"));
    }
  };
  for (size_t size = 0; size < kFile.size(); size += 7) {
    std::string text = kFile.substr(0, size);
    EXPECT_FALSE(read(text).is_ok()) << size;
    expect_answer(text);
  }
  const std::string letters = "\"[]{},:0-9.eE+nullNA";
  RandomKey key;
  for (uint64_t round = 0; round < 2000; ++round) {
    std::string text = kFile;
    for (uint64_t change = 0; change < 1 + round % 3; ++change) {
      size_t at = random_word(key, 10 * round + 2 * change) % text.size();
      text[at] = letters[random_word(key, 10 * round + 2 * change + 1) % letters.size()];
    }
    expect_answer(text);
  }
}

}  // namespace
}  // namespace stagecoach
