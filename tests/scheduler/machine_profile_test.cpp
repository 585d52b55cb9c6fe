#include "scheduler/machine_profile.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMachine = R"({
  "name": "box", "notes": ["invented"], "copy_latency_s": 1e-5,
  "cards": [
    {"name": "fast", "count": 2, "flop_per_s": 2e14, "memory_bytes": 1000, "up_bytes_per_s": 2e10,
     "down_bytes_per_s": 3e10, "duplex_bytes_per_s": 4e10},
    {"name": "slow", "flop_per_s": 5e13, "memory_bytes": 500, "up_bytes_per_s": 1e10,
     "down_bytes_per_s": 1e10}],
  "uplinks": [{"name": "switch", "cards": [0, 2], "up_bytes_per_s": 2.5e10,
               "down_bytes_per_s": 2.4e10}],
  "host": {"work_bytes_per_s": 8e10, "memory_bytes_per_s": 1.5e11}})";

class MachineProfiles : public testing::Test {
 protected:
  Result<MachineProfile> read(const std::string& text) {
    std::string path = folder_.file("box.json");
    std::ofstream(path) << text;
    return read_machine_profile(path);
  }

  struct Case {
    const char* what;
    const char* with;
    const char* message;
  };
  /// `text` with something replaced is refused with the message.
  void expect_refusal(std::string text, const Case& one) {
    size_t at = text.find(one.what);
    ASSERT_NE(at, std::string::npos) << one.what;
    text.replace(at, std::string(one.what).size(), one.with);
    Result<MachineProfile> machine = read(text);
    ASSERT_FALSE(machine.is_ok()) << one.message;
    EXPECT_THAT(machine.status().message(), HasSubstr(one.message));
  }

  TemporaryFolder folder_;
};

TEST_F(MachineProfiles, AreRead) {
  Result<MachineProfile> machine = read(kMachine);
  ASSERT_TRUE(machine.is_ok()) << machine.status().message();
  EXPECT_EQ(machine->notes, std::vector<std::string>{"invented"});
  EXPECT_EQ(machine->host_work_bytes_per_s, 8e10);
  EXPECT_EQ(machine->host_memory_bytes_per_s, 1.5e11);
  EXPECT_NEAR(machine->latency_ns, 1e4, 1e-6);
  ASSERT_EQ(machine->uplinks.size(), 1u);
  EXPECT_NEAR(machine->uplinks[0].down_bytes_per_ns, 24, 1e-9);
  Result<std::vector<PlannedDevice>> devices = planned_devices(*machine, 3);
  ASSERT_TRUE(devices.is_ok());
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_EQ((*devices)[1].speed, 1);
  EXPECT_EQ((*devices)[2].speed, 0.25);
  EXPECT_EQ((*devices)[2].memory_bytes, 500);
  // Both directions together are 4e10 of 5e10.
  EXPECT_NEAR((*devices)[0].up_bytes_per_ns, 16, 1e-9);
  EXPECT_NEAR((*devices)[0].down_bytes_per_ns, 24, 1e-9);
  EXPECT_NEAR((*devices)[2].up_bytes_per_ns, 10, 1e-9);
  EXPECT_EQ((*devices)[0].uplink, 0);
  EXPECT_EQ((*devices)[1].uplink, -1);
  EXPECT_EQ((*devices)[2].uplink, 0);
  EXPECT_THAT(planned_devices(*machine, 4).status().message(), HasSubstr("it has 1 to 3"));
}

/// A measured machine of two cards.
MachineProfile measured_machine() {
  MachineProfile machine;
  machine.name = "box";
  machine.notes = {"a note"};
  for (int index = 0; index < 2; ++index) {
    MachineCard& card = machine.cards.emplace_back();
    card.name = "card";
    card.device = fmt::format("cuda:{}", index);
    card.flop_per_s = 1e14;
    card.memory_bytes = 24 * kGiB;
    card.up_bytes_per_s = 25e9;
    card.down_bytes_per_s = 26e9;
    card.duplex_bytes_per_s = 40e9;
    card.bulk.up = MeasuredLane{BulkMethod::kOneInFlight, 4 * kMiB, 0, 0.0004};
    card.uplink = 0;
  }
  machine.cards[1].bulk.down = MeasuredLane{BulkMethod::kAlternating, 2 * kMiB, 8, 0};
  machine.uplinks.push_back({"switch", 30, 31});
  machine.peers.push_back({0, 1, true, "", 20e9, 12e9});
  machine.peers.push_back({1, 0, false, "wrong bytes arrived", 0, 12e9});
  machine.host_memory_bytes_per_s = 150e9;
  machine.host_work_bytes_per_s = 80e9;
  machine.host_work_threads = 12;
  machine.latency_ns = 1e4;
  MachineIdentity identity{{{"processor", "some"}, {"threads", "16"}, {"cuda:0", "card at 1"}}};
  machine.measurement =
      MachineMeasurement{"2026-11-30T17:05:00Z", "stagecoach 0.1.0", "quick", identity};
  return machine;
}

