#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "testing/faulty_backend.h"

namespace stagecoach {
namespace {

VerbCall make_call(std::string_view verb, int device, const char* label = "thing") {
  VerbCall call;
  call.verb = verb;
  call.device_index = device;
  call.device = device == 0 ? "cpu:0" : "cpu:1";
  call.stream = "compute";
  call.label = label;
  return call;
}

FaultInjector make_injector(std::string_view text) {
  Result<FaultPlan> plan = parse_fault_plan(text);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  return FaultInjector(std::move(plan).value());
}

TEST(FaultInjector, CountsEachVerbOfEachDeviceApart) {
  FaultInjector injector;
  for (int i = 0; i < 3; ++i) injector.before(make_call("copy", 0));
  injector.before(make_call("copy", 1));
  injector.before(make_call("matmul", 1));
  CallCounts expected = {{{0, "copy"}, 3}, {{1, "copy"}, 1}, {{1, "matmul"}, 1}};
  EXPECT_EQ(injector.counts(), expected);
  EXPECT_TRUE(injector.fired().empty());
  EXPECT_TRUE(injector.all_fired());
}

TEST(FaultInjector, FiresOnceAtTheNthCallOfThatVerbOnThatDevice) {
  FaultInjector injector = make_injector("1.copy#2=fail");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(injector.before(make_call("copy", 0)).kind, Verdict::Kind::kForward);
    EXPECT_EQ(injector.before(make_call("fill", 1)).kind, Verdict::Kind::kForward);
    Verdict verdict = injector.before(make_call("copy", 1));
    EXPECT_EQ(verdict.kind, i == 1 ? Verdict::Kind::kRefuse : Verdict::Kind::kForward);
    EXPECT_EQ(injector.all_fired(), i >= 1);
  }
  ASSERT_EQ(injector.fired().size(), 1u);
  EXPECT_EQ(injector.fired().front().verb, "copy");
}

TEST(FaultInjector, AFaultOfAnyDeviceTakesTheFirstThatGetsThere) {
  FaultInjector injector = make_injector("*.copy#2=fail");
  EXPECT_EQ(injector.before(make_call("copy", 0)).kind, Verdict::Kind::kForward);
  EXPECT_EQ(injector.before(make_call("copy", 1)).kind, Verdict::Kind::kForward);
  EXPECT_EQ(injector.before(make_call("copy", 1)).kind, Verdict::Kind::kRefuse);
  EXPECT_EQ(injector.before(make_call("copy", 0)).kind, Verdict::Kind::kForward);
}

TEST(FaultInjector, NamesTheSiteInTheFailure) {
  FaultInjector injector = make_injector("1.copy#1=fail,0.fill#1=fail_later");
  Status status = injector.before(make_call("copy", 1, "block3.weights")).status;
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.to_string(),
            "internal error: failure injected at call 1 (device cpu:1, stream compute, verb copy, "
            "label block3.weights)");
  Verdict later = injector.before(make_call("fill", 0, "zero"));
  EXPECT_EQ(later.kind, Verdict::Kind::kFailLater);
  EXPECT_EQ(later.status.site().label, "zero");
}

TEST(FaultInjector, ALostDeviceStaysLostAndTheOthersDoNot) {
  FaultInjector injector = make_injector("0.copy#2=device_lost");
  EXPECT_EQ(injector.before(make_call("copy", 0)).kind, Verdict::Kind::kForward);
  for (const char* verb : {"copy", "allocate", "query_event", "synchronize", "copy"}) {
    Verdict verdict = injector.before(make_call(verb, 0));
    EXPECT_EQ(verdict.kind, Verdict::Kind::kRefuse) << verb;
    EXPECT_EQ(verdict.status.code(), StatusCode::kDeviceLost) << verb;
    EXPECT_EQ(injector.before(make_call(verb, 1)).kind, Verdict::Kind::kForward);
  }
  EXPECT_EQ(injector.fired().size(), 1u);
}

TEST(FaultInjector, ExhaustsTheAllocationAndItsOneRepetition) {
  FaultInjector injector = make_injector("0.allocate#1=exhaust");
  EXPECT_EQ(injector.before(make_call("allocate", 0, "arena")).kind, Verdict::Kind::kExhaust);
  EXPECT_EQ(injector.before(make_call("allocate", 0, "other")).kind, Verdict::Kind::kForward);
  std::thread([&injector] {
    EXPECT_EQ(injector.before(make_call("allocate", 0, "arena")).kind, Verdict::Kind::kForward);
  }).join();
  EXPECT_EQ(injector.before(make_call("allocate", 0, "arena")).kind, Verdict::Kind::kExhaust);
  EXPECT_EQ(injector.before(make_call("allocate", 0, "arena")).kind, Verdict::Kind::kForward);
  EXPECT_EQ(injector.fired().size(), 1u);
}

TEST(FaultInjector, TheFirstOfTwoFaultsOfOneCallHappens) {
  FaultInjector injector = make_injector("0.copy#1=delay:1us,0.copy#1=fail");
  EXPECT_EQ(injector.before(make_call("copy", 0)).delay_ns, 1000);
  EXPECT_FALSE(injector.all_fired());
}

TEST(FaultInjector, FiresOnceWhicheverThreadGetsThere) {
  FaultInjector injector = make_injector("0.copy#500=fail");
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&injector, &refused] {
      for (int i = 0; i < 250; ++i) {
        if (injector.before(make_call("copy", 0)).kind == Verdict::Kind::kRefuse) ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(injector.counts().at({0, "copy"}), 1000);
}

}  // namespace
}  // namespace stagecoach
