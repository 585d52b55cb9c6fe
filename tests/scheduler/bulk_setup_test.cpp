#include "scheduler/bulk_setup.h"

#include <gtest/gtest.h>

#include "memory/budget.h"
#include "testing/decorated_backend.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {
namespace {

TEST(BulkSetup, RingsOfAllLanesStayWithinHalfOfTheHostsReserve) {
  for (int devices = 1; devices <= 16; ++devices) {
    ByteCount each = ring_bytes_of_a_lane(devices);
    EXPECT_LE(2 * devices * each, kHostReserve / 2) << devices;
    EXPECT_GE(each, 4 * kMiB) << devices;
  }
}

/// Pins no piece of a ring that is larger than this.
class FewCanBePinned final : public Interceptor {
 public:
  explicit FewCanBePinned(ByteCount most) : most_(most) {}
  Verdict before(const VerbCall& call) override {
    Verdict verdict;
    bool is_refused = call.verb == verbs::kAllocatePinned && call.size_bytes > most_;
    if (is_refused) verdict.kind = Verdict::Kind::kExhaust;
    return verdict;
  }
  void after(const VerbCall&, const Status&) override {}

 private:
  ByteCount most_;
};

TEST(BulkSetup, RingsShrinkToWhatCanBePinned) {
  struct Case {
    ByteCount most, expected;
  };
  for (const Case& one :
       {Case{kGiB, 16 * kMiB}, Case{15 * kMiB, 8 * kMiB}, Case{kMiB, kMiB}, Case{kMiB - 1, 0}}) {
    FakeGpuMachine machine;
    DecoratedBackend backend(machine.make_backend(), std::make_shared<FewCanBePinned>(one.most));
    auto devices = backend.open(parse_device_specs("fake_gpu:0").value().front()).value();
    auto urgent = devices[0]->create_stream({"urgent"}).value();
    auto lane = create_bulk_lane(*devices[0], LaneKind::kParameterUp,
                                 {BulkMethod::kAlternating, 16 * kMiB}, *urgent);
    ASSERT_TRUE(lane.is_ok()) << lane.status().to_string();
    EXPECT_EQ((*lane)->ring_bytes(), one.expected);
  }
}

}  // namespace
}  // namespace stagecoach
