#include "testing/faulty_backend.h"

#include <bit>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "core/clock.h"
#include "tests/testing/decorated_rig.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMillisecondNs = 1'000'000;

std::vector<std::string> every_verb() {
  std::vector<std::string> all = stream_verbs();
  all.insert(all.end(), device_verbs().begin(), device_verbs().end());
  return all;
}

std::string verb_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

void expect_values(const std::vector<float>& values, float expected) {
  for (float value : values) ASSERT_EQ(value, expected);
}

class EveryVerb : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Faults, EveryVerb, ::testing::ValuesIn(every_verb()), verb_name);

class StreamVerb : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Faults, StreamVerb, ::testing::ValuesIn(stream_verbs()), verb_name);

class WritingVerb : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Faults, WritingVerb,
                         ::testing::Values("copy", "fill", "launch", "add", "matmul",
                                           "gelu_forward"),
                         verb_name);

TEST_P(EveryVerb, FailsOnceAtTheNthCallOnItsDevice) {
  auto injector = make_injector("1." + GetParam() + "#2=fail");
  DecoratedRig rig(injector);
  for (int i = 1; i <= 4; ++i) {
    Status other = rig.call(GetParam(), 0, "thing");
    EXPECT_TRUE(other.is_ok()) << other.to_string();
    Status status = rig.call(GetParam(), 1, "thing");
    EXPECT_EQ(status.is_ok(), i != 2) << status.to_string();
    EXPECT_EQ(injector->all_fired(), i >= 2);
    if (i != 2) continue;
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.site().device, "cpu:1");
    EXPECT_EQ(status.site().verb, GetParam());
    EXPECT_FALSE(status.site().label.empty());
    EXPECT_THAT(status.to_string(), HasSubstr("failure injected at call 2"));
  }
  EXPECT_EQ(injector->fired().size(), 1u);
}

TEST_P(EveryVerb, FailsForGoodWhenTheDeviceIsLost) {
  auto injector = make_injector("1." + GetParam() + "#2=device_lost");
  DecoratedRig rig(injector);
  EXPECT_TRUE(rig.call(GetParam(), 1, "thing").is_ok());
  EXPECT_EQ(rig.call(GetParam(), 1, "thing").code(), StatusCode::kDeviceLost);
  for (const std::string& verb : every_verb()) {
    Status status = rig.call(verb, 1, "thing");
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << verb;
    EXPECT_EQ(status.site().device, "cpu:1") << verb;
    Status other = rig.call(verb, 0, "thing");
    EXPECT_TRUE(other.is_ok()) << verb << ": " << other.to_string();
  }
}

TEST_P(EveryVerb, TakesLongerByADelayAndSucceeds) {
  auto injector = make_injector("0." + GetParam() + "#1=delay:30ms");
  DecoratedRig rig(injector);
  int64_t start_ns = RealClock::instance().now_ns();
  Status status = rig.call(GetParam(), 0, "thing");
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_GE(RealClock::instance().now_ns() - start_ns, 30 * kMillisecondNs);
  EXPECT_TRUE(injector->all_fired());
}

TEST_P(StreamVerb, AFailedSubmitIsNotForwardedAndSticks) {
  DecoratedRig rig(make_injector("0." + GetParam() + "#1=fail"));
  auto stream = rig.make_stream(0);
  ASSERT_FALSE(rig.submit(GetParam(), *stream, "thing").is_ok());
  EXPECT_EQ(stream->synchronize().site().verb, GetParam());
  EXPECT_EQ(stream->status().site().verb, GetParam());
  EXPECT_FALSE(rig.submit("fill", *stream, "behind").is_ok());
  expect_values(rig.read(rig.target(0)), 0.0f);
}

