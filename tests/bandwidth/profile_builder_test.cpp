#include "tools/bandwidth/profile_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/op_rates_json.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A result as a run would have it, with one sample a quantity.
MeasurementRecord record(const std::string& group, Json params, std::vector<double> medians) {
  MeasurementRecord made;
  made.info.group = group;
  made.info.id = group + params.dump();
  made.info.params = std::move(params);
  made.status = MeasurementStatus::kOk;
  for (double median : medians) {
    made.samples.push_back({median});
    made.statistics.push_back(summarize(made.samples.back()));
  }
  return made;
}

Json params(std::initializer_list<std::pair<std::string, Json>> members) {
  return Json(Json::Object(members.begin(), members.end()));
}

Json copy_params(const std::string& device, const char* direction, int64_t size) {
  return params({{"device", device}, {"dir", direction}, {"kind", "pinned"}, {"size", size}});
}

Json urgent_params(const char* direction, const char* method, int64_t chunk, int ahead) {
  return params({{"device", "cuda:0"},
                 {"dir", direction},
                 {"method", method},
                 {"chunk", chunk},
                 {"ahead", ahead}});
}

/// A pass with one product of so many microseconds.
Json layer_params(const char* device, double us) {
  OpShape product{OpKind::kMatmul, DType::kBF16, "nt", {64, 64, 64}, 524288};
  std::vector<TimedOp> ops = {{product, us * 1e3}};
  return params({{"device", device}, {"ops", to_json(ops)}});
}

/// Two cards behind one switch.
BandwidthReport report_of_two() {
  BandwidthReport report;
  for (const char* device : {"cuda:0", "cuda:1"}) {
    // 10 us and 20 GB/s: 1 MB in 60 us, 10 MB in 510.
    report.records.push_back(record("copy", copy_params(device, "up", 1'000'000), {1e6 / 60e3}));
    report.records.push_back(record("copy", copy_params(device, "up", 10'000'000), {1e7 / 510e3}));
    report.records.push_back(record("copy", copy_params(device, "down", 10'000'000), {21}));
    report.records.push_back(record("duplex", params({{"device", device}}), {30}));
    report.records.push_back(record("compute", params({{"device", device}}), {100}));
    report.records.push_back(
        record("layers", layer_params(device, device[5] == '0' ? 9 : 11), {1}));
  }
  // Of a mock that was slower than it pretends to be.
  report.records.push_back(record("layers", layer_params("cuda:0", 1000), {1}));
  report.records.back().add_flag(SampleFlag::kOverrun);
  for (auto [threads, rate] : {std::pair{1, 10.0}, {4, 39.5}, {8, 40.0}}) {
    report.records.push_back(record("optim", params({{"threads", threads}}), {rate / 26, rate}));
  }
  report.records.push_back(record("host", params({{"kernel", "read"}}), {50, 50}));
  // Quantities: latency, wait, total, bulk alone.
  report.records.push_back(
      record("urgent", urgent_params("up", "whole", 8 << 20, 0), {20, 20, 20, 20}));
  report.records.push_back(
      record("urgent", urgent_params("up", "alternating", 8 << 20, 16), {0.3, 0.3, 19.8, 20}));
  report.records.push_back(
      record("urgent", urgent_params("up", "alternating", 4 << 20, 16), {0.2, 0.2, 19.5, 20}));
  report.records.push_back(
      record("urgent", urgent_params("up", "one_in_flight", 1 << 20, 0), {0.1, 0.1, 15, 20}));
  ContentionFit fit;
  fit.direction = "up";
  fit.devices = {"cuda:1", "cuda:0"};
  fit.model.pools.push_back({3, 26});
  report.fits.push_back(fit);
  return report;
}

ProfileSubject subject_of_two() {
  ProfileSubject subject;
  for (const char* id : {"cuda:0", "cuda:1"}) {
    DeviceInfo info;
    info.id = id;
    info.name = "card";
    info.memory_bytes = 24 * kGiB;
    subject.devices.push_back(info);
  }
  subject.measurement.depth = "full";
  return subject;
}

