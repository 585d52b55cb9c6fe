#include "tools/bandwidth/profile_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bandwidth/bandwidth_fixture.h"
#include "tools/bandwidth/profile_sentinels.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::time_t kNow = 1'796'072'700;  // 2026-11-30T21:05:00Z

MachineIdentity identity_of(const char* processor, const char* kernel) {
  return {{{"processor", processor}, {"threads", "2"}, {"cpu:0", "mock"}, {"kernel", kernel}}};
}

/// Of two mocks with these links, measured a day before `kNow`.
MachineProfile profile_of(double up_bytes_per_s, double down_bytes_per_s) {
  MachineProfile profile;
  for (const char* device : {"cpu:0", "cpu:1"}) {
    MachineCard& card = profile.cards.emplace_back();
    card.device = device;
    card.up_bytes_per_s = up_bytes_per_s;
    card.down_bytes_per_s = down_bytes_per_s;
  }
  profile.host_work_bytes_per_s = 1e9;
  profile.host_work_threads = 1;
  profile.measurement =
      MachineMeasurement{"2026-11-29T21:05:00Z", "", "quick", identity_of("some", "6.1")};
  return profile;
}

Result<std::vector<std::string>> origin_of(const MachineProfile& profile,
                                           const MachineIdentity& now) {
  return check_profile_origin(profile, "here.json", now, kNow);
}

TEST(ProfileCheck, TellsTheAge) {
  EXPECT_NEAR(age_days("2026-11-30T21:05:00Z", kNow).value(), 0, 1e-9);
  EXPECT_NEAR(age_days("2026-10-31T21:05:00Z", kNow).value(), 30, 1e-9);
  EXPECT_NEAR(age_days("2026-12-02T21:05:00Z", kNow).value(), -2, 1e-9);
  for (const char* text :
       {"", "yesterday", "2026-11-30", "2026-11-30T21:05:00", "2026-11-30T21:05:00Zz"}) {
    EXPECT_FALSE(age_days(text, kNow)) << text;
  }
}

TEST(ProfileCheck, AnotherMachineIsRefusedAndAnotherKernelIsAWarning) {
  MachineProfile profile = profile_of(1e9, 1e9);
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.1")).value(), IsEmpty());
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.2")).value(),
              ElementsAre("kernel was 6.1 and is 6.2"));
  Status refused = origin_of(profile, identity_of("another", "6.1")).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  for (const char* part : {"here.json: measurement: machine: processor is 'some'",
                           "of this machine 'another'", "measure again"}) {
    EXPECT_THAT(refused.message(), HasSubstr(part));
  }
  profile.measurement->when = "2026-10-30T21:05:00Z";
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.1")).value(),
              ElementsAre("it is 31 days old; measure again after 30"));
  profile.measurement->when = "2026-12-30T21:05:00Z";
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.1")).value(),
              ElementsAre(HasSubstr("30 days from now")));
  profile.measurement->when = "once";
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.1")).value(),
              ElementsAre("measurement: when is 'once', which tells no age"));
  profile.measurement.reset();
  EXPECT_THAT(origin_of(profile, identity_of("some", "6.1")).value(),
              ElementsAre(HasSubstr("written by hand")));
}

SentinelResult result_of(double before, double now) {
  SentinelResult result;
  result.entry = "cards[0]: up_bytes_per_s";
  result.device = "cuda:0";
  result.before = before;
  result.now = now;
  result.status = MeasurementStatus::kOk;
  return result;
}

TEST(ProfileCheck, DriftDecidesTheExitCode) {
  ProfileCheck check;
  check.sentinels = {result_of(50, 54.9), result_of(50, 45.1)};
  EXPECT_EQ(profile_check_exit_code(check), 0);
  EXPECT_THAT(profile_check_table(check), HasSubstr("the profile holds"));
  check.sentinels.push_back(result_of(50, 44));
  check.sentinels.back().entry = "cards[1]: down_bytes_per_s";
  EXPECT_EQ(profile_check_exit_code(check), 4);
  EXPECT_THAT(profile_check_table(check),
              HasSubstr("drifted by more than 10 %: cards[1]: down_bytes_per_s (cuda:0)"));
  Json json = profile_check_json(check);
  EXPECT_FALSE(json.find("holds")->as_bool());
  EXPECT_EQ(json.find("drifted")->dump(), "[\"cards[1]: down_bytes_per_s\"]");
  // What a mock was too slow for says nothing; what is wrong or interrupted says something else.
  check.sentinels.back().flags = {SampleFlag::kOverrun};
  EXPECT_EQ(profile_check_exit_code(check), 5);
  check.sentinels.back().status = MeasurementStatus::kTimeout;
  EXPECT_EQ(profile_check_exit_code(check), 5);
  check.sentinels.back().status = MeasurementStatus::kMismatch;
  EXPECT_EQ(profile_check_exit_code(check), 3);
  check.is_interrupted = true;
  EXPECT_EQ(profile_check_exit_code(check), 130);
}

TEST(ProfileCheck, SentinelsAreThoseOfTheProfile) {
  auto devices = open_devices("cpu:2[memory=16M,h2d=64M,d2h=32M]");
  std::vector<MeasuredDevice> measured;
  for (const auto& device : devices) measured.push_back({device.get(), 0});
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
  BandwidthOptions options;
  options.max_host = 32 * kMiB;
  MachineProfile profile = profile_of(64.0 * kMiB, 64.0 * kMiB);
  Result<SentinelPlan> plan = plan_sentinels(profile, measured, options, kGiB, *pool);
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  std::vector<SentinelResult> results = run_sentinels(std::move(*plan));
  ASSERT_EQ(results.size(), 5u);
  std::vector<std::string> names;
  for (const SentinelResult& one : results) {
    EXPECT_EQ(one.status, MeasurementStatus::kOk) << one.entry << one.reason;
    names.push_back(one.device + " " + one.entry);
    bool is_down = one.entry.ends_with("down_bytes_per_s");
    // Downloads have half of what the profile says.
    if (!one.device.empty() && one.is_measured()) {
      EXPECT_EQ(one.has_drifted(), is_down) << one.now;
    }
  }
  EXPECT_THAT(names,
              ElementsAre("cpu:0 cards[0]: up_bytes_per_s", "cpu:0 cards[0]: down_bytes_per_s",
                          "cpu:1 cards[1]: up_bytes_per_s", "cpu:1 cards[1]: down_bytes_per_s",
                          " host: work_bytes_per_s"));
  options.filter = "nothing";
  EXPECT_FALSE(plan_sentinels(profile, measured, options, kGiB, *pool).is_ok());
}

}  // namespace
}  // namespace stagecoach
