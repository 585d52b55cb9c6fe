#include "scheduler/machine_profile.h"

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

TEST_F(MachineProfiles, FaultsAreRefusedByFileAndField) {
  struct Case {
    const char* what;
    const char* with;
    const char* message;
  };
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
  for (const Case& one : cases) {
    std::string text = kMachine;
    size_t at = text.find(one.what);
    ASSERT_NE(at, std::string::npos) << one.what;
    text.replace(at, std::string(one.what).size(), one.with);
    Result<MachineProfile> machine = read(text);
    ASSERT_FALSE(machine.is_ok()) << one.message;
    EXPECT_THAT(machine.status().message(), HasSubstr(one.message));
  }
  EXPECT_THAT(read("{\"host\": {\"work_bytes_per_s\": 1}}").status().message(),
              HasSubstr("cards are 0 together"));
  EXPECT_THAT(read("[]").status().message(), HasSubstr("must be a table"));
  EXPECT_THAT(read("{").status().message(), HasSubstr("box.json"));
  EXPECT_THAT(read_machine_profile("missing.json").status().message(), HasSubstr("missing.json"));
}

}  // namespace
}  // namespace stagecoach