TEST_F(MachineProfiles, AreReadAsTheyWereWritten) {
  MachineProfile machine = measured_machine();
  std::string text = to_json(machine).dump(true);
  Result<MachineProfile> read_back = read(text);
  ASSERT_TRUE(read_back.is_ok()) << read_back.status().message();
  EXPECT_EQ(to_json(*read_back).dump(true), text);
  ASSERT_EQ(read_back->cards.size(), 2u);
  EXPECT_EQ(read_back->cards[0].bulk, machine.cards[0].bulk);
  EXPECT_EQ(read_back->cards[1].bulk, machine.cards[1].bulk);
  EXPECT_EQ(read_back->card_of("cuda:1"), &read_back->cards[1]);
  EXPECT_EQ(read_back->card_of("cuda:2"), nullptr);
  EXPECT_EQ(read_back->card_of(""), nullptr);
  EXPECT_TRUE(read_back->peers[0].is_faster_direct());
  EXPECT_FALSE(read_back->peers[1].is_faster_direct());
  EXPECT_EQ(read_back->host_work_threads, 12);
  EXPECT_EQ(read_back->measurement->machine, machine.measurement->machine);
}

TEST_F(MachineProfiles, MeasuredFieldsAreRefusedWhereTheyCannotBe) {
  const Case cases[] = {
      {"\"one in flight\"", "\"two\"", "cards[0]: bulk_up: method is 'two'; it must be one of "},
      {"4194304", "4095", "cards[0]: bulk_up: chunk_bytes is 4095; it must be from 4096"},
      {"\"ahead\": 8", "\"ahead\": -1", "cards[1]: bulk_down: ahead is -1"},
      {"\"to\": 1", "\"to\": 2", "peers[0]: to is 2; it must be from 0 to 1"},
      {"\"to\": 1", "\"to\": 0", "peers[0]: from and to are card 0"},
      {"\"work_threads\": 12", "\"work_threads\": 0", "host: work_threads is 0"},
      {"\"schema_version\": 1", "\"schema_version\": 2", "measure again"},
      {"\"threads\": \"16\"", "\"threads\": 16", "machine: threads is 16; it must be text"},
      {"\"device\": \"cuda:0\"", "\"device\": \"cuda:0\", \"count\": 2", "cards[0]: count is 2"}};
  for (const Case& one : cases) expect_refusal(to_json(measured_machine()).dump(true), one);
}

std::vector<std::string> texts_of(const std::vector<IdentityChange>& changes) {
  std::vector<std::string> texts;
  for (const IdentityChange& change : changes) texts.push_back(change.text());
  return texts;
}

// Another kernel or driver is told of, and is the same machine all the same.
TEST(MachineIdentities, SoftFieldsChangeNoFingerprint) {
  internal::IdentityInputs inputs;
  inputs.threads = 2;
  MachineIdentity unknown = internal::machine_identity(inputs);
  inputs.kernel = "6.1.0";
  inputs.driver = "550.54.15";
  MachineIdentity before = internal::machine_identity(inputs);
  inputs.kernel = "6.2.0";
  MachineIdentity now = internal::machine_identity(inputs);
  EXPECT_EQ(before.fingerprint(), now.fingerprint());
  std::vector<IdentityChange> changes = before.changes_to(now);
  EXPECT_THAT(texts_of(changes), testing::ElementsAre("kernel was 6.1.0 and is 6.2.0"));
  EXPECT_TRUE(changes.front().is_soft());
  EXPECT_THAT(unknown.changes_to(now), testing::IsEmpty());
  EXPECT_EQ(internal::driver_version(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC 12.2"),
            "550.54.15");
  EXPECT_EQ(internal::driver_version("6.7.0\n"), "6.7.0");
  EXPECT_EQ(internal::driver_version("no number"), "");
}

// What a guest sees of its memory may grow as it is used: it is the same machine.
TEST(MachineIdentities, MemoryIsNoPartOfThem) {
  Result<MachineIdentity> identity = read_machine_identity({});
  ASSERT_TRUE(identity.is_ok());
  std::vector<std::string> names;
  for (const auto& [name, value] : identity->fields) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("processor", "threads", "kernel"));
}