TEST(MachineProfileBuilder, TakesWhatWasMeasured) {
  Result<MachineProfile> profile = build_machine_profile(report_of_two(), subject_of_two());
  ASSERT_TRUE(profile.is_ok()) << profile.status().message();
  ASSERT_EQ(profile->cards.size(), 2u);
  const MachineCard& card = profile->cards[0];
  EXPECT_EQ(card.device, "cuda:0");
  EXPECT_NEAR(card.up_bytes_per_s, 1e7 / 510e-6, 1);
  EXPECT_NEAR(card.down_bytes_per_s, 21e9, 1);
  EXPECT_NEAR(card.duplex_bytes_per_s, 30e9, 1);
  EXPECT_NEAR(card.flop_per_s, 100e12, 1);
  EXPECT_NEAR(profile->latency_ns, 10'000, 1);
  EXPECT_NEAR(profile->host_work_bytes_per_s, 40e9, 1);
  EXPECT_EQ(profile->host_work_threads, 4);
  EXPECT_NEAR(profile->host_memory_bytes_per_s, 50e9, 1);
  EXPECT_THAT(profile->notes, ElementsAre(HasSubstr("is overrun")));
  // Both are cards of one name: the mean of 9 and 11 us.
  ASSERT_NE(profile->ops_of("card"), nullptr);
  ASSERT_EQ(profile->ops_of("card")->ops().size(), 1u);
  EXPECT_NEAR(profile->ops_of("card")->ops()[0].time_ns, 10'000, 1);
  // The shortest wait of those that keep the link.
  ASSERT_TRUE(card.bulk.up);
  EXPECT_EQ(card.bulk.up->method, BulkMethod::kAlternating);
  EXPECT_EQ(card.bulk.up->chunk_bytes, 4 << 20);
  EXPECT_EQ(card.bulk.up->ahead, 16);
  EXPECT_NEAR(card.bulk.up->urgent_p99_s, 0.2e-3, 1e-9);
  EXPECT_FALSE(card.bulk.down);
  EXPECT_FALSE(profile->cards[1].bulk.up);
  // What only uploads share is no limit of downloads.
  ASSERT_EQ(profile->uplinks.size(), 1u);
  EXPECT_EQ(profile->uplinks[0].up_bytes_per_ns, 26);
  EXPECT_NEAR(profile->uplinks[0].down_bytes_per_ns, 42, 1e-9);
  EXPECT_EQ(profile->cards[1].uplink, 0);
}

/// A point of the grid: quantities "memory", and so on, as named.
MeasurementRecord overlap_record(const char* host, const char* copies,
                                 std::vector<std::pair<const char*, double>> quantities) {
  std::vector<double> medians;
  for (const auto& one : quantities) medians.push_back(one.second);
  MeasurementRecord made =
      record("overlap", params({{"host", host}, {"dir", copies}, {"compute", "idle"}}), medians);
  made.info.id = std::string("overlap/") + host + "/" + copies + "/idle";
  for (const auto& one : quantities) made.info.quantities.push_back({one.first, "GB/s"});
  return made;
}

// What planning charges copies and updates to: threads alone say too little where cores are the
// limit, too much where both hinder each other.
TEST(MachineProfileBuilder, HostMemoryIsWhatCopiesAndUpdatesHaveTogether) {
  struct Case {
    double host_beside, copies_beside, expected;
  };
  // Alone 40 and 30 GB/s; threads that read have 50.
  for (const Case& one : {Case{39, 30, 69}, {25, 20, 45}, {10, 20, 40}, {39, 5, 44}}) {
    BandwidthReport report = report_of_two();
    report.records.push_back(overlap_record("update", "none", {{"memory", 40}, {"host", 40}}));
    report.records.push_back(
        overlap_record("none", "both", {{"memory", 30}, {"up", 15}, {"down", 15}}));
    double together = one.host_beside + one.copies_beside;
    report.records.push_back(overlap_record(
        "update", "both",
        {{"memory", together}, {"host", one.host_beside}, {"up", one.copies_beside}, {"down", 0}}));
    Result<MachineProfile> profile = build_machine_profile(report, subject_of_two());
    ASSERT_TRUE(profile.is_ok()) << profile.status().message();
    EXPECT_NEAR(profile->host_memory_bytes_per_s, one.expected * 1e9, 1);
  }
}

// Kernels that copy faster than a copy engine are none of what training does.
TEST(MachineProfileBuilder, CopiesByKernelsAreLeftOut) {
  BandwidthReport report = report_of_two();
  Json by_kernel = copy_params("cuda:0", "up", 10'000'000);
  by_kernel["engine"] = "kernel";
  report.records.push_back(record("copy", by_kernel, {99}));
  Result<MachineProfile> profile = build_machine_profile(report, subject_of_two());
  ASSERT_TRUE(profile.is_ok()) << profile.status().message();
  EXPECT_NEAR(profile->cards[0].up_bytes_per_s, 1e7 / 510e-6, 1);
}

TEST(MachineProfileBuilder, MissingResultsAreAssumedOrRefused) {
  struct Case {
    const char* group;
    const char* message;
  };
  for (const Case& one : {Case{"copy", "copying up of cuda:0 was not measured"},
                          {"duplex", "both directions of cuda:0"},
                          {"optim", "updating parameters"}}) {
    BandwidthReport report = report_of_two();
    for (MeasurementRecord& record : report.records) {
      if (record.info.group == one.group) record.status = MeasurementStatus::kTimeout;
    }
    Result<MachineProfile> profile = build_machine_profile(report, subject_of_two());
    ASSERT_FALSE(profile.is_ok()) << one.group;
    EXPECT_EQ(profile.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(profile.status().message(), HasSubstr(one.message));
  }
  BandwidthReport report = report_of_two();
  for (MeasurementRecord& record : report.records) {
    if (record.info.group == "compute") record.status = MeasurementStatus::kSkipped;
    if (record.info.group == "duplex") record.flags = {SampleFlag::kNoisy};
  }
  Result<MachineProfile> profile = build_machine_profile(report, subject_of_two());
  ASSERT_TRUE(profile.is_ok());
  EXPECT_THAT(profile->notes, testing::Contains(HasSubstr("cuda:1: computing was not measured")));
  EXPECT_THAT(profile->notes, testing::Contains(HasSubstr("is noisy")));
  EXPECT_FALSE(build_machine_profile(report, ProfileSubject{}).is_ok());
}

}  // namespace
}  // namespace stagecoach
