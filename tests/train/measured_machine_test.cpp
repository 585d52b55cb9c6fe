#include "train/measured_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeviceInfo card_info(const std::string& id) {
  DeviceInfo info;
  info.id = id;
  info.name = "card";
  info.bulk_chunks_ahead = 16;
  return info;
}

MachineIdentity identity_of(const std::vector<DeviceInfo>& devices, int threads = 8) {
  internal::IdentityInputs inputs;
  inputs.cpuinfo = "model name : some\n";
  inputs.threads = threads;
  inputs.devices = devices;
  return internal::machine_identity(inputs);
}

/// Of cuda:0 and cuda:1, with uploads of the first probed.
MachineProfile profile_of_two() {
  MachineProfile profile;
  profile.name = "box";
  for (const char* id : {"cuda:0", "cuda:1"}) {
    MachineCard& card = profile.cards.emplace_back();
    card.device = id;
    card.up_bytes_per_s = 20e9;
    card.down_bytes_per_s = 20e9;
    card.duplex_bytes_per_s = 30e9;
  }
  profile.cards[0].bulk.up = MeasuredLane{BulkMethod::kOneInFlight, 4 * kMiB, 0, 0};
  profile.host_work_threads = 6;
  profile.measurement =
      MachineMeasurement{"", "", "quick", identity_of({card_info("cuda:0"), card_info("cuda:1")})};
  return profile;
}

TEST(MeasuredMachine, IsTakenFromTheProfile) {
  MachineProfile profile = profile_of_two();
  std::vector<DeviceInfo> devices = {card_info("cuda:1"), card_info("cuda:0")};
  MeasuredMachine machine = measured_machine(&profile, devices, identity_of(devices));
  ASSERT_EQ(machine.devices.size(), 2u);
  EXPECT_NEAR(machine.devices[0].up_bytes_per_s, 15e9, 1);
  EXPECT_FALSE(machine.devices[0].bulk.up);
  EXPECT_EQ(machine.devices[1].bulk, profile.cards[0].bulk);
  EXPECT_EQ(machine.host_threads, 6);
  EXPECT_THAT(machine.warnings, IsEmpty());
  EXPECT_THAT(machine.taken,
              ElementsAre("cuda:1: 15 GB/s up and 15 down with both in use",
                          "cuda:0: 15 GB/s up and 15 down with both in use; one in flight, chunks "
                          "of 4.00 MiB, any number ahead, up",
                          "threads for updates: 6"));
  EXPECT_THAT(machine.assumed,
              ElementsAre("cuda:1: chunks of 8.00 MiB, 16 ahead, up; chunks of 8.00 "
                          "MiB, 16 ahead, down",
                          "cuda:0: chunks of 8.00 MiB, 16 ahead, down",
                          "activations travel through the host; copies between cards were not "
                          "measured: cuda:1 to cuda:0, cuda:0 to cuda:1"));
}

TEST(MeasuredMachine, WithoutAProfileEverythingIsAssumedAndSaid) {
  MeasuredMachine machine =
      measured_machine(nullptr, {card_info("cuda:0")}, identity_of({card_info("cuda:0")}));
  EXPECT_EQ(machine.host_threads, 0);
  EXPECT_EQ(machine.devices[0].up_bytes_per_s, 0);
  EXPECT_THAT(machine.taken, IsEmpty());
  EXPECT_THAT(machine.assumed, ElementsAre(HasSubstr("cuda:0: a link whose rate is not known"),
                                           "threads for updates: all that are usable"));
}

TEST(MeasuredMachine, NothingIsSaidOfMocksThatNobodyMeasured) {
  DeviceInfo mock = card_info("cpu:0");
  mock.is_real_hardware = false;
  MeasuredMachine machine = measured_machine(nullptr, {mock}, identity_of({mock}));
  EXPECT_THAT(machine.assumed, IsEmpty());
  EXPECT_THAT(machine.taken, IsEmpty());
  EXPECT_EQ(machine.devices.size(), 1u);
}

