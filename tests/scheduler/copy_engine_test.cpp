#include "scheduler/copy_engine.h"

#include <gtest/gtest.h>
#include <map>

namespace stagecoach {
namespace {

/// Ends of bulk copies, by what they carry.
struct Landed {
  std::map<int, double> end_ns;
  auto note() {
    return [this](int layer, double at_ns) { end_ns[layer] = at_ns; };
  }
};

TEST(CopyEngine, BulkThatWasReadyFirstGoesFirstAndWhole) {
  CopyEngine engine;
  Landed landed;
  engine.add_bulk({0, 100, 0, 7}, {});
  EXPECT_EQ(engine.run_urgent(35, 5, landed.note()), 105);
  EXPECT_EQ(landed.end_ns[7], 100);
  // Nothing is in the way of the next.
  EXPECT_EQ(engine.run_urgent(200, 5, landed.note()), 205);
}

TEST(CopyEngine, UrgentCopiesGoBetweenChunks) {
  CopyEngine engine;
  engine.cut_bulk(10);
  Landed landed;
  engine.add_bulk({0, 100, 0, 7}, {});
  // Four chunks have begun by 35; what is left of the bulk follows.
  EXPECT_EQ(engine.run_urgent(35, 5, landed.note()), 45);
  // The fifth has been ready since 40, but the urgent stream keeps the engine while it is ready
  // too.
  EXPECT_EQ(engine.run_urgent(41, 5, landed.note()), 50);
  EXPECT_EQ(engine.run_urgent(51, 5, landed.note()), 65);
  EXPECT_TRUE(landed.end_ns.empty());
  EXPECT_EQ(engine.finish_bulk(0, landed.note()), 115);
  EXPECT_EQ(landed.end_ns[7], 115);
}

TEST(CopyEngine, ABurstIsServedAsUrgentCopiesAre) {
  CopyEngine engine;
  Landed landed;
  engine.run_in_order({10, 40, 3, 7}, landed.note());
  EXPECT_EQ(landed.end_ns[7], 50);
  // The next output waits for it, although it was ready before.
  EXPECT_EQ(engine.run_urgent(20, 5, landed.note()), 55);
  EXPECT_EQ(engine.finish_bulk(3, landed.note()), 50);
}

TEST(CopyEngine, LimitsAreShared) {
  SharedRate rate(10, 5);
  CopyEngine first, second;
  first.share({&rate}, 10);
  second.share({&rate}, 10);
  Landed landed;
  EXPECT_NEAR(first.run_urgent(0, 100, landed.note()), 100, 1e-9);
  EXPECT_NEAR(second.run_urgent(0, 100, landed.note()), 200, 1e-9);
}

}  // namespace
}  // namespace stagecoach
