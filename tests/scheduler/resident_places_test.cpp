#include "scheduler/resident_places.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(ResidentPlaces, AreFreeAfterTheLastReadOfAnyByte) {
  ResidentPlaces places;
  EXPECT_TRUE(places.free_at(0, 100).is_none());
  places.restart(100, {1, 5});
  EXPECT_EQ(places.free_at(20, 10), (Timepoint{1, 5}));
  places.free(0, 30, {1, 6});
  places.free(30, 30, {1, 7});
  EXPECT_EQ(places.free_at(0, 30), (Timepoint{1, 6}));
  EXPECT_EQ(places.free_at(29, 1), (Timepoint{1, 6}));
  EXPECT_EQ(places.free_at(29, 2), (Timepoint{1, 7}));
  EXPECT_EQ(places.free_at(60, 40), (Timepoint{1, 5}));
  // The read of a larger piece hides those of its parts.
  places.free(0, 40, {1, 8});
  EXPECT_EQ(places.free_at(10, 5), (Timepoint{1, 8}));
  EXPECT_EQ(places.free_at(45, 5), (Timepoint{1, 7}));
}

}  // namespace
}  // namespace stagecoach