TEST(MachineIdentities, TellWhatHasChanged) {
  internal::IdentityInputs inputs;
  inputs.cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: a\n";
  inputs.threads = 16;
  DeviceInfo card;
  card.id = "cuda:0";
  card.name = "NVIDIA H200";
  card.pci_address = "0000:1b:00.0";
  inputs.devices = {card};
  MachineIdentity before = internal::machine_identity(inputs);
  EXPECT_THAT(before.fields,
              testing::ElementsAre(testing::Pair("processor", "Some CPU @ 2 GHz"),
                                   testing::Pair("threads", "16"),
                                   testing::Pair("cuda:0", "NVIDIA H200 at 0000:1b:00.0")));
  EXPECT_THAT(before.changes_to(before), testing::IsEmpty());
  inputs.threads = 8;
  card.id = "cuda:1";
  inputs.devices.push_back(card);
  MachineIdentity now = internal::machine_identity(inputs);
  EXPECT_THAT(texts_of(before.changes_to(now)),
              testing::ElementsAre("threads was 16 and is 8", "cuda:1 was not measured"));
  // What is not used now does not count.
  inputs.threads = 16;
  inputs.devices.clear();
  EXPECT_THAT(before.changes_to(internal::machine_identity(inputs)), testing::IsEmpty());
  EXPECT_NE(before.fingerprint(), now.fingerprint());
  inputs.cpuinfo = "";
  EXPECT_EQ(internal::machine_identity(inputs).fields[0].second, "unknown");
  EXPECT_TRUE(read_machine_identity({}).is_ok());
}

// Instances of a card have its address and one name.
TEST(MachineIdentities, TellInstancesOfACardApart) {
  internal::IdentityInputs inputs;
  DeviceInfo card;
  card.id = "cuda:0";
  card.name = "NVIDIA H200 MIG 1g.18gb";
  card.pci_address = "0000:1b:00.0";
  card.uuid = "MIG-8f3c0001-0203-0405-0607-08090a0b0cff";
  inputs.devices = {card};
  MachineIdentity before = internal::machine_identity(inputs);
  EXPECT_EQ(before.fields.back().second,
            "NVIDIA H200 MIG 1g.18gb at 0000:1b:00.0 MIG-8f3c0001-0203-0405-0607-08090a0b0cff");
  inputs.devices[0].uuid = "MIG-00000001-0203-0405-0607-08090a0b0cff";
  EXPECT_EQ(before.changes_to(internal::machine_identity(inputs)).size(), 1u);
}

TEST_F(MachineProfiles, FaultsAreRefusedByFileAndField) {
  const Case cases[] = {
      {"\"name\": \"box\"", "\"nam\": \"box\"",
       "box.json: unknown field 'nam'; did you mean 'name'"},
      {"\"name\": \"box\"", "\"name\": 3", "box.json: name is 3; it must be text"},
      {"\"invented\"", "7", "notes holds 7; each must be text"},
      {"\"flop_per_s\": 2e14", "\"flops\": 2e14", "cards[0]: unknown field 'flops'"},
      {"\"flop_per_s\": 5e13, ", "", "cards[1]: 'flop_per_s' is missing"},
      {"5e13", "0", "cards[1]: flop_per_s is 0"},
      {"5e13", "\"5e13\"", "cards[1]: flop_per_s is \"5e13\"; it must be a number"},
      {"5e13", "NaN", "box.json"},
      {"\"count\": 2", "\"count\": 1.5", "cards[0]: count is 1.5; it must be a whole number"},
      {"\"count\": 2", "\"count\": 65", "cards[0]: count is 65"},
      {"4e10", "6e10", "cards[0]: duplex_bytes_per_s is"},
      {"[0, 2]", "[0, 3]", "uplinks[0]: cards holds 3; it must be from 0 to 2"},
      {"[0, 2]", "[0, 0]", "uplinks[0]: cards holds 0, which is behind 'switch' already"},
      {"[0, 2]", "4", "uplinks[0]: cards is 4; it must be a list"},
      {"\"work_bytes_per_s\": 8e10, ", "", "host: 'work_bytes_per_s' is missing"},
      {"\"host\": {", "\"hosts\": {", "did you mean 'host'?"},
      {"1e-5", "-1", "copy_latency_s is -1"}};
  for (const Case& one : cases) expect_refusal(kMachine, one);
  EXPECT_THAT(read("{\"host\": {\"work_bytes_per_s\": 1}}").status().message(),
              HasSubstr("cards are 0 together"));
  EXPECT_THAT(read("[]").status().message(), HasSubstr("must be a table"));
  EXPECT_THAT(read("{").status().message(), HasSubstr("box.json"));
  EXPECT_THAT(read_machine_profile("missing.json").status().message(), HasSubstr("missing.json"));
}

}  // namespace
}  // namespace stagecoach