TEST_P(StreamVerb, FailsLaterWhenTheWorkWouldHaveRun) {
  constexpr int64_t kBusyNs = 200 * kMillisecondNs;
  bool launch_itself = GetParam() == "launch";
  auto injector = make_injector("0." + GetParam() + (launch_itself ? "#2" : "#1") + "=fail_later");
  DecoratedRig rig(injector);
  auto stream = rig.make_stream(0);
  auto after = rig.make_event(0);
  int64_t start_ns = RealClock::instance().now_ns();
  rig.submit_busy_wait(*stream, kBusyNs);
  Status submitted = rig.submit(GetParam(), *stream, "thing");
  Result<Timepoint> recorded = stream->record(*after);
  Result<bool> passed = after->query();
  if (RealClock::instance().now_ns() - start_ns < kBusyNs) {
    ASSERT_TRUE(submitted.is_ok()) << submitted.to_string();
    ASSERT_TRUE(recorded.is_ok()) << recorded.status().to_string();
    ASSERT_TRUE(passed.is_ok()) << "the work before was not done: " << passed.status().to_string();
    EXPECT_FALSE(*passed);
  }
  expect_finishes([&] {
    EXPECT_EQ(after->synchronize().site().device, "cpu:0");
    Status status = stream->synchronize();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.site().device, "cpu:0");
    EXPECT_EQ(status.site().verb, GetParam());
    EXPECT_FALSE(status.site().label.empty());
    EXPECT_THAT(status.to_string(), HasSubstr("late failure injected at call"));
  });
  EXPECT_GE(RealClock::instance().now_ns() - start_ns, kBusyNs);
  EXPECT_TRUE(injector->all_fired());
  EXPECT_FALSE(stream->status().is_ok());
  expect_values(rig.read(rig.target(0)), 0.0f);
}

TEST_P(StreamVerb, WorkBeforeALateFailureIsDone) {
  const char* nth = GetParam() == "record" ? "#2" : "#1";  // the mark before is a record itself
  DecoratedRig rig(make_injector("0." + GetParam() + nth + "=fail_later"));
  auto stream = rig.make_stream(0);
  auto before = rig.make_event(0);
  ASSERT_TRUE(stream->record(*before).is_ok());
  ASSERT_TRUE(rig.submit(GetParam(), *stream, "thing").is_ok());
  expect_finishes([&] { EXPECT_TRUE(before->synchronize().is_ok()); });
}

TEST_P(StreamVerb, ALateFailureReachesThoseWhoWait) {
  DecoratedRig rig(make_injector("0." + GetParam() + "#1=fail_later"));
  auto source = rig.make_stream(0), waiter = rig.make_stream(1);
  ASSERT_TRUE(rig.submit(GetParam(), *source, "thing").is_ok());
  expect_finishes([&] {
    // The wait may fail at submit already, when the failure is known by then.
    Result<Timepoint> wait = waiter->wait(source->last_submitted());
    Status status = wait.is_ok() ? waiter->synchronize() : wait.status();
    EXPECT_EQ(status.site().device, "cpu:0") << status.to_string();
    EXPECT_EQ(status.site().verb, GetParam()) << status.to_string();
  });
}