TEST(MeasuredMachine, WhatHasChangedDoesNotHold) {
  MachineProfile profile = profile_of_two();
  DeviceInfo other = card_info("cuda:0");
  other.name = "another card";
  std::vector<DeviceInfo> devices = {other, card_info("cuda:1")};
  MeasuredMachine machine = measured_machine(&profile, devices, identity_of(devices));
  EXPECT_EQ(machine.devices[0].up_bytes_per_s, 0);
  EXPECT_FALSE(machine.devices[0].bulk.up);
  EXPECT_GT(machine.devices[1].up_bytes_per_s, 0);
  EXPECT_EQ(machine.host_threads, 6);
  EXPECT_THAT(machine.warnings,
              ElementsAre(HasSubstr("'box': cuda:0 was card and is another card; measure again")));
  // Another host: nothing of it.
  machine = measured_machine(&profile, devices, identity_of(devices, 4));
  EXPECT_EQ(machine.devices[1].up_bytes_per_s, 0);
  EXPECT_EQ(machine.host_threads, 0);
  EXPECT_THAT(machine.warnings, ElementsAre(HasSubstr("threads was 8 and is 4")));
  // A card that the profile does not have.
  devices = {card_info("cuda:2")};
  machine = measured_machine(&profile, devices, identity_of(devices));
  EXPECT_EQ(machine.devices[0].up_bytes_per_s, 0);
  EXPECT_THAT(machine.warnings, ElementsAre(HasSubstr("cuda:2 was not measured")));
}

// The runtime knows one way; what a profile says of the other is weighed and told.
TEST(MeasuredMachine, SaysWhichWayActivationsGoAndWhetherThatWasMeasured) {
  MachineProfile profile = profile_of_two();
  profile.peers.push_back({0, 1, true, "", 20e9, 10e9});
  profile.peers.push_back({1, 0, false, "wrong bytes arrived", 0, 10e9});
  std::vector<DeviceInfo> devices = {card_info("cuda:0"), card_info("cuda:1")};
  MeasuredMachine machine = measured_machine(&profile, devices, identity_of(devices));
  EXPECT_THAT(machine.assumed,
              testing::Contains("activations travel through the host, not from card to card, which "
                                "was measured faster: cuda:0 to cuda:1 10 GB/s, directly 20 GB/s"));
  EXPECT_THAT(machine.taken,
              testing::Contains("activations travel through the host, as measured: cuda:1 to "
                                "cuda:0 10 GB/s, directly wrong bytes arrived"));
  EXPECT_THAT(machine.assumed, testing::Not(testing::Contains(HasSubstr("not measured"))));
  // Without a profile cards are told of, one card has nobody to copy to.
  EXPECT_THAT(measured_machine(nullptr, devices, identity_of(devices)).assumed,
              testing::Contains(HasSubstr("copies between cards were not measured")));
  machine = measured_machine(nullptr, {devices[0]}, identity_of(devices));
  EXPECT_THAT(machine.assumed, testing::Not(testing::Contains(HasSubstr("activations"))));
}

TEST(MeasuredMachine, AnotherKernelIsToldOfAndHolds) {
  MachineProfile profile = profile_of_two();
  std::vector<DeviceInfo> devices = {card_info("cuda:0"), card_info("cuda:1")};
  MachineIdentity now = identity_of(devices);
  profile.measurement->machine.fields.emplace_back("kernel", "6.1.0");
  now.fields.emplace_back("kernel", "6.2.0");
  MeasuredMachine machine = measured_machine(&profile, devices, now);
  EXPECT_GT(machine.devices[0].up_bytes_per_s, 0);
  EXPECT_THAT(machine.warnings, ElementsAre(HasSubstr("kernel was 6.1.0 and is 6.2.0; see with")));
}

}  // namespace
}  // namespace stagecoach
