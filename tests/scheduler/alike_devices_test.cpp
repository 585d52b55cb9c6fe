#include "scheduler/alike_devices.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

PlannedDevice device_of(double speed, ByteCount memory_bytes) {
  PlannedDevice device;
  device.speed = speed;
  device.memory_bytes = memory_bytes;
  return device;
}

TEST(AlikeDevices, AreNumberedByWhatPlanningKnows) {
  std::vector<PlannedDevice> devices = {device_of(1, 8), device_of(0.5, 8), device_of(1, 8),
                                        device_of(1, 4)};
  devices[2].name = "another";
  EXPECT_EQ(kinds_of(devices), (std::vector<int>{0, 1, 0, 3}));
}

TEST(AlikeDevices, TakeTheirMeanWhereTheyDifferByNoise) {
  std::vector<double> levelled = level_alike({1.0, 0.5, 0.99, 0.501}, {0, 1, 0, 1}, 0.02);
  EXPECT_EQ(levelled, (std::vector<double>{0.995, 0.5005, 0.995, 0.5005}));
}

TEST(AlikeDevices, KeepWhatIsMoreThanNoise) {
  // One of three is in a slower slot: none of them is levelled.
  std::vector<double> values = {50.0, 49.0, 25.0};
  EXPECT_EQ(level_alike(values, {0, 0, 0}, 0.1), values);
  EXPECT_EQ(level_alike({0.0, 0.0}, {0, 0}, 0.1), (std::vector<double>{0.0, 0.0}));
}

}  // namespace
}  // namespace stagecoach