TEST_P(WritingVerb, CorruptsTheMiddleOfWhatTheWorkWrites) {
  auto injector = make_injector("1." + GetParam() + "#1=corrupt");
  DecoratedRig rig(injector);
  auto clean = rig.make_stream(0), stream = rig.make_stream(1);
  ASSERT_TRUE(rig.submit(GetParam(), *clean, "thing").is_ok());
  ASSERT_TRUE(rig.submit(GetParam(), *stream, "thing").is_ok());
  ASSERT_TRUE(clean->synchronize().is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  EXPECT_TRUE(injector->all_fired());
  std::vector<float> expected = rig.read(rig.target(0));
  std::vector<float> found = rig.read(rig.target(1));
  for (size_t i = 0; i < found.size(); ++i) {
    bool in_middle = i >= 24 && i < 40;  // 64 of 256 bytes
    EXPECT_EQ(std::isnan(found[i]), in_middle) << i;
    if (in_middle) continue;
    EXPECT_EQ(found[i], expected[i]) << i;
  }
}

TEST(FaultyBackend, CorruptsHostMemoryThatACopyWrites) {
  DecoratedRig rig(make_injector("0.copy#1=corrupt"));
  auto stream = rig.make_stream(0);
  ASSERT_TRUE(stream->copy({rig.host(0).view(), rig.ones(0).view(), "download"}).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  std::vector<float> found = rig.read(rig.host(0));
  EXPECT_EQ(found[23], 1.0f);
  EXPECT_TRUE(std::isnan(found[24]));
  EXPECT_TRUE(std::isnan(found[39]));
  EXPECT_EQ(found[40], 1.0f);
}

TEST(FaultyBackend, CorruptsAPeersMemoryThatACopyWrites) {
  DecoratedRig rig(make_injector("0.copy#1=corrupt"));
  ASSERT_TRUE(rig.device(0).enable_peer(rig.device(1)).is_ok());
  auto stream = rig.make_stream(0);
  ASSERT_TRUE(stream->copy({rig.target(1).view(), rig.ones(0).view(), "to peer"}).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  std::vector<float> found = rig.read(rig.target(1));
  EXPECT_EQ(found[23], 1.0f);
  EXPECT_TRUE(std::isnan(found[24]));
}

TEST(FaultyBackend, CorruptsTargetsSmallerThanThePiece) {
  DecoratedRig rig(make_injector("0.fill#1=corrupt"));
  auto stream = rig.make_stream(0);
  ASSERT_TRUE(stream->fill({rig.target(0).slice(6, 1), 7, 1, "byte"}).is_ok());
  ASSERT_TRUE(stream->synchronize().is_ok());
  std::vector<float> found = rig.read(rig.target(0));
  EXPECT_EQ(std::bit_cast<uint32_t>(found[1]), 0x00ff0000u);
  EXPECT_EQ(found[0], 0.0f);
  EXPECT_EQ(found[2], 0.0f);
}

TEST(FaultyBackend, AnAllocationIsExhaustedOnceThoughTheFrontAsksTwice) {
  auto injector = make_injector("0.allocate#2=exhaust,1.allocate_pinned#1=exhaust");
  DecoratedRig rig(injector);
  EXPECT_EQ(rig.device(0).allocate(64, "a").outcome, AllocationOutcome::kOk);
  EXPECT_EQ(rig.device(0).allocate(64, "b").outcome, AllocationOutcome::kExhausted);
  EXPECT_EQ(rig.device(0).allocate(64, "b").outcome, AllocationOutcome::kOk);
  EXPECT_EQ(rig.device(1).allocate_pinned(64, "c").outcome, AllocationOutcome::kExhausted);
  EXPECT_EQ(rig.device(1).allocate_pinned(64, "c").outcome, AllocationOutcome::kOk);
  EXPECT_TRUE(injector->all_fired());
}

TEST(FaultyBackend, AFailedAllocationIsNotExhaustion) {
  DecoratedRig rig(make_injector("0.allocate#1=fail"));
  Allocation made = rig.device(0).allocate(64, "weights");
  EXPECT_EQ(made.outcome, AllocationOutcome::kFailed);
  EXPECT_EQ(made.status.site().label, "weights");
}

TEST(FaultyBackend, StreamAndDeviceSynchronizeAreTheVerbSynchronizeToo) {
  DecoratedRig rig(make_injector("0.synchronize#1=fail,1.synchronize#1=fail"));
  auto stream = rig.make_stream(0);
  ASSERT_TRUE(rig.submit("fill", *stream, "zero").is_ok());
  EXPECT_EQ(stream->synchronize().site().label, "zero");
  EXPECT_EQ(rig.device(1).synchronize().site().label, "all streams");
}

TEST(FaultyBackend, DelaysChangeNoDataInAChainAcrossDevices) {
  DecoratedRig rig(
      make_injector("0.add#1=delay:10ms,0.copy#1=delay:10ms,1.wait#1=delay:10ms,"
                    "1.matmul#1=delay:10ms"));
  auto first = rig.make_stream(0), second = rig.make_stream(1);
  auto event = rig.make_event(0);
  ASSERT_TRUE(rig.submit("add", *first, "sum").is_ok());  // 3 everywhere
  ASSERT_TRUE(first->copy({rig.host(0).view(), rig.target(0).view(), "down"}).is_ok());
  ASSERT_TRUE(first->record(*event).is_ok());
  ASSERT_TRUE(second->wait(*event).is_ok());
  ASSERT_TRUE(second->copy({rig.ones(1).view(), rig.host(0).view(), "up"}).is_ok());
  ASSERT_TRUE(rig.submit("matmul", *second, "product").is_ok());  // 8 * 3 * 2
  ASSERT_TRUE(second->synchronize().is_ok());
  expect_values(rig.read(rig.target(1)), 48.0f);
}

}  // namespace
}  // namespace stagecoach
